"""The figure of a table: scores against a scalar, or differences to the baseline by condition and method."""

import io
from collections.abc import Sequence
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from vicinal.bench.statistics import Estimate
from vicinal.bench.summary import Summary, SummaryRow
from vicinal.bench.table import Matrix, Scatter
from vicinal.bench.text import STAY, matrix_legend, matrix_lines, matrix_methods, score, signed
from vicinal.reports.colours import INK, LINES, PAPER, RULE, SOFT
from vicinal.reports.tables import MISSING, metric_title

_FULL = 0.05  # a difference of 5 points has the full colour
_DARKEST = 0.62  # of the full colour
_ABOVE, _BELOW = LINES[0], LINES[1]  # blue and vermilion: distinct also to color-blind readers
_CELL = (1.0, 0.5)  # inches
_GAP = 0.22  # of a cell, between groups


def draw(summary: Summary) -> Figure | None:
    """The table's figure, of what is there; None where it has none, or nothing to draw yet."""
    rows = {row.name: row for row in summary.rows}
    match summary.table.figure:
        case Scatter() as asked:
            return _draw_scatter(asked, rows, summary.table.metrics[0])
        case Matrix() as asked:
            return _draw_matrix(asked, summary)
    return None


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=144, metadata={"Software": None})  # equal results, equal bytes
    return buffer.getvalue()


def _draw_scatter(asked: Scatter, rows: dict[str, SummaryRow], metric: str) -> Figure | None:
    """Points along the scalar that their runs reached, with intervals over seeds."""
    points = [
        (rows[name].scalars[asked.scalar], rows[name].scores[metric], name)
        for name in asked.rows
        if asked.scalar in rows[name].scalars and metric in rows[name].scores
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


def _draw_matrix(asked: Matrix, summary: Summary) -> Figure | None:
    """A line for each condition: the baseline, how far each method is from it, and which one to pick.

    Colour only repeats what sign, triangle and weight of the print say, so that nothing is lost without it.
    """
    lines, columns = matrix_lines(summary, asked), matrix_methods(asked)
    if not any(one for line in lines for one in line.differences):
        return None
    heads = [*asked.levels, *columns, "pick"]
    across = _places([0] * len(asked.levels) + [1] * len(columns) + [2])
    down = _places([line.condition.split()[-1] for line in lines])
    figure = Figure(figsize=(2.2 + _CELL[0] * (across[-1] + 1.4), 1.9 + _CELL[1] * down[-1]), facecolor=PAPER)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(-0.6 - 2.2 / _CELL[0], across[-1] + 0.8)
    axes.set_ylim(down[-1] + 1.9, -1.9)
    for x, head in zip(across, heads, strict=True):
        axes.text(x, -0.62, "\n".join(wrap(head, 13)), ha="center", va="bottom", fontsize=8.5, color=INK)
    for y, line in zip(down, lines, strict=True):
        axes.text(-0.62, y, line.condition, ha="right", va="center", fontsize=9, color=INK)
        for x, level in zip(across, line.levels, strict=False):
            axes.text(x, y, score(level), ha="center", va="center", fontsize=8.5, color=SOFT)
        for x, name, found in zip(across[len(line.levels) :], columns, line.differences, strict=False):
            _draw_cell(axes, x, y, found, picked=name == line.pick)
        bold = "normal" if line.pick in ("", STAY) else "bold"
        pick = "\n".join(wrap(line.pick, 13)) or MISSING
        axes.text(across[-1], y, pick, ha="center", va="center", fontsize=8.5, color=INK, fontweight=bold)
    said = "\n".join(wrap(matrix_legend(summary, asked), 205))
    axes.text(-0.6 - 2.1 / _CELL[0], down[-1] + 0.75, said, fontsize=8, color=SOFT, va="top")
    return figure


def _draw_cell(axes: Axes, x: float, y: float, found: Estimate | None, *, picked: bool) -> None:
    """A difference with its interval; ▲ and ▼ where that leaves 0, framed where the method is the one to pick."""
    mean, certain = (0.0 if found is None else found.mean), found is not None and found.significant
    share = min(1.0, abs(mean) / _FULL) * (1.0 if certain else 0.55)
    fill = _mixed(_ABOVE if mean > 0 else _BELOW, share)
    edge, width = (INK, 1.6) if picked else (RULE, 0.6)
    axes.add_patch(Rectangle((x - 0.47, y - 0.44), 0.94, 0.88, facecolor=fill, edgecolor=edge, linewidth=width))
    if found is None:
        axes.text(x, y, "not yet", ha="center", va="center", fontsize=7, color=SOFT)
        return
    sign = ("▲ " if mean > 0 else "▼ ") if certain else ""
    weight = "bold" if certain else "normal"
    ink = INK if certain else SOFT
    high = y if found.half_width is None else y - 0.13
    axes.text(x, high, f"{sign}{signed(mean)}", ha="center", va="center", fontsize=9.5, color=ink, fontweight=weight)
    if found.half_width is not None:
        axes.text(x, y + 0.24, f"± {100 * found.half_width:.1f}", ha="center", va="center", fontsize=7, color=ink)


def _places(groups: Sequence[object]) -> list[float]:
    """Where lines or columns stand, with a gap where a new group begins."""
    found, at = [], 0.0
    for before, group in zip([groups[0], *groups], groups, strict=False):
        at += _GAP if group != before else 0.0
        found.append(at)
        at += 1.0
    return found


def _mixed(colour: str, share: float) -> tuple[float, ...]:
    """The colour over paper; at most so dark that ink stays readable on it."""
    return tuple(1 - _DARKEST * share * (1 - part) for part in to_rgb(colour))


def _plain(axes: Axes) -> None:
    axes.tick_params(labelsize=8.5, colors=INK, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(RULE)
