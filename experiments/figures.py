"""Figures of tables: scores against a scalar, and differences to the baseline by condition and
method."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from vicinal.bench.page import grid, score
from vicinal.bench.summary import Summary
from vicinal.bench.table import PROTOCOLS
from vicinal.evaluation.statistics import Estimate
from vicinal.reports.artifacts import LINES
from vicinal.reports.tables import MISSING, metric_title, signed

INK = "#1d2127"
SOFT = "#5b6470"
RULE = "#e3e4e0"
PAPER = "#ffffff"

STAY = "baseline"  # what to pick where no method is significantly above its baseline
_FULL = 0.05  # a difference of 5 points has the full color
_DARKEST = 0.62  # of the full color
_ABOVE = LINES[0]  # blue and vermilion: distinct also to color-blind readers
_BELOW = LINES[1]
_CELL = (1.0, 0.5)  # inches
_GAP = 0.22  # of a cell, between groups


@dataclass(frozen=True)
class Scatter:
    """Scores against a scalar that a method logs, such as HDML's λ, with intervals over seeds.

    Attributes:
        scalar: its name in ``metrics.jsonl``; the mean over the middle fifth of the training is
            drawn.
        axis: title of its axis.
        points: the rows that are its points.
        level: a row drawn as a level line.
    """

    scalar: str
    axis: str
    points: tuple[str, ...]
    level: str | None = None

    def rows(self) -> Iterable[str]:
        return (*self.points, *([] if self.level is None else [self.level]))

    def excerpt(self, summary: Summary) -> None:
        """A document shows the table itself."""

    def draw(self, summary: Summary) -> Figure | None:
        rows = {row.name: row for row in summary.rows}
        metric = summary.table.metrics[0]
        points = [
            (rows[name].scalars[self.scalar], rows[name].scores[metric], name)
            for name in self.points
            if self.scalar in rows[name].scalars and metric in rows[name].scores
        ]
        if len(points) < 2:
            return None
        points.sort(key=lambda point: point[0])
        figure = Figure(figsize=(6.4, 3.9), layout="constrained", facecolor=PAPER)
        axes = figure.add_subplot()
        at = [x for x, _, _ in points]
        means = [100 * y.mean for _, y, _ in points]
        halves = [100 * (y.half_width or 0.0) for _, y, _ in points]
        axes.errorbar(
            at,
            means,
            yerr=halves,
            color=LINES[0],
            marker="o",
            markersize=4,
            linewidth=1.5,
            capsize=2,
        )
        for x, y, name in zip(at, means, (name for _, _, name in points), strict=True):
            axes.annotate(
                name, (x, y), xytext=(4, 5), textcoords="offset points", fontsize=7.5, color=SOFT
            )
        level = None if self.level is None else rows[self.level].scores.get(metric)
        if level is not None:
            axes.axhline(100 * level.mean, color=LINES[1], linestyle="--", linewidth=1.2)
            axes.annotate(
                f"{self.level}",
                (0.01, 100 * level.mean),
                xycoords=("axes fraction", "data"),
                fontsize=7.5,
                xytext=(0, 3),
                textcoords="offset points",
                color=LINES[1],
            )
        axes.set_xlabel(self.axis, fontsize=9, color=SOFT)
        axes.set_ylabel(f"{metric_title(metric)}, per cent", fontsize=9, color=SOFT)
        _plain(axes)
        axes.grid(axis="y", color=RULE, linewidth=0.8)
        axes.set_axisbelow(True)
        return figure


@dataclass(frozen=True)
class MatrixLine:
    """One condition.

    Attributes:
        levels: the baselines' own scores.
        differences: each method's paired difference to its baseline; None where it was not run.
        pick: of the methods significantly above their baselines the one that scores highest;
            ``baseline`` where none is; empty while a cell has no interval.
    """

    condition: str
    levels: tuple[Estimate | None, ...]
    differences: tuple[Estimate | None, ...]
    pick: str

    def cells(self) -> list[str]:
        """A line of the table that has a line for each condition; bold where the interval excludes
        0."""
        differences = []
        for one in self.differences:
            text = MISSING if one is None else signed(one.mean)
            text += (
                "" if one is None or one.half_width is None else f" ± {100 * one.half_width:.1f}"
            )
            differences.append(f"**{text}**" if one is not None and one.significant else text)
        return [self.condition, *map(score, self.levels), *differences, self.pick or MISSING]


@dataclass(frozen=True)
class Matrix:
    """Differences to the baseline: a line for each condition, a column for each method.

    Attributes:
        by_condition: by condition, then by method, the row's name. Conditions whose last word is
            the same are grouped.
        levels: columns of baselines, whose own score is shown: by title, then by condition, the
            row's name.
    """

    by_condition: Mapping[str, Mapping[str, str]]
    levels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def rows(self) -> Iterator[str]:
        yield from (
            name
            for line in (*self.by_condition.values(), *self.levels.values())
            for name in line.values()
        )

    def methods(self) -> list[str]:
        """The columns, in the order in which conditions name them."""
        return list(dict.fromkeys(method for line in self.by_condition.values() for method in line))

    def lines(self, summary: Summary) -> list[MatrixLine]:
        rows = {row.name: row for row in summary.rows}
        metric = summary.table.metrics[0]
        found = []
        for condition, names in self.by_condition.items():
            levels = tuple(
                rows[level[condition]].scores.get(metric) for level in self.levels.values()
            )
            scores = {name: rows[row].scores.get(metric) for name, row in names.items()}
            known = {name: rows[row].difference for name, row in names.items()}
            differences = {
                name: None if one is None else one.over_seeds for name, one in known.items()
            }
            line = tuple(differences.get(name) for name in self.methods())
            found.append(MatrixLine(condition, levels, line, _pick(differences, scores)))
        return found

    def excerpt(self, summary: Summary) -> list[str]:
        """A line for each condition, which needs less room than one for each row."""
        heads = ["", *self.levels, *self.methods(), "pick"]
        cells = [line.cells() for line in self.lines(summary)]
        return [*grid(heads, cells), "", self.legend(summary)]

    def legend(self, summary: Summary) -> str:
        """How figure and table are read, in a paragraph."""
        table = summary.table
        counts = {
            one.count for line in self.lines(summary) for one in line.differences if one is not None
        }
        few = min(counts, default=0)
        many = max(counts, default=0)
        metric = metric_title(table.metrics[0])
        text = f"{' and '.join(self.levels)}: {metric}, per cent. " if self.levels else ""
        text += f"Methods: {metric} minus that of their baseline, in points"
        protocol = f"Protocol {table.protocol}: {PROTOCOLS[table.protocol]}."
        if many < 2:
            return (
                f"{text}, of {many} seed: no interval, so nothing is significant and nothing "
                f"is picked. {protocol}"
            )
        return (
            f"{text}, mean ± half of the 95 % interval over "
            f"{few if few == many else f'{few} to {many}'} seeds; bold "
            "(in the figure with ▲ ▼): it excludes 0. Pick: of the methods significantly above "
            "their baselines the "
            f"one that scores highest; {STAY} where none is. {protocol}"
        )

    def draw(self, summary: Summary) -> Figure | None:
        """A line for each condition: the baseline, how far each method is from it, and which one to
        pick.

        Color only repeats what sign, triangle and weight of the print say, so that nothing is lost
        without it.
        """
        lines = self.lines(summary)
        columns = self.methods()
        if not any(one for line in lines for one in line.differences):
            return None
        heads = [*self.levels, *columns, "pick"]
        across = _places([0] * len(self.levels) + [1] * len(columns) + [2])
        down = _places([line.condition.split()[-1] for line in lines])
        figure = Figure(
            figsize=(2.2 + _CELL[0] * (across[-1] + 1.4), 1.9 + _CELL[1] * down[-1]),
            facecolor=PAPER,
        )
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(-0.6 - 2.2 / _CELL[0], across[-1] + 0.8)
        axes.set_ylim(down[-1] + 1.9, -1.9)
        for x, head in zip(across, heads, strict=True):
            axes.text(
                x,
                -0.62,
                "\n".join(wrap(head, 13)),
                ha="center",
                va="bottom",
                fontsize=8.5,
                color=INK,
            )
        for y, line in zip(down, lines, strict=True):
            axes.text(-0.62, y, line.condition, ha="right", va="center", fontsize=9, color=INK)
            for x, level in zip(across, line.levels, strict=False):
                axes.text(x, y, score(level), ha="center", va="center", fontsize=8.5, color=SOFT)
            for x, name, found in zip(
                across[len(line.levels) :], columns, line.differences, strict=False
            ):
                _draw_cell(axes, x, y, found, picked=name == line.pick)
            bold = "normal" if line.pick in ("", STAY) else "bold"
            pick = "\n".join(wrap(line.pick, 13)) or MISSING
            axes.text(
                across[-1],
                y,
                pick,
                ha="center",
                va="center",
                fontsize=8.5,
                color=INK,
                fontweight=bold,
            )
        said = "\n".join(wrap(self.legend(summary), 205))
        axes.text(-0.6 - 2.1 / _CELL[0], down[-1] + 0.75, said, fontsize=8, color=SOFT, va="top")
        return figure


def _pick(differences: Mapping[str, Estimate | None], scores: Mapping[str, Estimate | None]) -> str:
    better = {
        name: own.mean
        for name, own in scores.items()
        if own is not None and (found := differences[name]) is not None and found.above_zero
    }
    if better:
        # Baselines differ in their batches, so scores count.
        return max(better, key=better.__getitem__)
    return (
        STAY if all(one is not None and one.low is not None for one in differences.values()) else ""
    )


def _draw_cell(axes: Axes, x: float, y: float, found: Estimate | None, *, picked: bool) -> None:
    """A difference with its interval; ▲ and ▼ where that leaves 0, framed where the method is the
    one to pick."""
    mean = 0.0 if found is None else found.mean
    certain = found is not None and found.significant
    share = min(1.0, abs(mean) / _FULL) * (1.0 if certain else 0.55)
    fill = _mixed(_ABOVE if mean > 0 else _BELOW, share)
    edge, width = (INK, 1.6) if picked else (RULE, 0.6)
    axes.add_patch(
        Rectangle((x - 0.47, y - 0.44), 0.94, 0.88, facecolor=fill, edgecolor=edge, linewidth=width)
    )
    if found is None:
        axes.text(x, y, "not yet", ha="center", va="center", fontsize=7, color=SOFT)
        return
    sign = ("▲ " if mean > 0 else "▼ ") if certain else ""
    weight = "bold" if certain else "normal"
    ink = INK if certain else SOFT
    high = y if found.half_width is None else y - 0.13
    axes.text(
        x,
        high,
        f"{sign}{signed(mean)}",
        ha="center",
        va="center",
        fontsize=9.5,
        color=ink,
        fontweight=weight,
    )
    if found.half_width is not None:
        axes.text(
            x,
            y + 0.24,
            f"± {100 * found.half_width:.1f}",
            ha="center",
            va="center",
            fontsize=7,
            color=ink,
        )


def _places(groups: Sequence[object]) -> list[float]:
    """Where lines or columns stand, with a gap where a new group begins."""
    found = []
    at = 0.0
    for before, group in zip([groups[0], *groups], groups, strict=False):
        at += _GAP if group != before else 0.0
        found.append(at)
        at += 1.0
    return found


def _mixed(color: str, share: float) -> tuple[float, ...]:
    """The color over paper; at most so dark that ink stays readable on it."""
    return tuple(1 - _DARKEST * share * (1 - part) for part in to_rgb(color))


def _plain(axes: Axes) -> None:
    axes.tick_params(labelsize=8.5, colors=INK, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(RULE)
