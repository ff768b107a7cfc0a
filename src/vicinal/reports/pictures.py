"""Retrieval gallery and confused pairs as matplotlib figures: thumbnails in frames that say right or wrong."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.path import Path
from PIL import Image

from vicinal.reports.artefacts import Confusion, Neighbour, Query, Record, Thumbnails
from vicinal.reports.colours import INK, PAPER, RIGHT, RULE, SOFT, WRONG
from vicinal.reports.lettering import shorten

_QUERIES, _NEIGHBOURS, _PAIRS = 12, 8, 12  # that a printed page holds
_INCH = 0.5  # side of a cell
_PIXELS = 100  # of a cell; more than the figure's own resolution
_EDGE = 0.08  # of a cell, between its border and the frame
_TICK = Path([(-0.6, 0.0), (-0.15, -0.45), (0.65, 0.5)])
_CROSS = Path([(-0.5, -0.5), (0.5, 0.5), (-0.5, 0.5), (0.5, -0.5)], [Path.MOVETO, Path.LINETO] * 2)


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
            left, top = self._thumbnails.corner(record.tile)
            box = (left, top, left + self._thumbnails.tile, top + self._thumbnails.tile)
            side = round((1 - 2 * _EDGE) * _PIXELS)
            tile = self._sheet.resize((side, side), Image.Resampling.BICUBIC, box=box)
            self._picture.paste(tile, (round((x + _EDGE) * _PIXELS), round((y + _EDGE) * _PIXELS)))
        self._frames[frame].append(Rectangle((x + _EDGE, y + _EDGE), 1 - 2 * _EDGE, 1 - 2 * _EDGE))

    def judge(self, neighbour: Neighbour, x: float, y: float) -> None:
        """A thumbnail with its verdict."""
        self.put(neighbour.record, x, y, RIGHT if neighbour.right else WRONG)

    def write(
        self, text: str, x: float, y: float, *, colour: str = SOFT, size: float = 7.5, align: str = "left"
    ) -> None:
        self.axes.text(x, y, text, color=colour, fontsize=size, ha=align, va="center")

    def rule(self, x: float, first: float, last: float) -> None:
        self.axes.plot([x, x], [first, last], color=RULE, linewidth=1)

    def finished(self) -> Figure:
        self.axes.imshow(np.asarray(self._picture), extent=(0, self._columns, self._rows, 0), aspect="auto", zorder=0)
        # Line and sign as well as colour tell right from wrong.
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
    depth = min(_NEIGHBOURS, max(len(query.trained) for query in queries))
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
        board.judge(Neighbour(neighbour, right=False, distance=None), x + 1.4, y)
        # One text each: a name in a script that runs to the left must not turn the sentence around.
        board.write(shorten(pair.label, 26), x + 2.6, y + 0.2, colour=INK)
        board.write(f"in {pair.share:.0%} of {pair.queries} queries taken for", x + 2.6, y + 0.52, size=6.5)
        board.write(shorten(pair.taken_for, 26), x + 2.6, y + 0.84, colour=INK)
    return board.finished()
