"""LoOp's losses against loops over pairs of pairs, and against the losses that they come from."""

import itertools
import math

import pytest
import torch
from tests.arcs import distances
from tests.contracts.test_losses import DEGENERATE
from tests.contracts.test_losses import LABELS as IN_BLOCKS
from torch.autograd import grad, gradcheck
from torch.nn.functional import normalize
from torch.testing import assert_close

from vicinal.geometry import arcs_among
from vicinal.losses import (
    AdaptiveNeighborhoodLoss,
    BatchAllTripletLoss,
    BatchHardTripletLoss,
    HPHNLoss,
    LiftedStructureLoss,
    MultiSimilarityLoss,
    NPairLoss,
    TripletLoss,
)
from vicinal.methods.loop import ExpandedNegatives, OptimalNegatives, positive_pairs

HINGES = {
    "triplet": TripletLoss(0.3, squared=False),
    "squared triplet": TripletLoss(0.3),
    "batch-hard": BatchHardTripletLoss(0.3, normalize=True),
    "HPHN": HPHNLoss(0.3),
    "lifted": LiftedStructureLoss(0.3, form="min"),
    "lifted by cosine": LiftedStructureLoss(0.3, form="min", similarity="cosine"),
}
LOSSES = HINGES | {
    "batch-all": BatchAllTripletLoss(0.3, normalize=True),
    "original lifted": LiftedStructureLoss(),
    "N-pair": NPairLoss(),
    "N-pair on the sphere": NPairLoss(normalize=True),
    "N-pair by distance": NPairLoss("distance", normalize=True),
    "multi-similarity": MultiSimilarityLoss(),
    "DANML": AdaptiveNeighborhoodLoss(),
    "DANML by distance": AdaptiveNeighborhoodLoss(similarity="distance", lambda1=0.8, lambda2=1.2),
}
UNEVEN = [0, 1, 1, 2, 2, 2, 3, 4, 4, 4, 4, 5, 5, 5, 5, 5]


@pytest.fixture
def embeddings(rng):
    return lambda n, dim=4: torch.randn(n, dim, generator=rng, dtype=torch.float64)


def published(loss, **settings):
    return OptimalNegatives(loss, overlap="arcs", anchors="pairs", **settings)


def of_samples(loss, **settings):
    return OptimalNegatives(loss, anchors="samples", **settings)


@pytest.mark.parametrize(
    "labels", [UNEVEN, [3, 1, 3, 1], [0, 1, 2], [0] * 6, list(range(3)) * 5, []], ids=str
)
def test_every_two_rows_of_a_class_are_a_pair_once(labels):
    first, second, there = positive_pairs(torch.tensor(labels, dtype=torch.long), "all")
    found = zip(first[there].tolist(), second[there].tolist(), strict=True)
    every = itertools.combinations(range(len(labels)), 2)
    pairs = [[i, j] for i, j in every if labels[i] == labels[j]]
    alone = [[i, i] for i, label in enumerate(labels) if labels.count(label) == 1]
    assert sorted(map(sorted, found)) == sorted(pairs + alone if pairs else [])


def test_consecutive_rows_are_pairs_if_of_one_class():
    first, second, there = positive_pairs(torch.tensor([4, 4, 4, 4, 1, 2]), "consecutive")
    assert (
        first.tolist() == [0, 2, 4]
        and second.tolist() == [1, 3, 5]
        and there.tolist() == [True, True, False]
    )


