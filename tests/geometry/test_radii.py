"""Radii of neighborhoods against sorted lists and against the log-exp mean of listed neighbors."""

from typing import NamedTuple

import pytest
import torch
from torch.autograd import grad, gradcheck
from torch.testing import assert_close

from vicinal.geometry import log_exp_mean, mean_of_k


class Neighbors(NamedTuple):
    distances: torch.Tensor
    keep: torch.Tensor
    weights: torch.Tensor | None = None


def k_mean(neighbors, k):
    return mean_of_k(neighbors.distances, neighbors.keep, k, neighbors.weights)


def soft_radius(neighbors, gamma):
    return log_exp_mean(neighbors.distances, neighbors.keep, gamma, neighbors.weights)


@pytest.fixture
def neighbors(rng):
    distances = torch.rand(6, 5, generator=rng, dtype=torch.float64)
    return Neighbors(distances, torch.rand(6, 5, generator=rng) < 0.7)


@pytest.mark.parametrize("k", [1, 2, 4, 99, -1, -3, -99])
def test_the_mean_of_k_is_that_of_a_sorted_list(neighbors, k):
    found = k_mean(neighbors, k)
    for row, keep, one in zip(neighbors.distances, neighbors.keep, found, strict=True):
        chosen = sorted(row[keep].tolist(), reverse=k < 0)[: abs(k)]
        assert one.item() == pytest.approx(sum(chosen) / max(1, len(chosen)))


@pytest.mark.parametrize("gamma", [-3.0, -1e-7, 0.0, 1e-7, 2.0, 500.0])
def test_a_weight_counts_as_often(neighbors, gamma):
    weights = torch.tensor([1, 0, 2, 3, 1]).double().expand(6, 5)
    listed = [0, 2, 2, 3, 3, 3, 4]
    expected = log_exp_mean(neighbors.distances[:, listed], neighbors.keep[:, listed], gamma)
    assert_close(
        soft_radius(neighbors._replace(weights=weights), gamma), expected, rtol=0, atol=1e-12
    )
    ones = neighbors._replace(weights=torch.ones_like(weights))
    assert_close(soft_radius(ones, gamma), soft_radius(neighbors, gamma), rtol=0, atol=1e-12)


@pytest.mark.parametrize("k", [2, 3, -2])
def test_a_part_of_a_neighbor_counts_in_part(k):
    distances = torch.tensor([[4.0, 1.0, 2.0]])
    row = Neighbors(distances, distances > 0, torch.tensor([[2.5, 0.5, 1.0]]))
    expected = {2: (0.5 * 1 + 1 * 2 + 0.5 * 4) / 2, 3: (0.5 * 1 + 1 * 2 + 1.5 * 4) / 3, -2: 4.0}
    assert k_mean(row, k).item() == pytest.approx(expected[k])


def test_nothing_kept_is_0_and_passes_no_gradient():
    distances = torch.rand(2, 3, requires_grad=True)
    none = torch.zeros(2, 3, dtype=torch.bool)
    for weights in (None, torch.ones(2, 3), torch.zeros(2, 3)):
        row = Neighbors(distances, none if weights is None else none | (weights == 0), weights)
        for radius in (k_mean(row, 2), soft_radius(row, 2.0), soft_radius(row, 0.0)):
            assert radius.eq(0).all()
            assert grad(radius.sum(), distances)[0].eq(0).all()
    assert k_mean(Neighbors(distances[:, :0], none[:, :0]), 1).eq(0).all()


def test_gradients_match_finite_differences(neighbors, rng):
    weights = torch.rand(6, 5, generator=rng, dtype=torch.float64).requires_grad_()
    distances = neighbors.distances.requires_grad_()
    for gamma in (0.0, 0.5, -4.0):
        assert gradcheck(
            lambda d, w, g=gamma: soft_radius(Neighbors(d, neighbors.keep, w), g),
            (distances, weights),
        )
    assert gradcheck(lambda d, w: k_mean(Neighbors(d, neighbors.keep, w), 1), (distances, weights))


def test_what_is_not_kept_may_be_anything(neighbors):
    for rubbish in (torch.inf, -torch.inf, torch.nan):
        dirty = neighbors._replace(
            distances=neighbors.distances.masked_fill(~neighbors.keep, rubbish)
        )
        for weights in (None, torch.ones_like(neighbors.distances)):
            clean = neighbors._replace(weights=weights)
            dirty = dirty._replace(weights=weights)
            assert torch.equal(k_mean(dirty, -2), k_mean(clean, -2))
            assert torch.equal(soft_radius(dirty, 3.0), soft_radius(clean, 3.0))
