"""What the losses with proxies share: where proxies begin, which labels they take, how they
learn."""

import pytest
import torch
from torch.autograd import grad
from torch.testing import assert_close

from vicinal.errors import ConfigError, DataError
from vicinal.losses import (
    LOSSES,
    ProxyAnchorLoss,
    ProxyLoss,
    ProxyNCALoss,
    SoftTripleLoss,
    reduce,
)

ALL = [kind for kind in LOSSES.values() if issubclass(kind, ProxyLoss)]
KINDS = [ProxyNCALoss, ProxyAnchorLoss, SoftTripleLoss]  # one of each shape


@pytest.mark.parametrize("kind", KINDS)
def test_proxies_follow_from_the_seed_and_have_length_1(kind):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, again, other = (kind(5, 4, seed=seed).proxies for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)  # nobody else's draws change
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert_close(first.norm(dim=-1), torch.ones(first.shape[:-1]))


@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_fit_the_proxies_is_rejected_with_the_numbers(kind):
    for labels, strange in (([0, 5], 5), ([-1, 0], -1), ([7, 9], 7)):
        with pytest.raises(DataError, match=f"from 0 to 4, got label {strange}"):
            kind(5, 3)(torch.ones(2, 3), torch.tensor(labels))
    with pytest.raises(DataError, match="of 3 dimensions cannot be compared with embeddings of 4"):
        kind(5, 3)(torch.ones(2, 4), torch.tensor([0, 1]))
    for shape in ((0, 3), (3, 0)):
        with pytest.raises(ConfigError, match="must be at least 1, got 0"):
            kind(*shape)


@pytest.mark.parametrize("kind", ALL)
def test_known_labels_are_numbered_in_order(kind, rng):
    rows = torch.randn(9, 4, generator=rng)
    labels = torch.arange(9) % 3
    known = (3, 10, 700)
    plain = kind(3, 4, seed=1)
    gapped = kind(3, 4, known=known, seed=1)
    assert torch.equal(gapped(rows, torch.tensor(known)[labels]), plain(rows, labels))
    assert list(gapped.state_dict()) == ["proxies"]
    for label in (2, 4, 701):
        with pytest.raises(DataError, match=f"got label {label}"):
            gapped(rows[:2], torch.tensor([3, label]))
    for wrong in ((3, 3, 9), (9, 3, 10), (3, 9)):
        with pytest.raises(ConfigError, match="increasing order"):
            kind(3, 4, known=wrong)


@pytest.mark.parametrize("kind", ALL)
def test_a_synthetic_proxy_counts_as_one_of_the_losss_own(kind, rng):
    whole = kind(5, 4, known=(1, 3, 5, 7, 9))
    part = kind(4, 4, known=(1, 3, 5, 7))
    rows = torch.randn(8, 4, generator=rng)
    labels = torch.tensor([1, 3, 5, 7, 9, 9, 1, 3])
    order = torch.tensor([4, 2, 0, 1, 3])  # also in any order
    made = part.compare(rows, labels, whole.proxies[order], whole.proxy_labels[order])
    found = reduce(part.core(made), "mean")
    assert_close(found, whole(rows, labels))


def test_merging_costs_nothing_when_centers_coincide_and_passes_a_finite_gradient():
    loss = SoftTripleLoss(3, 4, centers=4, merge=5.0)
    with torch.no_grad():
        loss.proxies.copy_(loss.proxies[:, :1].expand(3, 4, 4))
    value = loss.spread_penalty(loss.proxies)
    assert value == 0 and grad(value, loss.proxies)[0].isfinite().all()
