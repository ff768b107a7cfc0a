"""Work on the collection: tags, labels and drops for selected items, and the queue of what `vicinal clean` found."""

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, Field

from vicinal.errors import DataError
from vicinal.retrieval.annotations import Annotation, Annotations, Target, table
from vicinal.retrieval.collection import Snapshot
from vicinal.retrieval.serve.guard import BODY, SHARED, Limits, Problem, RequestError, require_own_page, text
from vicinal.retrieval.serve.library import Library, Workers
from vicinal.retrieval.serve.routes import Answer, Text
from vicinal.retrieval.store import Item

FINDINGS = "clean/findings.csv"  # below the run
_COLUMNS = ("row", "path", "label", "kind", "score", "suggested", "neighbors")
_MOST_TARGETS = 100_000
_MOST_BYTES = 2**26  # of the findings
_NEIGHBORS = 24  # shown of a finding

Word = Annotated[str, Field(min_length=1, max_length=200)]
TargetField = Annotated[int, Field(ge=0, le=2**63 - 1)] | Annotated[str, Field(min_length=1, max_length=4096)]
_CHANGES: dict[int | str, dict[str, Any]] = {
    403: {"model": Problem, "description": "Sent by another page, or the server is not on this machine alone."},
    415: {"model": Problem, "description": "The body is not JSON."},
    422: SHARED[422],
}
_CSV: dict[int | str, dict[str, Any]] = {200: {"description": "A table.", "content": {"text/csv": {}}}}


class ItemWork(BaseModel):
    target: int | Text = Field(description="An item's id, or the path of what is not in the collection.")
    label: Text | None = Field(description="Its class from now on; null where that of the data stands.")
    dropped: bool
    tags: list[Text]


class Work(Answer):
    """All that was decided so far."""

    writable: bool = Field(description="Whether this server takes changes: it does on this machine alone.")
    damaged: int = Field(description="Lines of the journal that cannot be read and are left out.")
    can_undo: bool
    findings: bool = Field(description="Whether there is a table of findings to review.")
    items: list[ItemWork]


class Change(BaseModel):
    """Tags, a label or a drop for some targets."""

    targets: list[TargetField] = Field(min_length=1, max_length=_MOST_TARGETS, description="Ids, or paths of findings.")
    label: Word | None = None
    drop: bool = False
    add: list[Word] = Field(default=[], max_length=50, description="Tags.")
    remove: list[Word] = Field(default=[], max_length=50, description="Tags.")


class Neighbor(BaseModel):
    target: int | Text
    path: Text
    label: Text | None


class FindingAnswer(BaseModel):
    target: int | Text = Field(description="By which a change names it.")
    path: Text
    label: Text
    kind: Text = Field(description="label, duplicate, outlier or class.")
    score: float
    suggested: Text = Field(description="The label that would be right; empty for a drop.")
    neighbors: list[Neighbor]


class Review(Answer):
    """Findings, the most probable first, as `vicinal clean` ranked them."""

    total: int
    kinds: dict[Text, int]
    offset: int
    findings: list[FindingAnswer]


@dataclass(frozen=True)
class Finding:
    """One line of ``RUN/clean/findings.csv``."""

    path: str
    label: str
    kind: str
    score: float
    suggested: str
    neighbors: tuple[str, ...]


def read_findings(path: Path) -> tuple[Finding, ...]:
    """Read the table of findings; a DataError names the line that is damaged."""
    if path.stat().st_size > _MOST_BYTES:
        raise DataError(f"{FINDINGS} is larger than {_MOST_BYTES:,} bytes. Write fewer findings.")
    try:
        rows = csv.DictReader(StringIO(path.read_text(encoding="utf-8"), newline=""), strict=True)
        if missing := [column for column in _COLUMNS if column not in (rows.fieldnames or ())]:
            raise DataError(f"{FINDINGS} has no column {', '.join(missing)}. Run `vicinal clean` again.")
        return tuple(_findings(rows))
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{FINDINGS} cannot be read as a table: {error}. Run `vicinal clean` again.") from error


def _findings(rows: "csv.DictReader[str]") -> Iterator[Finding]:
    for row in rows:
        values = [row[column] for column in _COLUMNS]
        try:
            if None in row or None in values or not row["path"]:
                raise ValueError("columns are missing or too many")
            if not isfinite(score := float(row["score"])):
                raise ValueError(f"the score is {score}")
            neighbors = tuple(row["neighbors"].split("|"))
            yield Finding(row["path"], row["label"], row["kind"], score, row["suggested"], neighbors)
        except ValueError as error:
            raise DataError(f"{FINDINGS}, line {rows.line_num}: {error}. Run `vicinal clean` again.") from error


