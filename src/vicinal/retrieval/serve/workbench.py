"""Work on the collection: tags, labels and drops for selected items, and the queue of what `vicinal
clean` found."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from vicinal.data.table import read_columns
from vicinal.errors import DataError
from vicinal.retrieval.annotations import Annotation
from vicinal.retrieval.collection import Snapshot
from vicinal.retrieval.contact_sheets import as_csv, as_given
from vicinal.retrieval.serve.guard import RequestError, require_own_page, text
from vicinal.retrieval.serve.library import Library
from vicinal.retrieval.serve.routes import Answer, ItemAnswer, Listed, Offset, Text
from vicinal.retrieval.store import Item

FINDINGS = "clean/findings.csv"  # below the run
_MOST_TARGETS = 100_000
_NEIGHBORS = 24  # shown of a finding

Word = Annotated[str, Field(min_length=1, max_length=200)]
TargetField = (
    Annotated[int, Field(ge=0, le=2**63 - 1)] | Annotated[str, Field(min_length=1, max_length=4096)]
)
_CSV: dict[int | str, dict[str, Any]] = {
    200: {"description": "A table.", "content": {"text/csv": {}}}
}


class ItemWork(BaseModel):
    target: int | Text = Field(
        description="An item's id, or the path of what is not in the collection."
    )
    label: Text | None = Field(
        description="Its class from now on; null where that of the data stands."
    )
    dropped: bool
    tags: list[Text]


class Work(Answer):
    """All that was decided so far."""

    writable: bool = Field(
        description="Whether this server takes changes: it does on this machine alone."
    )
    damaged: int = Field(description="Lines of the journal that cannot be read and are left out.")
    lost: list[Text] = Field(
        description="Paths of pictures that are decided about, but no longer in the collection."
    )
    can_undo: bool
    findings: bool = Field(description="Whether there is a table of findings to review.")
    items: list[ItemWork]


class Change(BaseModel):
    """Tags, a label or a drop for some targets."""

    targets: list[TargetField] = Field(
        min_length=1, max_length=_MOST_TARGETS, description="Ids, or paths of findings."
    )
    label: Word | None = None
    drop: bool = False
    add: list[Word] = Field(default=[], max_length=50, description="Tags.")
    remove: list[Word] = Field(default=[], max_length=50, description="Tags.")


class Finding(BaseModel):
    """One line of ``RUN/clean/findings.csv``."""

    path: Text = Field(min_length=1)
    label: Text
    kind: Text = Field(description="label, duplicate, outlier or class.")
    score: FiniteFloat
    suggested: Text = Field(description="The label that would be right; empty for a drop.")
    neighbors: list[Text] = Field(description="Paths.")


class Review(Answer):
    """Findings, the most probable first, as `vicinal clean` ranked them."""

    total: int
    kinds: dict[Text, int]
    offset: int
    findings: list[Finding]
    items: dict[Text, ItemAnswer] = Field(
        description="By path, where the collection has just one of it."
    )


def read_findings(path: Path) -> list[Finding]:
    """Read the table of findings; a DataError names the line that is damaged."""
    again = "Run `vicinal clean` again."
    try:
        columns = read_columns(path)
    except DataError as error:
        raise DataError(f"{str(error).replace(str(path), FINDINGS)} {again}") from error
    if missing := [name for name in Finding.model_fields if name not in columns.cells]:
        raise DataError(f"{FINDINGS} has no column {', '.join(missing)}. {again}")
    found = list[Finding]()
    for row, line in enumerate(columns.lines):
        cells = {name: as_given(columns.cells[name][row]) for name in Finding.model_fields}
        near = [neighbor for neighbor in cells["neighbors"].split("|") if neighbor]
        try:
            found.append(Finding.model_validate(cells | {"neighbors": near[:_NEIGHBORS]}))
        except ValidationError as error:
            fault = error.errors()[0]
            raise DataError(
                f"{FINDINGS}, line {line}, {fault['loc'][0]}: {fault['msg']}. {again}"
            ) from error
    return found


def _by_path(snapshot: Snapshot) -> dict[str, Item]:
    """Return items by path as tables hold it, without paths that several places have."""
    paths = [text(item.path) for item in snapshot.items()]
    held = Counter(paths)
    return {
        path: item for path, item in zip(paths, snapshot.items(), strict=True) if held[path] == 1
    }


def workbench_routes(library: Library, *, writable: bool) -> APIRouter:
    """Route annotations and the review queue."""
    routes = APIRouter(prefix="/api", tags=["workbench"])
    by_path = lru_cache(1)(_by_path)
    file = library.run.path / FINDINGS

    @lru_cache(1)
    def findings_of(_: tuple[int, int]) -> list[Finding]:
        return read_findings(file)

    def findings() -> list[Finding]:
        if not file.is_file():
            raise RequestError(
                404, "findings to review.", f"there is no {FINDINGS}.", "Run `vicinal clean RUN`."
            )
        found = file.stat()
        return findings_of((found.st_mtime_ns, found.st_size))

    def work() -> Work:
        snapshot = library.collection.snapshot()
        state = library.annotations.read(snapshot)
        return Work(
            generation=snapshot.generation,
            writable=writable,
            damaged=state.damaged,
            lost=list(state.lost),
            can_undo=state.can_undo,
            findings=file.is_file(),
            items=[
                ItemWork(target=target, **{**vars(a), "tags": list(a.tags)})
                for target, a in state.items.items()
            ],
        )

    async def may_write(request: Request) -> None:
        require_own_page(request)
        if not writable:
            asked = "a change of tags, labels or drops."
            got = "this server can be reached from other machines."
            raise RequestError(403, asked, got, "Serve on this machine alone: leave --host out.")

    @routes.get("/annotations", summary="Tags, labels and drops")
    def annotated() -> Work:
        """All that was decided about items, and whether this server takes changes."""
        return work()

    changing = partial(routes.post, dependencies=[Depends(may_write)])

    @changing("/annotations", summary="Tag, label or drop")
    def change(body: Change) -> Work:
        """Change targets together; it is kept before the answer, and one undo takes it back as a
        whole."""
        library.annotations.change(library.collection.snapshot(), **vars(body))
        return work()

    @changing("/annotations/undo", summary="Undo the last change")
    def undo() -> Work:
        """Take back the last change that is not taken back."""
        library.annotations.undo()
        return work()

    def decided() -> Iterator[tuple[str, str, Annotation]]:
        """Yield path and label of the data with each annotation; what is no longer in the
        collection is left out."""
        snapshot = library.collection.snapshot()
        for target, annotation in library.annotations.read(snapshot).items.items():
            if isinstance(target, str):
                yield target, "", annotation
            else:
                item = snapshot.item(target)
                yield item.path, item.label or "", annotation

    def table(name: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Response:
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(text(as_csv(columns, rows)), media_type="text/csv", headers=headers)

    @routes.get(
        "/annotations.csv",
        responses=_CSV,
        response_class=Response,
        summary="Annotations as a table",
    )
    def annotations_table() -> Response:
        """What was tagged, relabeled or dropped: `path,label,tags`; a dropped item is tagged so,
        and one whose picture is no longer in the collection is tagged `lost`."""
        rows = (
            (path, a.label or label, ";".join((*a.tags, "dropped") if a.dropped else a.tags))
            for path, label, a in decided()
        )
        snapshot = library.collection.snapshot()
        lost = (
            (path, a.label or "", ";".join((*a.tags, "lost")))
            for path, a in library.annotations.read(snapshot).lost.items()
        )
        return table("annotations.csv", ("path", "label", "tags"), chain(rows, lost))

    @routes.get(
        "/decisions.csv", responses=_CSV, response_class=Response, summary="Decisions as a table"
    )
    def decisions_table() -> Response:
        """New labels and drops, as `vicinal clean --apply` reads them: `path,label`; no label is a
        drop."""
        rows = (
            (path, a.label or "") for path, _, a in decided() if a.dropped or a.label is not None
        )
        return table("decisions.csv", ("path", "label"), rows)

    Kind = Annotated[
        Literal["label", "duplicate", "outlier", "class"] | None, Query(description="Only these.")
    ]

    @routes.get("/review", summary="The review queue")
    def review(offset: Offset = 0, limit: Listed = 60, kind: Kind = None) -> Review:
        """What `vicinal clean` found, a page at a time; 422 with the line where its table is
        damaged."""
        found = findings()
        snapshot = library.snapshot()
        chosen = [one for one in found if kind in (None, one.kind)]
        known = by_path(snapshot)
        page = chosen[offset : offset + limit]
        named = {path for one in page for path in (one.path, *one.neighbors)} & known.keys()
        return Review(
            generation=snapshot.generation,
            total=len(chosen),
            kinds=Counter(one.kind for one in found),
            offset=offset,
            findings=page,
            items={path: ItemAnswer(**vars(known[path])) for path in named},
        )

    return routes
