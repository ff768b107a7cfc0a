"""What the page shows besides searches: what is served, the map, the hardness view, the run's
report."""

from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Literal

import numpy as np
from fastapi import APIRouter, Response
from pydantic import BaseModel, Field
from starlette.responses import HTMLResponse

from vicinal.data.records import Kind
from vicinal.files import decoding
from vicinal.reports.artifacts import read_artifacts, read_method_figures, unit_square
from vicinal.reports.colors import LINES, class_colors
from vicinal.reports.html import chart_data
from vicinal.reports.series import ACTIVE_CAPTION, Chart, charts, read_progress
from vicinal.retrieval.collection import Snapshot
from vicinal.retrieval.map import CollectionMap
from vicinal.retrieval.serve.guard import (
    FORMATS,
    MOST,
    Limits,
    RequestError,
    text,
    told,
    without_folders,
)
from vicinal.retrieval.serve.library import Library
from vicinal.retrieval.serve.routes import Answer, Text, ThresholdAnswer, threshold_of
from vicinal.run_directory import RunDirectory

# The report carries its own policy; as an answer of ours it is also shut off from everything else
# on this address.
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; "
    "frame-ancestors 'none'"
)


class LimitsAnswer(BaseModel):
    k: int
    listed: int
    upload_bytes: int
    upload_pixels: int
    formats: list[str]


class About(Answer):
    """What is served."""

    title: Text
    preset: Text | None
    data: Text | None
    vicinal: str
    kind: Kind = Field(description="What the run embeds; only images can be uploaded.")
    text: bool = Field(description="Whether texts can be searched by.")
    pictures: bool = Field(description="Whether the items have pictures to show.")
    items: int
    classes: int
    dim: int
    metric: str
    threshold: ThresholdAnswer | None
    limits: LimitsAnswer


class MapAnswer(Answer):
    """The collection in the plane; columns, one entry for each point."""

    state: Literal["ready", "computing"]
    total: int = Field(description="Items of the collection; the map may show fewer.")
    method: str = Field(description="How positions were computed.")
    classes: list[Text]
    colors: list[str] = Field(description="One for each class.")
    spare_colors: list[str] = Field(description="For classes that items are given later.")
    ids: list[int]
    x: list[float] = Field(description="From 0 to 1, rightwards.")
    y: list[float] = Field(description="From 0 to 1, downwards.")
    classed: list[int] = Field(description="Positions in `classes`; -1 for an item without one.")


class Hardness(Answer):
    """What was hard in training and what is hard in the result, as the run wrote it."""

    charts: list[dict[str, Any]] = Field(description="Lines over steps, and how to read them.")
    worst: list[dict[str, Any]] = Field(description="Classes by their share of found neighbors.")
    confused: list[dict[str, Any]] = Field(description="Classes that are taken for one another.")
    figures: int = Field(description="Pictures of the method's inside, on the report's page.")


_COMPUTING: dict[int | str, dict[str, Any]] = {
    202: {"model": MapAnswer, "description": "It is being computed; ask again in a second or two."}
}


def view_routes(library: Library, limits: Limits) -> APIRouter:
    """Route what is served, its map, its hardness and its report."""
    routes = APIRouter(tags=["views"])
    mapping = ThreadPoolExecutor(1)  # a minute or two of work, once for each generation

    @lru_cache(1)
    def computing(snapshot: Snapshot) -> "Future[MapAnswer]":
        return mapping.submit(lambda: _map_answer(snapshot, library.layout(snapshot)))

    @routes.get("/api/about", summary="What is served")
    def about() -> About:
        """The run, the newest generation of its collection, and the limits of a request."""
        return _about(library, limits)

    @routes.get("/api/map", summary="The map", responses=_COMPUTING)
    def map(response: Response) -> MapAnswer:
        """Positions of the items, computed once for each generation; 202 and no points while that
        goes on."""
        snapshot = library.collection.snapshot()
        found = computing(snapshot)
        if not found.done():
            response.status_code = 202
            return _map_answer(snapshot, None)
        if (failure := found.exception()) is not None:
            computing.cache_clear()  # the next request tries again
            got = f"it could not be computed: {told(failure)}"
            raise RequestError(500, "the map.", got, "Ask again to try again.") from failure
        return found.result()

    @routes.get("/api/hardness", summary="What is hard")
    def hard() -> Hardness:
        """Charts of the training's own quantities, the hardest classes and the most confused
        pairs."""
        with decoding(library.run.path):
            return _hardness(library.run, library.snapshot())

    @routes.get("/report", summary="The run's report", response_class=HTMLResponse)
    def report() -> HTMLResponse:
        """The report's page, rendered from the run's numbers; a page that lies in the run is never
        sent."""
        from vicinal.reports.page import render

        content = text(render(PublicRun(library.run.path)))
        return HTMLResponse(content, headers={"Content-Security-Policy": REPORT_POLICY})

    return routes


