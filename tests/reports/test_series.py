"""Curves thinned in one pass, against bucketing the whole series at once."""

import itertools
import math

import numpy as np
import pytest

from vicinal.reports.series import EVENTS, POINTS, Series, charts, read_progress, recall_bars


@pytest.mark.parametrize("count", [1, 201, 5000])
def test_thinning_on_the_way_equals_bucketing_the_whole_series(count):
    values = np.random.default_rng(0).normal(size=count)
    series = Series()
    for step, value in enumerate(values):
        series.add(step, float(value))
    curve = series.curve(200)
    width = 1
    while count / width > 200:
        width *= 2
    buckets = [values[at : at + width] for at in range(0, count, width)]
    np.testing.assert_allclose(curve.mean, [b.mean() for b in buckets])
    np.testing.assert_array_equal(curve.low, [b.min() for b in buckets])
    np.testing.assert_array_equal(curve.high, [b.max() for b in buckets])
    np.testing.assert_allclose(curve.steps[0], min(width - 1, count - 1) / 2)


def test_a_hundred_thousand_steps_are_read_from_a_stream_into_a_bounded_series():
    lines = (
        {"kind": "step", "step": i, "epoch": i // 1000, "loss": 1 / (1 + i)}
        for i in itertools.count()
    )
    progress = read_progress(itertools.islice(lines, 100_000))
    assert POINTS // 2 <= len(progress.scalars["loss"].steps) <= POINTS
    assert progress.scalars.keys() == {"loss"}


def test_evaluations_are_sorted_by_split_and_metric():
    lines = [
        {
            "kind": "evaluation",
            "step": s,
            "epoch": 0,
            "split": split,
            "metrics": {"recall@1": 0.5, "nmi": 0.25},
        }
        for s in (10, 20)
        for split in ("validation", "train")
    ]
    progress = read_progress(lines)
    assert progress.evaluations.keys() == {"validation", "train"}
    assert progress.evaluations["train"]["nmi"].mean == [0.25, 0.25]


def test_events_are_kept_up_to_a_limit_and_the_others_counted():
    lines = [
        {"kind": "event", "step": i, "epoch": 0, "message": f"event {i}"} for i in range(EVENTS + 7)
    ]
    progress = read_progress(lines)
    assert len(progress.events) == EVENTS and progress.events[0]["message"] == "event 0"
    assert progress.events_left_out == 7


def test_other_values_and_lines_are_left_out():
    line = {"kind": "step", "step": 1, "loss": math.nan, "name": "x", "active": None, "fine": 1}
    progress = read_progress([line, {"kind": "later", "step": 1}])
    assert progress.scalars.keys() == {"fine"}


def test_each_group_is_one_chart_and_the_losses_come_first():
    names = (
        "active",
        "hardness/pull",
        "learning_rate",
        "loss",
        "hardness/push",
        "metric_loss",
        "zero_share/real",
    )
    lines = [{"kind": "step", "step": s, "epoch": 0, **dict.fromkeys(names, 0.5)} for s in range(3)]
    lines.append(
        {
            "kind": "evaluation",
            "step": 2,
            "epoch": 0,
            "split": "validation",
            "metrics": {"recall@1": 0.5},
        }
    )
    found = charts(read_progress(lines))
    assert [(chart.title, list(chart.lines)) for chart in found] == [
        ("Loss", ["loss", "metric_loss"]),
        ("Validation metrics", ["Recall@1"]),
        ("Share of active tuples", ["active"]),
        ("Hardness", ["pull", "push"]),
        ("Learning rate", ["learning_rate"]),
        ("Zero share", ["real"]),
    ]
    assert [chart.unit for chart in found] == [
        "number",
        "share",
        "share",
        "number",
        "number",
        "share",
    ]
    assert len({chart.key for chart in found}) == len(found)


def test_bars_are_shares_of_the_largest_and_what_was_not_measured_has_none():
    rows = [{"name": "train", "recall@1": 0.4}, {"name": "test", "recall@1": 0.2}, {"name": "x"}]
    bars = recall_bars(rows)
    assert [(bar["text"], bar["part"]) for bar in bars] == [("0.400", 1.0), ("0.200", 0.5)]
    assert recall_bars([]) == []
    [zero] = recall_bars([{"name": "train", "recall@1": 0.0}, {"name": "test", "recall@1": None}])
    assert (zero["name"], zero["part"]) == ("train", 0.0)
