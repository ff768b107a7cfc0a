"""Linear metric learning as scikit-learn estimators: LANML and PNCA (Song, Han, Cheng, Lu & Nie),
GMML (Zadeh, Hosseini & Sra, ICML 2016) and RVML (Perrot & Habrard, NIPS 2015)."""

import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from vicinal.arguments import Count, Finite, NonNegative, Positive, Share, check_arguments
from vicinal.errors import ConfigError, DataError
from vicinal.linear.objective import (
    Array,
    Labels,
    Neighborhoods,
    Objective,
    Problem,
    Solution,
    convex_minimum,
    lbfgs,
    leveled_lbfgs,
    paper_start,
    project,
    require_classes,
)

_TINY = 1e-3  # spread of the samples below which a start at I/√N sees no gradient
_FLAT = 1e-6  # mean of p (1 - p) at PNCA's start, below which there is nothing to climb
_AUTO = 10  # nearest same-class samples in S_i for γ1 < 0: the paper's, Section 7.1.2

_HALF_STEPS = [2.0 ** (step / 2) for step in range(-10, 11)]  # 2^-5, 2^-4.5, ..., 2^5
_LAMBDAS = [round(0.1 + 0.2 * step, 1) for step in range(8)]  # 0.1, 0.3, ..., 1.5
PAPER_GRIDS: dict[str, Mapping[str, Sequence[Any]]] = {
    "lanml-": {
        "regularization": _LAMBDAS,
        "gamma1": [-step for step in _HALF_STEPS],
        "gamma2": _HALF_STEPS,
    },
    "lanml+": {"regularization": _LAMBDAS, "gamma1": _HALF_STEPS, "gamma2": _HALF_STEPS},
    "pnca": {"alpha": [2.0**power for power in range(-8, 11)]},
    "gmml": {"t": [round(0.1 * step, 1) for step in range(1, 10)]},
}
"""The grids of Section 7.1.2: 8 x 21 x 21 points for LANML, 19 for PNCA, 9 for GMML."""


class MahalanobisTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Abstract: a subclass fits ``components_``, the rows of L; the rest follows.

    d_M(x, y) = (x - y)ᵀ M (x - y) = |Lx - Ly|²,   M = Lᵀ L
    """

    components_: Array

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> Self:
        """Learn the metric from samples and their classes."""
        # A data frame lies column by column; in one order, equal samples round alike and give equal
        # metrics.
        samples, labels = validate_data(
            self, X, y, dtype=np.float64, order="C", ensure_min_samples=2
        )
        check_classification_targets(labels)
        check_arguments(self)
        rows = getattr(self, "n_components", None)
        if rows is not None and rows > samples.shape[1]:
            raise ConfigError(
                f"n_components must be at most {samples.shape[1]}, the number of features, got "
                f"{rows}."
            )
        self._fit(samples, labels, span(samples))
        return self

    @abstractmethod
    def _fit(self, samples: Array, labels: Labels, directions: Array) -> None:
        """Set ``components_`` from checked samples and the directions in which they vary."""

    def transform(self, X: npt.ArrayLike) -> Array:
        """Map samples by L: Euclidean distances there are the learned ones."""
        check_is_fitted(self)
        return validate_data(self, X, reset=False, dtype=np.float64) @ self.components_.T

    def get_mahalanobis_matrix(self) -> Array:
        """Return M, symmetric and positive semidefinite."""
        check_is_fitted(self)
        return self.components_.T @ self.components_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = []  # solved in float64, for any type
        return tags

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _keep(self, solution: Solution, directions: Array, max_iter: int) -> None:
        """Keep a solution found in coordinates x · directions, and warn where it is no minimum."""
        # Factored there: with more features than samples those coordinates are few, and M of all
        # features is large.
        rows = project(solution.factor.T @ solution.factor)[1] @ directions.T
        self.components_ = rows[: len(solution.factor)]
        self.n_iter_ = solution.iterations
        self.objective_ = solution.value
        if not solution.converged:
            warnings.warn(
                f"{type(self).__name__} has not converged: after {solution.iterations} steps "
                f"(max_iter = {max_iter}) "
                f"the objective, {solution.value:.6g}, was still falling. Raise max_iter or tol, "
                "or scale features.",
                ConvergenceWarning,
                stacklevel=4,
            )


def span(samples: Array) -> Array:
    """Return orthonormal directions, as columns, in which the samples vary: no other direction can
    matter.

    A constant feature, or one that others determine, leaves the problem here instead of making it
    singular.
    """
    _, lengths, directions = np.linalg.svd(samples - samples.mean(axis=0), full_matrices=False)
    # Rows far from the origin differ from their mean by rounding alone: nothing is learned from
    # that.
    rounding = np.abs(samples).max() * np.sqrt(samples.size)
    kept = lengths > max(lengths[0] * max(samples.shape), 4 * rounding) * np.finfo(float).eps
    if not kept.any():
        raise DataError(
            f"a metric needs samples that differ, but all {len(samples)} rows of X are equal. "
            f"Look at how X was made; a constant feature alone would be fine."
        )
    return directions[kept].T


def in_units(samples: Array, directions: Array) -> Array:
    """Return ``directions`` such that tiny samples vary by about 1 in these coordinates, for
    solvers that start at I.

    The optimum in scaled coordinates is the optimum, scaled; only the start and rounding differ.
    Samples that vary by more stay as they are: their start is the paper's.
    """
    spread = np.sqrt(np.square((samples - samples.mean(axis=0)) @ directions).sum(axis=1).mean())
    return directions if spread >= _TINY else directions / 2.0 ** np.round(np.log2(spread))


# -- LANML, PNCA and NCA --------------------------------------------------------------------------


@dataclass(frozen=True)
class Hinge:
    """[t + m]_+, rounded at its kink.

        ℓ(t) = max_{0 ≤ a ≤ 1} a (t + m) - a² w / 2 = 0 | u² / 2w | u - w / 2
            for u = t + m below 0, below w, above

    It lies between [u]_+ - w/2 and [u]_+, is convex and does not fall, with a slope that a gradient
    method can follow.

    Attributes:
        margin: m.
        width: w; 0 is the hinge itself.
    """

    margin: float
    width: float

    def __call__(self, excess: Array) -> tuple[Array, Array]:
        above = excess + self.margin
        if self.width == 0:
            return np.maximum(above, 0), (above > 0).astype(float)
        slope = np.clip(above / self.width, 0, 1)
        return slope * above - slope**2 * (self.width / 2), slope


@dataclass(eq=False, repr=False)
class LANML(MahalanobisTransformer):
    """Put the similar radius of every sample a margin below its dissimilar radius.

        min_{M ⪰ 0}  Σ_i [ t_i(M) + m ]_+  +  λ Ω(M),
            Ω(M) = 1/(N |S_i|) Σ_i Σ_{j ∈ S_i} d_M(x_i, x_j)
            Eq. (19)
        t_i(M) = - 1/γ1 log(1/|S_i| Σ_{j ∈ S_i} exp(-γ1 d_M(x_i, x_j)))
                 + 1/γ2 log(1/|D_i| Σ_{l ∈ D_i} exp(-γ2 d_M(x_i, x_l)))

    with squared distances d_M. The log-exp means are soft radii: the dissimilar one approaches the
    nearest dissimilar sample as γ2 grows. With γ1 < 0 (LANML⁻) the similar radius approaches the
    farthest similar sample, each class is pulled together into one cluster (Proposition 5), and the
    problem is convex (Lemma 3): its optimum is found from any start, by L-BFGS on a full factor of
    M followed by projected gradient steps. With γ1 > 0 (LANML⁺) it approaches the nearest, so a
    class may lie in several clusters; the problem is not convex and starts from M = I/√N, as in the
    paper.

    Paper to code: m = ``margin``, λ = ``regularization``, |S_i| = ``n_similar``; D_i holds all
    samples of other classes.

    Differs: the hinge is rounded over a ``smoothing`` of its margin, because a gradient method
    creeps along kinks; 0 gives the printed one.

    Args:
        gamma1: γ1 of the similar radius; 0 is the mean.
        gamma2: γ2 > 0 of the dissimilar radius.
        regularization: λ ≥ 0.
        n_similar: how many nearest same-class samples are similar; ``"auto"`` is the paper's
            choice, 10 for γ1 ≤ 0 and all for γ1 > 0; None is all.
        n_components: rows of L at most. A bound on the rank is not convex, so the factor is
            optimized then.
        margin: m > 0.
        smoothing: width of the rounded kink, in margins.
        tol: decrease of the mean loss per query and step, below which the fit has converged; the
            loss is in margins.
        max_iter: steps at most; a fit that needs more warns.

    Attributes:
        components_: L, rows by falling length; directions without weight are left out.
        objective_: the minimum found, with its sum divided by N.
        n_iter_: steps taken.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> LANML().fit(X, y).transform(X).shape
    (150, 4)
    """

    gamma1: Finite = -1.0
    gamma2: Positive = 8.0
    regularization: NonNegative = 1.0
    n_similar: Count | Literal["auto"] | None = "auto"
    n_components: Count | None = None
    margin: Positive = 1.0
    smoothing: NonNegative = 0.1
    tol: Positive = 1e-4
    max_iter: Count = 500

    def _fit(self, samples: Array, labels: Labels, directions: Array) -> None:
        directions = in_units(samples, directions)
        nearest = self.n_similar
        if nearest == "auto":
            nearest = _AUTO if self.gamma1 <= 0 else None
        sets = Neighborhoods.among(samples @ directions, labels, nearest)
        # (γ1, γ2, m, M) costs m times what (m γ1, m γ2, 1, M / m) costs: in margins, ``tol`` means
        # the same for all of them.
        gammas = self.margin * self.gamma1, self.margin * self.gamma2
        objective = Objective(sets, *gammas, Hinge(1.0, self.smoothing))
        # The objective is a mean over queries, the paper's a sum.
        share = self.regularization / sets.queries
        problem = Problem(objective, share * sets.similar_scatter())
        if self.gamma1 <= 0 and self.n_components is None:  # the optimum, wherever one starts
            leveled, to, _ = problem.leveled()
            # In these coordinates similar samples lie tr M apart in the mean: a part of the margin,
            # for a good metric.
            start = np.eye(len(to)) * np.sqrt(1 / (4 * len(to)))
            found = convex_minimum(leveled, start, tol=self.tol, max_iter=self.max_iter)
            found = replace(found, factor=found.factor @ to.T)
        else:
            start = paper_start(samples @ directions, self.n_components) / np.sqrt(self.margin)
            found = leveled_lbfgs(problem, start, tol=self.tol, max_iter=self.max_iter)
        solution = replace(
            found, factor=found.factor * np.sqrt(self.margin), value=found.value * self.margin
        )
        self._keep(solution, directions, self.max_iter)
        if not self.components_.any():
            warnings.warn(
                f"the optimum is M = 0: with regularization = {self.regularization:g} pulling "
                "similar samples together "
                f"costs less than keeping dissimilar ones away. Lower regularization, or gamma1.",
                stacklevel=3,
            )


@dataclass(eq=False, repr=False)
class PNCA(MahalanobisTransformer):
    """Raise the probability that a sample's random neighbor is of its class, with an exponent on
    the similar ones.

        max_{M ⪰ 0}  1/N Σ_i p_i,   p_i = s_i / (s_i + Σ_{l ∈ D_i} exp(-d_M(x_i, x_l))),
        s_i = (Σ_{j ∈ S_i} exp(-α d_M(x_i, x_j)))^{1/α}                                     Eq. (21)

    with squared distances, S_i all other samples of the class and D_i all samples of other classes.
    α = 1 is NCA (Goldberger et al. 2004); as α grows only the nearest similar sample counts. The
    problem is not convex; the factor L of M = Lᵀ L is optimized by L-BFGS from M = I/√N, the
    paper's start, in two systems of coordinates, and the better
    minimum is kept: at α = 1 it is no worse than NCA's from the same start.

    Differs: the sum over queries is divided by N. The middle line of the paper's Eqs. (20)-(21) is
    upside down; this is its last line.

    Args:
        alpha: α > 0. A small α makes s_i so large that p_i = 1 everywhere and nothing is learned
            (|S_i|^{1/α}).
        n_components: rows of L at most.
        tol: decrease of the mean of 1 - p_i per step, below which the fit has converged.
        max_iter: steps at most; a fit that needs more warns.

    Attributes:
        components_: L, rows by falling length; directions without weight are left out.
        objective_: 1 - mean of p_i, the minimum found.
        n_iter_: steps taken.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> PNCA(n_components=2).fit(X, y).transform(X).shape
    (150, 2)
    """

    alpha: Positive = 1.0
    n_components: Count | None = None
    tol: Positive = 1e-4
    max_iter: Count = 500

    def _fit(self, samples: Array, labels: Labels, directions: Array) -> None:
        directions = in_units(samples, directions)
        sets = Neighborhoods.among(samples @ directions, labels, None)
        start = paper_start(sets.samples, self.n_components)
        objective = Objective(sets, self.alpha, 1.0, sigmoid, sums=True)
        self._warn_if_flat(objective.at(start, gradient=False).excess)
        problem = Problem(objective, np.zeros((directions.shape[1],) * 2))
        # Leveled coordinates take fewer steps, but where features interact they may end in a
        # worse minimum than NCA's own coordinates do: the better of the two is kept.
        ways = (leveled_lbfgs, lbfgs)
        found = [solve(problem, start, tol=self.tol, max_iter=self.max_iter) for solve in ways]
        self._keep(min(found, key=lambda solution: solution.value), directions, self.max_iter)

    def _warn_if_flat(self, excess: Array) -> None:
        if sigmoid(excess)[1].mean() < _FLAT:
            warnings.warn(
                "nothing can be learned: at the start every p_i is 0 or 1, because samples lie so "
                "far apart that each sees its nearest neighbor alone, or the similar samples' sum "
                f"is raised to the power 1 / alpha. Scale features, for example with "
                f"scikit-learn's StandardScaler, or raise alpha = {self.alpha:g}.",
                stacklevel=4,
            )


@dataclass(eq=False, repr=False)
class NCA(PNCA):
    """Neighborhood components analysis (Goldberger et al. 2004): PNCA with α = 1.

    Args:
        n_components: as of ``PNCA``.
        tol: as of ``PNCA``.
        max_iter: as of ``PNCA``.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> NCA(n_components=1).fit(X, y).transform(X).shape
    (150, 1)
    """

    alpha: Positive = field(default=1.0, init=False)


def sigmoid(excess: Array) -> tuple[Array, Array]:
    """Return 1 - p of NCA and its slope: σ(t) with p = 1 - σ(t), the probability of a right
    neighbor."""
    wrong = expit(excess)
    return wrong, wrong * (1 - wrong)


# -- in closed form -------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class GMML(MahalanobisTransformer):
    """The metric midway between pulling similar pairs together and pushing dissimilar pairs apart.

        M = S⁻¹ ♯_t D = S^{-1/2} (S^{1/2} D S^{1/2})^t S^{-1/2}

    with S and D the mean of (x_i - x_j)(x_i - x_j)ᵀ over similar and over dissimilar pairs: the
    point at share t of the geodesic from S⁻¹ to D on the cone of positive definite matrices. At t =
    1/2 it minimizes tr(M S) + tr(M⁻¹ D).

    Differs: all pairs take part, in closed form, where the authors draw some 40 c (c - 1) of them
    at random; means in the place of sums change M by a factor only.

    Args:
        t: share of the way from S⁻¹ (0) to D (1).
        ridge: share of the mean variance added to S and D, so that S has an inverse.

    Attributes:
        components_: L, rows by falling length.
    """

    t: Share = 0.5
    ridge: NonNegative = 1e-4

    def _fit(self, samples: Array, labels: Labels, directions: Array) -> None:
        sets = Neighborhoods.among(samples @ directions, labels, None)
        samples = sets.samples  # about their mean
        # Means of outer products over all similar and all dissimilar pairs, from sums over samples.
        everything = 2 * len(samples) * samples.T @ samples
        similar = np.zeros_like(everything)
        pairs = 0
        for start, stop, _ in sets.groups:
            own = samples[start:stop] - samples[start:stop].mean(axis=0)
            similar += 2 * len(own) * own.T @ own
            pairs += len(own) * (len(own) - 1)
        dissimilar = (everything - similar) / (len(samples) * (len(samples) - 1) - pairs)
        similar /= pairs
        ridge = self.ridge * np.trace(dissimilar) / len(dissimilar) * np.eye(len(dissimilar))
        similar = similar + ridge
        dissimilar = dissimilar + ridge
        # A mean is carried along by a change of coordinates. In those where S is I it is a power: M
        # = R⁻ᵀ (Rᵀ D R)^t R⁻¹ with S = R Rᵀ.
        root = np.linalg.cholesky(similar)
        values, vectors = np.linalg.eigh(root.T @ dissimilar @ root)
        factor = np.linalg.solve(root.T, vectors * np.maximum(values, 0) ** (self.t / 2))
        self.components_ = project(factor @ factor.T)[1] @ directions.T


@dataclass(eq=False, repr=False)
class RVML(MahalanobisTransformer):
    """Regress every sample onto a virtual point of its class.

        min_L  1/N Σ_i |L x_i - v_i|² + λ |L|_F²,   so  Lᵀ = (Xᵀ X + λ N I)⁻¹ Xᵀ V

    with the class-based virtual points: v_i is the unit vector of the class of x_i. The linear
    form; the paper also has a kernelized one and virtual points by optimal transport.

    Differs: X and V are taken about their means, so that the map does not depend on where the
    origin lies.

    Args:
        regularization: λ > 0.

    Attributes:
        components_: L, one row for each class.
    """

    regularization: Positive = 0.01

    def _fit(self, samples: Array, labels: Labels, directions: Array) -> None:
        names, codes = np.unique(labels, return_inverse=True)
        require_classes(names)
        virtual = np.eye(len(names))[codes]
        # Rows of L lie in the span of the samples, and with many features that is the smaller
        # problem. An intercept takes X and V about their means.
        regression = Ridge(self.regularization * len(samples)).fit(samples @ directions, virtual)
        self.components_ = regression.coef_ @ directions.T
