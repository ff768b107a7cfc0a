"""RankedListLoss against Wang's two sums of each anchor, written out."""

import math
from dataclasses import replace

import pytest
import torch
from torch.autograd import gradcheck

from vicinal.losses import RankedListLoss

LABELS = {
    "two each": [0, 0, 1, 1],
    "uneven": [0, 1, 1, 2, 2, 2, 3],
    "one class": [0, 0, 0],
    "none alike": [0, 1, 2],
}


def by_hand(loss, embeddings, labels):
    """The formula as printed: no masks, no batching, no log-sum-exp trick."""
    if loss.normalize:
        embeddings = [row / row.norm() for row in embeddings]
    anchors = []
    for i, anchor in enumerate(embeddings):
        near = loss.alpha - loss.margin
        positive, negative = [], []
        for k, other in enumerate(embeddings):
            distance = math.dist(anchor.tolist(), other.tolist()) ** (2 if loss.squared else 1)
            if k != i and labels[k] == labels[i] and distance > near:
                positive.append(distance - near)
            elif labels[k] != labels[i] and distance < loss.alpha:
                negative.append(loss.alpha - distance)
        weights = [math.exp(loss.temperature * excess) for excess in negative]
        pull = sum(positive) / max(1, len(positive))
        push = sum(w * excess for w, excess in zip(weights, negative, strict=True)) / (
            sum(weights) or 1
        )
        anchors.append((1 - loss.balance) * pull + loss.balance * push)
    return sum(anchors) / len(anchors)


@pytest.fixture
def embeddings(rng):
    return lambda n, dim=3: torch.randn(n, dim, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize(
    "options",
    [{}, {"alpha": 1.4, "margin": 0.2, "temperature": 0.0, "balance": 0.3}, {"squared": True}],
)
def test_equals_the_printed_formula(labels, options, embeddings):
    given, loss = embeddings(len(labels)), RankedListLoss(**options)
    assert loss(given, torch.tensor(labels)).item() == pytest.approx(by_hand(loss, given, labels))


def test_gradient_matches_finite_differences_where_weights_pass_it(embeddings):
    loss, labels = RankedListLoss(detach_weights=False), torch.tensor([0, 0, 0, 1, 1, 2])
    assert gradcheck(lambda e: loss(e, labels), (embeddings(6).requires_grad_(),))


def test_weights_are_held_so_that_each_kind_pulls_by_its_share_in_all(embeddings):
    """∂l/∂D of the violators add up to ±1/2, whatever their distances."""
    loss = RankedListLoss()
    c = loss.comparisons(embeddings(12), torch.arange(12) // 3)
    c = replace(
        c,
        positive=c.positive.clone().requires_grad_(),
        negative=c.negative.clone().requires_grad_(),
    )
    pull, push = torch.autograd.grad(loss.core(c).sums.sum(), (c.positive, c.negative))
    outside = (c.positive > 0.8) & c.keep_positive
    inside = (c.negative < 1.2) & c.keep_negative
    torch.testing.assert_close(
        pull, 0.5 * outside / outside.sum(dim=1, keepdim=True).clamp(min=1).double()
    )
    shares = (
        (10 * (1.2 - c.negative.detach()))
        .masked_fill(~inside, -torch.inf)
        .softmax(dim=1)
        .nan_to_num(0)
    )
    torch.testing.assert_close(push, -0.5 * shares)
    assert outside.any() and inside.any()


def test_equals_the_peer_in_value_and_where_weights_pass_it_in_gradient(embeddings):
    """The peer adds 1e-5 for each column to its denominators, and rejects temperatures beyond 5
    with a warning."""
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    given, labels = embeddings(24, 4).requires_grad_(), torch.arange(24) // 4
    peer = losses.RankedListLoss(margin=0.4, Tn=5, alpha=1.2)(given, labels)
    values = RankedListLoss(temperature=5.0, detach_weights=False)(given, labels), peer
    torch.testing.assert_close(*values, rtol=1e-3, atol=0)
    gradients = [torch.autograd.grad(value, given)[0] for value in values]
    torch.testing.assert_close(*gradients, rtol=1e-2, atol=1e-4)


def test_collapse_costs_half_of_alpha_without_gradient():
    given = torch.ones(6, 3, requires_grad=True)
    loss = RankedListLoss()(given, torch.arange(6) // 2)
    assert loss.item() == pytest.approx(0.6)
    assert torch.autograd.grad(loss, given)[0].eq(0).all()


def test_a_hot_list_is_its_nearest_negative(embeddings):
    given, labels = embeddings(12), torch.arange(12) // 3
    loss = RankedListLoss(temperature=1e6, balance=1.0, reduction="none")
    c = loss.comparisons(given, labels)
    nearest = c.negative.masked_fill(~c.keep_negative, torch.inf).amin(dim=1)
    torch.testing.assert_close(loss(given, labels), (1.2 - nearest).relu())


def test_trivial_anchors_count_in_the_mean(embeddings):
    given = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    each = RankedListLoss(reduction="none")(given, torch.tensor([0, 0, 1, 1]))
    assert each[:2].eq(0).all() and each[2:].gt(0).all()
    torch.testing.assert_close(RankedListLoss()(given, torch.tensor([0, 0, 1, 1])), each.sum() / 4)


def test_stays_finite_where_a_plain_exponential_overflows(embeddings):
    given = embeddings(8).float().requires_grad_()
    loss = RankedListLoss(temperature=1e4)(given, torch.arange(8) // 2)
    assert loss.isfinite() and torch.autograd.grad(loss, given)[0].isfinite().all()
