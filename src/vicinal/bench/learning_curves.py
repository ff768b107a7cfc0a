"""Learning curves of a table: a line for each row, with a band over its seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vicinal.bench.run import Outcome
from vicinal.reports.series import Chart, Curve
from vicinal.reports.tables import metric_title

MOST_CURVES = 24  # lines that eight colours and three dashes tell apart
LOSS = "loss"


def learning_curves(outcome: Outcome) -> list[Chart]:
    """A chart for each curve that the results hold; of many rows none.

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
    for place, (name, rows) in enumerate(sorted(found.items(), key=lambda item: item[0] == LOSS)):
        levels = {} if name == LOSS else _levels(rows)
        bands = {row: _band(curves, levels) for row, curves in rows.items()}
        charts.append(Chart(f"curve-{place}", metric_title(name), "number" if name == LOSS else "share", bands))
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
