"""CircleLoss against Sun's product of sums, written out."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from vicinal.losses import CircleLoss, Comparisons
from vicinal.tuples import Triplets

LABELS = {
    "two each": [0, 0, 1, 1],
    "uneven": [0, 1, 1, 2, 2, 2, 3],
    "one class": [0, 0, 0],
    "none alike": [0, 1, 2],
}


def by_hand(loss, embeddings, labels):
    """The formula as printed: no masks, no batching, no log-sum-exp trick."""
    m, gamma, anchors = loss.relaxation, loss.gamma, []
    for i, anchor in enumerate(embeddings):
        similarity = [float(anchor @ other) for other in embeddings]
        positive = [s for k, s in enumerate(similarity) if k != i and labels[k] == labels[i]]
        negative = [s for k, s in enumerate(similarity) if labels[k] != labels[i]]
        if positive and negative:
            push = sum(math.exp(gamma * max(0.0, s + m) * (s - m)) for s in negative)
            pull = sum(math.exp(-gamma * max(0.0, 1 + m - s) * (s - (1 - m))) for s in positive)
            anchors.append(math.log1p(push * pull))
    return sum(anchors) / max(1, len(anchors))


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize(
    "options", [{"gamma": 8.0}, {"relaxation": 0.25, "gamma": 20.0}, {"detach_weights": False}]
)
def test_equals_the_printed_formula(labels, options, unit_vectors):
    given, loss = unit_vectors(len(labels), 3), CircleLoss(**options)
    assert loss(given, torch.tensor(labels)).item() == pytest.approx(by_hand(loss, given, labels))


def test_gradient_is_that_of_the_formula_with_its_weights_held(unit_vectors):
    given, labels = unit_vectors(6, 3).requires_grad_(), torch.tensor([0, 0, 0, 1, 1, 2])
    m, gamma = 0.4, 8.0
    similarity = (given @ given.T).detach()
    lacking, exceeding = (1 + m - similarity).relu(), (similarity + m).relu()
    same = (labels[:, None] == labels).fill_diagonal_(False)
    other = labels[:, None] != labels

    def with_weights_held(rows):
        unit = torch.nn.functional.normalize(rows, dim=1)
        s = unit @ unit.T
        pull = (torch.exp(-gamma * lacking * (s - 1 + m)) * same).sum(dim=1)
        push = (torch.exp(gamma * exceeding * (s - m)) * other).sum(dim=1)
        return torch.log1p(pull * push)[:5].mean()  # the last anchor has no positive

    loss = CircleLoss(m, gamma)
    values = loss(given, labels), with_weights_held(given)
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*(torch.autograd.grad(value, given)[0] for value in values))
    assert gradcheck(lambda e: CircleLoss(m, gamma, detach_weights=False)(e, labels), (given,))


def test_equals_the_peer_in_value_and_gradient(unit_vectors):
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    given, labels = unit_vectors(40, 8).requires_grad_(), torch.arange(40) // 4
    values = CircleLoss()(given, labels), losses.CircleLoss(m=0.4, gamma=80)(given, labels)
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*(torch.autograd.grad(value, given)[0] for value in values))


def test_the_decision_boundary_is_a_circle():
    """One positive and one negative on (s_n)² + (s_p - 1)² = 2 m² cost log 2."""
    for turn in (0.3, 1.0, 2.0):
        radius = math.sqrt(2) * 0.25
        s_p, s_n = 1 - radius * math.sin(turn), radius * math.cos(turn)
        given = torch.tensor(
            [[1.0, 0.0], [s_p, math.sqrt(1 - s_p**2)], [s_n, math.sqrt(1 - s_n**2)]]
        )
        value = CircleLoss(0.25, 80.0).on_triplets(given, Triplets(*torch.tensor([[0], [1], [2]])))
        assert value.item() == pytest.approx(math.log(2), abs=1e-4)


def test_collapse():
    """All cosines 1: each negative γ (1 + m)(1 - m), each positive -γ m²."""
    value = CircleLoss(0.4, 80.0)(torch.ones(8, 3), torch.arange(8) // 2)
    assert value.item() == pytest.approx(math.log(6) + 80 * (1 - 0.4**2) - 80 * 0.4**2, rel=1e-5)


def test_an_anchor_that_lacks_one_kind_does_not_count_in_the_mean():
    there, missing = (
        torch.tensor([[True], [True], [False]]),
        torch.tensor([[True], [False], [True]]),
    )
    numbers = torch.full((3, 1), 0.5)
    terms = CircleLoss().core(Comparisons(numbers, there, numbers, missing))
    assert (
        terms.counts.tolist() == [1, 0, 0]
        and terms.sums[1:].tolist() == [0, 0]
        and terms.sums[0] > 0
    )


def test_length_does_not_matter(unit_vectors):
    given, labels = unit_vectors(6), torch.arange(6) // 2
    torch.testing.assert_close(
        CircleLoss()(given * torch.arange(1, 7)[:, None], labels), CircleLoss()(given, labels)
    )


def test_stays_finite_where_a_plain_exponential_overflows(unit_vectors):
    given = unit_vectors(8, 3).float().requires_grad_()
    loss = CircleLoss(gamma=1e5)(given, torch.arange(8) // 2)
    assert loss.isfinite() and torch.autograd.grad(loss, given)[0].isfinite().all()
