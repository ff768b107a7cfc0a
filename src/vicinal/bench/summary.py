"""A table's results as numbers to print: means with intervals, paired differences to the baseline, marks, curves."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vicinal.bench.results import Line
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
from vicinal.bench.table import UNTRAINED, UNTRAINED_ROWS, Row, Table
from vicinal.reports.series import Chart, Curve
from vicinal.reports.tables import metric_title

CLAIM_SEEDS = 5  # fewer show a difference, but claim none
MOST_CURVES = 24  # lines that eight colors and three dashes distinguish


@dataclass(frozen=True)
class Difference:
    """A row minus its baseline in the first metric, over the seeds that both have.

    Attributes:
        over_classes: the difference in Recall@1 with the interval over test classes; None where they differ.
        p: corrected by Holm over all differences of the table.
        smallest: the smallest effect that this many seeds would have shown.
    """

    against: str
    over_seeds: Estimate
    over_classes: Estimate | None
    p: float | None
    smallest: float | None

    @property
    def claimed(self) -> bool:
        """Whether the table may say that the row is better: enough seeds, the interval above 0, also after Holm."""
        significant = self.p is not None and self.p < 1 - LEVEL
        return self.over_seeds.count >= CLAIM_SEEDS and self.over_seeds.above_zero and significant


@dataclass(frozen=True)
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
    commits: tuple[str, ...]
    scalars: Mapping[str, float]

    @property
    def trained(self) -> bool:
        return self.name not in UNTRAINED_ROWS


@dataclass(frozen=True)
class Best:
    """The row of a kind that held-out classes choose.

    Attributes:
        held_out: mean Recall@1 on held-out training classes.
        test: the table's first metric on the test classes, over seeds; None while there is no result.
    """

    kind: str
    row: str
    held_out: float
    test: Estimate | None


@dataclass(frozen=True)
class Contest:
    """The best of each kind, and the first kind's minus the second's on the test classes, paired by seed.

    The highest test score of many rows is too high by the choice; a row chosen on held-out classes is tested once.

    Attributes:
        lacking: rows without a held-out score; while there are any, ``best`` is empty.
    """

    best: tuple[Best, ...]
    difference: Estimate | None
    lacking: tuple[str, ...]


@dataclass(frozen=True)
class Summary:
    table: Table
    rows: tuple[SummaryRow, ...]
    contest: Contest | None
    charts: tuple[Chart, ...]
    hardware: tuple[str, ...]
    notes: tuple[str, ...]


def summarize(outcome: Outcome) -> Summary:
    """The table as it stands; rows without any result are there too, as incomplete."""
    table, first = outcome.table, outcome.table.metrics[0]
    rows = [_row(row, outcome) for row in (*map(Row, UNTRAINED_ROWS), *table.rows)]
    tested = [
        (i, d, d.over_seeds.p) for i, row in enumerate(rows) if (d := row.difference) and d.over_seeds.p is not None
    ]
    for (place, difference, _), p in zip(tested, holm([p for _, _, p in tested]), strict=True):
        rows[place] = replace(rows[place], difference=replace(difference, p=p))
    floor = next((row.scores[first].mean for row in rows if row.name == UNTRAINED and first in row.scores), None)
    if floor is not None:
        rows = [_mark_below(row, first, floor) for row in rows]
    hardware = dict.fromkeys(line["hardware"] for seeds in outcome.lines.values() for line in seeds.values())
    charts = tuple(learning_curves(outcome))
    return Summary(table, tuple(rows), contest(outcome), charts, tuple(hardware), tuple(outcome.notes))


def departures(outcome: Outcome) -> list[str]:
    """A sentence for each row outside what the table expects; a better row is outside, too."""
    found, table = [], outcome.table
    for name, (expected, tolerance) in table.expected.items():
        values = list(_tested(name, outcome).values())
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
    held_out = list(held_out_scores(row, outcome).values()) if trained else []
    seconds = [line["seconds"] for line in lines.values()]
    return SummaryRow(
        row.name,
        " ".join((*_words(row.own), *row.extra)) if trained else "",
        scores,
        _difference(row, outcome) if row.against else None,
        float(np.mean(held_out)) if held_out else None,
        len(lines),
        table.seeds,
        row.trials,
        row.published,
        tuple(_marks(row, outcome, trained=trained)),
        float(np.mean(seconds)) if seconds and trained else None,
        tuple(commits(lines.values())),
        _scalars(lines.values()),
    )


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


def _scalars(lines: Iterable[Line]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for line in lines:
        for name, value in line.get("scalars", {}).items():
            found.setdefault(name, []).append(value)
    return {name: float(np.mean(values)) for name, values in found.items()}


def _difference(row: Row, outcome: Outcome) -> Difference | None:
    against, ours = str(row.against), _tested(row.name, outcome)
    theirs = _tested(against, outcome)
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    values, others = [ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]
    lines = [[outcome.lines[name][seed] for seed in seeds] for name in (row.name, against)]
    spread = spread_of([value - other for value, other in zip(values, others, strict=True)])
    paired = paired_t_interval(values, others)
    return Difference(against, paired, over_classes(*lines), None, smallest_effect(spread, len(seeds)))


def over_classes(ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]) -> Estimate | None:
    """The bootstrap over test classes of two rows' results, seed by seed; None where their classes differ."""
    lines = (*ours, *theirs)
    if any("hits" not in line or line["queries"] != lines[0]["queries"] for line in lines):
        return None
    if len({len(line["hits"]) for line in lines}) > 1:
        return None
    hits, others = (np.sum([line["hits"] for line in side], axis=0) for side in (ours, theirs))
    return class_bootstrap(hits, others, np.broadcast_to(lines[0]["queries"], hits.shape) * len(ours))


