"""Minimizers of F(M) + <P, M> over M ⪰ 0: accelerated projected gradient, and L-BFGS on a factor of
M."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from vicinal.linear.objective import Array, Objective

# of an accepted step: one never grown stays short, one grown faster is halved again at a cost each
# time
_GROWTH = 1.1
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
        step: length of a gradient step in M that suits the place; None where nothing is known.
    """

    factor: Array
    value: float
    iterations: int
    converged: bool
    step: float | None = None


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
    """Find the optimum of a convex F: L-BFGS on a full factor runs ahead, projected gradient steps
    end it.

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
    if ahead.iterations >= max_iter:
        return ahead
    metric = ahead.factor.T @ ahead.factor
    left = max_iter - ahead.iterations
    found = projected_gradient(problem, metric, tol=tol, max_iter=left, step=ahead.step, patience=1)
    return replace(found, iterations=ahead.iterations + found.iterations)


def projected_gradient(
    problem: Problem,
    start: Array,
    *,
    tol: float,
    max_iter: int,
    step: float | None = None,
    patience: int = _PATIENCE,
) -> Solution:
    """Run accelerated projected gradient with backtracking: for a convex F the optimum, from any
    start.

        M_{k+1} = P(Y_k - s ∇F(Y_k)),   Y_{k+1} = M_{k+1} + (θ_k - 1)/θ_{k+1} (M_{k+1} - M_k)
            Beck & Teboulle 2009

    with P the projection onto M ⪰ 0. The step s is halved until the quadratic model bounds F, and
    grown again after. Momentum starts anew where it points uphill (O'Donoghue & Candès 2015), and a
    step that it took uphill is taken
    back: F never rises.

    Args:
        problem: what to minimize.
        start: M to begin with.
        tol: decrease of the objective per iteration that counts as nothing, as a share of max(1,
            its value).
        max_iter: how many steps to take at most.
        step: s to begin with; a bad guess costs some halvings.
        patience: iterations in a row that must bring almost nothing before a minimum is believed.
    """
    step = step or 1.0
    current, factor = project(start)
    ahead = current
    momentum = 1.0
    idle = 0
    base, gradient = problem.at(factor)
    value = base
    for iteration in range(1, max_iter + 1):
        while True:
            reached, reached_factor = project(ahead - step * gradient)
            move = reached - ahead
            there = problem.at(reached_factor, gradient=False)[0]
            bound = base + float(np.vdot(gradient, move)) + float(np.vdot(move, move)) / (2 * step)
            # A shorter step would not pay either.
            nothing = base - bound <= tol * max(abs(base), 1) and there <= base
            if there <= bound + 1e-14 * abs(base) or nothing:
                break
            step /= 2
        if there > value and ahead is not current:
            ahead = current
            momentum = 1.0
            base, gradient = problem.at(factor)
            continue
        if float(np.vdot(ahead - reached, reached - current)) > 0:
            momentum = 1.0
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        leap = reached + (momentum - 1) / following * (reached - current)
        gain = value - there
        momentum = following
        step = step * _GROWTH
        current = reached
        factor = reached_factor
        value = there
        idle = idle + 1 if gain <= tol * max(abs(value), 1) else 0
        if idle == patience:
            return Solution(factor, value, iteration, True, step)
        ahead, ahead_factor = project(leap)
        base, gradient = problem.at(ahead_factor)
    return Solution(factor, value, max_iter, False, step)


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
    seen: list[tuple[Array, Array]] = []  # the last two factors, with the gradients in M there
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
            seen[:] = [*seen[-1:], (best[1], gradient)]
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
    return Solution(best[1], best[0], int(found.nit), settled, _secant_step(seen))


def _secant_step(seen: list[tuple[Array, Array]]) -> float | None:
    """Return the step that maps the last change of the gradient in M to the change of M (Barzilai &
    Borwein 1988)."""
    if len(seen) < 2:
        return None
    (before, slope_before), (after, slope_after) = seen
    move = after.T @ after - before.T @ before
    change = slope_after - slope_before
    bend = float(np.vdot(move, change))
    return float(np.vdot(move, move)) / bend if bend > 0 else None


class _FlatError(Exception):
    """A line search left the numbers whose squares can be told apart."""
