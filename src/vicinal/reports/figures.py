"""The figures of a report in matplotlib, for papers and READMEs. No global state: pyplot is never touched."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.path import Path
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from PIL import Image

from vicinal.figures import Dendrogram, Scatter, Tuples
from vicinal.reports.artefacts import Artefacts, Confusion, EmbeddingMap, Neighbor, Query, Record, Thumbnails
from vicinal.reports.colors import INK, LINES, PAPER, RIGHT, RULE, SOFT, WRONG, class_colors
from vicinal.reports.diagnostics import spectrum_chart
from vicinal.reports.fonts import shorten
from vicinal.reports.method_figures import SIGNS, TREE, MethodFigures, place_dendrogram, unit_square
from vicinal.reports.series import Chart, Progress, charts

_DASHES = ("-", "--", ":", "-.")  # the ninth line repeats a color, never a color and a dash
_PICTURES_ACROSS = 26  # thumbnails that fit side by side on the map
_QUERIES, _NEIGHBORS, _PAIRS, _TUPLES = 12, 8, 12, 12  # that a printed page holds
_INCH = 0.5  # side of a cell
_PIXELS = 100  # of a cell; more than the figure's own resolution
_EDGE = 0.08  # of a cell, between its border and the frame
_TICK = Path([(-0.6, 0.0), (-0.15, -0.45), (0.65, 0.5)])
_CROSS = Path([(-0.5, -0.5), (0.5, 0.5), (-0.5, 0.5), (0.5, -0.5)], [Path.MOVETO, Path.LINETO] * 2)
_MARKERS = dict(zip(SIGNS, ("o", "s", "D", "^", "X"), strict=True))


def draw(
    results: Mapping[str, Any], progress: Progress, artefacts: Artefacts, method_figures: MethodFigures
) -> dict[str, Figure]:
    """Draw the figures whose content a run has written, by the names of their files."""
    drawn, spectrum, thumbnails = charts(progress), spectrum_chart(artefacts.diagnostics), artefacts.thumbnails
    figures: dict[str, Figure | None] = {}
    if drawn:
        figures["curves"] = draw_curves(drawn, (results.get("selected") or {}).get("step"))
    if spectrum:
        figures["spectrum"] = draw_spectrum(spectrum)
    if artefacts.map:
        figures["map"] = draw_map(artefacts.map, thumbnails)
    if thumbnails and artefacts.gallery:
        figures["retrieval"] = draw_retrieval(artefacts.gallery, thumbnails)
    if thumbnails:
        figures["confused"] = draw_confused(artefacts.confused, thumbnails)
    return {name: figure for name, figure in figures.items() if figure is not None} | draw_method_figures(
        method_figures
    )


# -- curves and map ---------------------------------------------------------------------------------


def draw_curves(charts: Sequence[Chart], selected_step: int | None) -> Figure:
    """All charts of a run on one sheet; a thin upright line marks the step whose model was kept."""
    columns = min(3, len(charts))
    rows = math.ceil(len(charts) / columns)
    figure = Figure(figsize=(4.2 * columns, 2.9 * rows), layout="constrained", facecolor=PAPER)
    for place, chart in enumerate(charts):
        axes = figure.add_subplot(rows, columns, place + 1)
        _draw_chart(axes, chart)
        if selected_step is not None:
            axes.axvline(selected_step, color=SOFT, linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)
    return figure


def draw_spectrum(chart: Chart) -> Figure:
    figure = Figure(figsize=(5.2, 3.4), layout="constrained", facecolor=PAPER)
    _draw_chart(figure.add_subplot(), chart)
    return figure


def draw_map(embedding_map: EmbeddingMap, thumbnails: Thumbnails | None) -> Figure:
    """The map as the papers print it: points colored by class, thumbnails wherever there is room for one."""
    points = unit_square(embedding_map.positions)
    labels = sorted({record.label for record in embedding_map.records})
    colors = dict(zip(labels, class_colors(len(labels)), strict=True))
    shades = [colors[record.label] for record in embedding_map.records]
    figure = Figure(figsize=(8, 8), facecolor=PAPER)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0), aspect="equal")
    axes.axis("off")
    half = 0.5 / _PICTURES_ACROSS
    axes.set(xlim=(-2 * half, 1 + 2 * half), ylim=(-2 * half, 1 + 2 * half))
    axes.scatter(points[:, 0], points[:, 1], s=9, c=shades, linewidths=0, alpha=0.8)
    if thumbnails is None:
        return figure
    sheet = thumbnails.image()
    for place in apart(points, 2.2 * half):
        record = embedding_map.records[place]
        if record.tile is None:
            continue
        x, y = points[place]
        tile = sheet.crop(thumbnails.box(record.tile))
        axes.imshow(tile, extent=(x - half, x + half, y - half, y + half), aspect="auto", zorder=3)
        axes.add_patch(
            Rectangle(
                (x - half, y - half), 2 * half, 2 * half, fill=False, edgecolor=shades[place], linewidth=1.2, zorder=4
            )
        )
    axes.set(xlim=(-2 * half, 1 + 2 * half), ylim=(-2 * half, 1 + 2 * half))  # imshow moves the limits
    return figure


def apart(points: np.ndarray, distance: float) -> list[int]:
    """The places of a greedy choice of points, no two nearer than ``distance`` along both axes."""
    chosen: list[int] = []
    for place, point in enumerate(points):
        if not chosen or np.abs(points[chosen] - point).max(axis=1).min() >= distance:
            chosen.append(place)
    return chosen


def _draw_chart(axes: Axes, chart: Chart) -> None:
    for place, (name, curve) in enumerate(chart.lines.items()):
        color, dash = LINES[place % len(LINES)], _DASHES[place // len(LINES) % len(_DASHES)]
        marker = "o" if len(curve.steps) <= 30 and chart.axis == "step" else ""
        axes.plot(
            curve.steps,
            curve.mean,
            color=color,
            linestyle=dash,
            marker=marker,
            markersize=3,
            linewidth=1.5,
            label=f" {name}",  # matplotlib would drop a label that starts with an underscore
        )
        if curve.low != curve.high:
            axes.fill_between(curve.steps, curve.low, curve.high, color=color, alpha=0.16, linewidth=0)
    axes.set_title(chart.title, loc="left", fontsize=10, color=INK, fontweight="bold")
    axes.set_xlabel(chart.axis, fontsize=8, color=SOFT)
    axes.tick_params(which="both", labelsize=8, colors=SOFT, length=0)
    axes.grid(axis="y", color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(RULE)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    if chart.unit == "falling":
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(10, numticks=6))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:.0%}" if chart.unit == "share" else f"{value:g}")
    )
    if len(chart.lines) > 1:
        axes.legend(fontsize=7.5, frameon=False, labelcolor=INK, handlelength=1.6, loc="best")


# -- thumbnails in frames that say right or wrong ---------------------------------------------------


class Board:
    """Square cells, counted from the left upper one, that hold a thumbnail each.

    Tiles, frames and signs are collected and drawn together: one image and a few collections instead of hundreds.
    """

    def __init__(self, columns: float, rows: float, thumbnails: Thumbnails) -> None:
        self.figure = Figure(figsize=(columns * _INCH, rows * _INCH), facecolor=PAPER)
        self.axes: Axes = self.figure.add_axes((0.0, 0.0, 1.0, 1.0))
        self.axes.axis("off")
        self._columns, self._rows = columns, rows
        self._thumbnails, self._sheet = thumbnails, thumbnails.image()
        self._picture = Image.new("RGB", (round(columns * _PIXELS), round(rows * _PIXELS)), PAPER)
        self._frames: dict[str, list[Rectangle]] = {INK: [], RIGHT: [], WRONG: []}

    def put(self, record: Record, x: float, y: float, frame: str = INK) -> None:
        if record.tile is not None:
            side, box = round((1 - 2 * _EDGE) * _PIXELS), self._thumbnails.box(record.tile)
            tile = self._sheet.resize((side, side), Image.Resampling.BICUBIC, box=box)
            self._picture.paste(tile, (round((x + _EDGE) * _PIXELS), round((y + _EDGE) * _PIXELS)))
        self._frames[frame].append(Rectangle((x + _EDGE, y + _EDGE), 1 - 2 * _EDGE, 1 - 2 * _EDGE))

    def judge(self, neighbour: Neighbor, x: float, y: float) -> None:
        """A thumbnail with its verdict."""
        self.put(neighbour.record, x, y, RIGHT if neighbour.right else WRONG)

    def write(
        self, text: str, x: float, y: float, *, color: str = SOFT, size: float = 7.5, align: str = "left"
    ) -> None:
        self.axes.text(x, y, text, color=color, fontsize=size, ha=align, va="center")

    def rule(self, x: float, first: float, last: float) -> None:
        self.axes.plot([x, x], [first, last], color=RULE, linewidth=1)

    def finished(self) -> Figure:
        self.axes.imshow(np.asarray(self._picture), extent=(0, self._columns, self._rows, 0), aspect="auto", zorder=0)
        # Line and sign as well as color tell right from wrong.
        for frame, dash, sign in ((INK, "-", None), (RIGHT, "-", _TICK), (WRONG, (0, (2.2, 1.4)), _CROSS)):
            frames = self._frames[frame]
            self.axes.add_collection(
                PatchCollection(frames, facecolor="none", edgecolor=frame, linewidth=1.8, linestyle=dash)
            )
            if sign is not None:
                x = [rectangle.get_x() + 0.78 for rectangle in frames]
                y = [rectangle.get_y() + 0.78 for rectangle in frames]
                self.axes.plot(x, y, "o", markersize=7, color=frame, markeredgecolor=PAPER, markeredgewidth=0.7)
                self.axes.plot(x, y, marker=sign, markersize=3, fillstyle="none", color=PAPER, linestyle="none")
        self.axes.set(xlim=(0, self._columns), ylim=(self._rows, 0))
        return self.figure


def draw_retrieval(queries: Sequence[Query], thumbnails: Thumbnails) -> Figure:
    """One row per query: its nearest neighbours after training and, beside them, before."""
    queries = queries[:_QUERIES]
    depth = min(_NEIGHBORS, max(len(query.trained) for query in queries))
    compared = any(query.untrained for query in queries)
    second = 1.5 + depth + 0.5  # where the untrained neighbours begin
    board = Board(second + depth + 0.1 if compared else second, 0.6 + len(queries), thumbnails)
    board.write("query", 0.1, 0.3)
    board.write("nearest after training", 1.5, 0.3)
    if compared:
        board.write("nearest before training", second, 0.3)
        board.rule(second - 0.25, 0.6, 0.6 + len(queries))
    board.rule(1.25, 0.6, 0.6 + len(queries))
    for row, query in enumerate(queries):
        board.put(query.record, 0, 0.6 + row)
        for start, neighbours in ((1.5, query.trained), (second, query.untrained)):
            for place, neighbour in enumerate(neighbours[:depth]):
                board.judge(neighbour, start + place, 0.6 + row)
    return board.finished()


def draw_confused(confused: Sequence[Confusion], thumbnails: Thumbnails) -> Figure | None:
    """Pairs of classes: a query, the first neighbour that was wrong, and how often it happens."""
    shown = [(pair, pair.example) for pair in confused if pair.example][:_PAIRS]
    if not shown:
        return None
    columns = min(3, len(shown))
    board = Board(7.0 * columns, 1.2 * -(-len(shown) // columns) + 0.1, thumbnails)
    for place, (pair, (query, neighbour)) in enumerate(shown):
        x, y = 7.0 * (place % columns) + 0.1, 1.2 * (place // columns) + 0.1
        board.put(query, x, y)
        board.write("→", x + 1.2, y + 0.5, align="center", size=9)
        board.judge(Neighbor(neighbour, right=False, distance=None), x + 1.4, y)
        # One text each: a name in a script that runs to the left must not turn the sentence around.
        board.write(shorten(pair.label, 26), x + 2.6, y + 0.2, color=INK)
        board.write(f"in {pair.share:.0%} of {pair.queries} queries taken for", x + 2.6, y + 0.52, size=6.5)
        board.write(shorten(pair.taken_for, 26), x + 2.6, y + 0.84, color=INK)
    return board.finished()


# -- a method's own figures ------------------------------------------------------------------------


def draw_method_figures(method_figures: MethodFigures) -> dict[str, Figure]:
    """One figure for each figure that can be drawn, by the name of its file."""
    figures: dict[str, Figure] = {}
    for place, figure in enumerate(method_figures.figures, 1):
        if isinstance(figure, Scatter) and figure.points:
            figures[f"figure-{place}"] = _draw_scatter(figure)
        elif isinstance(figure, Tuples) and method_figures.thumbnails and figure.tuples:
            figures[f"figure-{place}"] = _draw_tuples(figure, method_figures)
        elif isinstance(figure, Dendrogram) and figure.leaves:
            figures[f"figure-{place}"] = _draw_dendrogram(figure, method_figures)
    return figures


def _draw_scatter(scatter: Scatter) -> Figure:
    figure = Figure(figsize=(6.4, 4.4), layout="constrained", facecolor=PAPER)
    axes = figure.add_subplot(aspect="equal")
    axes.axis("off")
    axes.set_title(scatter.title, loc="left", fontsize=10, color=INK, fontweight="bold")
    for segment in scatter.segments:
        start, end = scatter.points[segment.start], scatter.points[segment.end]
        arrow = {"arrowstyle": "-|>", "color": SOFT, "linewidth": 0.7, "shrinkA": 3, "shrinkB": 3}
        axes.annotate("", (end.x, end.y), (start.x, start.y), arrowprops=arrow)
    groups = list(dict.fromkeys(point.group for point in scatter.points))
    for place, group in enumerate(groups):
        points = [point for point in scatter.points if point.group == group]
        axes.scatter(
            [point.x for point in points],
            [point.y for point in points],
            s=34,
            color=LINES[place % len(LINES)],
            marker=_MARKERS[SIGNS[place % len(SIGNS)]],
            linewidths=0,
            label=f" {group}",  # matplotlib would drop a label that starts with an underscore
            zorder=3,
        )
    axes.legend(fontsize=7.5, frameon=False, labelcolor=INK, loc="best")
    axes.margins(0.08)
    return figure


def _draw_tuples(tuples: Tuples, method_figures: MethodFigures) -> Figure:
    shown = tuples.tuples[:_TUPLES]
    members = max((len(each.members) for each in shown), default=0)
    if method_figures.thumbnails is None:
        raise ValueError("tuples are drawn from thumbnails")
    board = Board(max(members, 1) * 1.2 + 8, 1.5 * len(shown) + 0.6, method_figures.thumbnails)
    board.write(shorten(tuples.title, 80), 0.1, 0.3, color=INK, size=9)
    for row, each in enumerate(shown):
        y = 0.6 + 1.5 * row
        for column, member in enumerate(each.members):
            board.put(method_figures.records[member.record], 1.2 * column, y)
            board.write(shorten(member.role, 14), 1.2 * column + 0.5, y + 1.2, size=6, align="center")
        board.write(shorten(each.caption, 60), 1.2 * members + 0.2, y + 0.5, color=INK)
    return board.finished()


def _draw_dendrogram(tree: Dendrogram, method_figures: MethodFigures) -> Figure:
    placed, thumbnails = place_dendrogram(tree), method_figures.thumbnails
    rows = len(placed.leaves)
    figure = Figure(figsize=(6.4, 0.16 * rows + 0.5), layout="constrained", facecolor=PAPER)
    axes = figure.add_subplot()
    axes.axis("off")
    axes.set_title(shorten(tree.title, 80), loc="left", fontsize=10, color=INK, fontweight="bold")
    for (x1, y1, x, y2, x2), _ in placed.brackets:
        axes.plot([x1, x, x, x2], [y1, y1, y2, y2], color=SOFT, linewidth=0.8)
    sheet = None if thumbnails is None else thumbnails.image()
    for row, leaf in enumerate(placed.leaves):
        tile = method_figures.records[leaf.record].tile
        if thumbnails is not None and sheet is not None and tile is not None:
            picture = sheet.crop(thumbnails.box(tile))
            axes.imshow(picture, extent=(TREE + 4, TREE + 16, row + 0.95, row + 0.05), aspect="auto")
        axes.text(TREE + 20, row + 0.5, shorten(leaf.name, 32), color=INK, fontsize=6, va="center")
    axes.set(xlim=(0, 1.5 * TREE), ylim=(rows, 0))
    return figure
