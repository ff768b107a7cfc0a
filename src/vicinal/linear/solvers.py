"""Minimizers of F(M) + <P, M> over M ⪰ 0: L-BFGS on a factor of M, and projected gradient steps."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from vicinal.linear.objective import Array, Objective

_PATIENCE = 3  # iterations in a row that must bring almost nothing before a minimum is believed
_BEYOND = 1e60  # entries of a factor that no data calls for
_RIDGE = 1e-3  # of the mean scatter, added where coordinates are divided by it


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
    return replace(
        ahead,
        factor=factor,
        value=problem.at(factor, gradient=False)[0],
        iterations=max_iter,
        converged=False,
    )


def paper_start(samples: Array, n_components: int | None) -> Array:
    """Return the factor of the paper's first M = I/√N, or its first ``n_components`` rows."""
    size, width = samples.shape
    start: Array = np.eye(min(n_components or width, width), width) / size**0.25
    return start


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
