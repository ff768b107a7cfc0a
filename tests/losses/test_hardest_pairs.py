"""HPHNLoss against the maxima and minima of each positive pair, written out."""

import math
from dataclasses import replace

import pytest
import torch
from torch.autograd import gradcheck

from vicinal.losses import BatchHardTripletLoss, Comparisons, HPHNLoss, LiftedStructureLoss
from vicinal.tuples import Triplets

LABELS = {
    "two each": [0, 0, 1, 1],
    "uneven": [0, 1, 1, 2, 2, 2, 3],
    "one class": [0, 0, 0],
    "none alike": [0, 1, 2],
}


def by_hand(loss, embeddings, labels):
    if loss.normalize:
        embeddings = [row / row.norm() for row in embeddings]
    n = range(len(labels))

    def distance(i, j):
        return math.dist(embeddings[i].tolist(), embeddings[j].tolist()) ** (
            2 if loss.squared else 1
        )

    pairs = []
    for i in n:
        for j in n:
            negatives = [distance(a, k) for a in (i, j) for k in n if labels[k] != labels[i]]
            if i != j and labels[i] == labels[j] and negatives:
                positives = [distance(a, k) for a in (i, j) for k in n if labels[k] == labels[i]]
                pairs.append(max(0.0, max(positives) + loss.margin - min(negatives)))
    return sum(pairs) / max(1, len(pairs))


@pytest.fixture
def embeddings(rng):
    return lambda n, dim=3: torch.randn(n, dim, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize(
    "options", [{}, {"squared": True}, {"normalize": False, "margin": 0.5}, {"margin": -0.3}]
)
def test_equals_the_printed_maxima_and_minima(labels, options, embeddings):
    given, loss = embeddings(len(labels)), HPHNLoss(**options)
    assert loss(given, torch.tensor(labels)).item() == pytest.approx(by_hand(loss, given, labels))


def test_gradient_matches_finite_differences(embeddings):
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    assert gradcheck(lambda e: HPHNLoss()(e, labels), (embeddings(6).requires_grad_(),))


def test_of_pairs_is_batch_hard_of_the_harder_member(embeddings):
    given, labels = embeddings(8), torch.arange(8) // 2
    hard = BatchHardTripletLoss(
        5.0, normalize=True, reduction="none"
    )  # a margin at which no hinge is 0
    c = hard.comparisons(given, labels)
    far = c.positive.squeeze(1)
    near = (
        c.negative.masked_fill(~c.keep_negative, torch.inf)
        .amin(dim=1)
        .view(4, 2)
        .amin(dim=1)
        .repeat_interleave(2)
    )
    torch.testing.assert_close(HPHNLoss(5.0, reduction="none")(given, labels), far - near + 5.0)


def test_is_at_least_the_min_form_of_lifted_structure_and_equal_with_two_of_a_class(embeddings):
    given = embeddings(12)
    for per_class, equal in ((2, True), (4, False)):
        labels = torch.arange(12) // per_class
        hardest = HPHNLoss(1.0, reduction="none")(given, labels)
        lifted = LiftedStructureLoss(1.0, form="min", reduction="none")(given, labels)
        assert (hardest >= lifted).all() and torch.allclose(hardest, lifted) == equal


def test_collapse_costs_the_margin_without_gradient():
    given = torch.ones(6, 3, requires_grad=True)
    loss = HPHNLoss(0.3)(given, torch.arange(6) // 2)
    assert loss.item() == pytest.approx(0.3)
    assert torch.autograd.grad(loss, given)[0].eq(0).all()


def test_arc_distances_of_pairs_enter_the_core_as_rows_without_partner():
    """LoOp: a row is a positive pair, its positives are those of both members, its negatives the
    arcs' distances."""
    positive, arcs = (
        torch.tensor([[0.3, 0.9, 0.4], [0.2, 0.1, 0.0]]),
        torch.tensor([[0.5, 0.2], [0.8, 0.7]]),
    )
    there = torch.tensor([[True, True, True], [True, True, False]])
    terms = HPHNLoss(0.1).core(
        Comparisons(positive, there, arcs, torch.ones_like(arcs, dtype=torch.bool))
    )
    torch.testing.assert_close(terms.sums, torch.tensor([0.9 + 0.1 - 0.2, 0.0]))
    assert terms.counts.tolist() == [1, 1]


def test_one_member_with_negatives_is_enough_and_none_forms_no_term():
    pair, there = torch.tensor([[1.0], [1.0]]), torch.tensor([[True], [True]])
    theirs = Comparisons(pair, there, torch.tensor([[0.4], [0.4]]), torch.tensor([[True], [False]]))
    c = Comparisons(pair, there, pair, ~there, partner=torch.tensor([[0], [1]]), partners=theirs)
    for loss in (HPHNLoss(0.1), LiftedStructureLoss(0.1, form="min")):
        terms = loss.core(c)
        assert terms.sums.tolist() == pytest.approx([0.7, 0]) and terms.counts.tolist() == [1, 0]


def test_an_explicit_triplet_is_seen_from_both_ends():
    given = torch.tensor([[0.0], [3.0], [4.0]])
    value = HPHNLoss(0.0, normalize=False).on_triplets(
        given, Triplets(*torch.tensor([[0], [1], [2]]))
    )
    assert value.item() == 3.0 - 1.0


def test_the_weights_of_the_chosen_pairs_multiply(embeddings, rng):
    loss, labels = HPHNLoss(5.0), torch.arange(6) // 3
    c = loss.comparisons(embeddings(6), labels)
    of_pairs = torch.rand(6, 6, generator=rng, dtype=torch.float64)
    of_pairs = of_pairs + of_pairs.T  # a pair has one weight, from whichever end it is seen
    weights = of_pairs.gather(1, c.partner), of_pairs
    found = loss.core(replace(c, positive_weights=weights[0], negative_weights=weights[1])).sums
    expected = []
    for i in range(6):
        total = 0.0
        for j in c.partner[i].tolist():
            far = max((c.positive[a, k], weights[0][a, k]) for a in (i, j) for k in range(2))
            near = min(
                (c.negative[a, k], weights[1][a, k])
                for a in (i, j)
                for k in range(6)
                if labels[k] != labels[i]
            )
            total += (far[0] + 5.0 - near[0]) * far[1] * near[1]
        expected.append(total)
    torch.testing.assert_close(found, torch.stack(expected))
