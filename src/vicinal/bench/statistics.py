"""Intervals, paired tests, bootstrap over classes, Holm's correction and power for a handful of seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from vicinal.errors import ConfigError, DataError

LEVEL = 0.95  # of every interval
POWER = 0.8  # the usual chance with which an effect of the stated size is found (Cohen 1988)
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


def t_interval(values: Sequence[float], *, level: float = LEVEL) -> Estimate:
    """Student's interval of a mean, and the one-sample test of 0.

        mean ± t_{n-1} s / √n

    Equal values have an interval of width 0, and p = 0 unless they are 0: nothing varied.
    """
    return _t(values, variance_factor=1 / max(1, len(values)), level=level)


def paired_t_interval(values: Sequence[float], others: Sequence[float], *, level: float = LEVEL) -> Estimate:
    """The interval of the mean difference ``values - others`` of pairs (same seed, same fold), with its test."""
    return t_interval(_differences(values, others), level=level)


def corrected_resampled_t(
    values: Sequence[float],
    others: Sequence[float],
    *,
    trained_on: int,
    tested_on: int,
    level: float = LEVEL,
) -> Estimate:
    """The paired test over random splits of one data set, whose training parts overlap (Nadeau and Bengio 2003).

        t = mean(d) / √((1/J + n_test / n_train) s²),   J - 1 degrees of freedom

    The plain paired test takes the J splits for independent and finds differences that are not there.

    Args:
        trained_on: records of the training part of a split.
        tested_on: records of its test part.
    """
    if trained_on < 1 or tested_on < 1:
        raise ConfigError(f"a split needs records on both sides, got {trained_on} and {tested_on}.")
    differences = _differences(values, others)
    factor = 1 / max(1, len(differences)) + tested_on / trained_on
    return _t(differences, variance_factor=factor, level=level)


def class_bootstrap(
    hits: Float[np.ndarray, "c"],
    other_hits: Float[np.ndarray, "c"],
    queries: Float[np.ndarray, "c"],
    *,
    level: float = LEVEL,
    draws: int = 10_000,
    seed: int = 0,
) -> Estimate:
    """The difference of two recalls, with the interval over test classes drawn anew, pairs kept together.

        d* = Σ_{c in draw} (h_c - h'_c) / Σ_{c in draw} q_c                      percentile interval of d*

    It answers another question than seeds do: would the difference stand on other classes of this kind? Queries of a
    class share its difficulty, so classes are drawn and not queries.

    Args:
        hits: right answers of each class; over several seeds, their sum.
        other_hits: the same of the baseline, over the same seeds.
        queries: how often each class was asked, over the same seeds.
    """
    if not hits.shape == other_hits.shape == queries.shape or hits.ndim != 1 or not len(hits):
        raise DataError(
            f"a bootstrap over classes needs three columns of one length, got {hits.shape}, {other_hits.shape} and "
            f"{queries.shape}. Compare runs on the same test classes."
        )
    rng = np.random.default_rng(seed)
    gained, asked = np.asarray(hits, float) - other_hits, np.asarray(queries, float)
    count = len(gained)
    found = np.empty(draws)
    at_once = max(1, 2_000_000 // count)  # so that a data set of thousands of classes stays within 16 MB
    for start in range(0, draws, at_once):
        drawn = rng.integers(count, size=(min(at_once, draws - start), count))
        found[start : start + len(drawn)] = gained[drawn].sum(axis=1) / asked[drawn].sum(axis=1)
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(float(gained.sum() / asked.sum()), float(low), float(high), count)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for their number by Holm's step-down rule (1979), in the given order.

        p'_(i) = max_{j <= i} min(1, (m - j + 1) p_(j))

    >>> [round(p, 6) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def smallest_effect(spread: float, count: int, *, level: float = LEVEL, power: float = POWER) -> float | None:
    """The smallest true mean difference that a two-sided paired test of ``count`` pairs finds with chance ``power``.

    By the noncentral t distribution, whose parameter is δ √n / s. The chance of a finding on the wrong side is left
    out; it is below 0.1 % wherever the power is above a half. None for fewer than two pairs, which can show nothing.

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
    critical = float(t.ppf((1 + level) / 2, freedom))
    upper = critical + float(t.ppf(power, freedom)) + 10.0
    noncentrality = brentq(lambda shift: nct.sf(critical, freedom, shift) - power, 0.0, 4 * upper)
    return float(noncentrality) * spread / math.sqrt(count)


def spread_of(values: Sequence[float]) -> float:
    """The sample's standard deviation; 0 for a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _differences(values: Sequence[float], others: Sequence[float]) -> list[float]:
    if len(values) != len(others):
        raise DataError(f"pairs are compared, got {len(values)} and {len(others)} values. Keep the shared seeds.")
    return [value - other for value, other in zip(values, others, strict=True)]


def _t(values: Sequence[float], *, variance_factor: float, level: float) -> Estimate:
    if not values:
        raise DataError("a mean needs at least one value, got none.")
    if not 0 < level < 1:
        raise ConfigError(f"the level of an interval lies between 0 and 1, got {level}.")
    mean = float(np.mean(values))
    if len(values) == 1:
        return Estimate(mean, None, None, 1)
    from scipy.stats import t

    freedom = len(values) - 1
    error = spread_of(values) * math.sqrt(variance_factor)
    if error <= _FLAT:
        return Estimate(mean, mean, mean, len(values), 1.0 if abs(mean) <= _FLAT else 0.0)
    half = float(t.ppf((1 + level) / 2, freedom)) * error
    return Estimate(mean, mean - half, mean + half, len(values), float(2 * t.sf(abs(mean) / error, freedom)))
