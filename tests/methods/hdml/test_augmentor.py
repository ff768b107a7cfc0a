"""The augmentor against Eqs. (5)-(7) of Zheng et al. (CVPR 2019), their limits, and where distances
vanish."""

import math

import pytest
import torch
from torch.autograd import grad

from vicinal.distances import row_distances
from vicinal.methods.hdml.synthesis import harder


def by_hand(anchor, negative, reference, factor):
    """Eq. (7) as printed, one pair at a time, with λ = ``factor``."""
    rows = []
    for z, n, d_plus in zip(anchor.tolist(), negative.tolist(), reference.tolist(), strict=True):
        d = math.dist(z, n)
        scale = (factor * d + (1 - factor) * d_plus) / d if d > d_plus else 1.0
        rows.append([a + scale * (b - a) for a, b in zip(z, n, strict=True)])
    return torch.tensor(rows, dtype=anchor.dtype)


@pytest.fixture
def pairs(rng):
    """Anchors, negatives and reference distances on both sides of the negatives' distances."""
    anchor, negative = torch.randn(2, 40, 5, generator=rng, dtype=torch.float64)
    reference = (
        torch.rand(40, generator=rng, dtype=torch.float64)
        * 2
        * row_distances(anchor, negative, squared=False)
    )
    return anchor, negative, reference


@pytest.mark.parametrize("factor", [0.0, 0.3, 1.0])
def test_equals_the_printed_formula(pairs, factor):
    torch.testing.assert_close(harder(*pairs, factor), by_hand(*pairs, factor))


def test_a_negative_within_the_reference_stays_exactly_and_passes_nothing_to_the_anchor():
    anchor = torch.tensor([[0.0, 0.0]], requires_grad=True)
    negative = torch.tensor([[0.6, 0.8]])
    for reference in (1.0, 2.0):  # at equality, too
        found = harder(anchor, negative, torch.tensor([reference]), 0.1)
        assert torch.equal(found, negative)
        assert torch.equal(grad(found.sum(), anchor)[0], torch.zeros(1, 2))


@pytest.mark.parametrize("reference", [0.0, 1.0])
def test_points_that_meet_give_finite_values_and_gradients(reference):
    anchor = torch.tensor([[1.0, 2.0], [0.0, 0.0], [1.0, 0.0]], requires_grad=True)
    # Equal, zeros, opposite.
    other = torch.tensor([[1.0, 2.0], [0.0, 0.0], [-2.0, 0.0]], requires_grad=True)
    wanted = torch.full((3,), reference, requires_grad=True)
    found = harder(anchor, other, wanted, 0.8)
    assert found.isfinite().all()
    gradients = grad(found.square().sum(), (anchor, other, wanted))
    assert all(gradient.isfinite().all() for gradient in gradients)
