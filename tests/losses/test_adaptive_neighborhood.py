"""What AdaptiveNeighborhoodLoss promises beside Eq. (22): Proposition 7, and the gradient of a
count."""

import math
from dataclasses import replace

import pytest
import torch

from vicinal.losses import AdaptiveNeighborhoodLoss, MultiSimilarityLoss

BARE = {"lambda1": None, "lambda2": None, "epsilon": None, "outer": "identity"}


def gradient(value, embeddings):
    return torch.autograd.grad(value, embeddings)[0]


@pytest.mark.parametrize("epsilon", [None, 0.1, -0.3])
def test_multi_similarity_is_the_identity_with_one_lambda_and_has_the_same_gradient(
    unit_vectors, epsilon
):
    """Proposition 7: u_i = MS_i - log(|P_i| + 1)/α - log(|N_i| + 1)/β, where base cancels."""
    rows = unit_vectors(20, dim=3).requires_grad_()
    labels = torch.arange(20) // 4
    ours = AdaptiveNeighborhoodLoss(2.0, 30.0, 0.5, 0.5, epsilon, outer="identity")
    values = [loss(rows, labels) for loss in (ours, MultiSimilarityLoss(2.0, 30.0, 0.5, epsilon))]
    gradients = [gradient(value, rows) for value in values]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-13)
    if epsilon is None:
        offset = math.log(3 + 1) / 2.0 + math.log(16 + 1) / 30.0
        torch.testing.assert_close(values[0] + offset, values[1])
        apart = AdaptiveNeighborhoodLoss(2.0, 30.0, 0.5, 0.52, epsilon, outer="identity")
        assert not torch.allclose(gradient(apart(rows, labels), rows), gradients[1])


def test_a_count_has_the_exact_value_and_a_smoother_gradient(unit_vectors):
    rows = unit_vectors(24)
    labels = torch.arange(24) // 6
    values = []
    for radius, reached in (("count", 18), ("exact", 4)):
        loss = AdaptiveNeighborhoodLoss(radius=radius, k1=-2, k2=4, **BARE)
        c = loss.comparisons(rows, labels)
        negative = c.negative.clone().requires_grad_()
        sums = loss.core(replace(c, negative=negative)).sums
        pushes = gradient(sums.sum(), negative)
        assert ((pushes != 0).sum(dim=1) == reached).all()
        torch.testing.assert_close(pushes.sum(dim=1), -torch.ones(24, dtype=torch.float64))
        values.append(sums)
    torch.testing.assert_close(*values, rtol=0, atol=1e-9)


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # torch's own
def test_the_gamma_of_a_count_is_a_constant_in_forward_mode_too(unit_vectors):
    rows = unit_vectors(12)
    direction = unit_vectors(12)
    loss = AdaptiveNeighborhoodLoss(radius="count", k2=3)

    def value(rows):
        return loss(rows, torch.arange(12) // 4)

    slope = torch.func.jvp(value, (rows,), (direction,))[1]
    rows.requires_grad_()
    torch.testing.assert_close(slope, (gradient(value(rows), rows) * direction).sum())


def test_an_anchor_of_which_mining_leaves_nothing_is_at_rest_and_still_counts():
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0], [-1.0, 0.1]], requires_grad=True)
    labels = torch.tensor([0, 0, 1, 1])
    loss = AdaptiveNeighborhoodLoss()
    sums, counts = loss.core(loss.comparisons(rows, labels))
    assert sums.eq(0).all() and counts.eq(1).all()
    assert gradient(sums.sum(), rows).eq(0).all()
    assert AdaptiveNeighborhoodLoss(epsilon=None)(rows, labels) > 0
