"""What AdaptiveNeighborhoodLoss promises beside Eq. (22): Proposition 7."""

import math

import pytest
import torch

from vicinal.losses import AdaptiveNeighborhoodLoss, MultiSimilarityLoss


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


def test_an_anchor_of_which_mining_leaves_nothing_is_at_rest_and_still_counts():
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0], [-1.0, 0.1]], requires_grad=True)
    labels = torch.tensor([0, 0, 1, 1])
    loss = AdaptiveNeighborhoodLoss()
    sums, counts = loss.core(loss.comparisons(rows, labels))
    assert sums.eq(0).all() and counts.eq(1).all()
    assert gradient(sums.sum(), rows).eq(0).all()
    assert AdaptiveNeighborhoodLoss(epsilon=None)(rows, labels) > 0
