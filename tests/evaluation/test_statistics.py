"""Statistics against scipy's own tests, published formulas and simulation."""

import numpy as np
import pytest
import torch
from scipy import stats

from vicinal.errors import DataError
from vicinal.evaluation.retrieval import QueryScores
from vicinal.evaluation.statistics import (
    class_bootstrap,
    gains,
    holm,
    smallest_effect,
    t_interval,
)

VALUES = [0.62, 0.64, 0.61, 0.66, 0.63]
OTHERS = [0.60, 0.63, 0.61, 0.62, 0.60]


def test_the_paired_test_is_scipys():
    found = t_interval(np.subtract(VALUES, OTHERS).tolist())
    expected = stats.ttest_rel(VALUES, OTHERS)
    interval = expected.confidence_interval(0.95)
    assert (found.low, found.high, found.p) == pytest.approx(
        (interval.low, interval.high, expected.pvalue)
    )
    assert found.above_zero == (interval.low > 0)


@pytest.mark.parametrize(
    ("values", "interval", "p"),
    [([0.25], (None, None), None), ([0.25] * 3, (0.25, 0.25), 0.0), ([0.0] * 2, (0.0, 0.0), 1.0)],
)
def test_one_pair_has_no_interval_and_equal_values_one_without_width(values, interval, p):
    found = t_interval(values)
    assert (found.mean, (found.low, found.high), found.p) == (values[0], interval, p)
    assert found.above_zero == (p == 0)
    assert found.half_width == (None if p is None else 0)
    with pytest.raises(DataError, match="got none"):
        t_interval([])


def test_the_bootstrap_draws_classes():
    rng = np.random.default_rng(0)
    queries = rng.integers(20, 40, size=60)
    hits = rng.binomial(queries, 0.7)
    other = rng.binomial(queries, 0.6)
    found = class_bootstrap(hits, other, queries, draws=20_000)
    drawn = np.random.default_rng(1).integers(60, size=(20_000, 60))
    differences = (hits - other)[drawn].sum(axis=1) / queries[drawn].sum(axis=1)
    assert found.mean == pytest.approx(hits.sum() / queries.sum() - other.sum() / queries.sum())
    assert (found.low, found.high) == pytest.approx(
        np.quantile(differences, [0.025, 0.975]), abs=0.002
    )
    assert class_bootstrap(hits[:1], other[:1], queries[:1]).low is None


def test_holm_keeps_order_and_never_falls():
    # R: p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "holm")
    assert holm([0.05, 0.01, 0.03, 0.02, 0.04]) == pytest.approx([0.09, 0.05, 0.09, 0.08, 0.09])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@pytest.mark.parametrize("count", [2, 5, 20])
def test_the_smallest_effect_is_found_with_the_stated_power(count):
    effect = smallest_effect(1.0, count)
    drawn = np.random.default_rng(0).normal(effect, 1.0, size=(20_000, count))
    assert (stats.ttest_1samp(drawn, 0.0, axis=1).pvalue < 0.05).mean() == pytest.approx(
        0.8, abs=0.012
    )


def queries(labels, hits):
    scores = {"recall@1": torch.as_tensor(hits, dtype=torch.float64)}
    return QueryScores(torch.as_tensor(labels), scores, torch.arange(len(labels)))


def test_three_of_360_queries_are_no_gain():
    labels = np.repeat(np.arange(12), 30)
    before = np.tile([1, 1, 0], 120)
    after = before.copy()
    after[[2, 32, 62]] = 1
    found = gains(queries(labels, after), queries(labels, before))["recall@1"]
    assert found["mean"] == pytest.approx(3 / 360) and found["low"] <= 0 < found["high"]
    many = gains(queries(labels, np.ones(360)), queries(labels, before))["recall@1"]
    assert many["low"] > 0.25 and many["high"] < 0.4


def test_a_gain_of_one_class_is_none_over_classes():
    """Over queries alone, 30 of 360 would be a sure gain; but all of them are of one class of
    twelve."""
    labels = np.repeat(np.arange(12), 30)
    before = np.zeros(360)
    after = np.where(labels == 3, 1.0, 0.0)
    assert t_interval((after - before).tolist()).low > 0
    assert gains(queries(labels, after), queries(labels, before))["recall@1"]["low"] <= 0


def test_other_queries_have_no_gain():
    assert gains(queries([0, 0], [1, 1]), queries([0, 1], [1, 1])) == {}
    alone = gains(queries([0], [1]), queries([0], [0]))["recall@1"]
    assert alone == {"mean": 1.0, "low": None, "high": None}