def _mark_below(row: SummaryRow, metric: str, floor: float) -> SummaryRow:
    if row.name == UNTRAINED or metric not in row.scores or row.scores[metric].mean >= floor:
        return row
    return replace(row, marks=(*row.marks, "below untrained"))


def held_out_scores(row: Row, outcome: Outcome) -> dict[int, float]:
    """Recall@1 on held-out training classes: by fold of the tuning, or by seed under protocol ``validation``."""
    if row.held_out:
        return dict(enumerate(row.held_out))
    if outcome.table.protocol != "validation":
        return {}  # nothing was held out, or under `authors` the test classes themselves
    found = {seed: line.get("held_out") for seed, line in outcome.lines[row.name].items()}
    return {seed: value for seed, value in found.items() if value is not None}


def contest(outcome: Outcome) -> Contest | None:
    """The best rows of a table's kinds, over the folds or seeds that all of them have; None for a table without."""
    table = outcome.table
    if not table.best_of:
        return None
    scores = {name: held_out_scores(table.row(name), outcome) for names in table.best_of.values() for name in names}
    shared = set.intersection(*(set(found) for found in scores.values()))
    if not shared:
        return Contest((), None, tuple(name for name, found in scores.items() if not found) or tuple(scores))
    means = {name: sum(found[key] for key in shared) / len(shared) for name, found in scores.items()}
    best = []
    for kind, names in table.best_of.items():
        first = max(names, key=means.__getitem__)
        tested = list(_tested(first, outcome).values())
        best.append(Best(kind, first, means[first], t_interval(tested) if tested else None))
    if len(best) < 2:
        return Contest(tuple(best), None, ())
    ours, theirs = (_tested(one.row, outcome) for one in best[:2])
    seeds = sorted(ours.keys() & theirs.keys())
    difference = paired_t_interval([ours[s] for s in seeds], [theirs[s] for s in seeds]) if seeds else None
    return Contest(tuple(best), difference, ())


def _tested(name: str, outcome: Outcome) -> dict[int, float]:
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
