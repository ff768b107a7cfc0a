"""Work on the collection: tags, labels and drops for selected items, and the queue of what `vicinal
clean` found."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, HTTPException, Query
from pydantic import Field
from starlette.responses import Response

from vicinal.data.table import read_columns
from vicinal.files import decoding
from vicinal.retrieval.annotations import Annotation
from vicinal.retrieval.pages import as_csv
from vicinal.retrieval.serve.guard import Answer, require_own_page, text
from vicinal.retrieval.serve.library import Library
from vicinal.retrieval.serve.routes import Listed, Offset
from vicinal.retrieval.store import Item

FINDINGS = "clean/findings.csv"  # below the run

TargetField = Annotated[int, Field(ge=0)] | Annotated[str, Field(min_length=1)]
Word = Annotated[str, Field(min_length=1, max_length=200)]
_CSV: dict[int | str, dict[str, Any]] = {200: {"content": {"text/csv": {}}}}


def workbench_routes(library: Library, *, writable: bool) -> APIRouter:
    """Route annotations and the review queue."""
    routes = APIRouter(prefix="/api", tags=["workbench"])
    file = library.run.path / FINDINGS

    def work() -> Answer:
        snapshot = library.collection.snapshot()
        state = library.annotations.read(snapshot)
        return Answer(
            {
                "generation": snapshot.generation,
                "writable": writable,
                "lost": [*state.lost],
                "can_undo": state.can_undo,
                "findings": file.is_file(),
                "items": [{"target": target, **vars(one)} for target, one in state.items.items()],
            }
        )

    def may_write() -> None:
        if not writable:
            raise HTTPException(
                403, "This server can be reached from other machines. Leave --host out."
            )

    @routes.get("/annotations", summary="Tags, labels and drops")
    def annotated() -> Answer:
        """All that was decided about items, and whether this server takes changes."""
        return work()

    changing = partial(routes.post, dependencies=[Depends(require_own_page), Depends(may_write)])

    @changing("/annotations", summary="Tag, label or drop")
    def change(
        targets: Annotated[list[TargetField], Body(min_length=1)],
        label: Annotated[Word | None, Body()] = None,
        drop: Annotated[bool, Body()] = False,
        add: Annotated[list[Word], Body()] = [],  # noqa: B006
        remove: Annotated[list[Word], Body()] = [],  # noqa: B006
    ) -> Answer:
        """Change targets together; it is kept before the answer, and one undo takes it back as a
        whole. Targets are ids, or paths of findings; `add` and `remove` are tags."""
        library.annotations.change(
            library.collection.snapshot(), targets, label=label, drop=drop, add=add, remove=remove
        )
        return work()

    @changing("/annotations/undo", summary="Undo the last change")
    def undo() -> Answer:
        """Take back the last change that is not taken back."""
        library.annotations.undo()
        return work()

    def decided() -> Iterator[tuple[str, str, Annotation]]:
        """Yield path and label of the data with each annotation."""
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
        rows = [
            (path, one.label or label, ";".join([*one.tags, *(["dropped"] if one.dropped else [])]))
            for path, label, one in decided()
        ]
        lost = library.annotations.read(library.collection.snapshot()).lost
        rows += [
            (str(path), one.label or "", ";".join([*one.tags, "lost"]))
            for path, one in lost.items()
        ]
        return table("annotations.csv", ("path", "label", "tags"), rows)

    @routes.get(
        "/decisions.csv", responses=_CSV, response_class=Response, summary="Decisions as a table"
    )
    def decisions_table() -> Response:
        """New labels and drops, as `vicinal clean --apply` reads them: `path,label`; no label is a
        drop."""
        rows = (
            (path, one.label or "")
            for path, _, one in decided()
            if one.dropped or one.label is not None
        )
        return table("decisions.csv", ("path", "label"), rows)

    Kind = Annotated[
        Literal["label", "duplicate", "outlier", "class"] | None, Query(description="Only these.")
    ]

    @routes.get("/review", summary="The review queue")
    def review(offset: Offset = 0, limit: Listed = 60, kind: Kind = None) -> Answer:
        """What `vicinal clean` found, a page at a time, the most probable first; items by path,
        where the collection has just one of it."""
        if not file.is_file():
            raise HTTPException(404, "There are no findings. Run `vicinal clean RUN`.")
        snapshot = library.snapshot()
        with decoding(file, "Run `vicinal clean` again."):
            cells = read_columns(file).cells
            rows = [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]
            found = [
                {
                    **row,
                    "score": float(row["score"]),
                    "neighbors": [path for path in row["neighbors"].split("|") if path],
                }
                for row in rows
            ]
            kinds = Counter(one["kind"] for one in found)
        chosen = [one for one in found if kind in (None, one["kind"])]
        page = chosen[offset : offset + limit]
        named = {path for one in page for path in (one["path"], *one["neighbors"])}
        return Answer(
            {
                "generation": snapshot.generation,
                "total": len(chosen),
                "kinds": kinds,
                "offset": offset,
                "findings": page,
                "items": {
                    path: item.document
                    for path, item in _by_path(snapshot.items()).items()
                    if path in named
                },
            }
        )

    return routes


def _by_path(items: Sequence[Item]) -> dict[str, Item]:
    """Return items by path as tables hold it, without paths that several places have."""
    held = Counter(text(item.path) for item in items)
    return {text(item.path): item for item in items if held[text(item.path)] == 1}
