"""HierarchicalTripletLoss against its three loops, and the number of its triplets."""

import pytest
import torch
from torch.autograd import gradcheck

from vicinal.losses import BatchAllTripletLoss, HierarchicalTripletLoss

LABELS = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2])


def by_hand(loss, embeddings, labels, margins):
    rows = embeddings / embeddings.norm(dim=1, keepdim=True) if loss.normalize else embeddings
    total, count, n = 0.0, 0, range(len(labels))
    distance = lambda i, j: float((rows[i] - rows[j]).norm()) ** (2 if loss.squared else 1)  # noqa: E731
    for a in n:
        for p in n:
            for k in n:
                if a != p and labels[a] == labels[p] and labels[k] != labels[a]:
                    total += max(0.0, distance(a, p) - distance(a, k) + float(margins[a, k]))
                    count += 1
    return total / (2 * count)


@pytest.fixture
def embeddings(rng):
    return torch.randn(9, 4, generator=rng, dtype=torch.float64)


@pytest.fixture
def margins(rng):
    """Margins of ordered pairs of classes, of both signs."""
    of_classes = torch.randn(3, 3, generator=rng, dtype=torch.float64)
    return of_classes[LABELS][:, LABELS]


@pytest.mark.parametrize("options", [{}, {"squared": False}, {"normalize": False, "margin": 0.7}], ids=str)
def test_equals_the_printed_sum_over_triplets(options, embeddings, margins):
    loss = HierarchicalTripletLoss(**options)
    found = loss.with_margins(embeddings, LABELS, margins).item()
    assert found == pytest.approx(by_hand(loss, embeddings, LABELS, margins))


def test_equal_margins_are_one_half_of_the_mean_over_all_triplets(embeddings):
    loss = HierarchicalTripletLoss(0.4)
    every = BatchAllTripletLoss(0.4, squared=True, normalize=True, average="all")
    torch.testing.assert_close(loss(embeddings, LABELS), every(embeddings, LABELS) / 2)
    same = torch.full((9, 9), 0.4, dtype=torch.float64)
    torch.testing.assert_close(loss.with_margins(embeddings, LABELS, same), loss(embeddings, LABELS))


def test_divides_by_the_number_of_triplets_of_the_paper(embeddings):
    """Z = l'm (l'm - 1) t (t - 1) t: ordered pairs of classes, ordered pairs of a class, negatives."""
    loss = HierarchicalTripletLoss()
    counts = loss.core(loss.comparisons(embeddings, LABELS)).counts.sum()
    assert counts == 3 * 2 * 3 * 2 * 3


def test_margins_pass_no_gradient_and_embeddings_do(embeddings, margins):
    loss, given = HierarchicalTripletLoss(), embeddings.requires_grad_()
    assert gradcheck(lambda e: loss.with_margins(e, LABELS, margins), (given,), fast_mode=True)
    margins.requires_grad_()
    value = loss.with_margins(given, LABELS, margins)
    assert torch.autograd.grad(value, margins, allow_unused=True) == (None,)


def test_a_larger_margin_costs_no_less(embeddings, margins):
    loss = HierarchicalTripletLoss()
    assert loss.with_margins(embeddings, LABELS, margins + 0.1) > loss.with_margins(embeddings, LABELS, margins)
    assert loss.with_margins(embeddings, LABELS, margins - 9) == 0
