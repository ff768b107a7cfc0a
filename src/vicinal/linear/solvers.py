"""Minimisers of F(M) + <P, M> over M ⪰ 0: accelerated projected gradient, and L-BFGS on a factor of M."""

from dataclasses import dataclass

import numpy as np

from vicinal.linear.neighbourhoods import Array
from vicinal.linear.objective import Objective

_GROWTH = 1.1  # of an accepted step: one never grown stays short, one grown faster is halved again at a cost each time
_PATIENCE = 3  # iterations in a row that must bring almost nothing before a minimum is believed
_BEYOND = 1e60  # entries of a factor that no data calls for


@dataclass(frozen=True)
class Problem:
    """F(M) + <P, M>, with the pull P = λ C of the regulariser Ω(M) = tr(M C).

    Attributes:
        objective: F.
        pull: P, symmetric and positive semidefinite.
    """

    objective: Objective
    pull: Array

    def at(self, factor: Array, *, gradient: bool = True) -> tuple[float, Array]:
        """Value and gradient in M at M = factorᵀ factor."""
        found = self.objective.at(factor, gradient=gradient)
        return found.value + float(np.einsum("ri,ij,rj->", factor, self.pull, factor)), found.gradient + self.pull


@dataclass(frozen=True)
class Solution:
    """Where a solver stopped.

    Attributes:
        factor: L with M = Lᵀ L.
        value: the objective there.
        iterations: steps taken.
        converged: whether the steps had stopped paying, rather than run out.
        reason: why it stopped, in words.
        step: length of its last gradient step; None where it takes none.
    """

    factor: Array
    value: float
    iterations: int
    converged: bool
    reason: str
    step: float | None = None


def project(matrix: Array) -> tuple[Array, Array]:
    """The nearest positive semidefinite matrix, and a factor L of it: Lᵀ L, rows of L by falling length."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    kept = values > max(values[-1], 0) * np.finfo(float).eps
    if not kept.any():
        return np.zeros_like(matrix), np.zeros((1, len(matrix)))
    factor = (vectors[:, kept] * np.sqrt(values[kept])).T[::-1]
    return factor.T @ factor, factor


def projected_gradient(
    problem: Problem, start: Array, *, tol: float, max_iter: int, step: float | None = None
) -> Solution:
    """Accelerated projected gradient with backtracking: for a convex F the optimum, from any start.

        M_{k+1} = P(Y_k - s ∇F(Y_k)),   Y_{k+1} = M_{k+1} + (θ_k - 1)/θ_{k+1} (M_{k+1} - M_k)     Beck & Teboulle 2009

    with P the projection onto M ⪰ 0. The step s is halved until the quadratic model bounds F, and grown again after.
    Momentum starts anew where it points uphill (O'Donoghue & Candès 2015).

    Args:
        problem: what to minimise.
        start: M to begin with.
        tol: decrease of the objective per iteration that counts as nothing, as a share of max(1, its value).
        max_iter: how many steps to take at most.
        step: s to begin with; a bad guess costs some halvings.
    """
    step = step or 1.0
    current, factor = project(start)
    ahead, ahead_factor, momentum, idle = current, factor, 1.0, 0
    value = previous = problem.at(factor, gradient=False)[0]
    for iteration in range(1, max_iter + 1):
        base, gradient = problem.at(ahead_factor)
        while True:
            reached, factor = project(ahead - step * gradient)
            move = reached - ahead
            value = problem.at(factor, gradient=False)[0]
            bound = base + float(np.vdot(gradient, move)) + float(np.vdot(move, move)) / (2 * step)
            if value <= bound + 1e-14 * abs(base):
                break
            step /= 2
        if float(np.vdot(ahead - reached, reached - current)) > 0 or value > previous:
            momentum = 1.0
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead, ahead_factor = project(reached + (momentum - 1) / following * (reached - current))
        current, momentum, step = reached, following, step * _GROWTH
        idle = idle + 1 if abs(previous - value) <= tol * max(abs(value), 1) else 0
        if idle == _PATIENCE:
            return Solution(factor, value, iteration, True, f"{_PATIENCE} steps gained less than {tol:g}", step)
        previous = value
    return Solution(factor, value, max_iter, False, f"{max_iter} steps were taken", step)


def lbfgs(problem: Problem, start: Array, *, tol: float, max_iter: int) -> Solution:
    """L-BFGS on the factor L of M = Lᵀ L, with ∂/∂L = 2 L ∂F/∂M; ``start`` is the first L and fixes the rank.

    Args:
        problem: what to minimise.
        start: L to begin with. Rows of zeros stay zero: there the gradient in L vanishes.
        tol: decrease of the objective per iteration that counts as nothing, as a share of max(1, its value).
        max_iter: how many steps to take at most.
    """
    from scipy.optimize import minimize

    best = (np.inf, start)

    def at(flat: Array) -> tuple[float, Array]:
        nonlocal best
        factor = flat.reshape(start.shape)
        if not np.abs(factor).max() < _BEYOND:
            raise _FlatError
        value, gradient = problem.at(factor)
        best = min(best, (value, factor), key=lambda pair: pair[0])
        return value, (2 * factor @ gradient).ravel()

    options = {"maxiter": max_iter, "maxfun": 20 * max_iter, "ftol": tol, "gtol": 1e-10, "maxcor": 20}
    steps = 0

    def count(_: Array) -> None:
        nonlocal steps
        steps += 1

    try:
        found = minimize(at, start.ravel(), jac=True, method="L-BFGS-B", options=options, callback=count)
    except _FlatError:  # the objective hardly changes however far one goes
        return Solution(best[1], best[0], steps, True, "the objective is flat")
    # A line search that finds nothing better says that rounding, or the kink of a bare hinge, is all that is left.
    settled = bool(found.success) or "ABNORMAL" in str(found.message)
    return Solution(found.x.reshape(start.shape), float(found.fun), int(found.nit), settled, str(found.message))


class _FlatError(Exception):
    """A line search left the numbers whose squares can be told apart."""
