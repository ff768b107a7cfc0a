"""The mean of the K nearest or farthest against sorted lists."""

import pytest
import torch
from torch.autograd import grad

from vicinal.geometry import mean_of_k


@pytest.fixture
def distances(rng):
    return torch.rand(6, 5, generator=rng, dtype=torch.float64)


@pytest.fixture
def keep(rng, distances):
    return torch.rand(6, 5, generator=rng) < 0.7


@pytest.mark.parametrize("k", [1, 2, 4, 99, -1, -3, -99])
def test_the_mean_of_k_is_that_of_a_sorted_list(distances, keep, k):
    for row, kept, one in zip(distances, keep, mean_of_k(distances, keep, k), strict=True):
        chosen = sorted(row[kept].tolist(), reverse=k < 0)[: abs(k)]
        assert one.item() == pytest.approx(sum(chosen) / max(1, len(chosen)))


def test_nothing_kept_is_0_and_passes_no_gradient(distances, keep):
    distances.requires_grad_()
    for given in (distances, distances[:, :0]):
        found = mean_of_k(given, torch.zeros_like(given, dtype=torch.bool), 2)
        assert found.eq(0).all()
        assert grad(found.sum(), distances)[0].eq(0).all()


def test_what_is_not_kept_may_be_anything(distances, keep):
    for rubbish in (torch.inf, -torch.inf, torch.nan):
        dirty = distances.masked_fill(~keep, rubbish)
        assert torch.equal(mean_of_k(dirty, keep, -2), mean_of_k(distances, keep, -2))
