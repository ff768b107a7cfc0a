"""Several labels for each row: a positive shares at least one, everything else is a negative."""

import inspect

import pytest
import torch
from torch.nn.functional import one_hot

from vicinal.errors import DataError
from vicinal.losses import (
    LOSSES,
    ContrastiveLoss,
    CrossBatchMemory,
    HierarchicalTripletLoss,
    InfoNCELoss,
    Loss,
    MarginLoss,
    MultiSimilarityLoss,
    ProxyNCALoss,
    SmoothAPLoss,
    TripletLoss,
)
from vicinal.tuples import positives, same_class

SEVERAL = torch.tensor(
    [[1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]]
)
PAIR_LOSSES = [
    name
    for name, kind in LOSSES.items()
    if not {"classes", "dim"} & set(inspect.signature(kind).parameters) and kind().multi_label
]


@pytest.fixture
def embeddings(rng):
    return torch.randn(6, 3, generator=rng, dtype=torch.float64)


def test_a_positive_shares_a_label_and_a_row_without_labels_forms_nothing(embeddings):
    c = ContrastiveLoss().comparisons(embeddings, SEVERAL.bool())
    shared = [[1, 2], [0], [0, 3], [2, 4], [3], []]
    columns, keep = positives(SEVERAL.bool())
    assert [row[there].tolist() for row, there in zip(columns, keep, strict=True)] == shared
    others = [[3, 4, 5], [2, 3, 4, 5], [1, 4, 5], [0, 1, 5], [0, 1, 2, 5], []]
    assert [row.nonzero().flatten().tolist() for row in c.keep_negative] == others
    assert torch.equal(c.keep_positive, keep)


def test_contrastive_loss_by_hand(embeddings):
    terms = []
    for i in range(5):
        for k in range(6):
            apart = float((embeddings[i] - embeddings[k]).norm())
            if i != k:
                shares = bool((SEVERAL[i] & SEVERAL[k]).any())
                terms.append(apart**2 / 2 if shares else max(0, 1 - apart) ** 2 / 2)
    assert ContrastiveLoss()(embeddings, SEVERAL).item() == pytest.approx(sum(terms) / len(terms))


@pytest.mark.parametrize("name", PAIR_LOSSES)
def test_one_label_each_is_the_loss_of_classes(name, rng):
    embeddings, labels = (
        torch.randn(12, 3, generator=rng, dtype=torch.float64),
        torch.arange(12) % 5,
    )
    loss, several = LOSSES[name](), one_hot(labels)
    torch.testing.assert_close(loss(embeddings, several), loss(embeddings, labels))
    own = torch.tensor([2, 7])
    found = loss(embeddings[own], several[own], embeddings, several.float(), own)
    torch.testing.assert_close(found, loss(embeddings[own], labels[own], embeddings, labels, own))


def test_every_pair_loss_takes_several_labels():
    assert len(PAIR_LOSSES) > 20 and {"multi_similarity", "info_nce", "smooth_ap", "triplet"} < set(
        PAIR_LOSSES
    )


@pytest.mark.parametrize(
    "loss", [MultiSimilarityLoss(), TripletLoss(), InfoNCELoss(), SmoothAPLoss()], ids=repr
)
def test_value_and_gradient_are_finite(loss, embeddings):
    embeddings.requires_grad_()
    for several in (SEVERAL, SEVERAL * 0, SEVERAL * 0 + 1):
        value = loss(embeddings, several)
        assert value.isfinite() and torch.autograd.grad(value, embeddings)[0].isfinite().all()


def test_the_anchor_is_left_out_of_a_reference(embeddings):
    own = torch.tensor([0, 3])
    assert not same_class(SEVERAL[own].bool(), SEVERAL.bool(), own)[[0, 1], own].any()


def test_what_has_no_meaning_is_rejected(embeddings):
    forward = inspect.unwrap(
        Loss.forward
    )  # without the shape checks of the tests, which would come first
    for loss in (ProxyNCALoss(4, 3), TripletLoss(blocks=True), MarginLoss(class_boundaries=4)):
        with pytest.raises(DataError, match=r"labels \[n\], got \[6, 3\] and \[6, 4\]"):
            forward(loss, embeddings, SEVERAL)
    with pytest.raises(DataError, match="zeros and ones"):
        forward(ContrastiveLoss(), embeddings, 2 * SEVERAL)
    with pytest.raises(DataError, match="reference rows are"):
        forward(ContrastiveLoss(), embeddings, SEVERAL, embeddings, SEVERAL[:, 0])
    memory = CrossBatchMemory(ContrastiveLoss(), size=8, dim=3)
    with pytest.raises(DataError, match=r"labels \[n\], got \[6, 3\] and \[6, 4\]"):
        inspect.unwrap(CrossBatchMemory.forward)(memory, embeddings, SEVERAL)
    assert HierarchicalTripletLoss().multi_label and not MarginLoss(class_boundaries=4).multi_label