def _map_answer(snapshot: Snapshot, found: CollectionMap | None) -> MapAnswer:
    ids: list[int] = [] if found is None else found.ids.tolist()
    labels = {item.id: item.label for item in snapshot.items()} if ids else {}
    names = sorted({label for id in ids if (label := labels[id]) is not None})
    number: dict[str | None, int] = {name: place for place, name in enumerate(names)}
    positions = unit_square(
        np.empty((0, 2)) if found is None else found.positions.astype(np.float64)
    )
    return MapAnswer(
        generation=snapshot.generation,
        state="computing" if found is None else "ready",
        total=len(snapshot),
        method="t-SNE",
        classes=names,
        colors=class_colors(len(names)),
        spare_colors=[*LINES[len(names) :], *class_colors(len(names) + len(LINES))[len(names) :]],
        ids=ids,
        x=positions[:, 0].round(5).tolist(),
        y=(1 - positions[:, 1]).round(5).tolist(),  # a canvas counts downwards
        classed=[number.get(labels[id], -1) for id in ids],
    )


def _about(library: Library, limits: Limits) -> About:
    snapshot = library.snapshot()
    info = library.run.info
    config = library.run.config
    return About(
        generation=snapshot.generation,
        title=str(config.get("title") or info.get("name") or library.run.path.name),
        preset=config.get("preset"),
        data=(info.get("data") or {}).get("name"),
        vicinal=version("vicinal"),
        kind=library.kind,
        text=library.reader is not None,
        pictures=any(
            place.root is not None or place.description is not None for place in snapshot.places
        ),
        items=len(snapshot),
        classes=len(snapshot.labels()),
        dim=snapshot.dim,
        metric=snapshot.metric,
        threshold=threshold_of(library, None),
        limits=LimitsAnswer(
            k=MOST,
            listed=MOST,
            upload_bytes=limits.upload_bytes,
            upload_pixels=limits.upload_pixels,
            formats=list(FORMATS),
        ),
    )


class PublicRun(RunDirectory):
    """A run as strangers may read it: without the folders of this machine, which stay in its own
    files and report."""

    @property
    def info(self) -> dict[str, Any]:
        return without_folders(super().info)

    @property
    def status(self) -> dict[str, Any]:
        return without_folders(super().status)

    @property
    def results(self) -> dict[str, Any] | None:
        return without_folders(super().results)

    def document(self, name: str) -> dict[str, Any] | None:
        return without_folders(super().document(name))


def _hardness(run: RunDirectory, snapshot: Snapshot) -> Hardness:
    """Collect charts of the method's own quantities (its groups, active tuples), hard and confused
    classes."""
    artifacts = read_artifacts(run)
    method_figures = read_method_figures(run)
    captions = {"scalar-active": ACTIVE_CAPTION} | {
        f"scalar-{group}": said for group, said in method_figures.captions.items()
    }
    selected = ((run.results or {}).get("selected") or {}).get("step")
    mark = selected if isinstance(selected, (int, float)) else None
    held = snapshot.labels()
    shown = sorted(charts(read_progress(run.metrics())), key=_rank)
    worst = artifacts.worst
    return Hardness(
        generation=snapshot.generation,
        charts=[{**chart_data(one, mark), "caption": captions.get(one.key, "")} for one in shown],
        worst=[
            {
                "label": text(e.label),
                "records": e.count,
                "recall": e.recall,
                "items": held.get(e.label, 0),
            }
            for e in worst
        ],
        confused=[vars(pair) for pair in artifacts.confused],
        figures=len(method_figures.figures),
    )


def _rank(chart: Chart) -> int:
    """Rank the hardness charts first, then the share of active tuples, then loss and validation,
    which explain them."""
    if chart.key == "scalar-active":
        return 1
    return 2 if chart.key == "scalar-loss" or chart.key.startswith("evaluation-") else 0
