"""A table's results as numbers to print: means with intervals, paired differences to the baseline, marks, curves."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal.bench.run import Outcome, commits
from vicinal.bench.statistics import (
    LEVEL,
    Estimate,
    class_bootstrap,
    holm,
    paired_t_interval,
    smallest_effect,
    spread_of,
    t_interval,
)
from vicinal.bench.table import UNTRAINED_ROWS, Row, Table
from vicinal.reports.series import Chart, Curve
from vicinal.reports.tables import metric_title

CLAIM_SEEDS = 5  # fewer show a difference, but claim none
MOST_CURVES = 24  # lines that eight colors and three dashes distinguish


@dataclass
class Difference:
    """A row minus its baseline in the first metric, over the seeds that both have.

    Attributes:
        over_classes: the difference in Recall@1 with the interval over test classes; None where they differ.
        smallest: the smallest effect that this many seeds would have shown.
        p: corrected by Holm over all differences of the table.
    """

    against: str
    over_seeds: Estimate
    over_classes: Estimate | None
    smallest: float | None
    p: float | None = None

    @property
    def claimed(self) -> bool:
        """Whether the table may say that the row is better: enough seeds, the interval above 0, also after Holm."""
        significant = self.p is not None and self.p < 1 - LEVEL
        return self.over_seeds.count >= CLAIM_SEEDS and self.over_seeds.above_zero and significant


@dataclass
class SummaryRow:
    """One printed line.

    Attributes:
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
    charts: list[Chart]
    hardware: tuple[str, ...]
    notes: tuple[str, ...]


def summarize(outcome: Outcome) -> Summary:
    """The table as it stands; rows without any result are there too, as incomplete."""
    table, first = outcome.table, outcome.table.metrics[0]
    rows = [_row(row, outcome) for row in (*map(Row, UNTRAINED_ROWS), *table.rows)]
    compared = [(d, d.over_seeds.p) for row in rows if (d := row.difference) and d.over_seeds.p is not None]
    for (difference, _), p in zip(compared, holm([p for _, p in compared]), strict=True):
        difference.p = p
    for row in rows[1:]:
        if first in row.scores and first in rows[0].scores and row.scores[first].mean < rows[0].scores[first].mean:
            row.marks += ("below untrained",)
    hardware = dict.fromkeys(line["hardware"] for seeds in outcome.lines.values() for line in seeds.values())
    remark = table.remark(outcome) if table.remark else ""
    return Summary(table, rows, remark, learning_curves(outcome), tuple(hardware), tuple(outcome.notes))


def regressions(outcome: Outcome) -> list[str]:
    """A sentence for each row outside of what its table expects; a better row is outside, too."""
    found, table = [], outcome.table
    for name, (expected, tolerance) in table.expected.items():
        values = list(tested(name, outcome).values())
        if len(values) < table.seeds:
            found.append(f"{table.name}, {name}: {len(values)} of {table.seeds} seeds have a result.")
        elif abs(float(np.mean(values)) - expected) > tolerance:
            found.append(
                f"{table.name}, {name}: {metric_title(table.metrics[0])} {100 * np.mean(values):.1f}, expected "
                f"{100 * expected:.1f} ± {100 * tolerance:.1f}. Find out what changed it, or record the new value."
            )
    return found


def _row(row: Row, outcome: Outcome) -> SummaryRow:
    table, lines = outcome.table, outcome.lines[row.name]
    trained = row.name not in UNTRAINED_ROWS
    scores = {}
    for metric in table.metrics:
        values = [line["metrics"][metric] for line in lines.values() if metric in line["metrics"]]
        if values:
            scores[metric] = t_interval(values)
    scalars: dict[str, list[float]] = {}
    for line in lines.values():
        for name, value in line.get("scalars", {}).items():
            scalars.setdefault(name, []).append(value)
    return SummaryRow(
        row.name,
        " ".join((*_words(row.own), *row.extra)),
        scores,
        _difference(row, outcome) if row.against else None,
        _mean(held_out_scores(row, outcome).values()) if trained else None,
        len(lines),
        table.seeds,
        row.trials,
        row.published,
        tuple(_marks(row, outcome, trained=trained)),
        _mean(line["seconds"] for line in lines.values()) if trained else None,
        commits(lines.values()),
        {name: float(np.mean(values)) for name, values in scalars.items()},
    )


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return float(np.mean(found)) if found else None


def _marks(row: Row, outcome: Outcome, *, trained: bool) -> Iterable[str]:
    table, lines = outcome.table, outcome.lines[row.name]
    if len(lines) < table.seeds:
        yield f"incomplete: {len(lines)} of {table.seeds} seeds"
    if outcome.failures.get(row.name):
        yield f"{outcome.failures[row.name]} failed"
    if table.protocol == "authors" and trained:
        yield "step chosen on test"
    if row.against:
        others = outcome.lines[row.against]
        if any(lines[seed].get("data") != others[seed].get("data") for seed in lines.keys() & others.keys()):
            yield "other data than its baseline"
        if row.trials and row.trials != (table.row(row.against).trials or row.trials):
            yield "not as many trials as its baseline"
    if table.tuned and trained and not row.held_out:
        yield "not tuned"


