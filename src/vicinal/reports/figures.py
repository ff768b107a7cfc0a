"""The figures of a report in matplotlib, for papers and READMEs. No global state: pyplot is never
touched.

Class names come in any script, and as any file system allows; ``use_fonts`` makes them drawable.
"""

import math
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from PIL import Image

from vicinal.reports.artefacts import Artefacts, EmbeddingMap, Query, Thumbnails, unit_square
from vicinal.reports.colors import INK, LINES, PAPER, RIGHT, RULE, SOFT, WRONG, class_colors
from vicinal.reports.series import Chart, Progress, charts, spectrum_chart

_DASHES = ("-", "--", ":", "-.")  # the ninth line repeats a color, never a color and a dash
# lines of each dash: the palette's two blues, of Recall@1 and R-precision, differ in more than
# shade
_SOLID = 4
_PICTURES_ACROSS = 26  # thumbnails that fit side by side on the map
_QUERIES, _NEIGHBORS = 12, 8  # that a printed page holds
_NAME = 24  # characters of a class's name on the map
_INCH = 0.5  # side of a thumbnail's cell
_PIXELS = 100  # of a cell; more than the figure's own resolution
_EDGE = 0.08  # of a cell, between its border and the frame
# DejaVu comes with matplotlib; the others lend it scripts that it lacks, on machines that have
# them.
_FALLBACKS: tuple[str, ...] = (
    *(
        "Noto Sans CJK JP",
        "Noto Sans CJK SC",
        "Noto Sans CJK KR",
        "Source Han Sans",
        "WenQuanYi Zen Hei",
    ),
    *(
        "Hiragino Sans",
        "PingFang SC",
        "Microsoft YaHei",
        "Yu Gothic",
        "Malgun Gothic",
        "Arial Unicode MS",
    ),
)
_UNKNOWN = "□"


def draw(results: Mapping[str, Any], progress: Progress, artefacts: Artefacts) -> dict[str, Figure]:
    """Draw the figures whose content a run has written, by the names of their files."""
    drawn, spectrum, thumbnails = (
        charts(progress),
        spectrum_chart(artefacts.diagnostics),
        artefacts.thumbnails,
    )
    figures: dict[str, Figure] = {}
    if drawn:
        figures["curves"] = draw_curves(drawn, (results.get("selected") or {}).get("step"))
    if spectrum:
        figures["spectrum"] = draw_curves([spectrum], None)
    if artefacts.map:
        figures["map"] = draw_map(artefacts.map, thumbnails)
    if artefacts.gallery_thumbnails and artefacts.gallery:
        figures["retrieval"] = draw_retrieval(artefacts.gallery, artefacts.gallery_thumbnails)
    for figure in figures.values():
        use_fonts(figure)
    return figures


def draw_curves(charts: Sequence[Chart], selected_step: int | None) -> Figure:
    """All charts of a run on one sheet; a thin upright line marks the step whose model was kept."""
    columns, rows = min(3, len(charts)), math.ceil(len(charts) / 3)
    figure = Figure(figsize=(4.2 * columns, 2.9 * rows), layout="constrained", facecolor=PAPER)
    for place, chart in enumerate(charts):
        axes = figure.add_subplot(rows, columns, place + 1)
        _draw_chart(axes, chart)
        if selected_step is not None:
            axes.axvline(selected_step, color=SOFT, linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)
    return figure


def draw_map(embedding_map: EmbeddingMap, thumbnails: Thumbnails | None) -> Figure:
    """The map as the papers print it: points colored by class, thumbnails wherever there is room
    for one."""
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
    _name_classes(axes, points, [record.label for record in embedding_map.records])
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
        corner, side = (x - half, y - half), 2 * half
        axes.add_patch(
            Rectangle(
                corner, side, side, fill=False, edgecolor=shades[place], linewidth=1.2, zorder=4
            )
        )
    axes.set(
        xlim=(-2 * half, 1 + 2 * half), ylim=(-2 * half, 1 + 2 * half)
    )  # imshow moves the limits
    return figure


def _name_classes(axes: Axes, points: np.ndarray, labels: Sequence[str]) -> None:
    """Write the names of classes at their middles, as many as have room."""
    names = sorted(set(labels))
    middles = np.array(
        [np.median(points[[label == name for label in labels]], axis=0) for name in names]
    )
    for place in apart(middles * [1, 4], 0.14):  # a name is wider than high
        words = names[place] if len(names[place]) <= _NAME else names[place][: _NAME - 1] + "…"
        box = {"facecolor": PAPER, "edgecolor": "none", "alpha": 0.75, "pad": 1.0}
        style: dict[str, Any] = {
            "fontsize": 8,
            "color": INK,
            "ha": "center",
            "va": "center",
            "zorder": 5,
        }
        axes.text(middles[place, 0], middles[place, 1], words, bbox=box, **style)


def apart(points: np.ndarray, distance: float) -> list[int]:
    """The places of a greedy choice of points, no two nearer than ``distance`` along both axes."""
    chosen: list[int] = []
    for place, point in enumerate(points):
        if not chosen or np.abs(points[chosen] - point).max(axis=1).min() >= distance:
            chosen.append(place)
    return chosen


