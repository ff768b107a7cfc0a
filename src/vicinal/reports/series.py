"""The curves of a run, read line by line and thinned: a million steps make a page no larger than a hundred do."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from vicinal.reports.tables import metric_title

Unit = Literal["number", "share", "falling"]  # plain axis, per cent, logarithmic axis

POINTS = 200  # of one curve: about two per millimetre on paper, and enough to see a spike
EVENTS = 100  # shown; a run that warns at every step must not drown its report


@dataclass(frozen=True)
class Curve:
    """A thinned series: per point the mean step, and the mean, lowest and highest value around it."""

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
        unit: how its values are shown.
        lines: curves by name.
        axis: what runs along the bottom.
    """

    key: str
    title: str
    unit: Unit
    lines: dict[str, Curve]
    axis: str = "step"


@dataclass(frozen=True)
class Event:
    step: int
    epoch: int | None
    message: str


@dataclass
class Progress:
    """What ``metrics.jsonl`` tells, thinned.

    Attributes:
        scalars: the method's scalars by name.
        evaluations: by split, then by metric.
        events: the first of them, oldest first.
        events_left_out: how many more there were.
    """

    scalars: dict[str, Curve] = field(default_factory=dict)
    evaluations: dict[str, dict[str, Curve]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    events_left_out: int = 0


@dataclass
class _Bucket:
    count: int
    steps: float
    total: float
    low: float
    high: float

    def take(self, count: int, steps: float, total: float, low: float, high: float) -> None:
        self.count += count
        self.steps += steps
        self.total += total
        self.low = min(self.low, low)
        self.high = max(self.high, high)


class Thinner:
    """Collects ``(step, value)`` in at most ``limit`` buckets of equal width, however many come.

    When they no longer fit, the width doubles and neighbors merge, so the series is read once and never held:
    the result is what bucketing the whole series with the final width would have given.
    """

    def __init__(self, limit: int = POINTS) -> None:
        self.limit, self.width = limit, 1
        self._buckets: dict[int, _Bucket] = {}

    def add(self, step: int, value: float) -> None:
        bucket = self._buckets.get(step // self.width)
        if bucket is not None:
            bucket.take(1, step, value, value, value)
            return
        self._buckets[step // self.width] = _Bucket(1, step, value, value, value)
        while len(self._buckets) > self.limit:
            self._widen()

    def _widen(self) -> None:
        self.width *= 2
        old, self._buckets = self._buckets, {}
        for place, bucket in old.items():
            wider = self._buckets.setdefault(place // 2, bucket)
            if wider is not bucket:
                wider.take(bucket.count, bucket.steps, bucket.total, bucket.low, bucket.high)

    def curve(self) -> Curve:
        buckets = [self._buckets[place] for place in sorted(self._buckets)]
        return Curve(
            steps=[b.steps / b.count for b in buckets],
            mean=[b.total / b.count for b in buckets],
            low=[b.low for b in buckets],
            high=[b.high for b in buckets],
        )


def read_progress(lines: Iterable[Mapping[str, Any]]) -> Progress:
    """Thin the lines of a run's ``metrics.jsonl`` in one pass."""
    scalars: dict[str, Thinner] = {}
    evaluations: dict[str, dict[str, Thinner]] = {}
    progress = Progress()
    for line in lines:
        match line.get("kind"):
            case "step":
                _collect(scalars, line["step"], line)
            case "evaluation":
                _collect(evaluations.setdefault(line["split"], {}), line["step"], line["metrics"])
            case "event" if len(progress.events) < EVENTS:
                progress.events.append(Event(line["step"], line.get("epoch"), line["message"]))
            case "event":
                progress.events_left_out += 1
    progress.scalars = {name: thinner.curve() for name, thinner in scalars.items()}
    progress.evaluations = {
        split: {name: thinner.curve() for name, thinner in metrics.items()} for split, metrics in evaluations.items()
    }
    return progress


def _collect(thinners: dict[str, Thinner], step: int, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        # A diverged run's NaN has no place on an axis; the run's status and events tell of it.
        if name not in ("kind", "step", "epoch") and isinstance(value, (int, float)) and math.isfinite(value):
            thinners.setdefault(name, Thinner()).add(step, value)


def charts(progress: Progress) -> list[Chart]:
    """One chart per group of scalars (the losses first) and one per evaluated split.

    A name's group stands before its slash; ``loss`` and what ends in ``_loss`` are one group, any other bare
    name is a group of its own, because its scale is its own. Groups named ``..._share`` hold fractions.
    """
    groups: dict[str, dict[str, Curve]] = {}
    for name, curve in progress.scalars.items():
        group, slash, rest = name.partition("/")
        if slash:
            groups.setdefault(group, {})[rest] = curve
        else:
            groups.setdefault("loss" if name.endswith("_loss") else name, {})[name] = curve
    evaluated = [
        Chart(
            f"evaluation-{split}", f"{metric_title(split)} metrics", "share", {metric_title(n): c for n, c in m.items()}
        )
        for split, m in progress.evaluations.items()
    ]
    scalars = [
        Chart("scalar-active", "Share of active tuples", "share", lines)
        if group == "active"
        else Chart(f"scalar-{group}", metric_title(group), "share" if group.endswith("_share") else "number", lines)
        for group, lines in groups.items()
    ]
    losses = [chart for chart in scalars if chart.key == "scalar-loss"]
    return [*losses, *evaluated, *(chart for chart in scalars if chart not in losses)]
