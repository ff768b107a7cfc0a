"""SoftTripleLoss against the printed formula, one center at a time."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from vicinal.losses import SoftTripleLoss


def by_hand(loss, embeddings, labels):
    centers = [[w / w.norm() for w in of_class] for of_class in loss.proxies.detach().double()]
    apart = sum(
        math.sqrt(max(0.0, 2 - 2 * float(of_class[k] @ of_class[l])))
        for of_class in centers
        for k in range(loss.centers)
        for l in range(k + 1, loss.centers)
    )
    spread = loss.merge * apart / max(1, loss.classes * loss.centers * (loss.centers - 1))
    values = []
    for row, label in zip(embeddings, labels.tolist(), strict=True):
        relaxed = []
        for of_class in centers:
            s = [float(row @ w / row.norm()) for w in of_class]
            shares = [math.exp(x / loss.gamma) for x in s]
            relaxed.append(sum(share * x for share, x in zip(shares, s, strict=True)) / sum(shares))
        own = math.exp(loss.scale * (relaxed[label] - loss.margin))
        others = sum(math.exp(loss.scale * s) for c, s in enumerate(relaxed) if c != label)
        values.append(-math.log(own / (own + others)) + spread)
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    "options", [{}, {"centers": 1}, {"centers": 2, "scale": 5.0, "margin": 0.2, "merge": 0.0}]
)
def test_equals_the_printed_formula(options, rng):
    embeddings, labels = torch.randn(7, 4, generator=rng, dtype=torch.float64), torch.arange(7) % 4
    loss = SoftTripleLoss(5, 4, reduction="none", **options)
    torch.testing.assert_close(
        loss(embeddings, labels), by_hand(loss, embeddings, labels), rtol=1e-6, atol=1e-7
    )


def test_equals_the_peer(rng):
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    ours = SoftTripleLoss(5, 8, centers=3, merge=0.0)
    peer = losses.SoftTripleLoss(5, 8, centers_per_class=3, la=20, gamma=0.1, margin=0.01)
    peer.fc.data = ours.proxies.detach().flatten(end_dim=1).T.clone()
    embeddings, labels = torch.randn(20, 8, generator=rng).requires_grad_(), torch.arange(20) % 5
    values = ours(embeddings, labels), peer(embeddings, labels)
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*(torch.autograd.grad(value, embeddings)[0] for value in values))


def test_gradient_reaches_embeddings_and_centers(rng):
    loss = SoftTripleLoss(3, 3, centers=2).double()
    embeddings, labels = (
        torch.randn(4, 3, generator=rng, dtype=torch.float64, requires_grad=True),
        torch.arange(4) % 3,
    )

    def value(embeddings, proxies):
        return torch.func.functional_call(loss, {"proxies": proxies}, (embeddings, labels))

    assert gradcheck(value, (embeddings, loss.proxies.detach().requires_grad_()))


def test_one_center_is_the_normalised_softmax(rng):
    embeddings, labels = torch.randn(8, 4, generator=rng), torch.arange(8) % 5
    loss = SoftTripleLoss(5, 4, centers=1, margin=0.0)
    logits = 20 * torch.nn.functional.normalize(embeddings) @ loss.proxies[:, 0].T
    torch.testing.assert_close(
        loss(embeddings, labels), torch.nn.functional.cross_entropy(logits, labels)
    )


def test_a_small_gamma_takes_the_nearest_center(rng):
    embeddings, labels = torch.randn(8, 4, generator=rng), torch.arange(8) % 5
    sharp = SoftTripleLoss(5, 4, centers=3, gamma=1e-4)
    nearest = torch.einsum(
        "nd,ckd->nck", torch.nn.functional.normalize(embeddings), sharp.proxies
    ).amax(dim=2)
    torch.testing.assert_close(sharp.comparisons(embeddings, labels).negative, nearest)


def test_merging_costs_nothing_when_centers_coincide_and_passes_a_finite_gradient():
    loss = SoftTripleLoss(3, 4, centers=4, merge=5.0)
    with torch.no_grad():
        loss.proxies.copy_(loss.proxies[:, :1].expand(3, 4, 4))
    value = loss.spread_penalty(loss.proxies)
    assert value == 0 and torch.autograd.grad(value, loss.proxies)[0].isfinite().all()


def test_stays_finite_where_a_plain_exponential_overflows(rng):
    embeddings = torch.randn(6, 4, generator=rng).requires_grad_()
    value = SoftTripleLoss(3, 4, scale=5000.0, gamma=1e-6)(embeddings, torch.arange(6) % 3)
    assert value.isfinite() and torch.autograd.grad(value, embeddings)[0].isfinite().all()
