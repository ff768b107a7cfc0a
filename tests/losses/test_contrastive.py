"""ContrastiveLoss against Hadsell's two terms, written out one pair at a time."""

import math
from dataclasses import replace

import pytest
import torch
from torch.autograd import gradcheck

from vicinal.losses import ContrastiveLoss

LABELS = {
    "two each": [0, 0, 1, 1],
    "uneven": [0, 1, 1, 2, 2, 2],
    "one class": [0, 0, 0],
    "none alike": [0, 1, 2],
}


def by_hand(loss, embeddings, labels):
    """Mean over ordered pairs: no masks, no batching."""
    if loss.normalize:
        embeddings = [row / row.norm() for row in embeddings]
    pairs = []
    for i, first in enumerate(embeddings):
        for j, second in enumerate(embeddings):
            distance = math.dist(first.tolist(), second.tolist())
            if i != j and labels[i] == labels[j]:
                pairs.append(distance**2 / 2)
            elif i != j:
                pairs.append(max(0.0, loss.margin - distance) ** 2 / 2)
    return sum(pairs) / len(pairs)


@pytest.fixture
def embeddings(rng):
    return lambda n, dim=3: torch.randn(n, dim, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("options", [{}, {"margin": 2.5}, {"normalize": True, "margin": 0.5}])
def test_equals_the_printed_terms(labels, options, embeddings):
    given, loss = embeddings(len(labels)), ContrastiveLoss(**options)
    assert loss(given, torch.tensor(labels)).item() == pytest.approx(by_hand(loss, given, labels))


def test_gradient_matches_finite_differences(embeddings):
    labels = torch.tensor([0, 0, 1, 1, 2])
    assert gradcheck(lambda e: ContrastiveLoss(2.0)(e, labels), (embeddings(5).requires_grad_(),))


def test_is_half_the_mean_square_of_the_peers_terms(embeddings):
    """The peer neither squares nor halves, and adds the means over each kind's non-zero terms."""
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    from pytorch_metric_learning.reducers import DoNothingReducer

    given, labels = embeddings(24, 8), torch.arange(24) // 4
    parts = losses.ContrastiveLoss(neg_margin=1.3, reducer=DoNothingReducer())(given, labels)
    theirs = torch.cat([parts["pos_loss"]["losses"], parts["neg_loss"]["losses"]])
    torch.testing.assert_close(
        ContrastiveLoss(1.3, normalize=True)(given, labels), theirs.square().mean() / 2
    )


def test_collapse_costs_half_the_squared_margin_of_each_negative_pair():
    labels = torch.arange(12) // 3
    value = ContrastiveLoss(0.8, reduction="sum")(torch.ones(12, 4), labels)
    assert value.item() == pytest.approx(12 * 9 * 0.8**2 / 2)


def test_classes_at_points_a_margin_apart_cost_nothing():
    given = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [1.0, 0.0]], requires_grad=True)
    loss = ContrastiveLoss(1.0)(given, torch.tensor([0, 0, 1, 1]))
    assert loss == 0 and torch.autograd.grad(loss, given)[0].eq(0).all()


def test_moves_and_turns_do_not_matter_and_scale_goes_squared(embeddings):
    given, labels = embeddings(8), torch.arange(8) // 2
    rotation, _ = torch.linalg.qr(embeddings(3))
    value = ContrastiveLoss(1.0)(given, labels)
    torch.testing.assert_close(
        ContrastiveLoss(1.0)(given @ rotation + embeddings(1), labels), value
    )
    torch.testing.assert_close(ContrastiveLoss(7.0)(7 * given, labels), 49 * value)


def test_a_weight_multiplies_its_pair(embeddings, rng):
    loss = ContrastiveLoss(2.0)
    c = loss.comparisons(embeddings(6), torch.arange(6) // 3)
    weights = [
        torch.rand(side.shape, generator=rng, dtype=torch.float64)
        for side in (c.positive, c.negative)
    ]
    found = loss.core(replace(c, positive_weights=weights[0], negative_weights=weights[1]))
    pull = weights[0] * c.positive**2 / 2 * c.keep_positive
    push = weights[1] * (2.0 - c.negative).relu() ** 2 / 2 * c.keep_negative
    torch.testing.assert_close(found.sums, pull.sum(dim=1) + push.sum(dim=1))
    assert found.counts.tolist() == [5.0] * 6
