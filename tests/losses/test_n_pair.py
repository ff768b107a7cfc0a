"""NPairLoss against Sohn's sum, written out one tuple at a time."""

import inspect
import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from vicinal.errors import ConfigError, DataError
from vicinal.losses import NPairLoss
from vicinal.tuples import Triplets

LABELS = {
    "two each": [0, 1, 2, 0, 1, 2],
    "uneven": [0, 1, 1, 2, 2, 2, 3],
    "one class": [0, 0],
    "none alike": [0, 1],
}


def by_hand(loss, anchors, labels, others, other_labels, own):
    """The formula as printed: no masks, no batching, no log-sum-exp trick."""

    def similarity(x, y):
        if loss.normalize:
            x, y = x / x.norm(), y / y.norm()
        if loss.similarity == "dot":
            return float(x @ y)
        square = float(((x - y) ** 2).sum())
        return -square if loss.squared else -math.sqrt(square)

    tuples = []
    for i, anchor in enumerate(anchors):
        scores = [similarity(anchor, other) for other in others]
        for p, positive in enumerate(other_labels):
            if positive != labels[i] or (own and p == i):
                continue
            against = [
                math.exp(s - scores[p])
                for s, label in zip(scores, other_labels, strict=True)
                if label != labels[i]
            ]
            if against:
                lengths = float(anchor @ anchor) + sum(float(o @ o) for o in others) / len(others)
                tuples.append(math.log1p(sum(against)) + loss.l2 / 4 * lengths)
    return sum(tuples) / max(1, len(tuples))


@pytest.fixture
def embeddings(rng):
    return lambda n, dim=4: torch.randn(n, dim, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"l2": 0.5},
        {"similarity": "distance"},
        {"similarity": "distance", "squared": True},
        {"normalize": True},
    ],
)
def test_equals_the_printed_sum(labels, options, embeddings):
    given, loss = embeddings(len(labels)), NPairLoss(**options)
    expected = by_hand(loss, given, labels, given, labels, own=True)
    assert loss(given, torch.tensor(labels)).item() == pytest.approx(expected)
    blocks = NPairLoss(blocks=True, **options)
    if len(labels) % 2 == 0:
        half = len(labels) // 2
        expected = by_hand(
            blocks, given[:half], labels[:half], given[half:], labels[half:], own=False
        )
        assert blocks(given, torch.tensor(labels)).item() == pytest.approx(expected)


def test_blocks_are_the_cross_entropy_of_the_matrix_of_inner_products(embeddings):
    given, labels = embeddings(16), torch.arange(8).repeat(2)
    anchors, positives = given.chunk(2)
    expected = cross_entropy(anchors @ positives.T, torch.arange(8))
    torch.testing.assert_close(NPairLoss(l2=0.0, blocks=True)(given, labels), expected)
    lengths = (anchors.square().sum(dim=1) + positives.square().sum(dim=1)).mean()
    torch.testing.assert_close(
        NPairLoss(l2=0.02, blocks=True)(given, labels), expected + 0.02 / 4 * lengths
    )


def test_blocks_equal_the_anchors_against_the_positives_as_reference(embeddings):
    given, labels = embeddings(10), torch.arange(5).repeat(2)
    split = NPairLoss()(given[:5], labels[:5], given[5:], labels[5:])
    torch.testing.assert_close(NPairLoss(blocks=True)(given, labels), split)


def test_blocks_equal_the_peer(embeddings):
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    from pytorch_metric_learning.distances import DotProductSimilarity

    given, labels = embeddings(16).requires_grad_(), torch.arange(8).repeat(2)
    peer = losses.NPairsLoss(distance=DotProductSimilarity(normalize_embeddings=False))
    ours, theirs = NPairLoss(l2=0.0, blocks=True)(given, labels), peer(given, labels)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(value, given)[0] for value in (ours, theirs)))


@pytest.mark.parametrize("similarity", ["dot", "distance"])
def test_collapse_costs_the_logarithm_of_the_number_of_classes(similarity):
    given, labels = torch.ones(10, 3), torch.arange(5).repeat(2)
    assert NPairLoss(similarity, l2=0.0, blocks=True)(given, labels).item() == pytest.approx(
        math.log(5)
    )


def test_the_distance_form_does_not_see_where_the_origin_is_but_the_inner_product_does(embeddings):
    given, labels, shift = embeddings(8), torch.arange(4).repeat(2), embeddings(1)
    distance, dot = NPairLoss("distance", l2=0.0), NPairLoss("dot", l2=0.0)
    torch.testing.assert_close(distance(given + shift, labels), distance(given, labels))
    assert not torch.isclose(dot(given + shift, labels), dot(given, labels))


def test_synthetic_negatives_of_each_anchor_enter_through_the_core(embeddings):
    """As HDML makes them; negatives that are the real ones give the real loss, the length term
    included."""
    from dataclasses import replace

    given, labels, loss = embeddings(10), torch.arange(5).repeat(2), NPairLoss(l2=0.1, blocks=True)
    anchors, positives = given.chunk(2)
    own = positives.expand(5, 5, 4)
    c = loss.comparisons(given, labels)
    synthetic = replace(c, negative=loss.distance(anchors, own), penalty=loss.penalty(anchors, own))
    torch.testing.assert_close(loss.core(synthetic), loss.core(c))


def test_stays_finite_where_a_plain_exponential_overflows(embeddings):
    given = (1e4 * embeddings(8)).float().requires_grad_()
    loss = NPairLoss()(given, torch.arange(4).repeat(2))
    assert loss.isfinite() and torch.autograd.grad(loss, given)[0].isfinite().all()


def test_errors_carry_names_and_numbers(embeddings):
    with pytest.raises(DataError, match="got 7 rows"):
        NPairLoss(blocks=True)(embeddings(7), torch.arange(7))
    with pytest.raises(ConfigError, match="did you mean 'distance'"):
        inspect.unwrap(NPairLoss.__init__)(NPairLoss(), "distances")


def test_explicit_triplets_cost_the_lengths_of_their_rows(embeddings):
    x = embeddings(3)
    triplets = Triplets(*torch.tensor([[0], [1], [2]]))
    anchor, positive, negative = (float(row @ row) for row in x)
    expected = 0.5 / 4 * (anchor + (positive + negative) / 2)
    of_l2 = [NPairLoss(l2=l2).on_triplets(x, triplets).item() for l2 in (0.5, 0.0)]
    assert of_l2[0] - of_l2[1] == pytest.approx(expected)
