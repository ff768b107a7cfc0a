"""ProxyAnchorLoss against the printed formula, one proxy at a time."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from vicinal.losses import ProxyAnchorLoss


def by_hand(loss, embeddings, labels):
    """Eq. (4), its two means apart."""
    embeddings = [row / row.norm() for row in embeddings]
    pulls, pushes = [], []
    for label, proxy in enumerate(loss.proxies.detach().double()):
        proxy = proxy / proxy.norm()
        own = [
            float(row @ proxy)
            for row, y in zip(embeddings, labels.tolist(), strict=True)
            if y == label
        ]
        others = [
            float(row @ proxy)
            for row, y in zip(embeddings, labels.tolist(), strict=True)
            if y != label
        ]
        if own:
            pulls.append(math.log(1 + sum(math.exp(-loss.alpha * (s - loss.margin)) for s in own)))
        pushes.append(math.log(1 + sum(math.exp(loss.alpha * (s + loss.margin)) for s in others)))
    return sum(pulls) / max(1, len(pulls)) + sum(pushes) / len(pushes)


@pytest.mark.parametrize("labels", [[0, 1, 2, 0, 1, 2], [0, 0, 0], [4], []])
def test_equals_the_printed_formula(labels, rng):
    embeddings, labels = (
        torch.randn(len(labels), 4, generator=rng, dtype=torch.float64),
        torch.tensor(labels).long(),
    )
    loss = ProxyAnchorLoss(5, 4, margin=0.1, alpha=8.0)
    torch.testing.assert_close(loss(embeddings, labels).item(), by_hand(loss, embeddings, labels))


def test_equals_the_peer_in_value_and_gradient(rng):
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    ours, peer = ProxyAnchorLoss(9, 8), losses.ProxyAnchorLoss(9, 8, margin=0.1, alpha=32)
    peer.proxies.data = ours.proxies.detach().clone()
    embeddings, labels = torch.randn(20, 8, generator=rng).requires_grad_(), torch.arange(20) % 5
    values = ours(embeddings, labels), peer(embeddings, labels)
    torch.testing.assert_close(*values)
    gradients = [
        torch.autograd.grad(v, [embeddings, l.proxies])
        for v, l in zip(values, (ours, peer), strict=True)
    ]
    torch.testing.assert_close(*gradients)


def test_gradient_reaches_embeddings_and_proxies(rng):
    loss = ProxyAnchorLoss(4, 3, alpha=4.0).double()
    embeddings, labels = (
        torch.randn(5, 3, generator=rng, dtype=torch.float64, requires_grad=True),
        torch.arange(5) % 3,
    )

    def value(embeddings, proxies):
        return torch.func.functional_call(loss, {"proxies": proxies}, (embeddings, labels))

    assert gradcheck(value, (embeddings, loss.proxies.detach().requires_grad_()))


def test_none_gives_one_value_for_each_proxy_and_their_mean_is_the_loss(rng):
    embeddings, labels = torch.randn(6, 4, generator=rng), torch.tensor([0, 0, 1, 1, 2, 2])
    each = ProxyAnchorLoss(9, 4, reduction="none")(embeddings, labels)
    assert each.shape == (9,)
    torch.testing.assert_close(each.mean(), ProxyAnchorLoss(9, 4)(embeddings, labels))


def test_length_does_not_matter(rng):
    embeddings, labels = torch.randn(6, 4, generator=rng), torch.arange(6) % 3
    loss = ProxyAnchorLoss(3, 4)
    torch.testing.assert_close(loss(5 * embeddings, labels), loss(embeddings, labels))


def test_stays_finite_where_a_plain_exponential_overflows(rng):
    embeddings = torch.randn(6, 4, generator=rng).requires_grad_()
    value = ProxyAnchorLoss(3, 4, alpha=5000.0)(embeddings, torch.arange(6) % 3)
    assert value.isfinite() and torch.autograd.grad(value, embeddings)[0].isfinite().all()
