"""Which arguments and inputs are taken, what has no meaning is rejected with the numbers, and terms
to numbers."""

import inspect
import math

import pytest
import torch
from torch.nn.functional import one_hot
from torch.testing import assert_close

from vicinal.errors import ConfigError, DataError
from vicinal.losses import (
    LOSSES,
    AdaptiveNeighborhoodLoss,
    AngularLoss,
    ArcFaceLoss,
    BatchAllTripletLoss,
    ContrastiveLoss,
    CrossBatchMemory,
    DiscriminativeDeepMetricLoss,
    HierarchicalTripletLoss,
    LiftedStructureLoss,
    Loss,
    MarginLoss,
    MultiSimilarityLoss,
    NestedLoss,
    NPairLoss,
    ProxyNCALoss,
    SemiHardTripletLoss,
    SupervisedContrastiveLoss,
    TripletLoss,
)
from vicinal.tuples import Triplets, positives, same_class

LABELS = torch.arange(12) // 3
POSITIVE = r"(must be above 0|is a finite number)"


@pytest.fixture
def embeddings(rng):
    return torch.randn(12, 3, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (SupervisedContrastiveLoss, {"temperature": 0.0}, POSITIVE),
        (MultiSimilarityLoss, {"beta": math.nan}, POSITIVE),
        (DiscriminativeDeepMetricLoss, {"tau": 1.0}, r"tau must be above 1, got 1\.0"),
        (ArcFaceLoss, {"margin": -0.1}, "margin"),
        (AngularLoss, {"angle": 90.0}, r"below 90, got 90\.0"),
        (AdaptiveNeighborhoodLoss, {"alpha": math.inf}, "alpha is a finite number, got inf"),
        (AdaptiveNeighborhoodLoss, {"k1": 0}, "k1 counts the nearest"),
        (LiftedStructureLoss, {"form": "smoth"}, "did you mean 'smooth'"),
        (NPairLoss, {"similarity": "distances"}, "did you mean 'distance'"),
        (SemiHardTripletLoss, {"rule": "nearest_or_farthest"}, "'nearest_else_farthest'"),
        (BatchAllTripletLoss, {"average": "non-zero"}, "did you mean 'nonzero'"),
        (ContrastiveLoss, {"reduction": "nonee"}, "did you mean 'none'"),
    ],
)
def test_an_argument_that_cannot_be_meant_is_rejected(kind, arguments, message):
    sizes = {"classes": 3, "dim": 4} if "classes" in inspect.signature(kind).parameters else {}
    init = inspect.unwrap(kind.__init__)  # without the tests' type checks, which would come first
    with pytest.raises(ConfigError, match=message):
        init(kind(**sizes), **sizes, **arguments)


@pytest.mark.parametrize(
    "build",
    [
        TripletLoss,
        lambda: CrossBatchMemory(TripletLoss(), size=24, dim=3),
        lambda: NestedLoss([TripletLoss(), TripletLoss()], [2, 3]),
    ],
)
def test_input_that_is_not_made_of_vectors_and_classes_is_rejected(build, embeddings):
    loss = build()
    forward = inspect.unwrap(type(loss).forward)
    for given, message in (
        ((embeddings, LABELS / 4), r"labels must be integers, got torch\.float32"),
        ((embeddings, LABELS * math.nan), "labels must be integers"),
        ((embeddings.long(), LABELS), r"floating-point numbers, got torch\.int64"),
        ((embeddings.tolist(), LABELS), "must be a tensor, got list"),
    ):
        with pytest.raises(DataError, match=message):
            forward(loss, *given)


@pytest.mark.parametrize(
    ("triplets", "message"),
    [
        (([0, 1], [1, 0], [5]), r"as many anchors, positives and negatives, got 2, 2 and 1"),
        (([0, -1], [1, 0], [5, 6]), r"from 0 to 11, got -1"),
        (([0, 1], [1, 12], [5, 6]), r"from 0 to 11, got 12"),
    ],
)
def test_triplets_that_name_no_rows_are_rejected(triplets, message, embeddings):
    on_triplets = inspect.unwrap(Loss.on_triplets)
    with pytest.raises(DataError, match=message):
        on_triplets(TripletLoss(), embeddings, Triplets(*map(torch.tensor, triplets)))


SEVERAL = torch.tensor(
    [[1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]]
)
SHARED = [[1, 2], [0], [0, 3], [2, 4], [3], []]
PAIR_LOSSES = [
    name
    for name, kind in LOSSES.items()
    if "classes" not in inspect.signature(kind).parameters and kind().multi_label
]


def test_a_positive_shares_a_label_and_a_row_without_labels_forms_nothing(embeddings):
    rows = embeddings[:6]
    c = ContrastiveLoss().comparisons(rows, SEVERAL.bool())
    columns, keep = positives(SEVERAL.bool())
    assert torch.equal(c.keep_positive, keep)
    listed = [row[there].tolist() for row, there in zip(columns, keep, strict=True)]
    assert listed == SHARED
    others = [[3, 4, 5], [2, 3, 4, 5], [1, 4, 5], [0, 1, 5], [0, 1, 2, 5], []]
    assert [row.nonzero().flatten().tolist() for row in c.keep_negative] == others
    apart = torch.cdist(rows, rows)
    pull = [apart[i, j] ** 2 / 2 for i, near in enumerate(SHARED) for j in near]
    push = [(1 - apart[i, k]).relu() ** 2 / 2 for i, far in enumerate(others) for k in far]
    expected = torch.stack(pull + push).mean()
    assert_close(ContrastiveLoss()(rows, SEVERAL), expected)
    own = torch.tensor([0, 3])  # are left out of a reference
    assert not same_class(SEVERAL[own].bool(), SEVERAL.bool(), own)[[0, 1], own].any()


@pytest.mark.parametrize("name", PAIR_LOSSES)
def test_one_label_each_is_the_loss_of_classes(name, embeddings):
    labels = torch.arange(12) % 5
    loss = LOSSES[name]()
    several = one_hot(labels)
    assert_close(loss(embeddings, several), loss(embeddings, labels))
    own = torch.tensor([2, 7])
    found = loss(embeddings[own], several[own], embeddings, several.float(), own)
    assert_close(found, loss(embeddings[own], labels[own], embeddings, labels, own))


def test_every_pair_loss_takes_several_labels():
    assert len(PAIR_LOSSES) > 20
    assert {"multi_similarity", "info_nce", "smooth_ap", "triplet"} < {*PAIR_LOSSES}
    assert HierarchicalTripletLoss().multi_label and not MarginLoss(class_boundaries=4).multi_label


def test_several_labels_without_meaning_are_rejected(embeddings):
    rows = embeddings[:6]
    single = r"labels \[n\], got \[6, 3\] and \[6, 4\]"
    for loss, given, message in (
        (ProxyNCALoss(4, 3), (rows, SEVERAL), single),
        (TripletLoss(blocks=True), (rows, SEVERAL), single),
        (MarginLoss(class_boundaries=4), (rows, SEVERAL), single),
        (CrossBatchMemory(ContrastiveLoss(), size=8, dim=3), (rows, SEVERAL), single),
        (ContrastiveLoss(), (rows, 2 * SEVERAL), "zeros and ones"),
        (ContrastiveLoss(), (rows, SEVERAL, rows, SEVERAL[:, 0]), "reference rows are"),
    ):
        with pytest.raises(DataError, match=message):
            inspect.unwrap(type(loss).forward)(loss, *given)


# -- terms to numbers