@pytest.mark.parametrize(
    "loss", [HPHNLoss(), MultiSimilarityLoss()], ids=["distances", "similarities"]
)
def test_samples_stand_for_arcs_that_are_closer_than_their_ends(loss):
    """Two short arcs far apart keep their nearest points; a long arc that crosses one of them does
    not."""
    given = torch.tensor(
        [[1.0, 0.1, 0], [1, -0.1, 0], [0.1, 1, 0], [-0.1, 1, 0], [1, 0, 1], [1, 0, -1]],
        dtype=torch.float64,
    )
    given = normalize(given, dim=1)
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    arcs, found = (
        OptimalNegatives(loss, pairing="consecutive", overlap=overlap, anchors="pairs")
        .comparisons(given, labels)
        .negative
        for overlap in ("arcs", "samples")
    )
    assert torch.equal(found[0, 1], arcs[0, 1]), "short and apart"
    ends = loss.distance(given)[:2, 4:]
    assert_close(found[0, 2], ends.max() if loss.distance.larger_is_closer else ends.min())
    assert torch.equal(found, found.T) and found[0, 2] != arcs[0, 2]


def arc_distance(x1, x2, y1, y2):
    return distances(*(row[None] for row in (x1, x2, y1, y2))).item()


def by_hand(name, loss, x, labels):
    """The printed sums over pairs (i, j) and (k, l)."""
    unit = normalize(x, dim=1)
    n = range(len(labels))
    plain = lambda i, j: math.dist(unit[i].tolist(), unit[j].tolist())  # noqa: E731
    terms = []
    for i, j in itertools.combinations(n, 2):
        if labels[i] != labels[j]:
            continue
        others = [
            arc_distance(unit[i], unit[j], unit[k], unit[l])
            for k, l in itertools.combinations_with_replacement(n, 2)
            if labels[k] == labels[l] != labels[i]
            and (k != l or list(labels).count(labels[k]) == 1)
        ]
        if not others:
            continue
        if name == "triplet":
            terms += [max(0.0, plain(i, j) - other + loss.margin) for other in others]
        elif name == "lifted":
            terms.append(max(0.0, plain(i, j) + loss.margin - min(others)))
        else:
            far = max(plain(a, k) for a in (i, j) for k in n if labels[k] == labels[a])
            terms.append(max(0.0, far + loss.margin - min(others)))
    return sum(terms) / max(1, len(terms))


@pytest.mark.parametrize(
    "labels", [[0, 0, 1, 1], [0, 1, 1, 2, 2, 2, 0, 3], [0, 0, 0], [0, 1, 2]], ids=str
)
@pytest.mark.parametrize("name", ["triplet", "HPHN", "lifted"])
def test_equals_the_printed_sums(name, labels, embeddings):
    given = embeddings(len(labels))
    loss = HINGES[name]
    found = published(loss)(given, torch.tensor(labels)).item()
    assert found == pytest.approx(by_hand(name, loss, given, labels), abs=1e-7)


@pytest.mark.parametrize("loss", HINGES.values(), ids=HINGES)
def test_equals_its_baseline_where_all_of_a_class_agree(loss, embeddings):
    labels = torch.arange(12) // 3
    given = embeddings(4)[labels]
    for kind in (published, of_samples):
        assert_close(kind(loss)(given, labels), loss(given, labels), rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("pairing", "overlap", "anchors"),
    [
        ("all", "arcs", "pairs"),
        ("consecutive", "arcs", "pairs"),
        ("all", "samples", "pairs"),
        ("all", "arcs", "samples"),
        ("all", "samples", "samples"),
    ],
)
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_gradient_is_that_of_finite_differences(loss, pairing, overlap, anchors, embeddings):
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 2, 2])
    module = OptimalNegatives(loss, pairing=pairing, overlap=overlap, anchors=anchors)
    given = embeddings(8).requires_grad_()
    assert gradcheck(lambda e: module(e, labels), (given,), fast_mode=True)


