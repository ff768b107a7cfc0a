"""The solvers: one optimum from three starts, no step uphill, the projection, and what they report
when they stop."""

from itertools import pairwise

import numpy as np
import pytest

from vicinal.linear.lanml import Hinge
from vicinal.linear.objective import Neighborhoods, Objective
from vicinal.linear.pnca import sigmoid
from vicinal.linear.solvers import Problem, convex_minimum, lbfgs, project, projected_gradient


@pytest.fixture
def draw():
    return np.random.default_rng(1)


@pytest.fixture
def problem(draw):
    labels = np.repeat([0, 1, 2], 20)
    samples = draw.standard_normal((60, 3)) + labels[:, None] * np.array([1.5, 0.3, 0.0])
    sets = Neighborhoods.among(samples, labels, 5)
    return Problem(Objective(sets, -1.0, 3.0, Hinge(1.0, 0.1)), 0.05 * sets.similar_scatter())


def test_the_convex_problem_has_one_optimum_from_three_starts(problem, draw):
    root = draw.standard_normal((3, 3))
    starts = {
        "zero": np.zeros((3, 3)),
        "paper": np.eye(3) / np.sqrt(60),
        "random": 5 * root.T @ root,
    }
    found = {
        k: projected_gradient(problem, start, tol=1e-10, max_iter=3000)
        for k, start in starts.items()
    }
    assert all(solution.converged for solution in found.values())
    values = [solution.value for solution in found.values()]
    assert max(values) - min(values) < 1e-6 * values[0]
    metrics = [solution.factor.T @ solution.factor for solution in found.values()]
    for metric in metrics[1:]:
        np.testing.assert_allclose(metric, metrics[0], atol=1e-2 * np.abs(metrics[0]).max())
    # The conditions of optimality over M ⪰ 0: the gradient has no descent direction left, and none
    # along M itself.
    value, gradient = problem.at(found["paper"].factor)
    assert np.linalg.eigvalsh(gradient)[0] > -1e-4
    assert abs(np.vdot(gradient, metrics[1])) < 1e-4 * value


def test_lbfgs_on_a_full_factor_agrees(problem):
    convex = projected_gradient(problem, np.eye(3), tol=1e-10, max_iter=3000)
    assert lbfgs(problem, np.eye(3), tol=1e-12, max_iter=3000).value == pytest.approx(
        convex.value, rel=1e-5
    )


def test_the_quick_way_to_the_optimum_ends_there_from_any_factor(problem, draw):
    """Also from a singular one, which L-BFGS alone cannot leave."""
    optimum = projected_gradient(problem, np.eye(3), tol=1e-10, max_iter=3000).value
    singular = np.diag([1.0, 0.0, 0.0])
    for start in (np.eye(3) / 60**0.25, draw.standard_normal((3, 3)), singular):
        found = convex_minimum(problem, start, tol=1e-9, max_iter=3000)
        assert found.converged and found.value == pytest.approx(optimum, rel=1e-5)
    assert lbfgs(problem, singular, tol=1e-9, max_iter=3000).value > 1.01 * optimum


def test_leveled_coordinates_change_neither_value_nor_what_is_similar(problem, draw):
    leveled, to, back = problem.leveled()
    factor = draw.standard_normal((3, 3))
    assert leveled.at(factor @ back)[0] == pytest.approx(problem.at(factor)[0], rel=1e-10)
    np.testing.assert_allclose(to @ back.T, np.eye(3), atol=1e-10)
    scatter = leveled.objective.sets.similar_scatter()
    np.testing.assert_allclose(scatter, np.eye(3), atol=0.02)


def test_no_step_ends_higher_than_the_one_before(problem):
    """From here the fifth step would: momentum takes it uphill, so it is taken back."""
    values = [
        projected_gradient(problem, np.eye(3), tol=1e-12, max_iter=steps).value
        for steps in range(1, 21)
    ]
    assert all(after <= before + 1e-12 for before, after in pairwise(values))


def test_a_strong_regularizer_leaves_nothing(problem):
    strong = Problem(problem.objective, 1000 * problem.pull)
    assert not projected_gradient(strong, np.eye(3), tol=1e-8, max_iter=500).factor.any()


def test_running_out_of_steps_is_reported(problem):
    assert not projected_gradient(problem, np.eye(3), tol=1e-12, max_iter=2).converged
    assert not lbfgs(problem, np.eye(3), tol=1e-15, max_iter=2).converged


def test_a_flat_objective_ends_where_it_was_best(problem):
    flat = Objective(problem.objective.sets, 2.0**-8, 1.0, sigmoid, sums=True)
    found = lbfgs(Problem(flat, np.zeros((3, 3))), np.eye(3) / 10, tol=1e-12, max_iter=500)
    assert np.isfinite(found.factor).all() and found.value <= flat.at(np.eye(3) / 10).value


def test_projection_keeps_the_positive_part(draw):
    root = draw.standard_normal((4, 4))
    metric, factor = project(root + root.T)
    values, vectors = np.linalg.eigh(root + root.T)
    np.testing.assert_allclose(metric, (vectors * np.maximum(values, 0)) @ vectors.T, atol=1e-12)
    np.testing.assert_allclose(factor.T @ factor, metric, atol=1e-12)
    lengths = np.linalg.norm(factor, axis=1)
    assert (np.diff(lengths) <= 1e-12).all()
    assert not project(-np.eye(3))[0].any()
