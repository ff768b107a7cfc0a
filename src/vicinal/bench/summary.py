"""A table's results as numbers to print: means with intervals, paired differences to the baseline,
marks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal.bench.run import Outcome, commits
from vicinal.bench.table import UNTRAINED_ROWS, Row, Table
from vicinal.evaluation.statistics import Difference, Estimate, correct, difference, t_interval
from vicinal.reports.tables import metric_title


@dataclass
class SummaryRow:
    """One printed line.

    Attributes:
        against: the row that it is compared with.
        words: what the row sets; empty for rows without training.
        held_out: mean Recall@1 on held-out training classes, None where none were held out for it.
        done: seeds that have a result.
        marks: what a reader must not overlook.
        seconds: mean training time.
        scalars: means of the method's scalars in mid-training, over seeds.
    """

    name: str
    words: str
    scores: Mapping[str, Estimate]
    against: str | None
    difference: Difference | None
    held_out: float | None
    done: int
    wanted: int
    trials: int | None
    published: Mapping[str, float]
    marks: tuple[str, ...]
    seconds: float | None
    commits: list[str]
    scalars: Mapping[str, float]

    @property
    def trained(self) -> bool:
        return self.name not in UNTRAINED_ROWS


@dataclass(frozen=True)
class Summary:
    table: Table
    rows: list[SummaryRow]
    remark: str
    hardware: tuple[str, ...]
    notes: tuple[str, ...]


def summarize(outcome: Outcome) -> Summary:
    """The table as it stands; rows without any result are there too, as incomplete."""
    table = outcome.table
    first = outcome.table.metrics[0]
    rows = [_row(row, outcome) for row in (*map(Row, UNTRAINED_ROWS), *table.rows)]
    correct(row.difference for row in rows if row.difference)
    for row in rows[1:]:
        if (
            first in row.scores
            and first in rows[0].scores
            and row.scores[first].mean < rows[0].scores[first].mean
        ):
            row.marks += ("below untrained",)
    hardware = dict.fromkeys(
        line["hardware"] for seeds in outcome.lines.values() for line in seeds.values()
    )
    remark = table.remark(outcome) if table.remark else ""
    return Summary(table, rows, remark, tuple(hardware), tuple(outcome.notes))


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
    trained = row.name not in UNTRAINED_ROWS
    values = {
        metric: [line["metrics"][metric] for line in lines if metric in line["metrics"]]
        for metric in table.metrics
    }
    scalars = {name for line in lines for name in line.get("scalars", {})}
    return SummaryRow(
        name=row.name,
        words=" ".join((*_words(row.own), *row.extra)),
        scores={metric: t_interval(found) for metric, found in values.items() if found},
        against=row.against,
        difference=_difference(row, outcome) if row.against else None,
        held_out=_mean(held_out_scores(row, outcome).values()) if trained else None,
        done=len(lines),
        wanted=table.seeds,
        trials=row.trials,
        published=row.published,
        marks=tuple(_marks(row, outcome, trained=trained)),
        seconds=_mean(line["seconds"] for line in lines) if trained else None,
        commits=commits(lines),
        scalars={
            name: float(
                np.mean(
                    [line["scalars"][name] for line in lines if name in line.get("scalars", {})]
                )
            )
            for name in sorted(scalars)
        },
    )


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return float(np.mean(found)) if found else None


def _marks(row: Row, outcome: Outcome, *, trained: bool) -> Iterable[str]:
    table = outcome.table
    lines = outcome.lines[row.name]
    if len(lines) < table.seeds:
        yield f"incomplete: {len(lines)} of {table.seeds} seeds"
    if outcome.failures.get(row.name):
        yield f"{outcome.failures[row.name]} failed"
    if table.protocol == "authors" and trained:
        yield "step chosen on test"
    if saturated(row.name, outcome):
        yield "saturated: held-out Recall@1 is 100 before the first step, so the start is tested"
    if row.against:
        others = outcome.lines[row.against]
        if any(
            lines[seed].get("data") != others[seed].get("data")
            for seed in lines.keys() & others.keys()
        ):
            yield "other data than its baseline"
        if row.trials and row.trials != (table.row(row.against).trials or row.trials):
            yield "not as many trials as its baseline"
    if table.tuned and trained and not row.held_out:
        yield "not tuned"


def _words(own: Mapping[str, Any]) -> Iterable[str]:
    """What a row sets, as on the command line."""
    for slot, value in own.items():
        for key, part in value.items() if isinstance(value, Mapping) else [("name", value)]:
            text = ",".join(map(str, part)) if isinstance(part, (list, tuple)) else str(part)
            text = type(part).__name__ if key == "own" else text
            yield f"{slot}={text}" if key in ("name", "own") else f"{slot}.{key}={text}"


def _difference(row: Row, outcome: Outcome) -> Difference | None:
    against = str(row.against)
    ours = tested(row.name, outcome)
    theirs = tested(against, outcome)
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds or (saturated(row.name, outcome) and saturated(against, outcome)):
        return None
    return difference(
        ours,
        theirs,
        *([outcome.lines[name][seed] for seed in seeds] for name in (row.name, against)),
    )


def held_out_scores(row: Row, outcome: Outcome) -> dict[int, float]:
    """Recall@1 on held-out training classes: by fold of the tuning, or by seed under protocol
    ``validation``."""
    if row.held_out:
        return dict(enumerate(row.held_out))
    if outcome.table.protocol != "validation":
        return {}  # nothing was held out, or under `authors` the test classes themselves
    found = {seed: line.get("held_out") for seed, line in outcome.lines[row.name].items()}
    return {seed: value for seed, value in found.items() if value is not None}


def saturated(name: str, outcome: Outcome) -> bool:
    """Whether the start was tested in place of any step, since held-out Recall@1 was 100 there
    already."""
    lines = outcome.lines[name].values()
    return bool(lines) and all(
        line.get("held_out") == 1 and line.get("selected") == 0 for line in lines
    )


def tested(name: str, outcome: Outcome) -> dict[int, float]:
    """A row's scores in the table's first metric, by seed."""
    metric = outcome.table.metrics[0]
    return {
        seed: line["metrics"][metric]
        for seed, line in outcome.lines[name].items()
        if metric in line["metrics"]
    }
