"""What single losses over pairs, tuples and both members of a pair promise beside their
formulas."""

import math
from dataclasses import replace

import pytest
import torch
from torch.autograd import grad
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from vicinal.distances import SignalToNoise
from vicinal.errors import DataError
from vicinal.losses import (
    Comparisons,
    HPHNLoss,
    LiftedStructureLoss,
    MarginLoss,
    NPairLoss,
    VICRegLoss,
)
from vicinal.tuples import Triplets

ONE_TRIPLET = Triplets(*torch.tensor([[0], [1], [2]]))


@pytest.fixture
def embeddings(rng):
    return lambda n, dim=4: torch.randn(n, dim, generator=rng, dtype=torch.float64)


# -- margin loss


def test_the_boundary_of_an_anchor_enters_the_core_as_a_number(embeddings):
    """So that synthetic negatives and arc distances are judged by it as well."""
    loss = MarginLoss(3).double()
    c = loss.comparisons(embeddings(6), torch.arange(6) // 2)
    moved = {name: getattr(c, name) + 0.3 for name in ("positive", "negative", "boundary")}
    assert_close(loss.core(replace(c, **moved)), loss.core(c))
    assert_close(loss.core(replace(c, boundary=None)), loss.core(c))


def test_a_label_without_a_boundary_is_rejected_with_both_numbers(embeddings):
    for labels, numbers in (([0, 3], "from 0 to 3"), ([-1, 0], "from -1 to 0")):
        with pytest.raises(DataError, match=f"classes 0 to 2, got labels {numbers}"):
            MarginLoss(3)(embeddings(2), torch.tensor(labels))


# -- n-pair and soft maxima


def test_blocks_are_the_cross_entropy_of_the_matrix_of_inner_products(embeddings):
    rows = embeddings(16)
    labels = torch.arange(8).repeat(2)
    anchors, positives = rows.chunk(2)
    expected = cross_entropy(anchors @ positives.T, torch.arange(8))
    assert_close(NPairLoss(l2=0.0, blocks=True)(rows, labels), expected)
    lengths = rows.square().sum() / 8
    penalized = NPairLoss(l2=0.02, blocks=True)(rows, labels)
    assert_close(penalized, expected + 0.02 / 4 * lengths)
    split = NPairLoss(l2=0.02)(anchors, labels[:8], positives, labels[8:])
    assert_close(penalized, split)
    one = Triplets(torch.tensor([0]), torch.tensor([8]), torch.tensor([9]))
    of_one = NPairLoss(l2=0.02).on_triplets(rows, one) - NPairLoss(l2=0.0).on_triplets(rows, one)
    squares = rows.square().sum(dim=1)
    assert_close(of_one, 0.02 / 4 * (squares[0] + squares[8:10].mean()))
    with pytest.raises(DataError, match="got 7 rows"):
        NPairLoss(blocks=True)(rows[:7], labels[:7])


# -- both members of a pair


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (HPHNLoss(0.0, normalize=False), 3.0 - 1.0),
        (LiftedStructureLoss(0.0, form="min", normalize=False), 3.0 - 1.0),
        (
            LiftedStructureLoss(0.0, normalize=False),
            (3 + math.log(math.exp(-4) + math.exp(-1))) ** 2 / 2,
        ),
    ],
)
def test_an_explicit_triplet_is_seen_from_both_ends(loss, expected):
    value = loss.on_triplets(torch.tensor([[0.0], [3.0], [4.0]]), ONE_TRIPLET)
    assert value.item() == pytest.approx(expected)


def test_a_positives_own_negatives_are_found_among_reference_rows():
    """A memory, of which the anchor's positive has a nearer negative than the anchor itself."""
    memory = torch.tensor([[1.0], [1.5], [9.0]])
    loss = LiftedStructureLoss(0.0, form="min", normalize=False)
    value = loss(torch.tensor([[0.0]]), torch.tensor([0]), memory, torch.tensor([0, 1, 2]))
    assert value.item() == pytest.approx(1.0 - 0.5)


def test_one_member_with_negatives_is_enough_and_none_forms_no_term():
    pair = torch.tensor([[1.0], [1.0]])
    there = torch.tensor([[True], [True]])
    theirs = Comparisons(pair, there, torch.tensor([[0.4], [0.4]]), torch.tensor([[True], [False]]))
    c = Comparisons(pair, there, pair, ~there, partner=torch.tensor([[0], [1]]), partners=theirs)
    for loss in (HPHNLoss(0.1), LiftedStructureLoss(0.1, form="min")):
        terms = loss.core(c)
        assert terms.sums.tolist() == pytest.approx([0.7, 0]) and terms.counts.tolist() == [1, 0]


def test_arc_distances_enter_the_core_as_rows_without_partner():
    """LoOp: a row is a positive pair, its negatives are the distances of its arc to other arcs."""
    arcs = torch.tensor([[0.5, 0.2], [0.8, 0.7]])
    all_arcs = torch.ones_like(arcs, dtype=torch.bool)
    pair = torch.tensor([[0.9], [0.2]])
    rows = Comparisons(pair, torch.ones_like(pair).bool(), arcs, all_arcs)
    hard = LiftedStructureLoss(0.1, form="min").core(rows).sums
    assert_close(hard, torch.tensor([0.8, 0.0]))
    soft = (pair.squeeze(1) + 0.1 + (-arcs).logsumexp(dim=1)).relu().square() / 2
    assert_close(LiftedStructureLoss(0.1).core(rows).sums, soft)
    several = torch.tensor([[0.3, 0.9, 0.4], [0.2, 0.1, 0.0]])
    there = torch.tensor([[True, True, True], [True, True, False]])
    terms = HPHNLoss(0.1).core(Comparisons(several, there, arcs, all_arcs))
    assert_close(terms.sums, torch.tensor([0.9 + 0.1 - 0.2, 0.0]))


# -- dimensions


def vicreg_by_hand(loss, views, first, second):
    total = loss.invariance * float((first - second).square().mean())
    for view in views:
        columns = view.T
        covariance = torch.cov(columns)
        for j, row in enumerate(covariance.tolist()):
            spread = (row[j] + loss.epsilon) ** 0.5
            total += loss.variance * max(0, loss.spread - spread) / len(columns)
            shared = sum(c**2 for k, c in enumerate(row) if k != j)
            total += loss.covariance * shared / len(columns)
    return total


def test_vicreg_is_the_printed_formula(embeddings):
    rows = embeddings(8)
    labels = torch.arange(4).repeat(2)
    first, second = rows.chunk(2)
    for loss, views in (
        (VICRegLoss(spread=1.5, blocks=True), [first, second]),
        (VICRegLoss(), [rows]),
    ):
        expected = vicreg_by_hand(loss, views, first, second)
        assert loss(rows, labels).item() == pytest.approx(expected)
    with pytest.raises(DataError, match="two rows for each pair, got 7"):
        VICRegLoss(blocks=True)(rows[:7], labels[:7])


def test_a_row_without_signal_is_at_distance_0():
    rows = torch.tensor([[2.0, 2.0, 2.0], [1.0, 0.0, -1.0]], requires_grad=True)
    found = SignalToNoise()(rows)
    assert found[0].tolist() == [0.0, 0.0] and found[1].tolist() == pytest.approx([1.0, 0.0])
    assert grad(found.sum(), rows)[0].isfinite().all()
