"""The curves of a run, thinned so that a million steps make a page no larger than a hundred do, and
diagnostics."""

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal.reports.tables import metric_title

POINTS = 200  # of one curve: about two per millimetre on paper, and enough to see a spike
EVENTS = 100  # shown; a run that warns at every step must not drown its report


@dataclass(frozen=True)
class Curve:
    """A thinned series: per point the mean step, and the mean, lowest and highest value around
    it."""

    steps: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True)
class Chart:
    """One set of axes.

    Attributes:
        key: names the chart among those of the run.
        title: stands above it.
        unit: ``"number"``, a plain axis, or ``"share"``, per cent.
        lines: curves by name.
    """

    key: str
    title: str
    unit: str
    lines: dict[str, Curve]


@dataclass(frozen=True)
class Progress:
    """What ``metrics.jsonl`` tells, thinned.

    Attributes:
        scalars: the method's scalars by name.
        evaluations: by split, then by metric.
        events: ``step``, ``epoch`` and ``message`` of the first of them, oldest first.
        events_left_out: how many more there were.
    """

    scalars: dict[str, Curve]
    evaluations: dict[str, dict[str, Curve]]
    events: list[dict[str, Any]]
    events_left_out: int


class Series:
    """Values by step, packed: eight bytes each, so that a million steps are read within some
    megabytes."""

    def __init__(self) -> None:
        self.steps = array("q")
        self.values = array("d")

    def add(self, step: int, value: float) -> None:
        self.steps.append(step)
        self.values.append(value)

    def curve(self, limit: int = POINTS) -> Curve:
        """Thin it into buckets of equal width, the least power of two that makes at most ``limit``
        of them."""
        steps = np.array(self.steps)
        values = np.array(self.values)
        width = 1
        while len(starts := np.unique(steps // width, return_index=True)[1]) > limit:
            width *= 2
        counts = np.diff(starts, append=len(steps))
        sums = (np.add.reduceat(column, starts) / counts for column in (steps, values))
        ends = (ufunc.reduceat(values, starts) for ufunc in (np.minimum, np.maximum))
        return Curve(*(column.tolist() for column in (*sums, *ends)))


def read_progress(lines: Iterable[Mapping[str, Any]]) -> Progress:
    """Thin the lines of a run's ``metrics.jsonl`` in one pass."""
    scalars: dict[str, Series] = {}
    evaluations: dict[str, dict[str, Series]] = {}
    events = []
    for line in lines:
        match line.get("kind"):
            case "step":
                _collect(scalars, line["step"], line)
            case "evaluation":
                _collect(evaluations.setdefault(line["split"], {}), line["step"], line["metrics"])
            case "event":
                events.append(
                    {"step": line["step"], "epoch": line.get("epoch"), "message": line["message"]}
                )
    curves = {name: series.curve() for name, series in scalars.items()}
    evaluated = {
        split: {name: one.curve() for name, one in found.items()}
        for split, found in evaluations.items()
    }
    return Progress(curves, evaluated, events[:EVENTS], max(0, len(events) - EVENTS))


def _collect(found: dict[str, Series], step: int, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        # A diverged run's NaN has no place on an axis; the run's status and events tell of it.
        if (
            name not in ("kind", "step", "epoch")
            and isinstance(value, (int, float))
            and math.isfinite(value)
        ):
            found.setdefault(name, Series()).add(step, value)


def charts(progress: Progress) -> list[Chart]:
    """One chart per group of scalars (the losses first) and one per evaluated split.

    A name's group stands before its slash; ``loss`` and what ends in ``_loss`` are one group, any
    other bare name is a group of its own, because its scale is its own. Groups named ``..._share``
    hold fractions.
    """
    groups: dict[str, dict[str, Curve]] = {}
    for name, curve in progress.scalars.items():
        group, slash, rest = name.partition("/")
        if slash:
            groups.setdefault(group, {})[rest] = curve
        else:
            groups.setdefault("loss" if name.endswith("_loss") else name, {})[name] = curve
    found = []
    for group, lines in groups.items():
        title = "Share of active tuples" if group == "active" else metric_title(group)
        unit = "share" if group == "active" or group.endswith("_share") else "number"
        found.append(Chart(f"scalar-{group}", title, unit, lines))
    for split, lines in progress.evaluations.items():
        titled = {metric_title(name): curve for name, curve in lines.items()}
        title = f"{metric_title(split)} metrics"
        found.append(Chart(f"evaluation-{split}", title, "share", titled))
    return sorted(
        found,
        key=lambda chart: (chart.key != "scalar-loss", not chart.key.startswith("evaluation-")),
    )


ACTIVE_CAPTION = (
    "Tuples of a batch that still have something to learn: near 0 the examples have become too "
    "easy, stuck near 100 % nothing is being learned."
)


def recall_bars(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Bars of Recall@1 for the rows of ``diagnostics.json`` that have it: name, text, part of the
    full width."""
    values = {
        row["name"]: float(row["recall@1"]) for row in rows if row.get("recall@1") is not None
    }
    full = max(values.values(), default=0.0) or 1.0
    return [
        {"name": name, "text": f"{value:.3f}", "part": max(value / full, 0.0)}
        for name, value in values.items()
    ]
