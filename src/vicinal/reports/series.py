"""The curves of a run, thinned so that a million steps make a page no larger than a hundred do, and
diagnostics."""

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from vicinal.reports.tables import metric_title

POINTS = 200  # of one curve: about two per millimetre on paper, and enough to see a spike
Rows = list[dict[str, Any]]
# Steps and values, packed: eight bytes each, so that a million of them take some megabytes.
Series = tuple["array[int]", "array[float]"]


def read_progress(lines: Iterable[Mapping[str, Any]]) -> tuple[Rows, Rows]:
    """Read the lines of a run's ``metrics.jsonl`` in one pass.

    A chart has a key, a title, a unit (``number``, or ``share`` for per cent) and lines, as
    ``charts.js`` draws them. There is one for each group of scalars (the losses first) and one for
    each evaluated split. A name's group stands before its slash; ``loss`` and what ends in
    ``_loss`` are one group, any other bare name is a group of its own, because its scale is its
    own. Groups named ``..._share`` hold fractions.

    Returns:
        the charts, and the events, oldest first.
    """
    charts = defaultdict[str, dict[str, Series]](dict)
    events = []
    for line in lines:
        match line.get("kind"):
            case "step":
                for name, value in line.items():
                    group, slash, rest = name.partition("/")
                    group = "loss" if not slash and name.endswith("_loss") else group
                    if name not in ("kind", "step", "epoch"):
                        _add(charts[f"scalar-{group}"], rest or name, line["step"], value)
            case "evaluation":
                chart = charts[f"evaluation-{line['split']}"]
                for name, value in line["metrics"].items():
                    _add(chart, metric_title(name), line["step"], value)
            case "event":
                events.append({"epoch": None, **line})
    drawn = [_chart(key, lines) for key, lines in charts.items() if lines]
    drawn.sort(key=lambda one: (one["key"] != "scalar-loss", not one["key"].startswith("eval")))
    return drawn, events


def _add(lines: dict[str, Series], name: str, step: int, value: Any) -> None:
    # A diverged run's NaN has no place on an axis; the run's status and events tell of it.
    if isinstance(value, (int, float)) and math.isfinite(value):
        steps, values = lines.setdefault(name, (array("q"), array("d")))
        steps.append(step)
        values.append(value)


def _chart(key: str, lines: Mapping[str, Series]) -> dict[str, Any]:
    kind, _, group = key.partition("-")
    title = metric_title(group)
    unit = "number"
    if kind == "evaluation":
        title += " metrics"
        unit = "share"
    elif group == "active" or group.endswith("_share"):
        title = "Share of active tuples" if group == "active" else title
        unit = "share"
    thinned = [{"name": name, **thin(*series)} for name, series in lines.items()]
    return {"key": key, "title": title, "unit": unit, "lines": thinned}


def thin(steps: Sequence[int], values: Sequence[float]) -> dict[str, list[float]]:
    """Put values into buckets of equal width in steps, the least power of two that makes at most
    ``POINTS`` of them; return mean step and mean, lowest and highest value of each."""
    at = np.array(steps)
    numbers = np.array(values)
    width = 1
    while len(starts := np.unique(at // width, return_index=True)[1]) > POINTS:
        width *= 2
    counts = np.diff(starts, append=len(at))
    low, high = (ufunc.reduceat(numbers, starts) for ufunc in (np.minimum, np.maximum))
    x = (np.add.reduceat(at, starts) / counts).round(1).tolist()
    columns = {"x": x, "y": _short(np.add.reduceat(numbers, starts) / counts)}
    if (low != high).any():
        columns |= {"low": _short(low), "high": _short(high)}
    return columns


def _short(values: np.ndarray) -> list[float]:
    """Five digits are more than a screen can show, and half the bytes of a double."""
    return [float(f"{value:.5g}") for value in values]


ACTIVE_CAPTION = (
    "Tuples of a batch that still have something to learn: near 0 the examples have become too "
    "easy, stuck near 100 % nothing is being learned."
)


def recall_bars(rows: Sequence[Mapping[str, Any]]) -> Rows:
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
