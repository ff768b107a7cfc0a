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


LEVELS = torch.tensor([[0, 1, 2], [1, 0, 2], [2, 2, 0]], dtype=torch.uint8)


@pytest.fixture
def tree(rng):
    """Margins of three levels and spreads of three classes, so that ordered pairs of classes have
    both signs."""
    return torch.randn(3, generator=rng, dtype=torch.float64), torch.randn(
        3, generator=rng, dtype=torch.float64
    )


def with_margins(loss, margins, spreads):
    loss.set_margins(torch.arange(3), LEVELS, margins, spreads)
    return loss


@pytest.mark.parametrize(
    "options", [{}, {"squared": False}, {"normalize": False, "margin": 0.7}], ids=str
)
def test_equals_the_printed_sum_over_triplets(options, embeddings, tree):
    margins, spreads = tree
    loss = with_margins(HierarchicalTripletLoss(**options), margins, spreads)
    expected = margins[LEVELS[LABELS][:, LABELS].long()] - spreads[LABELS][:, None]
    torch.testing.assert_close(loss.margins_of(LABELS), expected)
    assert loss(embeddings, LABELS).item() == pytest.approx(
        by_hand(loss, embeddings, LABELS, expected)
    )


def test_equal_margins_are_one_half_of_the_mean_over_all_triplets(embeddings):
    loss = HierarchicalTripletLoss(0.4)
    every = BatchAllTripletLoss(0.4, squared=True, normalize=True, average="all")
    torch.testing.assert_close(loss(embeddings, LABELS), every(embeddings, LABELS) / 2)
    same = with_margins(
        HierarchicalTripletLoss(),
        torch.full((3,), 0.4, dtype=torch.float64),
        torch.zeros(3).double(),
    )
    torch.testing.assert_close(same(embeddings, LABELS), loss(embeddings, LABELS))


def test_divides_by_the_number_of_triplets_of_the_paper(embeddings):
    """Z = l'm (l'm - 1) t (t - 1) t: ordered pairs of classes, ordered pairs of a class,
    negatives."""
    loss = HierarchicalTripletLoss()
    counts = loss.core(loss.comparisons(embeddings, LABELS)).counts.sum()
    assert counts == 3 * 2 * 3 * 2 * 3


def test_the_gradient_is_that_of_the_embeddings_at_fixed_margins(embeddings, tree):
    loss = with_margins(HierarchicalTripletLoss(), *tree)
    assert gradcheck(lambda e: loss(e, LABELS), (embeddings.requires_grad_(),), fast_mode=True)


def test_a_larger_margin_costs_no_less(embeddings, tree):
    margins, spreads = tree
    loss = with_margins(HierarchicalTripletLoss(), margins, spreads)
    before = loss(embeddings, LABELS)
    assert with_margins(loss, margins + 0.1, spreads)(embeddings, LABELS) > before
    assert with_margins(loss, margins - 9, spreads)(embeddings, LABELS) == 0


def test_margins_of_other_classes_take_the_place_of_the_former(tree):
    loss = with_margins(HierarchicalTripletLoss(), *tree)
    held = loss.margins
    with_margins(loss, tree[0] + 1, tree[1])
    assert loss.margins is held  # changed in place: a captured step reads it there
    loss.set_margins(torch.tensor([4, 7]), LEVELS[:2, :2], tree[0], tree[1][:2])
    assert loss.margins_of(torch.tensor([7, 4])).shape == (2, 2)
