"""Curves thinned in one pass, against bucketing the whole series at once."""

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from vicinal.reports.artifacts import POINTS, read_progress, thin


@pytest.mark.parametrize("count", [1, 201, 5000])
def test_thinning_equals_bucketing_the_whole_series(count):
    values = np.random.default_rng(0).normal(size=count)
    curve = thin(range(count), values)
    width = 1
    while count / width > POINTS:
        width *= 2
    buckets = [values[at : at + width] for at in range(0, count, width)]
    assert_allclose(curve["y"], [b.mean() for b in buckets], rtol=1e-4)
    assert_allclose(curve["x"][0], min(width - 1, count - 1) / 2)
    if count > 1:
        assert_allclose(curve["low"], [b.min() for b in buckets], rtol=1e-4)
        assert_allclose(curve["high"], [b.max() for b in buckets], rtol=1e-4)


def test_a_hundred_thousand_steps_are_read_from_a_stream_into_a_bounded_series():
    lines = (
        {"kind": "step", "step": i, "epoch": i // 1000, "loss": 1 / (1 + i)}
        for i in itertools.count()
    )
    [chart], _ = read_progress(itertools.islice(lines, 100_000))
    [line] = chart["lines"]
    assert POINTS // 2 <= len(line["x"]) <= POINTS and line["name"] == "loss"


def test_other_values_and_lines_are_left_out():
    line = {"kind": "step", "step": 1, "loss": math.nan, "name": "x", "active": None, "fine": 1}
    event = {"kind": "event", "step": 1, "message": "m"}
    charts, events = read_progress([line, {"kind": "later", "step": 1}, event])
    assert [chart["key"] for chart in charts] == ["scalar-fine"]
    assert events == [{"epoch": None, **event}]


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
    evaluation = {"kind": "evaluation", "step": 2, "split": "validation"}
    found, _ = read_progress([*lines, {**evaluation, "metrics": {"recall@1": 0.5}}])
    shown = [
        (chart["title"], chart["unit"], *(line["name"] for line in chart["lines"]))
        for chart in found
    ]
    assert shown == [
        ("Loss", "number", "loss", "metric_loss"),
        ("Validation metrics", "share", "Recall@1"),
        ("Share of active tuples", "share", "active"),
        ("Hardness", "number", "pull", "push"),
        ("Learning rate", "number", "learning_rate"),
        ("Zero share", "share", "real"),
    ]
    assert len({chart["key"] for chart in found}) == len(found)
