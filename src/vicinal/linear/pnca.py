"""PNCA, parameterized neighborhood components analysis (Song et al., "Adaptive Neighborhood Metric
Learning")."""

import warnings

import numpy as np
from scipy.special import expit

from vicinal.arguments import Count, Positive
from vicinal.linear.mahalanobis import MahalanobisTransformer, in_units, threads
from vicinal.linear.objective import Array, Labels, Neighborhoods, Objective
from vicinal.linear.solvers import Problem, lbfgs, leveled_lbfgs, paper_start

_FLAT = 1e-6  # mean of p (1 - p) at the start, below which there is nothing to climb


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
        n_jobs: threads; None is 1, -1 is all cores. The result does not depend on it.

    Attributes:
        components_: L, rows by falling length; directions without weight are left out.
        objective_: 1 - mean of p_i, the minimum found.
        n_iter_: steps taken.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> PNCA(n_components=2).fit(X, y).transform(X).shape
    (150, 2)
    """

    def __init__(
        self,
        alpha: Positive = 1.0,
        n_components: Count | None = None,
        tol: Positive = 1e-4,
        max_iter: Count = 500,
        n_jobs: int | None = None,
    ) -> None:
        self.alpha = alpha
        self.n_components = n_components
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs

    def _fit(self, samples: Array, labels: Labels, directions: Array) -> None:
        directions = in_units(samples, directions)
        sets = Neighborhoods.among(samples @ directions, labels, None)
        start = paper_start(sets.samples, self.n_components)
        with threads(self.n_jobs) as count:
            objective = Objective(sets, self.alpha, 1.0, sigmoid, sums=True, threads=count)
            self._warn_if_flat(objective.at(start, gradient=False).excess)
            problem = Problem(objective, np.zeros((directions.shape[1],) * 2))
            # Leveled coordinates take fewer steps, but where features interact they may end in a
            # worse minimum than NCA's own coordinates do: the better of the two is kept.
            ways = (leveled_lbfgs, lbfgs)
            found = [solve(problem, start, tol=self.tol, max_iter=self.max_iter) for solve in ways]
        self._keep(min(found, key=lambda solution: solution.value), directions, self.max_iter)

    def _warn_if_flat(self, excess: Array) -> None:
        wrong, slope = sigmoid(excess)
        if slope.mean() >= _FLAT:
            return
        if self.alpha < 1 and wrong.mean() < _FLAT:
            cause = (
                f"1, because alpha = {self.alpha:g} raises the similar samples' sum to the power "
                f"{1 / self.alpha:g}. "
                f"Raise alpha."
            )
        else:
            cause = (
                "0 or 1, because samples lie so far apart that each sees its nearest neighbor "
                "alone. Scale features, "
                "for example with scikit-learn's StandardScaler."
            )
        warnings.warn(f"nothing can be learned: at the start every p_i is {cause}", stacklevel=4)


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

    def __init__(
        self, n_components: Count | None = None, tol: Positive = 1e-4, max_iter: Count = 500
    ) -> None:
        super().__init__(n_components=n_components, tol=tol, max_iter=max_iter)


def sigmoid(excess: Array) -> tuple[Array, Array]:
    """Return 1 - p of NCA and its slope: σ(t) with p = 1 - σ(t), the probability of a right
    neighbor."""
    wrong = expit(excess)
    return wrong, wrong * (1 - wrong)
