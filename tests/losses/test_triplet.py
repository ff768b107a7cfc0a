"""What triplet losses promise beside their formulas: blocks, closed forms, margins of a class
tree."""

import pytest
import torch
from tests.listed import triplets
from torch.testing import assert_close

from vicinal.errors import ConfigError
from vicinal.losses import (
    BatchAllTripletLoss,
    HierarchicalTripletLoss,
    TripletLoss,
)
from vicinal.tuples import Triplets

LABELS = torch.arange(9) // 3


@pytest.fixture
def embeddings(rng):
    return lambda n, dim=3: torch.randn(n, dim, generator=rng, dtype=torch.float64)


def test_explicit_triplets_equal_all_triplets_when_all_are_listed(embeddings):
    rows = embeddings(9)
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 3])
    for loss in (TripletLoss(), BatchAllTripletLoss(), BatchAllTripletLoss(soft=True)):
        assert_close(loss.on_triplets(rows, triplets(labels)), loss(rows, labels))


def test_blocks_take_the_disjoint_triplets_and_skip_rows_that_do_not_fit(embeddings):
    rows = embeddings(12)
    labels = torch.tensor([0, 1, 2, 3, 0, 1, 2, 9, 4, 5, 2, 6])  # 2 has no negative, 3 no positive
    fitting = Triplets(torch.tensor([0, 1]), torch.tensor([4, 5]), torch.tensor([8, 9]))
    expected = TripletLoss(5.0).on_triplets(rows, fitting)
    assert_close(TripletLoss(5.0, blocks=True)(rows, labels), expected)
    assert TripletLoss(blocks=True, reduction="none")(rows, labels).shape == (4,)
    with pytest.raises(ConfigError, match="got 11 rows"):
        TripletLoss(blocks=True)(rows[:11], labels[:11])


# -- semi-hard


LEVELS = torch.tensor([[0, 1, 2], [1, 0, 2], [2, 2, 0]], dtype=torch.uint8)


@pytest.fixture
def tree(rng):
    """Margins of three levels and spreads of three classes; margins of both signs."""
    return torch.randn(2, 3, generator=rng, dtype=torch.float64).unbind()


def with_margins(loss, margins, spreads):
    loss.set_margins(torch.arange(3), LEVELS, margins, spreads)
    return loss


@pytest.mark.parametrize("options", [{}, {"squared": False, "normalize": False, "margin": 0.7}])
def test_each_two_classes_have_the_margin_of_their_level(options, embeddings, tree):
    rows = embeddings(9)
    margins, spreads = tree
    loss = with_margins(HierarchicalTripletLoss(**options), margins, spreads)
    expected = margins[LEVELS[LABELS][:, LABELS].long()] - spreads[LABELS][:, None]
    assert_close(loss.margins_of(LABELS), expected)
    distances = loss.distance(rows)
    a, p, n = triplets(LABELS)
    excess = distances[a, p] - distances[a, n] + expected[a, n]
    assert_close(loss(rows, LABELS), excess.relu().mean() / 2)
    counts = loss.core(loss.comparisons(rows, LABELS)).counts
    assert counts.sum() == 3 * 2 * 3 * 2 * 3  # Z = l'm (l'm - 1) t (t - 1) t


def test_margins_of_other_classes_take_the_place_of_the_former(tree):
    margins, spreads = tree
    loss = with_margins(HierarchicalTripletLoss(), margins, spreads)
    held = loss.margins
    with_margins(loss, margins + 1, spreads)
    assert loss.margins is held  # changed in place: a captured step reads it there
    loss.set_margins(torch.tensor([4, 7]), LEVELS[:2, :2], margins, spreads[:2])
    assert loss.margins_of(torch.tensor([7, 4])).shape == (2, 2)