def _draw_chart(axes: Axes, chart: Chart) -> None:
    for place, (name, curve) in enumerate(chart.lines.items()):
        color, dash = LINES[place % len(LINES)], _DASHES[place // _SOLID % len(_DASHES)]
        marker = "o" if len(curve.steps) <= 30 and chart.axis == "step" else ""
        style: dict[str, Any] = {
            "color": color,
            "linestyle": dash,
            "marker": marker,
            "markersize": 3,
            "linewidth": 1.5,
        }
        axes.plot(
            curve.steps, curve.mean, label=f" {name}", **style
        )  # a label that starts with "_" would be dropped
        if curve.low != curve.high:
            axes.fill_between(
                curve.steps, curve.low, curve.high, color=color, alpha=0.16, linewidth=0
            )
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
    share = chart.unit == "share"
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:.0%}" if share else f"{value:g}")
    )
    if len(chart.lines) > 1:
        axes.legend(fontsize=7.5, frameon=False, labelcolor=INK, handlelength=1.6, loc="best")


def draw_retrieval(queries: Sequence[Query], thumbnails: Thumbnails) -> Figure:
    """One row per query: its nearest neighbors after training and, beside them, before, in frames
    that say whether they are right (a whole line) or wrong (a broken one)."""
    queries = queries[:_QUERIES]
    depth = min(_NEIGHBORS, max(len(query.trained) for query in queries))
    starts = {0.0: "query", 1.5: "nearest after training"}  # columns, in cells
    if any(query.untrained for query in queries):
        starts[depth + 2.0] = "nearest before training"
    width, height = max(starts) + depth, len(queries) + 0.6
    picture = Image.new("RGB", (round(width * _PIXELS), round(height * _PIXELS)), PAPER)
    sheet, side = thumbnails.image(), 1 - 2 * _EDGE
    frames: dict[str, list[Rectangle]] = {INK: [], RIGHT: [], WRONG: []}
    for row, query in enumerate(queries):
        shown = [(0.0, query.record, INK)]
        for start, found in zip(list(starts)[1:], (query.trained, query.untrained), strict=False):
            shown += [
                (start + place, neighbor.record, RIGHT if neighbor.right else WRONG)
                for place, neighbor in enumerate(found[:depth])
            ]
        for x, record, frame in shown:
            left, top = x + _EDGE, row + 0.6 + _EDGE
            frames[frame].append(Rectangle((left, top), side, side))
            if record.tile is not None:
                size = (round(side * _PIXELS),) * 2
                tile = sheet.resize(size, Image.Resampling.BICUBIC, box=thumbnails.box(record.tile))
                picture.paste(tile, (round(left * _PIXELS), round(top * _PIXELS)))
    figure = Figure(figsize=(width * _INCH, height * _INCH), facecolor=PAPER)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.axis("off")
    axes.imshow(np.asarray(picture), extent=(0, width, height, 0), aspect="auto", zorder=0)
    for color, framed in frames.items():
        dash = (0, (2.2, 1.4)) if color == WRONG else "-"
        axes.add_collection(
            PatchCollection(
                framed, facecolor="none", edgecolor=color, linewidth=2.5, linestyle=dash
            )
        )
    for x, words in starts.items():
        axes.text(x + 0.1, 0.3, words, color=SOFT, fontsize=7.5, va="center")
        if x:
            axes.plot([x - 0.25] * 2, [0.6, height], color=RULE, linewidth=1)
    axes.set(xlim=(0, width), ylim=(height, 0))
    return figure


# -- text
# -----------------------------------------------------------------------------------------------------------


def printable(text: str) -> str:
    """The text as our fonts can draw it: what they lack is a box (matplotlib would warn of each),
    and invisible characters, which could turn the rest of a line around, are left out.

    >>> printable("A·Α\\n" + chr(0xE000) + chr(0x202E) + "b")
    'A·Α □b'
    """
    known = _characters()
    return "".join(
        " " if character.isspace() else character if ord(character) in known else _UNKNOWN
        for character in text
        if unicodedata.category(character) != "Cf"
    )


def use_fonts(figure: Figure) -> None:
    """Make all text of a finished figure drawable: known characters, our fonts, and ``$`` as a
    plain dollar."""
    for text in figure.findobj(Text):
        text.set_text(printable(text.get_text()))
        text.set_parse_math(False)
        text.set_fontfamily(list(_families()))
    for axes in figure.axes:
        axes.tick_params(which="both", labelfontfamily=list(_families()))


@cache
def _families() -> tuple[str, ...]:
    installed = {entry.name for entry in fontManager.ttflist}
    return ("DejaVu Sans", *(name for name in _FALLBACKS if name in installed))


@cache
def _characters() -> frozenset[int]:
    paths = [findfont(FontProperties(family=[family])) for family in _families()]
    return frozenset().union(*(get_font(path).get_charmap() for path in paths))
