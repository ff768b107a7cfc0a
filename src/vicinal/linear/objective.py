"""The objective of LANML and PNCA: an outer function of similar radius minus dissimilar radius,
summed over queries.

    t_i(M) = - 1/γ1 log(1/|S_i| Σ_{j ∈ S_i} exp(-γ1 d_M(x_i, x_j)))
             + 1/γ2 log(1/|D_i| Σ_{l ∈ D_i} exp(-γ2 d_M(x_i, x_l)))

with the squared distance d_M(x, y) = (x - y)ᵀ M (x - y); F(M) = 1/N Σ_i ℓ(t_i(M)) (Song et al.,
Eqs. 15-19). Its gradient is that of a weighted graph. With w_ij = ℓ'(t_i) (∂t_i/∂d_ij), softmax
weights,

    ∂F/∂M = 1/N Σ_ij w_ij (x_i - x_j)(x_i - x_j)ᵀ = 1/N Xᵀ (diag(Wᵀ1) - W - Wᵀ) X,

where diag(W1) is missing because the weights of S_i and of D_i both sum to ℓ'(t_i) and cancel. All
of it is computed for a block of queries at a time: two matrix products per block, and no N x N
matrix.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vicinal.errors import DataError

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[Any]
Positions = npt.NDArray[np.intp]
Outer = Callable[[Array], tuple[Array, Array]]  # ℓ and ℓ' of the excess t of each query

_BLOCK = 2**19  # distances held at once: 4 MiB of float64, well inside a last-level cache
# |γ| below which the quick form, whose rounding errors are divided by γ, loses some 3 of 16 digits.
_GENTLE = 2.0**-9
_MEAN = 1e-300  # in the place of γ = 0: the log-exp mean is the arithmetic one to the last digit


# -- neighborhoods --------------------------------------------------------------------------------


class Group(NamedTuple):
    """The samples of one class, ``start`` to ``stop``.

    ``similar`` holds, counted from ``start``, the positions of each sample's similar ones, one row
    per sample; None is the whole class but itself.
    """

    start: int
    stop: int
    similar: Positions | None

    @property
    def similar_count(self) -> int:
        """|S_i|, the same for all samples of a class."""
        return self.stop - self.start - 1 if self.similar is None else self.similar.shape[1]


@dataclass(frozen=True)
class Neighborhoods:
    """The similar set S_i and the dissimilar set D_i of every sample (Song et al., Section 3.1).

    Samples are sorted by class, so that a class is a slice and D_i is everything outside it. A
    sample alone in its class has no similar one: it is a dissimilar sample for the others, but no
    query itself.

    Attributes:
        samples: rows sorted by class, about their mean (no distance depends on it, and rounding is
            least there).
        groups: the classes with at least two samples.
        queries: number of samples in these.
    """

    samples: Array
    groups: tuple[Group, ...]
    queries: int

    @classmethod
    def among(cls, samples: Array, labels: Labels, nearest: int | None) -> "Neighborhoods":
        """Form the sets by label.

        Args:
            samples: rows, one per sample.
            labels: class of each sample.
            nearest: how many same-class samples, nearest in the samples' own Euclidean metric, are
                similar; None for all. A class with fewer gives all it has.
        """
        names, counts = np.unique(labels, return_counts=True)
        require_classes(names)
        if counts.max() < 2:
            raise DataError(
                f"similar samples are two of one class, but each of the {len(names)} classes in y "
                "has 1 sample only. "
                f"If y holds a quantity instead of classes, bin it first."
            )
        ordered = samples[np.argsort(labels, kind="stable")]
        ordered = ordered - ordered.mean(axis=0)
        groups = tuple(
            Group(stop - count, stop, _nearest(ordered[stop - count : stop], nearest))
            for stop, count in zip(np.cumsum(counts).tolist(), counts.tolist(), strict=True)
            if count > 1
        )
        return cls(ordered, groups, sum(group.stop - group.start for group in groups))

    def blocks(self) -> Iterator[tuple[Group, slice]]:
        """Yield queries of one class, few enough for their distances to be held at once."""
        step = max(1, _BLOCK // len(self.samples))
        for group in self.groups:
            for start in range(group.start, group.stop, step):
                yield group, slice(start, min(start + step, group.stop))

    def similar_scatter(self) -> Array:
        """C with Ω(M) = tr(M C): the mean over queries of the mean of (x_i - x_j)(x_i - x_j)ᵀ over
        S_i.

        Ω(M) = 1/(N |S_i|) Σ_i Σ_{j ∈ S_i} d_M(x_i, x_j)                  Song et al., Section 7.1.1
        """
        scatter = np.zeros((self.samples.shape[1], self.samples.shape[1]))
        for start, stop, similar in self.groups:
            own = self.samples[start:stop]
            if similar is None:
                centered = own - own.mean(axis=0)
                # Each unordered pair counts twice.
                scatter += 2 * len(own) / (len(own) - 1) * (centered.T @ centered)
                continue
            for column in similar.T:
                offsets = own - own[column]
                scatter += offsets.T @ offsets / similar.shape[1]
        return scatter / self.queries


def require_classes(names: Labels) -> None:
    """Raise a DataError if labels name one class only."""
    if len(names) < 2:
        raise DataError(
            "a metric that separates classes needs samples of at least 2 classes, but y holds "
            "only 1 class: "
            f"{names.tolist()}. Add samples of another class."
        )


def _nearest(own: Array, nearest: int | None) -> Positions | None:
    if nearest is None or nearest >= len(own) - 1:
        return None
    from sklearn.neighbors import NearestNeighbors

    # Leaves out itself.
    found = NearestNeighbors(n_neighbors=nearest).fit(own).kneighbors(return_distance=False)
    return np.asarray(found, dtype=np.intp)


# -- objective ------------------------------------------------------------------------------------


class Radii(NamedTuple):
    """Log-exp means and their derivatives.

    Attributes:
        values: b(γ) of each row.
        terms: exp(-γ a) of each entry up to one factor per row, 0 where it does not count.
        sums: their sums, so that ∂b/∂a = terms / sums.
    """

    values: Array
    terms: Array
    sums: Array


def radii(distances: Array, gamma: float, count: int, dropped: Any) -> Radii:
    """Compute the log-exp mean of each row of ``distances``, which it overwrites, and its
    derivative.

        b(γ) = -1/γ · log(1/n · Σ_j exp(-γ a_j)),   ∂b/∂a_j = exp(-γ a_j) / Σ_k exp(-γ a_k)
            Song et al., Eq. (12)

    Near γ = 0 the logarithm of a mean near 1 is taken from what it lacks, so that no digits are
    lost. ``vicinal.geometry.means`` is the definition; this form gives value and derivative
    together.

    Args:
        distances: one row per query.
        gamma: γ; 0 is the arithmetic mean.
        count: n, the entries of a row that count.
        dropped: index of the entries that do not count.
    """
    gamma = gamma or _MEAN
    logits = np.multiply(distances, -gamma, out=distances)
    logits[dropped] = -np.inf
    leading = logits.max(axis=1)
    logits -= leading[:, None]
    if abs(gamma) < _GENTLE:
        below = np.expm1(logits)
        below[dropped] = 0
        logs = np.log1p(below.sum(axis=1) / count)
    terms = np.exp(logits, out=logits)
    sums = terms.sum(axis=1)
    if abs(gamma) >= _GENTLE:
        logs = np.log(sums / count)
    return Radii(-(logs + leading) / gamma, terms, sums)


class Evaluation(NamedTuple):
    """The objective at one M.

    Attributes:
        value: F(M).
        gradient: ∂F/∂M, symmetric; zeros where it was not asked for.
        excess: t_i of each query, in the order of the sorted samples.
    """

    value: float
    gradient: Array
    excess: Array


@dataclass(frozen=True)
class Objective:
    """F(M) over given neighborhoods.

    Attributes:
        sets: samples and who is similar to whom.
        gamma1: γ1 of the similar radius.
        gamma2: γ2 > 0 of the dissimilar radius.
        outer: ℓ.
        sums: whether radii are log-exp sums, without 1/|S_i| and 1/|D_i| (NCA's form, Eq. 21), not
            means.
    """

    sets: Neighborhoods
    gamma1: float
    gamma2: float
    outer: Outer
    sums: bool = False

    def at(self, factor: Array, *, gradient: bool = True) -> Evaluation:
        """Compute the value, and the gradient if asked for, at M = factorᵀ factor."""
        samples = self.sets.samples
        queries = self.sets.queries
        mapped = samples @ factor.T
        squares = np.einsum("ij,ij->i", mapped, mapped)[:, None]
        ones = np.ones_like(squares)
        # d_ij = |z_i|² + |z_j|² - 2 z_i·z_j as one product of longer rows.
        left = np.hstack([-2 * mapped, squares, ones])
        right = np.hstack([mapped, ones, squares])

        cross = np.zeros((samples.shape[1], samples.shape[1]))  # Xᵀ W X
        inward = np.zeros(len(samples))  # Wᵀ 1
        total = 0.0
        excesses = []
        for group, rows in self.sets.blocks():
            distances = left[rows] @ right.T
            np.maximum(distances, 0, out=distances)  # rounding may take rows that meet below 0
            own = slice(group.start, group.stop)
            others = len(samples) - (group.stop - group.start)
            own_distances = distances[:, own].copy()
            places = np.arange(rows.start, rows.stop) - group.start
            unlike: Any = (np.arange(len(places)), places)  # of the class, not similar to a query
            if group.similar is not None:
                unlike = np.ones_like(own_distances, dtype=bool)
                np.put_along_axis(unlike, group.similar[places], values=False, axis=1)
            near = radii(own_distances, self.gamma1, group.similar_count, unlike)
            far = radii(distances, self.gamma2, others, np.s_[:, own])
            excess = near.values - far.values
            if self.sums:
                excess += np.log(others) / self.gamma2 - np.log(group.similar_count) / self.gamma1
            loss, slope = self.outer(excess)
            total += loss.sum()
            excesses.append(excess)
            active = np.flatnonzero(slope)
            if not gradient or not len(active):
                continue
            for columns, sign, found in ((own, 1, near), (slice(None), -1, far)):
                terms = found.terms if len(active) == len(slope) else found.terms[active]
                share = sign * slope[active] / found.sums[active]
                cross += (samples[rows][active] * share[:, None]).T @ (terms @ samples[columns])
                inward[columns] += share @ terms
        metric = (samples.T * inward) @ samples - cross - cross.T
        return Evaluation(total / queries, metric / queries, np.concatenate(excesses))
