"""What the losses with proxies share: where proxies begin, which labels they take, how they
learn."""

import pytest
import torch

from vicinal.errors import ConfigError, DataError
from vicinal.losses import (
    ImprovedProxyNCALoss,
    NormalizedSoftmaxLoss,
    ProxyAnchorLoss,
    ProxyNCALoss,
    SoftTripleLoss,
)
from vicinal.tuples import Triplets

KINDS = [ProxyNCALoss, ProxyAnchorLoss, SoftTripleLoss]
ALL = [*KINDS, ImprovedProxyNCALoss, NormalizedSoftmaxLoss]


@pytest.mark.parametrize("kind", KINDS)
def test_proxies_follow_from_the_seed_and_have_length_1(kind):
    first, again, other = (kind(5, 4, seed=seed).proxies for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)
    torch.testing.assert_close(first.norm(dim=-1), torch.ones(first.shape[:-1]))
    torch.manual_seed(0)
    before = torch.get_rng_state()
    kind(5, 4)
    assert torch.equal(torch.get_rng_state(), before)  # nobody else's draws change


@pytest.mark.parametrize("kind", KINDS)
def test_proxies_and_embeddings_learn_together(kind, rng):
    """A few steps on fixed classes: the loss falls, and each sample comes to its own proxy."""
    loss, labels = kind(4, 8, seed=0), torch.arange(24) % 4
    embeddings = torch.randn(24, 8, generator=rng).requires_grad_()
    optimizer = torch.optim.Adam([embeddings, *loss.parameters()], lr=0.1)
    first = loss(embeddings, labels).item()
    for _ in range(50):
        optimizer.zero_grad()
        value = loss(embeddings, labels)
        value.backward()
        optimizer.step()
    assert value.item() < first - 0.3
    proxies = torch.nn.functional.normalize(loss.proxies.detach(), dim=-1).view(4, -1, 8)
    nearest = torch.einsum("nd,ckd->nck", embeddings.detach(), proxies).amax(dim=2)
    assert torch.equal(nearest.argmax(dim=1), labels)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("labels", [[0, 5], [-1, 0], [7, 9]])
def test_labels_out_of_range_are_rejected_with_the_numbers(kind, labels):
    with pytest.raises(
        DataError, match=f"from 0 to 4, got label {next(y for y in labels if not 0 <= y < 5)}"
    ):
        kind(5, 3)(torch.ones(2, 3), torch.tensor(labels))


@pytest.mark.parametrize("kind", KINDS)
def test_embeddings_of_another_width_are_rejected_with_both(kind):
    with pytest.raises(
        DataError, match="proxies of 3 dimensions cannot be compared with embeddings of 4"
    ):
        kind(5, 3)(torch.ones(2, 4), torch.tensor([0, 1]))


@pytest.mark.parametrize("kind", KINDS)
def test_proxies_of_a_state_are_restored(kind, rng):
    first, second = kind(5, 3, seed=1), kind(5, 3, seed=2)
    second.load_state_dict(first.state_dict())
    given = torch.randn(6, 3, generator=rng), torch.arange(6) % 5
    assert torch.equal(first(*given), second(*given))


def test_no_class_and_no_dimension_are_rejected():
    for shape in ((0, 3), (3, 0)):
        with pytest.raises(ConfigError, match="must be at least 1, got 0"):
            ProxyNCALoss(*shape)


def test_each_row_has_one_column_of_its_own():
    compared = ProxyNCALoss(3, 4).comparisons(
        torch.ones(2, 4), torch.tensor([2, 0], dtype=torch.uint8)
    )
    assert compared.keep_positive.all() and compared.positive.shape == (2, 1)
    assert compared.keep_negative.tolist() == [[True, True, False], [False, True, True]]


@pytest.mark.parametrize("kind", ALL)
def test_known_labels_are_numbered_in_order(kind, rng):
    embeddings, labels, known = torch.randn(9, 4, generator=rng), torch.arange(9) % 3, (3, 10, 700)
    plain, gapped = kind(3, 4, seed=1), kind(3, 4, known=known, seed=1)
    assert torch.equal(gapped(embeddings, torch.tensor(known)[labels]), plain(embeddings, labels))
    assert list(gapped.state_dict()) == ["proxies"]
    with pytest.raises(DataError, match="got label 4"):
        gapped(embeddings[:1], torch.tensor([4]))
    with pytest.raises(ConfigError, match="increasing order"):
        kind(3, 4, known=(3, 3, 9))


@pytest.mark.parametrize("kind", ALL)
def test_triplets_and_reference_rows_are_rejected(kind):
    with pytest.raises(ConfigError, match="triplets have no meaning"):
        kind(3, 4).on_triplets(torch.ones(3, 4), Triplets(*torch.tensor([[0], [1], [2]])))
    with pytest.raises(ConfigError, match="`reference` rows have no meaning"):
        kind(3, 4)(torch.ones(2, 4), torch.arange(2), torch.ones(2, 4), torch.arange(2))
