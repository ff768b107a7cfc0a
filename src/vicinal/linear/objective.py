"""The objective of LANML and PNCA, an outer function of similar radius minus dissimilar radius,
summed over queries; and its minimizers: L-BFGS on a factor of M, and projected gradient steps.

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
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import OptimizeResult, minimize

from vicinal.errors import DataError

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[Any]
Positions = npt.NDArray[np.intp]
Outer = Callable[[Array], tuple[Array, Array]]  # ℓ and ℓ' of the excess t of each query

_BLOCK = 2**19  # distances held at once: 4 MiB of float64, well inside a last-level cache
# |γ| below which the quick form, whose rounding errors are divided by γ, loses some 3 of 16 digits.
_GENTLE = 2.0**-9
_MEAN = 1e-300  # in the place of γ = 0: the log-exp mean is the arithmetic one to the last digit
_PATIENCE = 3  # iterations in a row that must bring almost nothing before a minimum is believed
_BEYOND = 1e60  # entries of a factor that no data calls for
_RIDGE = 1e-3  # of the mean scatter, added where coordinates are divided by it


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


# -- solvers: F(M) + <P, M> over M ⪰ 0 -------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """F(M) + <P, M>, with the pull P = λ C of the regularizer Ω(M) = tr(M C).

    Attributes:
        objective: F.
        pull: P, symmetric and positive semidefinite.
    """

    objective: Objective
    pull: Array

    def at(self, factor: Array, *, gradient: bool = True) -> tuple[float, Array]:
        """Compute value and gradient in M at M = factorᵀ factor."""
        found = self.objective.at(factor, gradient=gradient)
        return found.value + float(np.vdot(factor @ self.pull, factor)), found.gradient + self.pull

    def leveled(self) -> tuple["Problem", Array, Array]:
        """Return the same problem in coordinates x · to, in which similar samples scatter alike in
        all directions.

        There curvature is alike in all directions, too, and a solver needs tens of steps instead of
        hundreds. ``to`` and its inverse ``back`` come with it: a factor L of M becomes L · back
        there, one found there L · toᵀ here.
        """
        scatter = self.objective.sets.similar_scatter()
        mean = np.trace(scatter) / len(scatter)
        values, vectors = np.linalg.eigh(scatter + _RIDGE * (mean or 1.0) * np.eye(len(scatter)))
        to = vectors / np.sqrt(values)
        back = vectors * np.sqrt(values)
        sets = replace(self.objective.sets, samples=self.objective.sets.samples @ to)
        return (
            replace(self, objective=replace(self.objective, sets=sets), pull=to.T @ self.pull @ to),
            to,
            back,
        )


@dataclass(frozen=True)
class Solution:
    """Where a solver stopped.

    Attributes:
        factor: L with M = Lᵀ L.
        value: the objective there.
        iterations: steps taken.
        converged: whether the steps had stopped paying, rather than run out.
    """

    factor: Array
    value: float
    iterations: int
    converged: bool


def project(matrix: Array) -> tuple[Array, Array]:
    """Return the nearest positive semidefinite matrix, and a factor L of it: Lᵀ L, rows of L by
    falling length."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    kept = values > max(values[-1], 0) * np.finfo(float).eps
    if not kept.any():
        return np.zeros_like(matrix), np.zeros((1, len(matrix)))
    factor = (vectors[:, kept] * np.sqrt(values[kept])).T[::-1]
    return factor.T @ factor, factor


