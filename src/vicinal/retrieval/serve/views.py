"""What the page shows besides searches: what is served, the map, the hardness view, the run's
report."""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, HTTPException, Request
from starlette.responses import HTMLResponse, PlainTextResponse

from vicinal.files import MOST_PIXELS, decoding
from vicinal.reports.artifacts import (
    LINES,
    class_colors,
    map_columns,
    read_artifacts,
    read_progress,
)
from vicinal.reports.page import render
from vicinal.retrieval.collection import Snapshot
from vicinal.retrieval.library import Library
from vicinal.retrieval.overview import CollectionMap, collection_map
from vicinal.retrieval.pages import as_shown
from vicinal.retrieval.serve.guard import FORMATS, MOST, UPLOAD_BYTES, Answer, answer
from vicinal.run_directory import RunDirectory

# The report carries its own policy; as an answer of ours it is also shut off from everything else
# on this address.
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; "
    "frame-ancestors 'none'"
)


def view_routes(library: Library) -> APIRouter:
    """Route what is served, its map, its hardness and its report."""
    routes = APIRouter(tags=["views"])
    layout = library.layout or collection_map  # kept beside the generation
    mapping = ThreadPoolExecutor(1)  # a minute or two of work, once for each generation

    @lru_cache(1)
    def computing(snapshot: Snapshot) -> "Future[dict[str, Any]]":
        return mapping.submit(lambda: _map_answer(snapshot, layout(snapshot)))

    @routes.get("/api/about")
    def about() -> Answer:
        """The run, the newest generation of its collection, and the limits of a request."""
        snapshot = library.snapshot()
        return answer(snapshot, **_about(library, snapshot))

    @routes.get("/api/map")
    def map() -> Answer:
        """Positions of the items, computed once for each generation; 202 and no points while that
        goes on."""
        snapshot = library.collection.snapshot()
        found = computing(snapshot)
        if not found.done():
            return answer(snapshot, 202, state="computing", total=len(snapshot))
        if (failure := found.exception()) is not None:
            computing.cache_clear()  # the next request tries again
            raise HTTPException(500, f"It could not be computed: {failure}") from failure
        return answer(snapshot, **found.result())

    @routes.get("/api/hardness")
    def hard() -> Answer:
        """Charts of the training's own quantities, the hardest classes and the most confused
        pairs."""
        with decoding(library.run.path):
            snapshot = library.snapshot()
            return answer(snapshot, **_hardness(library.run, snapshot))

    @routes.get("/health")
    def health() -> Answer:
        """For monitors; needs no token."""
        return Answer({"generation": library.collection.latest_generation()})

    @routes.get("/metrics", response_class=PlainTextResponse)
    def metrics(request: Request) -> PlainTextResponse:
        """Answers since the start by status, the seconds that they took, and the collection."""
        state = request.app.state
        snapshot = library.collection.snapshot()
        lines = ["# TYPE vicinal_answers_total counter"]
        for status, count in sorted(state.answers.items()):
            lines.append(f'vicinal_answers_total{{status="{status}"}} {count}')
        numbers = {
            "answer_seconds_total counter": state.seconds,
            "items gauge": len(snapshot),
            "generation gauge": snapshot.generation,
        }
        for name, number in numbers.items():
            lines += [f"# TYPE vicinal_{name}", f"vicinal_{name.split()[0]} {number}"]
        return PlainTextResponse("\n".join([*lines, ""]))

    @routes.get("/report", response_class=HTMLResponse)
    def report() -> HTMLResponse:
        """The report's page, rendered from the run's numbers; a page that lies in the run is never
        sent."""
        content = as_shown(render(library.run))
        return HTMLResponse(content, headers={"Content-Security-Policy": REPORT_POLICY})

    return routes


def _map_answer(snapshot: Snapshot, found: CollectionMap) -> dict[str, Any]:
    ids = found.ids.tolist()
    columns = map_columns([snapshot.item(id).label for id in ids], found.positions.astype(float))
    held = len(columns["classes"])
    return {
        "state": "ready",
        "total": len(snapshot),
        "method": "t-SNE",
        "ids": ids,
        **columns,
        # for classes that items are given later
        "spare_colors": [*LINES[held:], *class_colors(held + len(LINES))[held:]],
    }


def _about(library: Library, snapshot: Snapshot) -> dict[str, Any]:
    info = library.run.info
    config = library.run.config
    return {
        "title": str(config.get("title") or info.get("name") or library.run.path.name),
        "preset": config.get("preset"),
        "data": (info.get("data") or {}).get("name"),
        "vicinal": version("vicinal"),
        "kind": library.model.kind,
        "text": library.reader is not None,
        "pictures": any(place.root or place.description for place in snapshot.places),
        "items": len(snapshot),
        "classes": len(snapshot.labels()),
        "dim": snapshot.dim,
        "metric": snapshot.metric,
        "threshold": library.threshold and library.threshold.document,
        "limits": {
            "k": MOST,
            "listed": MOST,
            "upload_bytes": UPLOAD_BYTES,
            "upload_pixels": MOST_PIXELS,
            "formats": FORMATS,
        },
    }


def _hardness(run: RunDirectory, snapshot: Snapshot) -> dict[str, Any]:
    """Collect charts of the method's own quantities (its groups, active tuples), hard and confused
    classes."""
    artifacts = read_artifacts(run)
    mark = ((run.results or {}).get("selected") or {}).get("step")
    held = snapshot.labels()
    charts, _ = read_progress(run.metrics())
    return {
        "charts": [
            {**one, "mark": mark, "caption": artifacts.captions.get(one["key"], "")}
            for one in sorted(charts, key=_explains)
        ],
        "worst": [
            {
                "label": row["class"],
                "records": row["records"],
                "recall": row["recall@1"],
                "items": held.get(row["class"], 0),
            }
            for row in artifacts.worst
        ],
        "confused": [{"label": row["class"], **row} for row in artifacts.confused],
    }


def _explains(chart: Mapping[str, Any]) -> tuple[bool, bool]:
    """Order charts: hardness first, then the share of active tuples, then loss and validation,
    which explain them."""
    key = chart["key"]
    return key.startswith(("scalar-loss", "evaluation-")), key == "scalar-active"
