"""The objective of LANML and PNCA: the printed sums, the gradient, convexity, and the special cases
of Section 5.2."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from vicinal.geometry import log_exp_mean
from vicinal.linear import objective
from vicinal.linear.estimators import Hinge, sigmoid
from vicinal.linear.objective import Neighborhoods, Objective

HINGE = Hinge(1.0, 0.0)


@pytest.fixture
def data(draw):
    labels = np.repeat([0, 1, 2], [8, 10, 7])
    return draw.standard_normal((25, 4)) + labels[:, None] * 0.5, labels


def identity(excess):
    return excess, np.ones_like(excess)


GAMMAS = [-1e7, -30.0, -1.5, -1e-2, -1e-3, -1e-9, 0.0, 1e-15, 1e-6, 0.7, 4.0]


@pytest.mark.parametrize("gamma1", GAMMAS)
@pytest.mark.parametrize("nearest", [None, 3])
def test_radii_are_log_exp_means_of_the_deep_side_near_0_too(data, draw, gamma1, nearest):
    """t_i of Eq. (19) without blocks, shifts and matrix products."""
    samples, labels = data
    factor = draw.standard_normal((4, 4)) / 2
    sets = Neighborhoods.among(samples, labels, nearest)
    found = Objective(sets, gamma1, 3.0, identity).at(factor)
    plain, mapped = (
        torch.from_numpy(((x[:, None] - x) ** 2).sum(axis=2)) for x in (samples, samples @ factor.T)
    )
    same = torch.from_numpy(labels[:, None] == labels)
    others = same & ~torch.eye(25, dtype=torch.bool)
    ranks = plain.masked_fill(~others, torch.inf).argsort(dim=1).argsort(dim=1)
    pull = log_exp_mean(mapped, others & (ranks < (nearest or 25)), gamma1)
    excess = pull - log_exp_mean(mapped, ~same, 3.0)
    torch.testing.assert_close(torch.from_numpy(found.excess), excess, rtol=1e-11, atol=1e-11)
    assert found.value == pytest.approx(float(excess.mean()), rel=1e-11)


@pytest.mark.parametrize("outer", [identity, Hinge(1.0, 0.3), sigmoid])
@pytest.mark.parametrize("nearest", [None, 3])
@pytest.mark.parametrize("gamma1", [-1.0, -1e-3, 0.0, 1e-9, 2.0])
def test_gradient_matches_finite_differences(data, draw, outer, nearest, gamma1):
    objective = Objective(Neighborhoods.among(*data, nearest), gamma1, 2.0, outer)
    factor, towards = draw.standard_normal((2, 3, 4)) / 2
    at = objective.at(factor)
    numeric = (
        objective.at(factor + 1e-5 * towards).value - objective.at(factor - 1e-5 * towards).value
    ) / 2e-5
    assert numeric == pytest.approx(float(np.vdot(2 * factor @ at.gradient, towards)), rel=1e-6)
    assert_allclose(at.gradient, at.gradient.T, atol=1e-12)


@pytest.mark.parametrize("gamma2", [0.5, 60.0])
def test_blocks_change_nothing(draw, gamma2, monkeypatch):
    sets = Neighborhoods.among(draw.standard_normal((400, 5)), draw.integers(0, 4, 400), None)
    loss = Objective(sets, -1.0, gamma2, Hinge(1.0, 0.1))
    whole = loss.at(np.eye(5) * 2)
    monkeypatch.setattr(objective, "_BLOCK", 7 * 400)
    blocks = loss.at(np.eye(5) * 2)
    assert blocks.value == pytest.approx(whole.value, rel=1e-12)
    assert_allclose(blocks.gradient, whole.gradient, rtol=1e-9, atol=1e-12)


def test_pnca_at_alpha_1_is_scikit_learns_nca_objective(data, draw):
    from sklearn.neighbors import NeighborhoodComponentsAnalysis

    samples, labels = data
    factor = draw.standard_normal((4, 4)) / 2
    ours = Objective(Neighborhoods.among(samples, labels, None), 1.0, 1.0, sigmoid, sums=True).at(
        factor
    )
    same = labels[:, None] == labels[None]
    peer = NeighborhoodComponentsAnalysis()
    peer.n_iter_ = 1
    value, gradient = peer._loss_grad_lbfgs(factor.ravel(), samples, same, -1.0)
    assert 25 * (1 - ours.value) == pytest.approx(-value, rel=1e-12)
    assert_allclose(25 * 2 * factor @ ours.gradient, gradient.reshape(4, 4), rtol=1e-8, atol=1e-12)
