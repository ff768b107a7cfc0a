"""A table's results as numbers to print: means with intervals, paired differences to the baseline,
marks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from vicinal.bench.results import Line
from vicinal.bench.run import Outcome
from vicinal.bench.table import UNTRAINED, UNTRAINED_ROWS, Row, Table
from vicinal.evaluation.statistics import Difference, Estimate, correct, difference, t_interval
from vicinal.reports.tables import metric_title


@dataclass
class SummaryRow:
    """One printed line.

    Attributes:
        against: the row that it is compared with.
        held_out: mean Recall@1 on held-out training classes, None where none were held out for it.
        done: seeds that have a result.
        marks: what a reader must not overlook.
        scalars: means of the method's scalars in mid-training, over seeds.
    """

    name: str
    scores: Mapping[str, Estimate]
    against: str | None
    difference: Difference | None
    held_out: float | None
    done: int
    published: Mapping[str, float]
    marks: tuple[str, ...]
    scalars: Mapping[str, float]


@dataclass(frozen=True)
class Summary:
    """A whole table.

    Attributes:
        made: the commits that made the results (of copies without a repository, hashes of the
            code), and where.
    """

    table: Table
    rows: list[SummaryRow]
    remark: str
    made: tuple[str, ...]
    note: str


def summarize(outcome: Outcome) -> Summary:
    """The table as it stands; rows without any result are there too, as incomplete."""
    table = outcome.table
    first = table.metrics[0]
    known = {row.name: row for row in (*map(Row, UNTRAINED_ROWS), *table.rows)}
    rows = {name: _row(known[name], outcome) for name in outcome.lines}
    correct(row.difference for row in rows.values() if row.difference)
    start = rows[UNTRAINED].scores.get(first) if UNTRAINED in rows else None
    for row in rows.values():
        if start and first in row.scores and row.scores[first].mean < start.mean:
            row.marks += ("below untrained",)
    lines = [line for seeds in outcome.lines.values() for line in seeds.values()]
    code = {str(line.get("commit") or line.get("code")) for line in lines}
    made = dict.fromkeys([*sorted(code), *(str(line.get("hardware")) for line in lines)])
    remark = table.remark(outcome) if table.remark else ""
    return Summary(table, list(rows.values()), remark, tuple(made), outcome.note)


def regressions(outcome: Outcome) -> list[str]:
    """A sentence for each row outside of what its table expects; a better row is outside, too."""
    found = []
    table = outcome.table
    for name, (expected, tolerance) in table.expected.items():
        values = list(tested(name, outcome).values())
        if len(values) < table.seeds:
            found.append(
                f"{table.name}, {name}: {len(values)} of {table.seeds} seeds have a result."
            )
        elif abs(float(np.mean(values)) - expected) > tolerance:
            found.append(
                f"{table.name}, {name}: {metric_title(table.metrics[0])} "
                f"{100 * np.mean(values):.1f}, expected "
                f"{100 * expected:.1f} ± {100 * tolerance:.1f}. Find out what changed it, or "
                "record the new value."
            )
    return found


def _row(row: Row, outcome: Outcome) -> SummaryRow:
    table = outcome.table
    lines = outcome.lines[row.name].values()
    scores = _values(lines, "metrics")
    held_out = [*held_out_scores(row, outcome).values()]
    return SummaryRow(
        name=row.name,
        scores={name: t_interval(scores[name]) for name in table.metrics if name in scores},
        against=row.against,
        difference=_difference(row, outcome) if row.against else None,
        held_out=float(np.mean(held_out)) if held_out else None,
        done=len(lines),
        published=row.published,
        marks=tuple(_marks(row, outcome)),
        scalars={name: float(np.mean(found)) for name, found in _values(lines, "scalars").items()},
    )


def _values(lines: Iterable[Line], kind: str) -> dict[str, list[float]]:
    """The values of all lines by name."""
    found: dict[str, list[float]] = {}
    for line in lines:
        for name, value in line.get(kind, {}).items():
            found.setdefault(name, []).append(value)
    return dict(sorted(found.items()))


def _marks(row: Row, outcome: Outcome) -> Iterable[str]:
    table = outcome.table
    lines = outcome.lines[row.name]
    if len(lines) < table.seeds:
        yield f"incomplete: {len(lines)} of {table.seeds} seeds"
    if outcome.failures.get(row.name):
        yield f"{outcome.failures[row.name]} failed"
    if starts(row.name, outcome):
        yield "tested at its start"
    if row.against:
        others = outcome.lines[row.against]
        if any(
            lines[seed].get(fact) != others[seed].get(fact)
            for seed in lines.keys() & others.keys()
            for fact in ("data", "protocol")
        ):
            yield "other data or protocol than its baseline"
        if row.trials and row.trials != (table.row(row.against).trials or row.trials):
            yield "not as many trials as its baseline"
    if table.tuned and row in table.rows and not row.held_out:
        yield "not tuned"


def _difference(row: Row, outcome: Outcome) -> Difference | None:
    against = str(row.against)
    ours = tested(row.name, outcome)
    theirs = tested(against, outcome)
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds or (ours == theirs and starts(row.name, outcome) and starts(against, outcome)):
        return None
    lines = ([outcome.lines[name][seed] for seed in seeds] for name in (row.name, against))
    return difference(ours, theirs, *lines)


def held_out_scores(row: Row, outcome: Outcome) -> dict[int, float]:
    """Recall@1 on held-out training classes: by fold of the tuning, or by seed under protocol
    ``validation``."""
    if row.held_out:
        return dict(enumerate(row.held_out))
    if outcome.table.protocol != "validation":
        return {}  # nothing was held out
    found = {seed: line.get("held_out") for seed, line in outcome.lines[row.name].items()}
    return {seed: value for seed, value in found.items() if value is not None}


def starts(name: str, outcome: Outcome) -> bool:
    """Whether held-out classes chose the start in place of any step, with every seed."""
    lines = outcome.lines[name].values()
    kept = [line.get("held_out") is not None and line.get("selected") == 0 for line in lines]
    return bool(kept) and all(kept)


def tested(name: str, outcome: Outcome) -> dict[int, float]:
    """A row's scores in the table's first metric, by seed."""
    metric = outcome.table.metrics[0]
    return {
        seed: line["metrics"][metric]
        for seed, line in outcome.lines[name].items()
        if metric in line["metrics"]
    }
