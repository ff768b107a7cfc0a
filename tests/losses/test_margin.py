"""MarginLoss against Wu's hinge of each pair, and its learnt boundaries."""

import math
from dataclasses import replace

import pytest
import torch
from tests.listed import triplets
from torch.autograd import gradcheck

from vicinal.errors import DataError
from vicinal.losses import MarginLoss

LABELS = {
    "two each": [0, 0, 1, 1],
    "uneven": [0, 1, 1, 2, 2, 2],
    "one class": [0, 0, 0],
    "none alike": [0, 1, 2],
}


def by_hand(loss, embeddings, labels):
    """Sum and number of the pairs that cost something, the boundary being the anchor's class's."""
    if loss.normalize:
        embeddings = [row / row.norm() for row in embeddings]
    pairs = []
    for i, first in enumerate(embeddings):
        boundary = loss.boundary.item() + (
            0.0 if loss.deviations is None else loss.deviations[labels[i]].item()
        )
        for j, second in enumerate(embeddings):
            distance = math.dist(first.tolist(), second.tolist()) ** (2 if loss.squared else 1)
            if i != j:
                alike = 1 if labels[i] == labels[j] else -1
                pairs.append(max(0.0, loss.margin + alike * (distance - boundary)))
    costing = [pair for pair in pairs if pair > 0]
    return sum(costing) / max(1, len(costing)), sum(costing)


def learnt(loss, rng):
    """With boundaries that differ, as training leaves them."""
    with torch.no_grad():
        loss.boundary.add_(0.1)
        if loss.deviations is not None:
            loss.deviations.copy_(0.3 * torch.randn(len(loss.deviations), generator=rng))
    return loss


@pytest.fixture
def embeddings(rng):
    return lambda n, dim=3: torch.randn(n, dim, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize(
    "options",
    [{}, {"class_boundaries": 3}, {"class_boundaries": 3, "squared": True}, {"normalize": False}],
)
def test_equals_the_printed_terms(labels, options, embeddings, rng):
    given, loss = embeddings(len(labels)), learnt(MarginLoss(**options), rng)
    total = MarginLoss(**options, reduction="sum")
    total.load_state_dict(loss.state_dict())
    found = torch.stack([loss(given, torch.tensor(labels)), total(given, torch.tensor(labels))])
    torch.testing.assert_close(
        found, torch.tensor(by_hand(loss, given, labels), dtype=torch.float64)
    )


def test_gradient_matches_finite_differences_also_of_the_boundaries(embeddings, rng):
    loss, labels = learnt(MarginLoss(3).double(), rng), torch.tensor([0, 0, 1, 1, 2])

    def value(given, boundary, deviations):
        parameters = {"boundary": boundary, "deviations": deviations}
        return torch.func.functional_call(loss, parameters, (given, labels))

    given = [
        part.detach().clone().requires_grad_()
        for part in (embeddings(5), loss.boundary, loss.deviations)
    ]
    assert gradcheck(value, given)


@pytest.mark.parametrize("classes", [None, 6])
def test_explicit_triplets_equal_the_peer_in_value_and_in_all_gradients(embeddings, classes):
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    given, labels = embeddings(24, 8).requires_grad_(), torch.arange(24) // 4
    listed, ours = triplets(labels), MarginLoss(classes).double()
    peer = losses.MarginLoss(margin=0.2, beta=1.2, learn_beta=True, num_classes=classes).double()
    with torch.no_grad():
        peer.beta.copy_(ours.boundary)  # 1.2 as float32 has it
    values = ours.on_triplets(given, listed, labels=labels), peer(given, labels, tuple(listed))
    torch.testing.assert_close(*values)
    learnt = ours.boundary if classes is None else ours.deviations
    gradients = [
        torch.autograd.grad(v, (given, p)) for v, p in zip(values, (learnt, peer.beta), strict=True)
    ]
    torch.testing.assert_close(gradients[0][0], gradients[1][0])
    torch.testing.assert_close(gradients[0][1].reshape(-1), gradients[1][1])


def test_collapse_costs_the_boundary_and_the_margin_of_each_negative_pair():
    loss = MarginLoss(margin=0.2, beta=1.2)
    value = loss(torch.ones(6, 3), torch.arange(6) // 3)
    assert value.item() == pytest.approx(
        1.4
    )  # positives at 0 are within 1.2 - 0.2 and do not count


def test_classes_beyond_the_boundary_and_its_margin_cost_nothing():
    given = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]], requires_grad=True)
    loss = MarginLoss()(given, torch.tensor([0, 0, 1]))
    assert loss == 0 and torch.autograd.grad(loss, given)[0].eq(0).all()


def test_the_boundary_moves_towards_the_kind_that_violates_it_more(embeddings):
    for spread, sign in (
        (0.01, 1),
        (100.0, -1),
    ):  # negatives too near: less boundary costs less; positives too far
        loss = MarginLoss(normalize=False)
        loss(spread * embeddings(8), torch.arange(8) // 4).backward()
        assert loss.boundary.grad.sign() == sign


def test_only_classes_of_the_batch_have_a_gradient(embeddings):
    loss = MarginLoss(5)
    loss(embeddings(6), torch.tensor([1, 1, 3, 3, 3, 1])).backward()
    assert loss.deviations.grad.ne(0).tolist() == [False, True, False, True, False]


def test_the_boundary_of_an_anchor_enters_the_core_as_a_number(embeddings):
    """So that synthetic negatives and arc distances are judged by it as well."""
    loss, labels = MarginLoss(3).double(), torch.arange(6) // 2
    c = loss.comparisons(embeddings(6), labels)
    shifted = replace(
        c, positive=c.positive + 0.3, negative=c.negative + 0.3, boundary=c.boundary + 0.3
    )
    torch.testing.assert_close(loss.core(shifted), loss.core(c))
    torch.testing.assert_close(
        loss.core(replace(c, boundary=None)), loss.core(c), msg="deviations start at 0"
    )


def test_a_label_without_a_boundary_is_rejected_with_both_numbers(embeddings):
    with pytest.raises(DataError, match="classes 0 to 2, got labels from 0 to 3"):
        MarginLoss(3)(embeddings(4), torch.arange(4))
    with pytest.raises(DataError, match="got labels from -1 to 0"):
        MarginLoss(3)(embeddings(2), torch.tensor([-1, 0]))


def test_its_parameters_are_vectors_that_weight_decay_spares():
    assert all(parameter.ndim <= 1 for parameter in MarginLoss(3).parameters())
    assert set(MarginLoss(3).state_dict()) == {"boundary", "deviations"}
    assert set(MarginLoss().state_dict()) == {"boundary"}
