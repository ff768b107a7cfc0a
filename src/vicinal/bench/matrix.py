"""A figure's differences by condition and method: how plain does, how far each method is from it, and what to pick."""

from collections.abc import Mapping
from dataclasses import dataclass

from vicinal.bench.statistics import Estimate
from vicinal.bench.summary import Summary
from vicinal.bench.tables import PROTOCOLS, Matrix
from vicinal.bench.wording import score, signed
from vicinal.reports.tables import MISSING, metric_title

STAY = "plain"  # what to pick where no method is surely above its twin


@dataclass(frozen=True)
class MatrixLine:
    """One condition.

    Attributes:
        levels: the plain rows' own scores.
        differences: each method's paired difference to its plain twin; None where it was not run.
        pick: of the methods that are surely above their twins the one that scores highest; ``plain`` where none is;
            empty while a cell has no interval and nothing is sure.
    """

    condition: str
    levels: tuple[Estimate | None, ...]
    differences: tuple[Estimate | None, ...]
    pick: str


def methods(asked: Matrix) -> list[str]:
    """The columns, in the order in which conditions name them."""
    return list(dict.fromkeys(method for line in asked.cells.values() for method in line))


def matrix_lines(summary: Summary, asked: Matrix) -> list[MatrixLine]:
    rows, metric, found = {row.name: row for row in summary.rows}, summary.table.metrics[0], []
    for condition, cells in asked.cells.items():
        levels = tuple(rows[names[condition]].scores.get(metric) for names in asked.levels.values())
        scores = {name: rows[row].scores.get(metric) for name, row in cells.items()}
        known = {name: rows[row].difference for name, row in cells.items()}
        differences = {name: None if one is None else one.over_seeds for name, one in known.items()}
        line = tuple(differences.get(name) for name in methods(asked))
        found.append(MatrixLine(condition, levels, line, _pick(differences, scores)))
    return found


def sure(estimate: Estimate | None) -> bool:
    """Whether the interval over seeds leaves 0."""
    return (
        estimate is not None
        and estimate.low is not None
        and estimate.high is not None
        and (estimate.low > 0 or estimate.high < 0)
    )


def grid_columns(asked: Matrix) -> list[str]:
    return ["", *asked.levels, *methods(asked), "pick"]


def grid_cells(line: MatrixLine) -> list[str]:
    """A line of the table that has a line for each condition; bold where the interval leaves 0."""
    differences = []
    for one in line.differences:
        text = MISSING if one is None else signed(one.mean)
        text += "" if one is None or one.half_width is None else f" ± {100 * one.half_width:.1f}"
        differences.append(f"**{text}**" if sure(one) else text)
    return [line.condition, *map(score, line.levels), *differences, line.pick or MISSING]


def matrix_legend(summary: Summary) -> str:
    """How figure and table are read, in a paragraph."""
    asked, table = summary.table.figure, summary.table
    if not isinstance(asked, Matrix):
        return ""
    counts = {one.count for line in matrix_lines(summary, asked) for one in line.differences if one is not None}
    few, many = min(counts, default=0), max(counts, default=0)
    metric = metric_title(table.metrics[0])
    said = f"{' and '.join(asked.levels)}: {metric}, per cent. " if asked.levels else ""
    said += f"Methods: {metric} minus that of their plain twin, in points"
    protocol = f"Protocol {table.protocol}: {PROTOCOLS[table.protocol]}."
    if many < 2:
        return f"{said}, of {many} seed: no interval, so nothing is sure and nothing is picked. {protocol}"
    return (
        f"{said}, mean ± half of the 95 % interval over {few if few == many else f'{few} to {many}'} seeds; bold "
        f"(in the figure with ▲ ▼): it leaves 0. Pick: of the methods that are surely above their twins the "
        f"one that scores highest; {STAY} where none is. {protocol}"
    )


def _pick(differences: Mapping[str, Estimate | None], scores: Mapping[str, Estimate | None]) -> str:
    better = {
        name: own.mean
        for name, own in scores.items()
        if own is not None and (found := differences[name]) is not None and found.above_zero
    }
    if better:
        return max(better, key=better.__getitem__)  # twins differ in their batches, so scores count
    return STAY if all(one is not None and one.low is not None for one in differences.values()) else ""
