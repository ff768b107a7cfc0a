"""NormalizedSoftmaxLoss against the printed formula, torch's own cross entropy and its peers."""

import math

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn.functional import cross_entropy, normalize

from vicinal.errors import ConfigError, DataError
from vicinal.losses import NormalizedSoftmaxLoss, ProxyNCALoss


def by_hand(loss, embeddings, labels):
    proxies = [row / row.norm() for row in loss.proxies.detach().double()]
    values = []
    for row, label in zip(embeddings, labels.tolist(), strict=True):
        likelihood = [
            math.exp(float(row / row.norm() @ proxy) / loss.temperature) for proxy in proxies
        ]
        values.append(-math.log(likelihood[label] / sum(likelihood)))
    return torch.tensor(values, dtype=torch.float64)


@pytest.fixture
def batch(rng):
    return torch.randn(9, 4, generator=rng, dtype=torch.float64), torch.arange(9) % 5


@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_equals_the_printed_formula(temperature, batch):
    loss = NormalizedSoftmaxLoss(6, 4, temperature=temperature, reduction="none")
    torch.testing.assert_close(loss(*batch), by_hand(loss, *batch))


def test_is_torchs_cross_entropy_and_proxy_nca_of_twice_the_temperature(batch):
    embeddings, labels = batch
    loss = NormalizedSoftmaxLoss(5, 4, temperature=0.1)
    logits = normalize(embeddings, dim=1) @ normalize(loss.proxies.detach().double(), dim=1).T
    torch.testing.assert_close(loss(*batch), cross_entropy(logits / 0.1, labels))
    twin = ProxyNCALoss(
        5, 4, temperature=0.2, full_softmax=True
    )  # the same seed draws the same proxies
    torch.testing.assert_close(loss(*batch), twin(*batch))


def test_equals_the_peers_value(batch):
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    ours, peer = (
        NormalizedSoftmaxLoss(5, 4, temperature=0.05),
        losses.NormalizedSoftmaxLoss(5, 4, temperature=0.05),
    )
    peer.W.data = ours.proxies.detach().clone().T
    embeddings, labels = batch[0].float(), batch[1]
    torch.testing.assert_close(ours(embeddings, labels), peer(embeddings, labels))


def test_gradient_reaches_embeddings_and_proxies(batch):
    loss = NormalizedSoftmaxLoss(5, 4, temperature=0.3).double()

    def value(embeddings, proxies):
        return torch.func.functional_call(loss, {"proxies": proxies}, (embeddings, batch[1]))

    assert gradcheck(value, (batch[0].requires_grad_(), loss.proxies.detach().requires_grad_()))


def test_known_labels_are_numbered_in_order(batch):
    embeddings, labels = batch
    known = (3, 4, 10, 700, 701)
    loss, gapped = NormalizedSoftmaxLoss(5, 4), NormalizedSoftmaxLoss(5, 4, known=known)
    torch.testing.assert_close(
        gapped(embeddings, torch.tensor(known)[labels]), loss(embeddings, labels)
    )
    assert list(gapped.state_dict()) == ["proxies"]


def test_strange_labels_and_unsorted_known_ones_are_rejected(batch):
    loss = NormalizedSoftmaxLoss(2, 4, known=(3, 9))
    for label in (2, 5, 10):
        with pytest.raises(DataError, match=f"got label {label}"):
            loss(batch[0][:2], torch.tensor([3, label]))
    for known in ((9, 3), (3, 3), (3,)):
        with pytest.raises(ConfigError, match="increasing order"):
            NormalizedSoftmaxLoss(2, 4, known=known)


def test_stays_finite_where_a_plain_exponential_overflows(batch):
    assert NormalizedSoftmaxLoss(5, 4, temperature=1e-3)(batch[0].float(), batch[1]).isfinite()
