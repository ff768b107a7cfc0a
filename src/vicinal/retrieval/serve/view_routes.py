"""What the page shows besides searches: what is served, the map, the hardness view, the run's report."""

from concurrent.futures import Future
from importlib.metadata import version
from threading import Lock
from typing import Any

import numpy as np
from fastapi import APIRouter, Response
from starlette.responses import HTMLResponse

from vicinal.reports.artefacts import read_artefacts, read_method_figures
from vicinal.reports.colors import class_colors
from vicinal.reports.series import Chart, Curve, charts, read_progress
from vicinal.retrieval.collection import Snapshot
from vicinal.retrieval.map import CollectionMap
from vicinal.retrieval.serve.errors import SHARED, Problem, RequestError, text
from vicinal.retrieval.serve.library import FORMATS, Library, Limits
from vicinal.retrieval.serve.schemas import (
    About,
    ChartAnswer,
    ConfusedPair,
    HardClass,
    Hardness,
    LimitsAnswer,
    Line,
    MapAnswer,
)
from vicinal.retrieval.serve.search_routes import threshold_of
from vicinal.retrieval.serve.workers import Workers
from vicinal.run_directory import RunDirectory

# The report carries its own policy; as an answer of ours it is also shut off from everything else on this address.
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "frame-ancestors 'none'"
)


def view_routes(library: Library, limits: Limits, listing: Workers, reading: Workers, mapping: Workers) -> APIRouter:
    """What is served, its map, its hardness, its report."""
    routes = APIRouter(tags=["views"], responses=SHARED)
    maps = Maps(library, mapping)
    layout: dict[int | str, dict[str, Any]] = {
        202: {"model": MapAnswer, "description": "It is being computed; ask again in a second or two."},
        500: {"model": Problem, "description": "It could not be computed."},
    }

    @routes.get("/api/about", summary="What is served")
    async def about() -> About:
        """The run, the newest generation of its collection, and the limits of a request."""
        return await listing.run(lambda: _about(library, limits))

    @routes.get("/api/map", summary="The map", responses=layout)
    async def map(response: Response) -> MapAnswer:
        """Positions of the items, computed once for each generation; 202 and no points while that goes on."""
        snapshot = await listing.run(library.collection.snapshot)
        answer = maps.of(snapshot)
        if answer is None:
            response.status_code = 202
            return _points(snapshot, None)
        return answer

    @routes.get("/api/hardness", summary="What is hard")
    async def hard() -> Hardness:
        """Charts of the training's own quantities, the hardest classes and the most confused pairs."""
        return await reading.run(lambda: _hardness(library.run, library.collection.snapshot()))

    @routes.get("/report", summary="The run's report", response_class=HTMLResponse)
    async def report() -> HTMLResponse:
        """The report's page, rendered from the run's numbers; a page that lies in the run is never sent."""
        content = await reading.run(lambda: _report(library))
        return HTMLResponse(content, headers={"Content-Security-Policy": REPORT_POLICY})

    return routes


_ACTIVE = "The share of a batch's tuples that still have something to learn: it falls as the easy ones are solved."
_METHODS = {"t-sne": "t-SNE", "umap": "UMAP"}


class Maps:
    """The newest generation's map: computed in the background when first asked for, then kept."""

    def __init__(self, library: Library, mapping: Workers) -> None:
        self.library, self.mapping = library, mapping
        self._generation, self._future, self._lock = -1, Future[MapAnswer](), Lock()

    def of(self, snapshot: Snapshot) -> MapAnswer | None:
        """The map, or None while it is computed. A failure is reported once; the next request tries again."""
        with self._lock:
            if self._generation != snapshot.generation:
                self._future = self.mapping.submit(lambda: _points(snapshot, self._layout(snapshot)))
                self._generation = snapshot.generation
            if not self._future.done():
                return None
            failure = self._future.exception()
            if failure is not None:
                self._generation = -1
                got = f"it could not be computed: {text(str(failure))}"
                raise RequestError(500, "the map.", got, "Ask again to try again.") from failure
            return self._future.result()

    def _layout(self, snapshot: Snapshot) -> CollectionMap:
        return self.library.layout(snapshot) if len(snapshot) else _nowhere(snapshot)


def _nowhere(snapshot: Snapshot) -> CollectionMap:
    return CollectionMap(np.empty(0, np.int64), np.empty((0, 2), np.float32), "t-sne", snapshot.generation)


