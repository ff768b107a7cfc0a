"""The share of active triplets against a count."""

import pytest
import torch
from tests.listed import triplets

from vicinal.losses import BatchAllTripletLoss, active_share, diagnostics


@pytest.mark.parametrize(("squared", "normalize"), [(False, True), (True, True), (False, False)])
@pytest.mark.parametrize("margin", [0.0, 0.2])
@pytest.mark.parametrize("at_once", [0, diagnostics.AT_ONCE])
def test_equals_a_count_of_listed_triplets(rng, monkeypatch, squared, normalize, margin, at_once):
    monkeypatch.setattr(diagnostics, "AT_ONCE", at_once)
    embeddings, labels = (
        torch.randn(15, 3, generator=rng, dtype=torch.float64),
        torch.arange(15) // 3,
    )
    rows = torch.nn.functional.normalize(embeddings) if normalize else embeddings
    distance = torch.cdist(rows, rows) ** (2 if squared else 1)
    anchor, positive, negative = triplets(labels)
    expected = (distance[anchor, negative] < distance[anchor, positive] + margin).double().mean()
    found = active_share(embeddings, labels, margin, squared=squared, normalize=normalize)
    torch.testing.assert_close(found, expected)


def test_is_what_batch_all_counts(rng):
    embeddings, labels = torch.randn(12, 3, generator=rng), torch.arange(12) // 3
    loss, every = BatchAllTripletLoss(0.2), BatchAllTripletLoss(0.2, average="all")
    active, total = (
        each.core(each.comparisons(embeddings, labels)).counts.sum() for each in (loss, every)
    )
    torch.testing.assert_close(
        active_share(embeddings, labels, 0.2, normalize=False), active / total
    )


def test_is_0_where_no_triplet_can_be_formed_and_1_where_all_have_collapsed(rng):
    embeddings = torch.randn(4, 3, generator=rng)
    for labels in (torch.zeros(4, dtype=torch.long), torch.arange(4), torch.arange(0)):
        assert active_share(embeddings[: len(labels)], labels) == 0
    assert active_share(torch.ones(4, 3), torch.tensor([0, 0, 1, 1]), 0.2) == 1


def test_passes_no_gradient_and_takes_half_precision(rng):
    embeddings = torch.randn(6, 3, generator=rng).requires_grad_()
    labels = torch.arange(6) // 2
    assert not active_share(embeddings, labels).requires_grad
    assert active_share(embeddings.bfloat16(), labels).isfinite()
