"""Intervals, paired tests, bootstrap over classes, Holm's correction and power for a handful of
seeds."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Real

from vicinal.errors import DataError
from vicinal.evaluation.retrieval import QueryScores

LEVEL = 0.95  # of every interval
POWER = 0.8  # the usual chance with which an effect of the stated size is found (Cohen 1988)
CLAIM_SEEDS = 5  # fewer show a difference, but claim none
BySeed = Mapping[int, float]  # a score of each seed (or fold)
_FLAT = 1e-12  # spreads below this are rounding: all values are equal


@dataclass(frozen=True)
class Estimate:
    """A mean with its interval; one value alone has no interval, and ``low`` and ``high`` are None.

    Attributes:
        count: independent values behind it.
        p: two-sided p-value of "the mean is 0", where there is a test.
    """

    mean: float
    low: float | None
    high: float | None
    count: int
    p: float | None = None

    @property
    def above_zero(self) -> bool:
        return self.low is not None and self.low > 0

    @property
    def significant(self) -> bool:
        """Whether the interval excludes 0."""
        return self.above_zero or (self.high is not None and self.high < 0)

    @property
    def half_width(self) -> float | None:
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


def t_interval(values: Sequence[float]) -> Estimate:
    """Compute Student's interval of a mean, and the one-sample test of 0.

        mean ± t_{n-1} s / √n

    Equal values have an interval of width 0, and p = 0 unless they are 0: nothing varied.
    """
    if not values:
        raise DataError("a mean needs at least one value, got none.")
    mean = float(np.mean(values))
    count = len(values)
    if count == 1:
        return Estimate(mean, None, None, 1)
    if spread_of(values) <= _FLAT:
        return Estimate(mean, mean, mean, count, 1.0 if abs(mean) <= _FLAT else 0.0)
    from scipy.stats import ttest_1samp

    test = ttest_1samp(values, 0.0)
    low, high = map(float, test.confidence_interval(LEVEL))
    return Estimate(mean, low, high, count, float(test.pvalue))


def class_bootstrap(
    hits: Real[np.ndarray, "c"],
    other_hits: Real[np.ndarray, "c"],
    queries: Real[np.ndarray, "c"],
    draws: int = 10_000,
) -> Estimate:
    """Compute the difference of two recalls, with the interval over test classes drawn anew, pairs
    kept together.

        d* = Σ_{c in draw} (h_c - h'_c) / Σ_{c in draw} q_c                percentile interval of d*

    It answers another question than seeds do: would the difference stand on other classes of this
    kind? Queries of a class share its difficulty, so classes are drawn and not queries. A single
    class has no interval.

    Args:
        hits: right answers of each class; over several seeds, their sum.
        other_hits: the same of the baseline, over the same seeds.
        queries: how often each class was asked, over the same seeds.
    """
    from scipy.stats import bootstrap

    gained = np.asarray(hits, float) - other_hits
    asked = np.asarray(queries, float)
    mean = float(gained.sum() / asked.sum())
    if len(gained) == 1:
        return Estimate(mean, None, None, 1)

    def recall(gained: np.ndarray, asked: np.ndarray, axis: int) -> Any:
        return gained.sum(axis=axis) / asked.sum(axis=axis)

    # So that a data set of thousands of classes stays within 16 MB.
    batch = max(1, 2_000_000 // len(gained))
    found = bootstrap(
        (gained, asked),
        recall,
        n_resamples=draws,
        batch=batch,
        confidence_level=LEVEL,
        paired=True,
        vectorized=True,
        method="percentile",
        random_state=np.random.default_rng(0),
    )
    low, high = map(float, found.confidence_interval)
    return Estimate(mean, low, high, len(gained))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number by Holm's step-down rule (1979), in the given order.

        p'_(i) = max_{j <= i} min(1, (m - j + 1) p_(j))

    >>> [round(p, 6) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p_values, float)
    order = np.argsort(values, kind="stable")
    factors = np.arange(len(values), 0, -1)
    corrected = np.empty_like(values)
    corrected[order] = np.maximum.accumulate(np.minimum(1.0, factors * values[order]))
    return corrected.tolist()


def smallest_effect(spread: float, count: int) -> float | None:
    """Compute the smallest true mean difference that a two-sided paired test of ``count`` pairs
    finds by ``POWER``.

    By the noncentral t distribution, whose parameter is δ √n / s. The chance of a finding on the
    wrong side is left out; it is below 0.1 % wherever the power is above a half. None for fewer
    than two pairs, which can show nothing.

    Args:
        spread: s, the standard deviation of the pairs' differences.
    """
    if count < 2:
        return None
    if spread <= _FLAT:
        return 0.0
    from scipy.optimize import brentq
    from scipy.stats import nct, t

    freedom = count - 1
    critical = float(t.ppf((1 + LEVEL) / 2, freedom))
    upper = critical + float(t.ppf(POWER, freedom)) + 10.0
    noncentrality = brentq(lambda shift: nct.sf(critical, freedom, shift) - POWER, 0.0, 4 * upper)
    return float(noncentrality) * spread / math.sqrt(count)


def spread_of(values: Sequence[float]) -> float:
    """The sample's standard deviation; 0 for a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


@dataclass
class Difference:
    """One side minus its baseline in one metric.

    Attributes:
        over_seeds: the mean of the paired differences with its interval; None without a shared
            seed.
        over_classes: the difference with the interval over test classes; None where the classes
            differ.
        smallest: the smallest effect that the shared seeds would have shown.
        p: corrected by Holm over all differences of a table.
    """

    over_seeds: Estimate | None = None
    over_classes: Estimate | None = None
    smallest: float | None = None
    p: float | None = None

    @property
    def claimed(self) -> bool:
        """Whether a table may say that this side is better: enough seeds, the interval above 0,
        also after Holm."""
        seeds = self.over_seeds
        significant = self.p is not None and self.p < 1 - LEVEL
        return seeds is not None and seeds.count >= CLAIM_SEEDS and seeds.above_zero and significant


ClassScores = Mapping[str, Any]  # ``queries`` and ``hits`` of each class, by ``class_scores``


def difference(
    ours: BySeed,
    theirs: BySeed,
    our_classes: Sequence[ClassScores],
    their_classes: Sequence[ClassScores],
) -> Difference:
    """Compare the scores of two sides by seed and, as many runs of each, by class."""
    seeds = sorted(ours.keys() & theirs.keys())
    apart = [ours[seed] - theirs[seed] for seed in seeds]
    return Difference(
        t_interval(apart) if apart else None,
        over_classes(our_classes, their_classes),
        smallest_effect(spread_of(apart), len(apart)),
    )


def over_classes(ours: Sequence[ClassScores], theirs: Sequence[ClassScores]) -> Estimate | None:
    """Bootstrap the difference of two sides over test classes, run by run; None where their classes
    differ."""
    lines = (*ours, *theirs)
    if any("hits" not in line or line["queries"] != lines[0]["queries"] for line in lines) or (
        len({len(line["hits"]) for line in lines}) > 1
    ):
        return None
    hits, others = (np.sum([line["hits"] for line in side], axis=0) for side in (ours, theirs))
    return class_bootstrap(
        hits, others, np.broadcast_to(lines[0]["queries"], hits.shape) * len(ours)
    )


def correct(differences: Iterable[Difference]) -> None:
    """Give each difference its p-value after Holm's correction over all of them."""
    tested = [
        (one, one.over_seeds.p)
        for one in differences
        if one.over_seeds and one.over_seeds.p is not None
    ]
    for (one, _), p in zip(tested, holm([p for _, p in tested]), strict=True):
        one.p = p


def gains(ours: QueryScores, theirs: QueryScores) -> dict[str, dict[str, float | None]]:
    """Compute by how much one embedding is above another on the same queries: ``mean``, ``low``,
    ``high`` by metric.

    The interval is the wider of two on each side: over queries (Student's t of the paired
    differences) and over classes drawn anew. Three of 360 queries are no gain, and neither is one
    easy class. Empty for different queries.
    """
    if not torch.equal(ours.labels, theirs.labels):
        return {}
    mine = ours.by_class()
    other = theirs.by_class()
    found = dict[str, dict[str, float | None]]()
    for name in ours.scores:
        if name in theirs.scores:
            over_queries = t_interval((ours.scores[name] - theirs.scores[name]).tolist())
            over_classes = class_bootstrap(mine[name], other[name], mine["queries"], draws=2_000)
            both = over_queries, over_classes
            low = min((one.low for one in both if one.low is not None), default=None)
            high = max((one.high for one in both if one.high is not None), default=None)
            found[name] = {"mean": over_queries.mean, "low": low, "high": high}
    return found
