"""What the losses with proxies share: where proxies begin, which labels they take, how they
learn."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from vicinal.errors import ConfigError, DataError
from vicinal.geometry import shift_angle
from vicinal.losses import (
    LOSSES,
    ArcFaceLoss,
    ImprovedProxyNCALoss,
    P2SGradLoss,
    ProxyAnchorLoss,
    ProxyLoss,
    ProxyNCALoss,
    SoftTripleLoss,
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
    torch.testing.assert_close(first.norm(dim=-1), torch.ones(first.shape[:-1]))


@pytest.mark.parametrize("kind", KINDS)
def test_proxies_and_embeddings_learn_together(kind, rng):
    """A few steps on fixed classes: the loss falls, and each sample comes to its own proxy."""
    loss = kind(4, 8, seed=0)
    labels = torch.arange(24) % 4
    rows = torch.randn(24, 8, generator=rng).requires_grad_()
    optimizer = torch.optim.Adam([rows, *loss.parameters()], lr=0.1)
    first = loss(rows, labels).item()
    for _ in range(50):
        optimizer.zero_grad()
        value = loss(rows, labels)
        value.backward()
        optimizer.step()
    assert value.item() < first - 0.3
    proxies = normalize(loss.proxies.detach(), dim=-1).view(4, -1, 8)
    nearest = torch.einsum("nd,ckd->nck", rows.detach(), proxies).amax(dim=2)
    assert torch.equal(nearest.argmax(dim=1), labels)


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


def test_each_row_has_one_column_of_its_own():
    labels = torch.tensor([2, 0], dtype=torch.uint8)
    compared = ProxyNCALoss(3, 4).comparisons(torch.ones(2, 4), labels)
    assert compared.keep_positive.all() and compared.positive.shape == (2, 1)
    assert compared.keep_negative.tolist() == [[True, True, False], [False, True, True]]


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


def test_proxy_nca_may_be_negative_where_the_full_softmax_may_not():
    loss = ProxyNCALoss(2, 2)
    with torch.no_grad():
        loss.proxies.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    at_home = torch.tensor([[3.0, 0.0]]), torch.tensor([0])
    assert loss(*at_home).item() == pytest.approx(-4.0)  # 0 to its own proxy, 2² to the other
    loss.full_softmax = True
    assert loss(*at_home).item() == pytest.approx(math.log1p(math.exp(-4)))


@pytest.mark.parametrize("kind", [ProxyNCALoss, ImprovedProxyNCALoss])
def test_a_single_class_has_no_rivals_and_costs_nothing(kind):
    rows = torch.ones(3, 2, requires_grad=True)
    value = kind(1, 2)(rows, torch.zeros(3, dtype=torch.long))
    assert value == 0 and torch.autograd.grad(value, rows)[0].eq(0).all()


def test_none_gives_proxy_anchor_one_value_for_each_proxy(rng):
    rows = torch.randn(6, 4, generator=rng)
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    each = ProxyAnchorLoss(9, 4, reduction="none")(rows, labels)
    assert each.shape == (9,)
    torch.testing.assert_close(each.mean(), ProxyAnchorLoss(9, 4)(rows, labels))


def test_merging_costs_nothing_when_centers_coincide_and_passes_a_finite_gradient():
    loss = SoftTripleLoss(3, 4, centers=4, merge=5.0)
    with torch.no_grad():
        loss.proxies.copy_(loss.proxies[:, :1].expand(3, 4, 4))
    value = loss.spread_penalty(loss.proxies)
    assert value == 0 and torch.autograd.grad(value, loss.proxies)[0].isfinite().all()


def test_the_gradient_of_p2s_grad_is_the_papers(rng):
    loss = P2SGradLoss(5, 4, reduction="sum").double()
    rows = torch.randn(10, 4, generator=rng, dtype=torch.float64, requires_grad=True)
    labels = torch.arange(10) % 5
    compared = normalize(rows, dim=1) @ normalize(loss.proxies.detach(), dim=1).T
    printed = (compared - torch.eye(5, dtype=torch.float64)[labels]).detach()
    expected = torch.autograd.grad(compared, rows, printed)[0]
    torch.testing.assert_close(torch.autograd.grad(loss(rows, labels), rows)[0], expected)


def test_a_sample_on_its_proxy_or_opposite_has_a_finite_gradient():
    loss = ArcFaceLoss(5, 4)
    for sign in (1, -1):
        rows = (sign * loss.proxies.detach()).clone().requires_grad_()
        assert torch.autograd.grad(loss(rows, torch.arange(5)), rows)[0].isfinite().all()
    ends = shift_angle(torch.tensor([1.0, -1.0]), 0.5).tolist()
    assert ends == pytest.approx([math.cos(0.5), -math.cos(0.5)])
