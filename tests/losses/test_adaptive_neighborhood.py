"""What AdaptiveNeighborhoodLoss promises beside Eq. (22): Proposition 7."""

import torch

from vicinal.losses import AdaptiveNeighborhoodLoss


def gradient(value, embeddings):
    return torch.autograd.grad(value, embeddings)[0]


def test_an_anchor_of_which_mining_leaves_nothing_is_at_rest_and_still_counts():
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0], [-1.0, 0.1]], requires_grad=True)
    labels = torch.tensor([0, 0, 1, 1])
    loss = AdaptiveNeighborhoodLoss()
    sums, counts = loss.core(loss.comparisons(rows, labels))
    assert sums.eq(0).all() and counts.eq(1).all()
    assert gradient(sums.sum(), rows).eq(0).all()
    assert AdaptiveNeighborhoodLoss(epsilon=None)(rows, labels) > 0