def _words(own: Mapping[str, Any]) -> Iterable[str]:
    """What a row sets, as on the command line."""
    for slot, value in own.items():
        if not isinstance(value, Mapping):
            yield f"{slot}={value if isinstance(value, str) else type(value).__name__}"
            continue
        for key, part in value.items():
            text = ",".join(map(str, part)) if isinstance(part, (list, tuple)) else str(part)
            yield f"{slot}={text}" if key == "name" else f"{slot}.{key}={text}"


def _difference(row: Row, outcome: Outcome) -> Difference | None:
    against = str(row.against)
    ours, theirs = tested(row.name, outcome), tested(against, outcome)
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    lines = [[outcome.lines[name][seed] for seed in seeds] for name in (row.name, against)]
    return Difference(against, paired(ours, theirs), over_classes(*lines), smallest_difference(ours, theirs))


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Estimate:
    """The mean difference over the seeds that both have, with its interval."""
    seeds = sorted(ours.keys() & theirs.keys())
    return paired_t_interval([ours[seed] for seed in seeds], [theirs[seed] for seed in seeds])


def smallest_difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> float | None:
    """The smallest effect that the shared seeds would have shown."""
    found = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
    return smallest_effect(spread_of(found), len(found))


def over_classes(ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]) -> Estimate | None:
    """The bootstrap over test classes of two rows' results, seed by seed; None where their classes differ."""
    lines = (*ours, *theirs)
    if any("hits" not in line or line["queries"] != lines[0]["queries"] for line in lines):
        return None
    if len({len(line["hits"]) for line in lines}) > 1:
        return None
    hits, others = (np.sum([line["hits"] for line in side], axis=0) for side in (ours, theirs))
    return class_bootstrap(hits, others, np.broadcast_to(lines[0]["queries"], hits.shape) * len(ours))


def held_out_scores(row: Row, outcome: Outcome) -> dict[int, float]:
    """Recall@1 on held-out training classes: by fold of the tuning, or by seed under protocol ``validation``."""
    if row.held_out:
        return dict(enumerate(row.held_out))
    if outcome.table.protocol != "validation":
        return {}  # nothing was held out, or under `authors` the test classes themselves
    found = {seed: line.get("held_out") for seed, line in outcome.lines[row.name].items()}
    return {seed: value for seed, value in found.items() if value is not None}


def tested(name: str, outcome: Outcome) -> dict[int, float]:
    """A row's scores in the table's first metric, by seed."""
    metric = outcome.table.metrics[0]
    return {seed: line["metrics"][metric] for seed, line in outcome.lines[name].items() if metric in line["metrics"]}


def learning_curves(outcome: Outcome) -> list[Chart]:
    """A chart for each curve that the results hold, with a line for each row; none of tables with many rows.

    Each seed holds out classes of its own, some harder than others, and all rows share them. Scores are drawn without
    that level of a seed, as paired differences are: a band shows what training again would change, from the lowest to
    the highest seed.
    """
    if len(outcome.table.rows) > MOST_CURVES:
        return []
    found: dict[str, dict[str, dict[int, Any]]] = {}
    for row in outcome.table.rows:
        for seed, line in outcome.lines[row.name].items():
            for name, curve in line.get("curves", {}).items():
                found.setdefault(name, {}).setdefault(row.name, {})[seed] = curve
    charts = []
    for place, (name, rows) in enumerate(sorted(found.items(), key=lambda item: item[0] == "loss")):
        levels = {} if name == "loss" else _levels(rows)
        bands = {row: _band(curves, levels) for row, curves in rows.items()}
        charts.append(Chart(f"curve-{place}", metric_title(name), "number" if name == "loss" else "share", bands))
    return charts


def _levels(rows: Mapping[str, Mapping[int, Any]]) -> dict[int, float]:
    """By how much a seed's scores lie above those of all seeds, by the rows that have them all."""
    seeds = sorted({seed for curves in rows.values() for seed in curves})
    whole = [curves for curves in rows.values() if len(curves) == len(seeds)]
    if len(whole) < 2:
        return {}  # of one row alone, level and spread are the same
    means = {seed: float(np.mean([np.mean(curves[seed]["values"]) for curves in whole])) for seed in seeds}
    middle = float(np.mean(list(means.values())))
    return {seed: mean - middle for seed, mean in means.items()}


def _band(curves: Mapping[int, Mapping[str, Sequence[float]]], levels: Mapping[int, float]) -> Curve:
    """Mean, lowest and highest over seeds, as far as all of them come."""
    count = min(len(curve["steps"]) for curve in curves.values())
    values = np.array([np.array(curve["values"][:count]) - levels.get(seed, 0.0) for seed, curve in curves.items()])
    steps = [float(step) for step in next(iter(curves.values()))["steps"][:count]]
    return Curve(steps, values.mean(axis=0).tolist(), values.min(axis=0).tolist(), values.max(axis=0).tolist())
