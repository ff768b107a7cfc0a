"""A table's results as numbers to print: means with intervals, paired differences to the twin, and marks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vicinal.bench.best import Contest, contest, held_out_scores
from vicinal.bench.learning_curves import learning_curves
from vicinal.bench.results import Line
from vicinal.bench.run import Outcome, commits, rows_of
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
from vicinal.bench.tables import BASELINES, UNTRAINED, Row, Table
from vicinal.reports.series import Chart
from vicinal.training.recipe import find_recipe

CLAIM_SEEDS = 5  # fewer show a difference, but claim none


@dataclass(frozen=True)
class Difference:
    """A row minus its twin in the first metric, over the seeds that both have.

    Attributes:
        over_seeds: mean difference with the interval over seeds.
        over_classes: the difference in Recall@1 with the interval over test classes; None where they differ.
        p: corrected by Holm over all differences of the table.
        smallest: the smallest effect that this many seeds would have shown.
    """

    twin: str
    over_seeds: Estimate
    over_classes: Estimate | None
    p: float | None
    smallest: float | None

    @property
    def claimed(self) -> bool:
        """Whether the table may say that the row is better: enough seeds, the interval above 0, also after Holm."""
        told = self.p is not None and self.p < 1 - LEVEL
        return self.over_seeds.count >= CLAIM_SEEDS and self.over_seeds.above_zero and told


@dataclass(frozen=True)
class SummaryRow:
    """One printed line.

    Attributes:
        command: how one seed of it is run; empty for rows without training.
        held_out: mean Recall@1 on held-out training classes, None where none were held out for it.
        done: seeds that have a result.
        marks: what a reader must not overlook.
        seconds: mean training time.
        readings: of the method's scalars the mean in mid-training, over seeds.
    """

    name: str
    command: str
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
    readings: Mapping[str, float]


@dataclass(frozen=True)
class Summary:
    table: Table
    rows: tuple[SummaryRow, ...]
    contest: Contest | None
    charts: tuple[Chart, ...]
    hardware: tuple[str, ...]
    notes: tuple[str, ...]


def summarise(outcome: Outcome) -> Summary:
    """The table as it stands; rows without any result are there too, as incomplete."""
    table, first = outcome.table, outcome.table.metrics[0]
    described = [Row(name, "") for name in BASELINES] + list(table.rows)
    rows = [_row(row, outcome) for row in described]
    places = [place for place, row in enumerate(rows) if row.difference and row.difference.over_seeds.p is not None]
    raw = [difference.over_seeds.p or 0.0 for place in places if (difference := rows[place].difference)]
    for place, p in zip(places, holm(raw), strict=True):
        difference = rows[place].difference
        if difference is not None:
            rows[place] = replace(rows[place], difference=replace(difference, p=p))
    floor = next((row.scores[first].mean for row in rows if row.name == UNTRAINED and first in row.scores), None)
    if floor is not None:
        rows = [_mark_below(row, first, floor) for row in rows]
    lines = [line for seeds in outcome.lines.values() for line in seeds.values()]
    charts, notes = tuple(learning_curves(outcome)), tuple(outcome.notes)
    return Summary(table, tuple(rows), contest(outcome), charts, tuple(_hardware(lines)), notes)


def _row(row: Row, outcome: Outcome) -> SummaryRow:
    table, lines = outcome.table, outcome.lines[row.name]
    scores = {}
    for metric in table.metrics:
        values = [line["metrics"][metric] for line in lines.values() if metric in line["metrics"]]
        if values:
            scores[metric] = t_interval(values)
    marks = []
    if len(lines) < table.seeds:
        marks.append(f"incomplete: {len(lines)} of {table.seeds} seeds")
    failed = sum(row.name in rows_of(failure.job) for failure in outcome.failures)
    if failed:
        marks.append(f"{failed} failed")
    if table.protocol == "authors" and row.recipe:
        marks.append("step chosen on test")
    if row.twin and any(_rows_of(lines[seed]) != _rows_of(twin) for seed, twin in _shared(row, outcome).items()):
        marks.append("not the twin's data")
    if row.twin and row.trials and row.trials != (table.row(row.twin).trials or row.trials):
        marks.append("not as many trials as its twin")
    if table.tuned and row.recipe and not row.held_out:
        marks.append("not tuned")
    held_out = list(held_out_scores(row, outcome).values()) if row.recipe else []
    seconds = [line["seconds"] for line in lines.values()]
    return SummaryRow(
        row.name,
        _command(row, table) if row.recipe else "",
        scores,
        _difference(row, outcome) if row.twin else None,
        float(np.mean(held_out)) if held_out else None,
        len(lines),
        table.seeds,
        row.trials,
        row.published,
        tuple(marks),
        float(np.mean(seconds)) if seconds and row.recipe else None,
        tuple(commits(lines.values())),
        _readings(lines.values()),
    )


def _command(row: Row, table: Table) -> str:
    """How one seed of a row is run: trained as the protocol has it, or by the bench where that cuts the data anew."""
    if table.protocol in ("reality_check", "authors"):
        name = table.name.removesuffix(f"-{table.protocol}")
        return f'vicinal bench {name} --protocol {table.protocol} --rows "{row.name}"'
    fixed = ("validation=0",) if table.protocol == "final" and find_recipe(row.recipe).validation else ()
    return " ".join(("vicinal train", row.recipe, *row.overrides, *fixed))


def _shared(row: Row, outcome: Outcome) -> dict[int, Line]:
    """The twin's results with the row's seeds."""
    return {seed: line for seed, line in outcome.lines[str(row.twin)].items() if seed in outcome.lines[row.name]}


def _rows_of(line: Line) -> Any:
    """What tells whether two results are of the same records; of old lines nothing."""
    return line.get("data", {}).get("fingerprint")


def _readings(lines: Iterable[Line]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for line in lines:
        for name, (middle, _) in line.get("readings", {}).items():
            found.setdefault(name, []).append(middle)
    return {name: float(np.mean(values)) for name, values in found.items()}


def _difference(row: Row, outcome: Outcome) -> Difference | None:
    metric, twin = outcome.table.metrics[0], str(row.twin)
    ours, theirs = outcome.lines[row.name], outcome.lines[twin]
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    pairs = [(ours[seed]["metrics"][metric], theirs[seed]["metrics"][metric]) for seed in seeds]
    values, twins = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return Difference(
        twin,
        paired_t_interval(values, twins),
        over_classes([ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]),
        None,
        smallest_effect(spread_of([value - other for value, other in pairs]), len(seeds)),
    )


def over_classes(ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]) -> Estimate | None:
    """The bootstrap over test classes of two rows' results, seed by seed; None where their classes differ."""
    queries = [line.get("classes", {}).get("queries") for line in (*ours, *theirs)]
    if queries[0] is None or any(asked != queries[0] for asked in queries):
        return None
    hits, twin_hits = (np.sum([line["classes"]["hits"] for line in lines], axis=0) for lines in (ours, theirs))
    return class_bootstrap(hits, twin_hits, np.array(queries[0]) * len(ours))


def _mark_below(row: SummaryRow, metric: str, floor: float) -> SummaryRow:
    if row.name == UNTRAINED or metric not in row.scores or row.scores[metric].mean >= floor:
        return row
    return replace(row, marks=(*row.marks, "below untrained"))


def _hardware(lines: Sequence[Line]) -> list[str]:
    found: dict[str, None] = {}
    for line in lines:
        facts, versions = line.get("hardware", {}), line.get("versions", {})
        place = facts.get("gpu") or f"{facts.get('cores')} {facts.get('machine')} cores"
        threads = "1 thread" if facts.get("threads") == 1 else f"{facts.get('threads')} threads"
        found[f"{place}, {threads} a run, torch {versions.get('torch')}"] = None
    return list(found)
