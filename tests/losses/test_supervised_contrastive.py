"""SupervisedContrastiveLoss against the mean of logarithms of each anchor, written out."""

import math
from dataclasses import replace

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn.functional import cross_entropy

from vicinal.losses import SupervisedContrastiveLoss

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
        others = [math.exp(float(anchor @ other) / loss.temperature) for other in embeddings]
        positive = [other for k, other in enumerate(others) if k != i and labels[k] == labels[i]]
        everyone = sum(other for k, other in enumerate(others) if k != i)
        if positive:
            anchors.append(-sum(math.log(other / everyone) for other in positive) / len(positive))
    return sum(anchors) / max(1, len(anchors))


@pytest.fixture
def embeddings(rng):
    return lambda n, dim=3: torch.randn(n, dim, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.5}, {"normalize": False, "temperature": 2.0}]
)
def test_equals_the_printed_formula(labels, options, embeddings):
    given, loss = embeddings(len(labels)), SupervisedContrastiveLoss(**options)
    assert loss(given, torch.tensor(labels)).item() == pytest.approx(by_hand(loss, given, labels))


def test_gradient_matches_finite_differences(embeddings):
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    assert gradcheck(
        lambda e: SupervisedContrastiveLoss()(e, labels), (embeddings(6).requires_grad_(),)
    )


def test_equals_the_peer_in_value_and_gradient(embeddings):
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    labels = torch.cat(
        [torch.arange(36) // 4, torch.tensor([50, 51])]
    )  # two anchors without positives
    given = embeddings(38, 8).requires_grad_()
    values = (
        SupervisedContrastiveLoss()(given, labels),
        losses.SupConLoss(temperature=0.1)(given, labels),
    )
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*(torch.autograd.grad(value, given)[0] for value in values))


def test_two_of_a_class_are_the_cross_entropy_of_all_others(embeddings):
    given, labels = embeddings(10), torch.arange(5).repeat(2)
    unit = torch.nn.functional.normalize(given, dim=1)
    logits = (unit @ unit.T / 0.1).fill_diagonal_(-torch.inf)
    expected = cross_entropy(logits, torch.arange(10).roll(5))
    torch.testing.assert_close(SupervisedContrastiveLoss()(given, labels), expected)


def test_collapse_costs_the_logarithm_of_the_number_of_others():
    value = SupervisedContrastiveLoss()(torch.ones(12, 3), torch.arange(12) // 3)
    assert value.item() == pytest.approx(math.log(11))


def test_positives_alone_cost_no_less_than_the_logarithm_of_their_number(embeddings):
    """The positives are told from each other as well, so one class of n costs at least log(n -
    1)."""
    value = SupervisedContrastiveLoss()(embeddings(5), torch.zeros(5, dtype=torch.long))
    assert value > math.log(4)


def test_weights_multiply_a_positives_term_and_a_negatives_exponential(embeddings, rng):
    loss, labels = SupervisedContrastiveLoss(), torch.arange(6) // 3
    c = loss.comparisons(embeddings(6), labels)
    weights = torch.rand(c.positive.shape, generator=rng, dtype=torch.float64)
    found = loss.core(
        replace(c, positive_weights=weights, negative_weights=torch.full_like(c.negative, 2.0))
    ).sums
    twice = (
        torch.cat(
            [c.positive, c.negative.masked_fill(~c.keep_negative, -torch.inf).repeat(1, 2)], dim=1
        )
        / 0.1
    )
    terms = twice.logsumexp(dim=1, keepdim=True) - c.positive / 0.1
    torch.testing.assert_close(found, (weights * terms).mean(dim=1))


def test_stays_finite_where_a_plain_exponential_overflows(embeddings):
    given = (1e3 * embeddings(8)).float().requires_grad_()
    loss = SupervisedContrastiveLoss(0.01, normalize=False)(given, torch.arange(8) // 2)
    assert loss.isfinite() and torch.autograd.grad(loss, given)[0].isfinite().all()
