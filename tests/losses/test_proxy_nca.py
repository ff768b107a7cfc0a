"""ProxyNCALoss against the printed formula, one proxy at a time."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from vicinal.losses import ProxyNCALoss


def by_hand(loss, embeddings, labels):
    proxies = loss.proxies.detach().double()
    if loss.normalize:
        embeddings = [row / row.norm() for row in embeddings]
        proxies = [row / row.norm() for row in proxies]
    values = []
    for row, label in zip(embeddings, labels.tolist(), strict=True):
        squares = [float(((row - proxy) ** 2).sum()) for proxy in proxies]
        distance = squares if loss.squared else [math.sqrt(square) for square in squares]
        likelihood = [math.exp(-d / loss.temperature) for d in distance]
        against = sum(l for z, l in enumerate(likelihood) if loss.full_softmax or z != label)
        values.append(-math.log(likelihood[label] / against))
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"full_softmax": True},
        {"temperature": 1 / 9},
        {"squared": False},
        {"normalize": False, "full_softmax": True},
    ],
)
def test_equals_the_printed_formula(options, rng):
    embeddings, labels = torch.randn(9, 4, generator=rng, dtype=torch.float64), torch.arange(9) % 5
    loss = ProxyNCALoss(6, 4, reduction="none", **options)
    torch.testing.assert_close(loss(embeddings, labels), by_hand(loss, embeddings, labels))


@pytest.mark.parametrize("full_softmax", [False, True])
def test_gradient_reaches_embeddings_and_proxies(full_softmax, rng):
    loss = ProxyNCALoss(4, 3, full_softmax=full_softmax).double()
    embeddings, labels = (
        torch.randn(5, 3, generator=rng, dtype=torch.float64, requires_grad=True),
        torch.arange(5) % 4,
    )

    def value(embeddings, proxies):
        return torch.func.functional_call(loss, {"proxies": proxies}, (embeddings, labels))

    assert gradcheck(value, (embeddings, loss.proxies.detach().requires_grad_()))


def test_the_full_softmax_is_the_peers_and_the_paper_differs_from_it(rng):
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    embeddings, labels = torch.randn(20, 8, generator=rng), torch.arange(20) % 5
    ours, peer = ProxyNCALoss(5, 8, full_softmax=True), losses.ProxyNCALoss(5, 8, softmax_scale=1)
    peer.proxies.data = ours.proxies.detach().clone()
    torch.testing.assert_close(ours(embeddings, labels), peer(embeddings, labels))
    printed = ProxyNCALoss(5, 8, reduction="none")(embeddings, labels)
    full = ProxyNCALoss(5, 8, full_softmax=True, reduction="none")(embeddings, labels)
    torch.testing.assert_close(full, printed.exp().log1p())  # log(1 + Σ/p) of log(Σ/p)


def test_may_be_negative_where_the_full_softmax_may_not():
    loss = ProxyNCALoss(2, 2)
    with torch.no_grad():
        loss.proxies.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    at_home = torch.tensor([[3.0, 0.0]]), torch.tensor([0])
    assert loss(*at_home).item() == pytest.approx(-4.0)  # 0 to its own proxy, 2² to the other
    loss.full_softmax = True
    assert loss(*at_home).item() == pytest.approx(math.log1p(math.exp(-4)))


def test_collapsed_proxies_cost_the_logarithm_of_the_others():
    loss = ProxyNCALoss(7, 3)
    with torch.no_grad():
        loss.proxies.fill_(1.0)
    assert loss(torch.ones(4, 3), torch.arange(4)).item() == pytest.approx(math.log(6))


def test_a_single_class_has_no_rivals_and_costs_nothing():
    embeddings = torch.ones(3, 2, requires_grad=True)
    value = ProxyNCALoss(1, 2)(embeddings, torch.zeros(3, dtype=torch.long))
    assert value == 0 and torch.autograd.grad(value, embeddings)[0].eq(0).all()


def test_stays_finite_where_a_plain_exponential_overflows(rng):
    embeddings = (100 * torch.randn(8, 4, generator=rng)).requires_grad_()
    for full_softmax in (False, True):
        loss = ProxyNCALoss(5, 4, temperature=1e-3, full_softmax=full_softmax, normalize=False)
        value = loss(embeddings, torch.arange(8) % 5)
        assert value.isfinite() and torch.autograd.grad(value, embeddings)[0].isfinite().all()
