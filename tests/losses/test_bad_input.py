"""Input that cannot be meant is rejected with the numbers, and extremes do not make a loss
constant."""

import inspect

import pytest
import torch

from vicinal.errors import ConfigError, DataError
from vicinal.losses import (
    CircleLoss,
    CrossBatchMemory,
    DiscriminativeDeepMetricLoss,
    HardExemplarLoss,
    Loss,
    MultiSimilarityLoss,
    NestedLoss,
    ProxyAnchorLoss,
    ProxyNCALoss,
    SoftTripleLoss,
    SupervisedContrastiveLoss,
    TripletLoss,
)
from vicinal.losses.loss import Comparisons
from vicinal.methods.loop import NegativesBetweenPairs, OptimalNegatives
from vicinal.tuples import Triplets

LABELS = torch.arange(12) // 3


@pytest.mark.parametrize(
    "build",
    [
        lambda: SupervisedContrastiveLoss(0.0),
        lambda: MultiSimilarityLoss(alpha=0.0),
        lambda: MultiSimilarityLoss(beta=float("nan")),
        lambda: ProxyNCALoss(3, 4, temperature=0.0),
        lambda: ProxyAnchorLoss(3, 4, alpha=-1.0),
        lambda: SoftTripleLoss(3, 4, gamma=0.0),
        lambda: CircleLoss(gamma=0.0),
        lambda: DiscriminativeDeepMetricLoss(beta=-1.0),
    ],
)
def test_an_argument_that_makes_a_loss_nan_or_negative_is_rejected(build):
    with pytest.raises(ConfigError, match=r"Loss\.\w+ (must be above 0|is a finite number), got"):
        build()


def test_fewer_labels_than_rows_are_rejected_by_loop(embeddings):
    compare = inspect.unwrap(
        NegativesBetweenPairs.comparisons
    )  # without the tests' shape checks, which come first
    with pytest.raises(DataError, match=r"\[12, 3\] and \[5\]"):
        compare(OptimalNegatives(TripletLoss(squared=False)), embeddings(12), LABELS[:5])


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
        on_triplets(TripletLoss(), embeddings(12), Triplets(*map(torch.tensor, triplets)))


def test_triplets_are_rejected_by_a_loss_with_proxies(embeddings):
    triplets = Triplets(*torch.tensor([[0], [1], [5]]))
    for loss in (ProxyNCALoss(4, 3), ProxyAnchorLoss(4, 3), SoftTripleLoss(4, 3)):
        with pytest.raises(ConfigError, match="triplets have no meaning"):
            loss.on_triplets(embeddings(12), triplets)


def test_a_class_of_one_row_is_a_negative_of_loop(embeddings):
    rows = embeddings(5).requires_grad_()
    loss = OptimalNegatives(TripletLoss(5.0, squared=False))
    (gradient,) = torch.autograd.grad(loss(rows, torch.tensor([0, 0, 1, 1, 2])), rows)
    assert (gradient.norm(dim=1) > 1e-6).all()


@pytest.mark.parametrize("name", ["queries", "gallery", "labels", "errors", "fits"])
def test_pairs_of_views_of_other_shapes_are_rejected(name, embeddings):
    rows = embeddings(6)
    given = {
        "queries": rows,
        "gallery": rows,
        "labels": LABELS[:6],
        "errors": torch.zeros(6),
        "fits": LABELS[:6] >= 0,
    }
    given[name] = given[name][:, None] if name == "errors" else given[name][:5]
    with pytest.raises(DataError, match=f"`{name}`|one label for each"):
        inspect.unwrap(HardExemplarLoss.with_orientation)(HardExemplarLoss(), **given)


def test_a_batch_of_nan_is_heard_once_and_not_remembered(embeddings):
    memory = CrossBatchMemory(MultiSimilarityLoss(), size=24, dim=3)
    memory(embeddings(12), LABELS)
    assert memory(torch.full((12, 3), torch.nan), LABELS).isnan()
    for _ in range(2):
        assert memory(embeddings(12), LABELS).isfinite()
    fresh = CrossBatchMemory(MultiSimilarityLoss(), size=24, dim=3)
    fresh(torch.full((12, 3), torch.nan), LABELS)
    assert fresh(embeddings(12), LABELS).isfinite()


@pytest.mark.parametrize("length", [1e20, 1e-24, 1e-40])
def test_rows_of_any_length_have_a_direction(length, embeddings):
    rows = embeddings(12).float()
    expected = TripletLoss()(rows, LABELS)
    scaled = (rows.double() * length).float().requires_grad_()
    value = TripletLoss()(scaled, LABELS)
    (gradient,) = torch.autograd.grad(value, scaled)
    tolerance = 1e-2 if length < 1e-30 else 1e-5  # below 1e-38 rows themselves have few digits
    torch.testing.assert_close(value, expected, rtol=tolerance, atol=0)
    if length > 1e-30:
        assert gradient.isfinite().all() and (gradient * length).abs().max() > 1e-3


def test_nothing_is_compared_where_the_core_gets_nothing():
    nothing = torch.zeros(2, 0)
    found = Comparisons(nothing, nothing.bool(), nothing, nothing.bool())
    assert TripletLoss().core(found).sums.eq(0).all()


@pytest.fixture
def embeddings(rng):
    return lambda n: torch.randn(n, 3, generator=rng, dtype=torch.float64)


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
    rows = embeddings(12).float()
    with pytest.raises(DataError, match=r"labels must be integers, got torch\.float32"):
        forward(loss, rows, LABELS / 4)
    with pytest.raises(DataError, match=r"floating-point numbers, got torch\.int64"):
        forward(loss, rows.long(), LABELS)
    with pytest.raises(DataError, match="must be a tensor, got list"):
        forward(loss, rows.tolist(), LABELS)


def test_reference_labels_that_are_no_integers_are_rejected(embeddings):
    with pytest.raises(DataError, match="labels must be integers"):
        inspect.unwrap(Loss.forward)(
            TripletLoss(), embeddings(12), LABELS, embeddings(12), LABELS / 4
        )
