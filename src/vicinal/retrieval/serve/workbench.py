"""Work on the collection: labels and drops for selected items, and the queue of what `vicinal
clean` found."""

from collections import Counter
from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Body, Depends, HTTPException, Query
from pydantic import Field
from starlette.responses import Response

from vicinal.data.table import read_columns
from vicinal.files import decoding
from vicinal.retrieval.library import Library
from vicinal.retrieval.pages import as_csv, as_given, as_shown
from vicinal.retrieval.serve.guard import Answer, answer, require_own_page
from vicinal.retrieval.serve.routes import Listed, Offset

FINDINGS = "clean/findings.csv"  # below the run

TargetField = Annotated[int, Field(ge=0)] | Annotated[str, Field(min_length=1)]


def workbench_routes(library: Library, *, writable: bool) -> APIRouter:
    """Route annotations and the review queue."""
    routes = APIRouter(prefix="/api", tags=["workbench"])
    file = library.run.path / FINDINGS

    def work() -> Answer:
        snapshot = library.collection.snapshot()
        state = library.annotations.read(snapshot)
        return answer(
            snapshot,
            writable=writable,
            lost=[*state.lost],
            can_undo=state.can_undo,
            findings=file.is_file(),
            items=[
                {"target": target, "label": label or None, "dropped": not label}
                for target, label in state.items.items()
            ],
        )

    def may_write() -> None:
        if not writable:
            raise HTTPException(
                403, "This server takes no changes: it is read-only, or has --host but no token."
            )

    @routes.get("/annotations")
    def annotated() -> Answer:
        """All that was decided about items, and whether this server takes changes."""
        return work()

    changing = partial(routes.post, dependencies=[Depends(require_own_page), Depends(may_write)])

    @changing("/annotations")
    def change(
        targets: Annotated[list[TargetField], Body(min_length=1)],
        label: Annotated[str, Body(max_length=200)],
    ) -> Answer:
        """Change targets, ids or paths of findings, together; an empty label drops. It is kept
        before the answer, and one undo takes it back as a whole."""
        library.annotations.change(library.collection.snapshot(), targets, label)
        return work()

    @changing("/annotations/undo")
    def undo() -> Answer:
        """Take back the last change that is not taken back."""
        library.annotations.undo()
        return work()

    @routes.get(
        "/decisions.csv",
        responses={200: {"content": {"text/csv": {}}}},
        response_class=Response,
    )
    def decisions_table() -> Response:
        """New labels and drops, as `vicinal clean --apply` reads them: `path,label`; no label is a
        drop."""
        snapshot = library.collection.snapshot()
        rows = (
            (target if isinstance(target, str) else snapshot.item(target).path, label)
            for target, label in library.annotations.read(snapshot).items.items()
        )
        headers = {"Content-Disposition": 'attachment; filename="decisions.csv"'}
        content = as_shown(as_csv(("path", "label"), rows))
        return Response(content, media_type="text/csv", headers=headers)

    Kind = Annotated[
        Literal["label", "duplicate", "outlier", "class"] | None, Query(description="Only these.")
    ]

    @routes.get("/review")
    def review(offset: Offset = 0, limit: Listed = 60, kind: Kind = None) -> Answer:
        """What `vicinal clean` found, a page at a time, the most probable first; items by path,
        where the collection has just one of it."""
        if not file.is_file():
            raise HTTPException(404, "There are no findings. Run `vicinal clean RUN`.")
        snapshot = library.snapshot()
        with decoding(file, "Run `vicinal clean` again."):
            cells = read_columns(file).cells
            texts = (map(as_given, column) for column in cells.values())
            rows = [dict(zip(cells, row, strict=True)) for row in zip(*texts, strict=True)]
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
        shown = [(as_shown(item.path), item) for item in snapshot.items]  # as tables hold them
        held = Counter(path for path, _ in shown)  # one that several places have names no item
        items = {path: item.document for path, item in shown if path in named and held[path] == 1}
        return answer(
            snapshot, total=len(chosen), kinds=kinds, offset=offset, findings=page, items=items
        )

    return routes