@pytest.mark.parametrize("overlap", ["arcs", "samples"])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_samples_may_be_anchors_with_their_own_positives(loss, overlap, embeddings):
    labels = torch.tensor(UNEVEN)
    given = embeddings(len(labels))
    plain = loss.comparisons(given, labels)
    found = of_samples(loss, overlap=overlap).comparisons(given, labels)
    assert torch.equal(found.positive, plain.positive) and torch.equal(
        found.keep_positive, plain.keep_positive
    )
    first, second, there = positive_pairs(labels, "all")
    assert torch.equal(found.keep_negative, (labels[:, None] != labels[first]) & there)
    distance = loss.distance
    sign = 1 if loss.distance.larger_is_closer else -1
    ends = sign * torch.maximum(sign * distance(given)[:, first], sign * distance(given)[:, second])
    harder = (sign * (found.negative - ends))[found.keep_negative]
    assert (harder > -1e-9).all(), "an arc is as near as the nearer of its ends, or nearer"
    assert (harder > 1e-3).any() == distance.normalize


@pytest.mark.parametrize("kind", [OptimalNegatives, published, of_samples, ExpandedNegatives])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_degenerate_batches_have_a_finite_value_and_gradient(loss, kind, embeddings):
    for state, degenerate in DEGENERATE.items():
        given, labels = degenerate(embeddings(12).float(), IN_BLOCKS)
        given.requires_grad_()
        value = kind(loss)(given, labels)
        (gradient,) = grad(value, given)
        assert value.isfinite() and gradient.isfinite().all(), state
        assert value.dtype == torch.float32


def test_padding_counts_in_no_mean(embeddings, monkeypatch):
    """As on a GPU, where rows that are no pair stay: a mean over anchors would otherwise be too
    small."""
    given = embeddings(8)
    labels = torch.arange(8) // 4
    for loss in LOSSES.values():
        expected = published(loss)(given, labels)
        with monkeypatch.context() as patch:
            patch.setattr(
                "vicinal.methods.loop.positive_pairs", lambda y, *_: pairs_with_padding(y)
            )
            assert_close(published(loss)(given, labels), expected)


def pairs_with_padding(labels):
    first, second, there = positive_pairs(labels, "all")
    more = torch.zeros(3, dtype=torch.long)
    return (
        torch.cat([more, first]),
        torch.cat([more + 1, second]),
        torch.cat([more.bool(), there]),
    )


def test_n_pair_without_normalization_takes_the_largest_of_four_inner_products(embeddings):
    given = embeddings(4)
    labels = torch.tensor([0, 0, 1, 1])
    strongest = (given[:2] @ given[2:].T).max()
    own = torch.stack([given[0] @ given[1], given[2] @ given[3]])
    expected = torch.log1p(torch.exp(strongest - own)).mean()
    assert_close(published(NPairLoss(l2=0.0))(given, labels), expected)


def test_multi_similarity_sees_the_positives_of_both_members_once(embeddings):
    loss = MultiSimilarityLoss(epsilon=None)
    labels = torch.tensor([0, 0, 0, 1, 1])
    given = embeddings(5)
    c = published(loss, pairing="all").comparisons(given, labels)
    assert sorted(c.keep_positive.sum(dim=1).tolist()) == [1, 3, 3, 3], "of three: ij, ik and jk"
    first, second, *_ = positive_pairs(labels, "all")
    assert_close(c.negative, arcs_among(given, first, second))


def test_a_row_alone_in_its_class_counts_in_the_mean_as_in_the_loss_alone(embeddings):
    x = embeddings(9)
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 4])
    mean, total = (of_samples(MultiSimilarityLoss(reduction=how)) for how in ("mean", "sum"))
    assert mean(x, labels).item() == pytest.approx(total(x, labels).item() / 9)


def test_mean_over_pairs_divides_the_sum_over_pairs_of_pairs_by_the_pairs(embeddings):
    x = embeddings(8)
    labels = [0, 0, 1, 1, 2, 2, 2, 3]
    loss = TripletLoss(0.3, squared=False)
    found = published(loss, over_pairs=True)(x, torch.tensor(labels)).item()
    pairs = 1 + 1 + 3
    terms = 2 * (1 + 3 + 1) + 3 * (1 + 1 + 1)
    assert found == pytest.approx(by_hand("triplet", loss, x, labels) * terms / pairs)
