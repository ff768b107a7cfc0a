"""MultiSimilarityLoss against the paper's sums, written out one term at a time."""

import math
from dataclasses import replace

import pytest
import torch

from vicinal.losses import MultiSimilarityLoss

LABELS = {
    "two each": [0, 0, 1, 1, 2, 2],
    "uneven": [0, 0, 1, 2, 2, 2],
    "none alike": [0, 1, 2, 3],
    "one class": [0, 0, 0],
    "two rows": [0, 1],
}


def by_hand(loss, embeddings, labels):
    """The formula as printed, mining first: no masks, no batching, no log-sum-exp trick."""
    per_anchor = []
    for i, anchor in enumerate(embeddings):
        similarity = [float(anchor @ other) for other in embeddings]
        positive = [s for k, s in enumerate(similarity) if k != i and labels[k] == labels[i]]
        negative = [s for k, s in enumerate(similarity) if labels[k] != labels[i]]
        if loss.epsilon is not None:
            hardest = min(positive, default=math.inf), max(negative, default=-math.inf)
            positive = [s for s in positive if s - loss.epsilon < hardest[1]]
            negative = [s for s in negative if s + loss.epsilon > hardest[0]]
        pull = sum(math.exp(-loss.alpha * (s - loss.base)) for s in positive)
        push = sum(math.exp(loss.beta * (s - loss.base)) for s in negative)
        per_anchor.append(math.log1p(pull) / loss.alpha + math.log1p(push) / loss.beta)
    return torch.tensor(per_anchor, dtype=embeddings.dtype)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("epsilon", [None, 0.1, -0.3])
def test_equals_the_printed_formula(labels, epsilon, unit_vectors):
    embeddings = unit_vectors(len(labels), dim=3)
    loss = MultiSimilarityLoss(alpha=2.0, beta=10.0, base=0.5, epsilon=epsilon, reduction="none")
    torch.testing.assert_close(
        loss(embeddings, torch.tensor(labels)), by_hand(loss, embeddings, labels)
    )


@pytest.mark.parametrize("epsilon", [None, 0.1])
def test_equals_the_peer_in_value_and_gradient(unit_vectors, epsilon):
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    from pytorch_metric_learning.miners import MultiSimilarityMiner

    embeddings, labels = unit_vectors(40, dim=8).requires_grad_(), torch.arange(40) // 4
    peer = losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5)
    mined = None if epsilon is None else MultiSimilarityMiner(epsilon=epsilon)(embeddings, labels)
    values = (
        MultiSimilarityLoss(epsilon=epsilon)(embeddings, labels),
        peer(embeddings, labels, mined),
    )
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*(torch.autograd.grad(value, embeddings)[0] for value in values))


def test_length_does_not_matter(unit_vectors):
    embeddings, labels = unit_vectors(6), torch.tensor([0, 0, 1, 1, 2, 2])
    loss = MultiSimilarityLoss()
    torch.testing.assert_close(
        loss(embeddings * torch.arange(1, 7)[:, None], labels), loss(embeddings, labels)
    )


def test_duplicates_stay_positives():
    """The authors' code drops positives above 1 - 1e-5, and with them copies of the anchor."""
    embeddings, labels = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 0, 1])
    found = MultiSimilarityLoss(alpha=2.0, beta=50.0, base=0.5, reduction="none")(
        embeddings, labels
    )
    assert found[0].item() == pytest.approx(
        math.log1p(math.exp(-1)) / 2 + math.log1p(math.exp(25)) / 50
    )


def test_an_anchor_mined_empty_counts_in_the_mean():
    right, up = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]
    parted, torn = [right, right, up, up], [[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]
    assert MultiSimilarityLoss()(torch.tensor(parted), torch.tensor([0, 0, 1, 1])) == 0
    embeddings, labels = torch.tensor(parted + torn), torch.tensor([0, 0, 1, 1, 2, 2])
    each = MultiSimilarityLoss(reduction="none")(embeddings, labels)
    assert each[:4].eq(0).all() and each[4:].gt(0).all()
    torch.testing.assert_close(MultiSimilarityLoss()(embeddings, labels), each.sum() / 6)


def test_a_wide_epsilon_keeps_every_pair_of_anchors_that_have_both_kinds(unit_vectors):
    embeddings, labels = unit_vectors(6), torch.tensor([0, 0, 1, 1, 2, 2])
    wide, none = MultiSimilarityLoss(epsilon=3.0), MultiSimilarityLoss(epsilon=None)
    torch.testing.assert_close(wide(embeddings, labels), none(embeddings, labels))


def test_sharp_dials_give_the_hardest_pairs(unit_vectors):
    embeddings, labels = unit_vectors(8), torch.arange(8) // 2
    loss = MultiSimilarityLoss(alpha=1e5, beta=1e5, base=0.0, epsilon=None, reduction="none")
    c = loss.comparisons(embeddings, labels)
    weakest = c.positive.masked_fill(~c.keep_positive, torch.inf).amin(dim=1)
    strongest = c.negative.masked_fill(~c.keep_negative, -torch.inf).amax(dim=1)
    expected = (-weakest).relu() + strongest.relu()
    torch.testing.assert_close(loss(embeddings, labels), expected, atol=1e-4, rtol=0)


def test_a_weight_multiplies_its_exponential(unit_vectors):
    loss, labels = MultiSimilarityLoss(epsilon=None), torch.tensor([0, 0, 1, 1])
    c = loss.comparisons(unit_vectors(4), labels)
    doubled = loss.core(replace(c, negative_weights=torch.full_like(c.negative, 2.0))).sums
    twice = replace(c, negative=c.negative.repeat(1, 2), keep_negative=c.keep_negative.repeat(1, 2))
    torch.testing.assert_close(doubled, loss.core(twice).sums)


def test_stays_finite_where_a_plain_exponential_overflows(unit_vectors):
    loss, embeddings = (
        MultiSimilarityLoss(beta=5000.0, epsilon=None),
        unit_vectors(6, dim=3).float().requires_grad_(),
    )
    value = loss(embeddings, torch.arange(6))
    assert value.isfinite() and torch.autograd.grad(value, embeddings)[0].isfinite().all()
