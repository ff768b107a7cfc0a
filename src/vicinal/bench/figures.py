"""The figure of a table: scores against a reading, or differences to the twin by condition and method."""

import io

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from vicinal.bench.summary import Summary, SummaryRow
from vicinal.bench.tables import Matrix, Readings
from vicinal.bench.wording import signed
from vicinal.reports.colours import INK, LINES, PAPER, RIGHT, RULE, SOFT, WRONG
from vicinal.reports.tables import metric_title

_FULL = 0.05  # a difference of 5 points has the full colour
_COLOURS = LinearSegmentedColormap.from_list("difference", [WRONG, PAPER, RIGHT])
_CELL = (1.35, 0.46)  # inches


def draw(summary: Summary) -> Figure | None:
    """The table's figure, of what is there; None where it has none, or nothing to draw yet."""
    rows = {row.name: row for row in summary.rows}
    match summary.table.figure:
        case Readings() as asked:
            return _draw_readings(asked, rows, summary.table.metrics[0])
        case Matrix() as asked:
            return _draw_matrix(asked, rows, summary.table.metrics[0])
    return None


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=144, metadata={"Software": None})  # equal results, equal bytes
    return buffer.getvalue()


def _draw_readings(asked: Readings, rows: dict[str, SummaryRow], metric: str) -> Figure | None:
    """Points from low to high along the reading that their runs reached, with intervals over seeds."""
    points = [
        (rows[name].readings[asked.reading], rows[name].scores[metric], name)
        for name in asked.rows
        if asked.reading in rows[name].readings and metric in rows[name].scores
    ]
    if len(points) < 2:
        return None
    points.sort(key=lambda point: point[0])
    figure = Figure(figsize=(6.4, 3.9), layout="constrained", facecolor=PAPER)
    axes = figure.add_subplot()
    at, means = [x for x, _, _ in points], [100 * y.mean for _, y, _ in points]
    halves = [100 * (y.half_width or 0.0) for _, y, _ in points]
    axes.errorbar(at, means, yerr=halves, color=LINES[0], marker="o", markersize=4, linewidth=1.5, capsize=2)
    for x, y, name in zip(at, means, (name for _, _, name in points), strict=True):
        axes.annotate(name, (x, y), xytext=(4, 5), textcoords="offset points", fontsize=7.5, color=SOFT)
    level = None if asked.level is None else rows[asked.level].scores.get(metric)
    if level is not None:
        axes.axhline(100 * level.mean, color=LINES[1], linestyle="--", linewidth=1.2)
        axes.annotate(
            f"{asked.level}",
            (0.01, 100 * level.mean),
            xycoords=("axes fraction", "data"),
            fontsize=7.5,
            xytext=(0, 3),
            textcoords="offset points",
            color=LINES[1],
        )
    axes.set_xlabel(asked.axis, fontsize=9, color=SOFT)
    axes.set_ylabel(f"{metric_title(metric)}, per cent", fontsize=9, color=SOFT)
    _plain(axes)
    axes.grid(axis="y", color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    return figure


def _draw_matrix(asked: Matrix, rows: dict[str, SummaryRow], metric: str) -> Figure | None:
    """Differences to the twin in points; frames where the interval over seeds leaves 0, the best of a line in bold."""
    conditions = list(asked.cells)
    methods = list(dict.fromkeys(method for line in asked.cells.values() for method in line))
    values = np.full((len(conditions), len(methods)), np.nan)
    sure = np.zeros(values.shape, dtype=bool)
    for i, condition in enumerate(conditions):
        for j, method in enumerate(methods):
            found = rows[asked.cells[condition][method]].difference if method in asked.cells[condition] else None
            if found is not None:
                values[i, j] = found.over_seeds.mean
                low, high = found.over_seeds.low, found.over_seeds.high
                sure[i, j] = low is not None and high is not None and (low > 0 or high < 0)
    if np.isnan(values).all():
        return None
    size = (2.6 + _CELL[0] * len(methods), 1.3 + _CELL[1] * len(conditions))
    figure = Figure(figsize=size, layout="constrained", facecolor=PAPER)
    axes = figure.add_subplot()
    axes.imshow(values, cmap=_COLOURS, vmin=-_FULL, vmax=_FULL, aspect="auto")
    for i, line in enumerate(values):
        best = None if np.isnan(line).all() else int(np.nanargmax(line))
        for j, value in enumerate(line):
            text = "not run" if np.isnan(value) else signed(value)
            shade = INK if abs(np.nan_to_num(value)) < 0.8 * _FULL else PAPER
            bold = "bold" if j == best and sure[i, j] and value > 0 else "normal"
            axes.text(j, i, text, ha="center", va="center", fontsize=9, color=shade, fontweight=bold)
            if sure[i, j]:
                axes.plot(
                    [j - 0.46, j + 0.46, j + 0.46, j - 0.46, j - 0.46],
                    [i - 0.42, i - 0.42, i + 0.42, i + 0.42, i - 0.42],
                    color=INK,
                    linewidth=0.9,
                )
    axes.set_xticks(range(len(methods)), [method.replace(" (", "\n(") for method in methods])
    axes.set_yticks(range(len(conditions)), conditions)
    axes.xaxis.tick_top()
    _plain(axes)
    axes.spines["bottom"].set_visible(False)
    axes.set_title(
        f"{metric_title(metric)} minus plain twin, in points; framed: the interval over seeds leaves 0",
        loc="left",
        fontsize=9,
        color=SOFT,
        y=-0.1,
    )
    return figure


def _plain(axes: Axes) -> None:
    axes.tick_params(labelsize=8.5, colors=INK, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(RULE)