class Resolver:
    """Items by path; a path that the collection holds twice, or not at all, stands for itself."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        held = Counter(item.path for item in snapshot.items())
        self.items: dict[str, Item] = {item.path: item for item in snapshot.items() if held[item.path] == 1}

    def target(self, path: str) -> Target:
        return self.items[path].id if path in self.items else path

    def neighbor(self, path: str) -> Neighbor:
        item = self.items.get(path)
        return Neighbor(target=self.target(path), path=path, label=None if item is None else item.label)


def workbench_routes(library: Library, limits: Limits, reading: Workers, *, writable: bool) -> APIRouter:
    """Route annotations and the review queue."""
    routes = APIRouter(prefix="/api", tags=["workbench"], responses=SHARED)
    journal = cache(lambda: Annotations(library.collection.path))
    resolver = lru_cache(1)(Resolver)
    file = library.run.path / FINDINGS

    @lru_cache(1)
    def findings_of(_: tuple[int, int]) -> tuple[Finding, ...]:
        return read_findings(file)

    def findings() -> tuple[Finding, ...]:
        if not file.is_file():
            raise RequestError(404, "findings to review.", f"there is no {FINDINGS}.", "Run `vicinal clean RUN`.")
        found = file.stat()
        return findings_of((found.st_mtime_ns, found.st_size))

    def work() -> Work:
        state = journal().read()
        listed = [
            ItemWork(target=target, label=a.label, dropped=a.dropped, tags=list(a.tags)) for target, a in state.items()
        ]
        return Work(
            generation=library.collection.snapshot().generation,
            writable=writable,
            damaged=journal().damaged,
            can_undo=journal().last is not None,
            findings=file.is_file(),
            items=listed,
        )

    async def may_write(request: Request) -> None:
        require_own_page(request)
        if not writable:
            asked, got = "a change of tags, labels or drops.", "this server can be reached from other machines."
            raise RequestError(403, asked, got, "Serve on this machine alone: leave --host out.")

    @routes.get("/annotations", summary="Tags, labels and drops")
    async def annotated() -> Work:
        """All that was decided about items, and whether this server takes changes."""
        return await reading.run(work)

    @routes.post(
        "/annotations", responses=BODY | _CHANGES, dependencies=[Depends(may_write)], summary="Tag, label or drop"
    )
    async def change(body: Change) -> Work:
        """Change targets together; it is kept before the answer, and one undo takes it back as a whole."""

        def changed() -> Work:
            journal().change(body.targets, label=body.label, drop=body.drop, add=body.add, remove=body.remove)
            return work()

        return await reading.run(changed)

    @routes.post(
        "/annotations/undo",
        responses=BODY | _CHANGES,
        dependencies=[Depends(may_write)],
        summary="Undo the last change",
    )
    async def undo() -> Work:
        """Take back the last change that is not taken back."""

        def undone() -> Work:
            journal().undo()
            return work()

        return await reading.run(undone)

    def exported(
        name: str, columns: Sequence[str], rows: Callable[[str, str, Annotation], Sequence[str] | None]
    ) -> Response:
        snapshot, found = library.collection.snapshot(), list[Sequence[str]]()
        items: Mapping[Target, Item] = {item.id: item for item in snapshot.items()}
        for target, annotation in journal().read().items():
            item = items.get(target)
            if item is None and isinstance(target, int):
                continue  # no longer in the collection
            row = rows(str(target) if item is None else item.path, (item and item.label) or "", annotation)
            if row is not None:
                found.append(row)
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(text(table(columns, found)), media_type="text/csv", headers=headers)

    @routes.get("/annotations.csv", responses=_CSV, response_class=Response, summary="Annotations as a table")
    async def annotations_table() -> Response:
        """What was tagged, relabeled or dropped: `path,label,tags`; a dropped item is tagged so."""

        def row(path: str, label: str, a: Annotation) -> Sequence[str]:
            return path, a.label or label, ";".join([*a.tags, *(["dropped"] if a.dropped else [])])

        return await reading.run(lambda: exported("annotations.csv", ("path", "label", "tags"), row))

    @routes.get("/decisions.csv", responses=_CSV, response_class=Response, summary="Decisions as a table")
    async def decisions_table() -> Response:
        """New labels and drops, as `vicinal clean --apply` reads them: `path,label`; no label is a drop."""

        def row(path: str, _: str, a: Annotation) -> Sequence[str] | None:
            return (path, a.label or "") if a.dropped or a.label is not None else None

        return await reading.run(lambda: exported("decisions.csv", ("path", "label"), row))

    Listed = Annotated[int, Query(ge=1, le=limits.listed, description="How many findings.")]
    Offset = Annotated[int, Query(ge=0, le=2**31, description="How many to leave out before them.")]
    Kind = Annotated[Literal["label", "duplicate", "outlier", "class"] | None, Query(description="Only these.")]
    missing: dict[int | str, dict[str, Any]] = {404: {"model": Problem, "description": "There are no findings."}}

    @routes.get("/review", responses=missing, summary="The review queue")
    async def review(offset: Offset = 0, limit: Listed = 60, kind: Kind = None) -> Review:
        """What `vicinal clean` found, a page at a time; 422 with the line where its table is damaged."""

        def listed() -> Review:
            found, at = findings(), resolver(library.collection.snapshot())
            chosen = [one for one in found if kind in (None, one.kind)]
            page = [
                FindingAnswer(
                    **{**vars(one), "neighbors": [at.neighbor(path) for path in one.neighbors[:_NEIGHBORS] if path]},
                    target=at.target(one.path),
                )
                for one in chosen[offset : offset + limit]
            ]
            kinds = dict(Counter(one.kind for one in found))
            return Review(
                generation=at.snapshot.generation, total=len(chosen), kinds=kinds, offset=offset, findings=page
            )

        return await reading.run(listed)

    return routes
