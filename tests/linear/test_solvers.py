"""The solvers: one optimum from any start, the projection, and what they report when they stop."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from vicinal.linear.estimators import Hinge, sigmoid
from vicinal.linear.objective import (
    Neighborhoods,
    Objective,
    Problem,
    convex_minimum,
    lbfgs,
    project,
)


@pytest.fixture
def draw():
    return np.random.default_rng(1)


@pytest.fixture
def problem(draw):
    labels = np.repeat([0, 1, 2], 20)
    samples = draw.standard_normal((60, 3)) + labels[:, None] * np.array([1.5, 0.3, 0.0])
    sets = Neighborhoods.among(samples, labels, 5)
    return Problem(Objective(sets, -1.0, 3.0, Hinge(1.0, 0.1)), 0.05 * sets.similar_scatter())


def test_the_convex_problem_has_one_optimum_from_any_start(problem, draw):
    """Also from a singular factor, which L-BFGS alone cannot leave."""
    singular = np.diag([1.0, 0.0, 0.0])
    starts = [np.eye(3) / 60**0.25, 5 * draw.standard_normal((3, 3)), singular]
    found = [convex_minimum(problem, start, tol=1e-10, max_iter=3000) for start in starts]
    assert all(solution.converged for solution in found)
    values = [solution.value for solution in found]
    assert max(values) - min(values) < 1e-6 * values[0]
    metrics = [solution.factor.T @ solution.factor for solution in found]
    for metric in metrics[1:]:
        assert_allclose(metric, metrics[0], atol=1e-2 * np.abs(metrics[0]).max())
    # The conditions of optimality over M ⪰ 0: the gradient has no descent direction left, and none
    # along M itself.
    value, gradient = problem.at(found[0].factor)
    assert np.linalg.eigvalsh(gradient)[0] > -1e-4
    assert abs(np.vdot(gradient, metrics[0])) < 1e-4 * value
    assert lbfgs(problem, singular, tol=1e-9, max_iter=3000).value > 1.01 * values[0]


def test_a_flat_objective_ends_where_it_was_best(problem):
    flat = Objective(problem.objective.sets, 2.0**-8, 1.0, sigmoid, sums=True)
    found = lbfgs(Problem(flat, np.zeros((3, 3))), np.eye(3) / 10, tol=1e-12, max_iter=500)
    assert np.isfinite(found.factor).all() and found.value <= flat.at(np.eye(3) / 10).value


def test_projection_keeps_the_positive_part(draw):
    root = draw.standard_normal((4, 4))
    metric, factor = project(root + root.T)
    values, vectors = np.linalg.eigh(root + root.T)
    assert_allclose(metric, (vectors * np.maximum(values, 0)) @ vectors.T, atol=1e-12)
    assert_allclose(factor.T @ factor, metric, atol=1e-12)
    lengths = np.linalg.norm(factor, axis=1)
    assert (np.diff(lengths) <= 1e-12).all()
    assert not project(-np.eye(3))[0].any()
