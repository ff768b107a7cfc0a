"""A method's own pictures as the report shows them: figures and captions from ``artefacts/``, placed on the page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vicinal.errors import ConfigError, RunError
from vicinal.figures import Dendrogram, Figure, Leaf, Scatter, Tuples, from_json
from vicinal.reports.artefacts import Record, Thumbnails, format_of, read_thumbnails
from vicinal.run_directory import RunDirectory

WIDTH, EDGE = 640, 24  # of a scatter on the page: units across, and kept free around its points
MOST_HEIGHT, LEAST_HEIGHT = 480, 160
TREE = 400  # units across of a dendrogram, from its root to its leaves; a row of it is 1 high
SIGNS = ("circle", "square", "diamond", "triangle", "cross")  # groups differ in sign as well as in color


@dataclass(frozen=True)
class MethodFigures:
    """What a method shows of itself.

    Attributes:
        captions: how to read the chart of a group of scalars, by the group's name.
        figures: in the method's order.
        records: the training records that figures name.
        thumbnails: their pictures.
    """

    captions: Mapping[str, str] = field(default_factory=dict)
    figures: tuple[Figure, ...] = ()
    records: Mapping[int, Record] = field(default_factory=dict)
    thumbnails: Thumbnails | None = None


@dataclass(frozen=True)
class PlacedPoint:
    """A point in the units of the page's drawing; ``group`` counts the groups."""

    x: float
    y: float
    group: int
    title: str


@dataclass(frozen=True)
class PlacedScatter:
    """A scatter in the units of the page's drawing, y downwards.

    Attributes:
        groups: name and sign of each.
        segments: ``(x, y, x, y)``, those that can be seen.
    """

    height: float
    groups: list[tuple[str, str]]
    points: list[PlacedPoint]
    segments: list[tuple[float, float, float, float]]


@dataclass(frozen=True)
class PlacedDendrogram:
    """A tree from left to right, its leaves at ``TREE``, one below the other.

    Attributes:
        leaves: from top to bottom.
        brackets: of each merge ``(x1, y1, x, y2, x2)``, from one node to the merge's height to the other node, and what
            is said of it.
    """

    leaves: list[Leaf]
    brackets: list[tuple[tuple[float, float, float, float, float], str]]


def read_method_figures(run: RunDirectory) -> MethodFigures:
    """The figures of a run's method; empty where it has none. What contradicts the format is an error."""
    with format_of("captions.json"):
        captions = {str(group): str(text) for group, text in (run.document("captions") or {}).items()}
    document = run.document("figures")
    if document is None:
        return MethodFigures(captions)
    with format_of("figures.json"):
        try:
            figures = from_json(document["figures"] if "figures" in document else _of_version_0_1(document["exhibits"]))
        except ConfigError as error:
            raise RunError(
                f"artefacts/figures.json is not as run format 1 says: {error} Train the run anew."
            ) from error
        path = run.figure_thumbnails_path if "figures" in document else run.artefacts_path / "exhibits.png"
        thumbnails, records = read_thumbnails(document, path, "figures.json")
        for figure in figures:
            _reject_malformed(figure, records)
    return MethodFigures(captions, figures, records, thumbnails)


def _of_version_0_1(figures: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"caption" if name == "reading" else name: value for name, value in each.items()} for each in figures]


def unit_square(positions: np.ndarray) -> np.ndarray:
    """Positions [m 2] moved and scaled, both axes alike, to fill the middle of the unit square.

    >>> unit_square(np.array([[0.0, 10.0], [4.0, 12.0]])).tolist()
    [[0.0, 0.25], [1.0, 0.75]]
    """
    low, high = positions.min(axis=0), positions.max(axis=0)
    extent = float((high - low).max()) or 1.0  # one point, or all at one place, stay in the middle
    scaled: np.ndarray = (positions - (low + high) / 2) / extent + 0.5
    return scaled


def place_scatter(scatter: Scatter) -> PlacedScatter:
    """A scatter's points in the units of the page, groups numbered in their order."""
    positions = np.array([(point.x, point.y) for point in scatter.points], dtype=np.float64).reshape(-1, 2)
    groups = list(dict.fromkeys(point.group for point in scatter.points))
    if not len(positions):
        return PlacedScatter(LEAST_HEIGHT, [], [], [])
    square = unit_square(positions)
    tall = float(np.ptp(square[:, 1]))
    across = min(WIDTH - 2 * EDGE, (MOST_HEIGHT - 2 * EDGE) / max(tall, 1e-9))
    height = max(tall * across + 2 * EDGE, LEAST_HEIGHT)
    x = (WIDTH / 2 + (square[:, 0] - 0.5) * across).round(1)
    y = (height / 2 - (square[:, 1] - 0.5) * across).round(1)
    points = [
        PlacedPoint(
            float(x[i]), float(y[i]), groups.index(point.group), ", ".join(filter(None, (point.group, point.label)))
        )
        for i, point in enumerate(scatter.points)
    ]
    segments = [
        (points[s.start].x, points[s.start].y, points[s.end].x, points[s.end].y)
        for s in scatter.segments
        if abs(points[s.start].x - points[s.end].x) + abs(points[s.start].y - points[s.end].y) >= 1
    ]
    signs = [(group, SIGNS[place % len(SIGNS)]) for place, group in enumerate(groups)]
    return PlacedScatter(round(height, 1), signs, points, segments)


def place_dendrogram(tree: Dendrogram) -> PlacedDendrogram:
    """A tree's leaves in an order in which no two branches cross, and its merges between them."""
    count = len(tree.leaves)
    below = [[leaf] for leaf in range(count)]  # leaves of each node, in order
    for merge in tree.merges:
        below.append(below[merge.first] + below[merge.second])
    order = below[-1] if below else []
    highest = max((merge.height for merge in tree.merges), default=0.0) or 1.0
    at = [(float(TREE), order.index(leaf) + 0.5) for leaf in range(count)]
    brackets = []
    for node, merge in enumerate(tree.merges, count):
        (x1, y1), (x2, y2) = at[merge.first], at[merge.second]
        x = round(TREE * (1 - 0.98 * merge.height / highest), 1)
        at.append((x, (y1 + y2) / 2))
        brackets.append(((x1, y1, x, y2, x2), f"{merge.height:.3g}: {len(below[node])} of {count}"))
    return PlacedDendrogram([tree.leaves[leaf] for leaf in order], brackets)


def _reject_malformed(figure: Figure, records: Mapping[int, Record]) -> None:
    """A description can hold anything where a number belongs; say so here instead of drawing it."""
    if isinstance(figure, Tuples):
        for each in figure.tuples:
            for member in each.members:
                records[member.record]
        return
    if isinstance(figure, Dendrogram):
        for leaf in figure.leaves:
            records[leaf.record]
        return
    for point in figure.points:
        if not np.isfinite([point.x, point.y]).all():
            raise TypeError(f"a point at {point.x}, {point.y}")