def convex_minimum(problem: Problem, start: Array, *, tol: float, max_iter: int) -> Solution:
    """Find the optimum of a convex F: L-BFGS on a full factor, then projected gradient steps.

        M ← P(M - s ∇F(M)),  with P the projection onto M ⪰ 0 and s halved until F falls enough

    On a square factor every local minimum is a global one, and curvature learned on the way saves
    most of the steps. What a factor alone does badly, to let go of directions and to see that none
    is missing, is what a projected gradient step does well: where it still gains, it goes on.

    Args:
        problem: what to minimize.
        start: L to begin with, square. A singular one is allowed, since projected gradient steps
            leave its span.
        tol: decrease of the objective per iteration that counts as nothing, as a share of max(1,
            its value).
        max_iter: how many steps to take at most.
    """
    ahead = lbfgs(problem, start, tol=tol, max_iter=max_iter)
    metric, factor = project(ahead.factor.T @ ahead.factor)
    step = 1.0
    for iteration in range(ahead.iterations, max_iter):
        value, gradient = problem.at(factor)
        nothing = tol * max(abs(value), 1)
        while True:
            reached, reached_factor = project(metric - step * gradient)
            there = problem.at(reached_factor, gradient=False)[0]
            slope = float(np.vdot(gradient, metric - reached))
            if there <= value - slope / 2 or slope <= nothing:
                break
            step /= 2
        if there <= value:
            metric = reached
            factor = reached_factor
        if value - there <= nothing:
            return Solution(factor, min(value, there), iteration + 1, True)
        step *= 2
    return Solution(factor, problem.at(factor, gradient=False)[0], max_iter, False)


def paper_start(samples: Array, n_components: int | None) -> Array:
    """Return the factor of the paper's first M = I/√N, or its first ``n_components`` rows."""
    size, width = samples.shape
    return np.eye(min(n_components or width, width), width) / size**0.25


def leveled_lbfgs(problem: Problem, start: Array, *, tol: float, max_iter: int) -> Solution:
    """Run L-BFGS in leveled coordinates; ``start`` and the factor found are in the problem's
    own."""
    leveled, to, back = problem.leveled()
    found = lbfgs(leveled, start @ back, tol=tol, max_iter=max_iter)
    return replace(found, factor=found.factor @ to.T)


def lbfgs(problem: Problem, start: Array, *, tol: float, max_iter: int) -> Solution:
    """Run L-BFGS on the factor L of M = Lᵀ L, with ∂/∂L = 2 L ∂F/∂M; ``start`` is the first L and
    fixes the rank.

    Args:
        problem: what to minimize.
        start: L to begin with. Rows of zeros stay zero: there the gradient in L vanishes.
        tol: decrease of the objective per iteration, in the mean of three, that counts as nothing,
            as a share of max(1, its value).
        max_iter: how many steps to take at most.
    """
    best = (np.inf, start)
    values = [np.inf]

    def at(flat: Array) -> tuple[float, Array]:
        nonlocal best
        factor = flat.reshape(start.shape)
        if not np.abs(factor).max() < _BEYOND:
            raise _FlatError
        value, gradient = problem.at(factor)
        if value < best[0]:
            best = value, factor.copy()
        return value, (2 * factor @ gradient).ravel()

    def follow(intermediate_result: OptimizeResult) -> None:
        values.append(float(intermediate_result.fun))
        recent = values[-_PATIENCE - 1 :]
        if len(recent) > _PATIENCE and recent[0] - recent[-1] <= _PATIENCE * tol * max(
            abs(recent[-1]), 1
        ):
            raise StopIteration

    options = {
        "maxiter": max_iter,
        "maxfun": 20 * max_iter,
        "ftol": 1e-15,
        "gtol": 1e-10,
        "maxcor": 20,
    }
    try:
        found = minimize(
            at, start.ravel(), jac=True, method="L-BFGS-B", options=options, callback=follow
        )
    except _FlatError:  # the objective hardly changes however far one goes
        return Solution(best[1], best[0], len(values) - 1, True)
    # A line search that finds nothing better says that rounding, or the kink of a bare hinge, is
    # all that is left.
    settled = found.nit < max_iter and found.nfev < options["maxfun"]
    return Solution(best[1], best[0], int(found.nit), settled)


class _FlatError(Exception):
    """A line search left the numbers whose squares can be told apart."""