def _points(snapshot: Snapshot, found: CollectionMap | None) -> MapAnswer:
    layout = found or _nowhere(snapshot)
    ids = layout.ids.tolist()
    labels = {item.id: item.label for item in snapshot.items()} if ids else {}
    names = sorted({label for id in ids if (label := labels[id]) is not None})
    number = {name: place for place, name in enumerate(names)}
    positions = _unit_square(layout.positions).round(4)
    return MapAnswer(
        generation=snapshot.generation,
        state="computing" if found is None else "ready",
        total=len(snapshot),
        method=_METHODS[layout.projection],
        classes=[text(name) for name in names],
        colours=class_colors(len(names)),
        ids=ids,
        x=positions[:, 0].tolist(),
        y=(1 - positions[:, 1]).round(4).tolist(),  # a canvas counts downwards
        classed=[-1 if (label := labels[id]) is None else number[label] for id in ids],
    )


def _unit_square(positions: np.ndarray) -> np.ndarray:
    """Positions moved and scaled, both axes alike, so that they fill the unit square the long way."""
    positions = positions.astype(np.float64)
    if not len(positions):
        return positions
    low, high = positions.min(axis=0), positions.max(axis=0)
    extent = float((high - low).max()) or 1.0
    square: np.ndarray = 0.5 + (positions - (low + high) / 2) / extent
    return square


def _about(library: Library, limits: Limits) -> About:
    snapshot, info = library.collection.snapshot(), library.run.info
    config, data = library.run.config, info.get("data") or {}
    return About(
        generation=snapshot.generation,
        title=text(str(config.get("title") or info.get("name") or library.run.path.name)),
        preset=None if config.get("preset") is None else text(str(config["preset"])),
        data=None if data.get("name") is None else text(str(data["name"])),
        vicinal=version("vicinal"),
        kind=library.kind,
        pictures=any(place.root is not None or place.description is not None for place in snapshot.places),
        items=len(snapshot),
        classes=len(snapshot.labels()),
        dim=snapshot.dim,
        metric=snapshot.metric,
        threshold=threshold_of(library, None),
        limits=LimitsAnswer(**vars(limits), formats=list(FORMATS)),
    )


def _report(library: Library) -> str:
    from vicinal.reports.page import render  # loads matplotlib, which nothing else here needs

    return text(render(library.run))


def _hardness(run: RunDirectory, snapshot: Snapshot) -> Hardness:
    """Charts of the method's own quantities (its groups, and the share of active tuples), hard and confused classes."""
    artefacts, method_figures = read_artefacts(run), read_method_figures(run)
    drawn = charts(read_progress(run.metrics()))
    # The hardness charts first, then the share of active tuples, then loss and validation, which give them meaning.
    order = sorted(drawn, key=lambda chart: (_rank(chart), drawn.index(chart)))
    captions = {"scalar-active": _ACTIVE} | {f"scalar-{group}": said for group, said in method_figures.captions.items()}
    selected = ((run.results or {}).get("selected") or {}).get("step")
    held = snapshot.labels()
    return Hardness(
        generation=snapshot.generation,
        charts=[_chart(chart, captions.get(chart.key, ""), selected) for chart in order],
        worst=[
            HardClass(label=text(e.label), records=e.count, recall=e.recall, items=held.get(e.label, 0))
            for e in artefacts.worst
        ],
        confused=[
            ConfusedPair(label=text(e.label), taken_for=text(e.taken_for), share=e.share, queries=e.queries)
            for e in artefacts.confused
        ],
        figures=len(method_figures.figures),
    )


def _rank(chart: Chart) -> int:
    if chart.key == "scalar-active":
        return 1
    return 2 if chart.key == "scalar-loss" or chart.key.startswith("evaluation-") else 0


def _chart(chart: Chart, caption: str, selected: Any) -> ChartAnswer:
    return ChartAnswer(
        key=chart.key,
        title=chart.title,
        unit=chart.unit,
        axis=chart.axis,
        mark=selected if chart.axis == "step" and isinstance(selected, (int, float)) else None,
        caption=caption,
        lines=[_line(text(name), curve) for name, curve in chart.lines.items()],
    )


def _line(name: str, curve: Curve) -> Line:
    low, high = (None, None) if curve.low == curve.high else (curve.low, curve.high)
    return Line(name=name, x=curve.steps, y=curve.mean, low=low, high=high)
