"""Curves, spectrum and map as matplotlib figures, for papers and READMEs. No global state: pyplot is never touched."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from vicinal.reports.artefacts import EmbeddingMap, Thumbnails
from vicinal.reports.colours import INK, LINES, PAPER, RULE, SOFT, class_colours
from vicinal.reports.series import Chart

_DASHES = ("-", "--", ":", "-.")  # the ninth line repeats a colour, never a colour and a dash
_PICTURES_ACROSS = 26  # thumbnails that fit side by side on the map


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
    """The map as the papers print it: points coloured by class, thumbnails wherever there is room for one."""
    points = unit_square(embedding_map.positions)
    labels = sorted({record.label for record in embedding_map.records})
    colours = dict(zip(labels, class_colours(len(labels)), strict=True))
    shades = [colours[record.label] for record in embedding_map.records]
    figure = Figure(figsize=(8, 8), facecolor=PAPER)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0), aspect="equal")
    axes.axis("off")
    half = 0.5 / _PICTURES_ACROSS
    axes.set(xlim=(-2 * half, 1 + 2 * half), ylim=(-2 * half, 1 + 2 * half))
    axes.scatter(points[:, 0], points[:, 1], s=9, c=shades, linewidths=0, alpha=0.8)
    if thumbnails is None:
        return figure
    sheet = np.asarray(thumbnails.image())
    for place in apart(points, 2.2 * half):
        record = embedding_map.records[place]
        if record.tile is None:
            continue
        x, y = points[place]
        left, top = thumbnails.corner(record.tile)
        tile = sheet[top : top + thumbnails.tile, left : left + thumbnails.tile]
        extent = (x - half, x + half, y - half, y + half)
        axes.imshow(tile, extent=extent, aspect="auto", zorder=3)
        axes.plot(
            [x - half, x + half, x + half, x - half, x - half],
            [y - half, y - half, y + half, y + half, y - half],
            color=shades[place],
            linewidth=1.2,
            zorder=4,
        )
    axes.set(xlim=(-2 * half, 1 + 2 * half), ylim=(-2 * half, 1 + 2 * half))  # imshow moves the limits
    return figure


def unit_square(positions: np.ndarray) -> np.ndarray:
    """Positions [m 2] moved and scaled, both axes alike, to fill the middle of the unit square.

    >>> unit_square(np.array([[0.0, 10.0], [4.0, 12.0]])).tolist()
    [[0.0, 0.25], [1.0, 0.75]]
    """
    low, high = positions.min(axis=0), positions.max(axis=0)
    extent = float((high - low).max()) or 1.0  # one point, or all at one place, stay in the middle
    scaled: np.ndarray = (positions - (low + high) / 2) / extent + 0.5
    return scaled


def apart(points: np.ndarray, distance: float) -> list[int]:
    """The places of a greedy choice of points, no two nearer than ``distance`` along both axes."""
    chosen: list[int] = []
    for place, point in enumerate(points):
        if not chosen or np.abs(points[chosen] - point).max(axis=1).min() >= distance:
            chosen.append(place)
    return chosen


def _draw_chart(axes: Axes, chart: Chart) -> None:
    for place, (name, curve) in enumerate(chart.lines.items()):
        colour, dash = LINES[place % len(LINES)], _DASHES[place // len(LINES) % len(_DASHES)]
        marker = "o" if len(curve.steps) <= 30 and chart.axis == "step" else ""
        axes.plot(
            curve.steps,
            curve.mean,
            color=colour,
            linestyle=dash,
            marker=marker,
            markersize=3,
            linewidth=1.5,
            label=f" {name}",  # matplotlib would drop a label that starts with an underscore
        )
        if curve.low != curve.high:
            axes.fill_between(curve.steps, curve.low, curve.high, color=colour, alpha=0.16, linewidth=0)
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
