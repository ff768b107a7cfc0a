"""The variants that ANML's tables compare: what each reads, and what is left when a part is taken away."""

from typing import get_args

import pytest
import torch

from vicinal.errors import DataError
from vicinal.losses import ImprovedProxyNCALoss
from vicinal.losses.neighborhood_variants import Neighborhoods, Renumbered, Variant


def gradient(loss, embeddings, labels):
    return torch.autograd.grad(loss(embeddings, labels), embeddings)[0]


def test_multi_similarity_is_what_is_left_when_all_of_danml_is_taken_away(rng):
    embeddings = torch.randn(12, 4, generator=rng, dtype=torch.float64, requires_grad=True)
    labels, anml = torch.arange(12) // 3, Neighborhoods(outer="identity", sigma=0.0)
    ours, theirs = (anml.loss(variant, labels.tolist(), 4, 0) for variant in ("danml", "multi_similarity"))
    torch.testing.assert_close(
        gradient(ours, embeddings, labels), gradient(theirs, embeddings, labels), rtol=1e-9, atol=1e-12
    )


def test_the_improved_losses_fall_back_to_their_originals(rng):
    embeddings = torch.randn(12, 4, generator=rng, dtype=torch.float64, requires_grad=True)
    labels = torch.arange(12) // 3
    anml = Neighborhoods(alpha=1.0, beta=1.0, lambda1=1e3, sigma=-2e3, gamma=1.0)  # λ1 → ∞, λ2 → -∞
    for name in ("lifted", "n_pair"):
        original, improved = (anml.loss(variant, labels.tolist(), 4, 0) for variant in (name, f"improved_{name}"))
        torch.testing.assert_close(original(embeddings, labels), improved(embeddings, labels))


@pytest.mark.parametrize("variant", get_args(Variant))
def test_held_out_classes_have_no_proxies(variant, rng):
    embeddings, labels = torch.randn(6, 4, generator=rng), torch.tensor([9, 9, 2, 2, 5, 5])
    loss = Neighborhoods().loss(variant, labels.tolist(), 4, 0)
    consecutive = Neighborhoods().loss(variant, [0, 1, 2], 4, 0)
    torch.testing.assert_close(loss(embeddings, labels), consecutive(embeddings, torch.tensor([2, 2, 0, 0, 1, 1])))
    assert all(len(parameter) == 3 for parameter in loss.parameters())


def test_a_class_without_a_proxy_is_refused():
    loss = Renumbered(ImprovedProxyNCALoss(2, 3), [4, 7])
    with pytest.raises(DataError, match="labels from -1"):
        loss(torch.ones(2, 3), torch.tensor([4, 5]))
