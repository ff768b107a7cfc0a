"""Losses over angles to proxies against the printed formulas and the peer."""

import math

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn.functional import normalize

from vicinal.errors import ConfigError
from vicinal.geometry import shift_angle
from vicinal.losses import (
    ArcFaceLoss,
    CosFaceLoss,
    InstanceLoss,
    NormalizedSoftmaxLoss,
    P2SGradLoss,
    SubCenterArcFaceLoss,
)

CLASSES, DIM = 5, 4


def cosines(loss, row):
    """The cosine to each class; of several centers to the nearest."""
    centers = loss.proxies.detach().double().reshape(CLASSES, -1, DIM)
    return [
        max(float(row @ center / (row.norm() * center.norm())) for center in of_class)
        for of_class in centers
    ]


def arc(cosine, margin):
    angle = math.acos(cosine)
    return (
        math.cos(angle + margin)
        if angle <= math.pi - margin
        else cosine - margin * math.sin(margin)
    )


def by_hand(loss, embeddings, labels):
    values = []
    for row, label in zip(embeddings, labels.tolist(), strict=True):
        to_classes = cosines(loss, row)
        if isinstance(loss, P2SGradLoss):
            values.append(
                sum((cosine - (place == label)) ** 2 for place, cosine in enumerate(to_classes)) / 2
            )
            continue
        if isinstance(loss, InstanceLoss):
            to_classes = [float(row @ proxy) for proxy in loss.proxies.detach().double()]
        elif isinstance(loss, CosFaceLoss):
            to_classes[label] -= loss.margin
        else:
            to_classes[label] = arc(to_classes[label], loss.margin)
        likelihood = [math.exp(loss.scale * logit) for logit in to_classes]
        values.append(-math.log(likelihood[label] / sum(likelihood)))
    return torch.tensor(values, dtype=torch.float64)


@pytest.fixture
def batch(rng):
    return torch.randn(40, DIM, generator=rng, dtype=torch.float64), torch.arange(40) % CLASSES


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (CosFaceLoss, {"scale": 8.0}),
        (ArcFaceLoss, {"scale": 8.0}),
        (ArcFaceLoss, {"scale": 8.0, "margin": 1.5}),  # half of the samples are beyond π - m
        (SubCenterArcFaceLoss, {"scale": 8.0}),
        (P2SGradLoss, {}),
        (InstanceLoss, {"scale": 2.0}),
    ],
)
def test_equals_the_printed_formula(kind, options, batch):
    loss = kind(CLASSES, DIM, reduction="none", **options)
    torch.testing.assert_close(loss(*batch), by_hand(loss, *batch))


@pytest.mark.parametrize("kind", [ArcFaceLoss, CosFaceLoss, SubCenterArcFaceLoss])
def test_equals_the_peer_in_value_and_gradient(kind, batch):
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    ours, peer = (
        kind(CLASSES, DIM),
        getattr(losses, kind.__name__)(num_classes=CLASSES, embedding_size=DIM),
    )
    if kind is not CosFaceLoss:
        ours.margin = math.radians(28.6)  # the peer's, in degrees
    peer.W.data = ours.proxies.detach().double().reshape(-1, DIM).T.clone()
    embeddings = batch[0].requires_grad_()
    values = ours(embeddings, batch[1]), peer(embeddings, batch[1])
    torch.testing.assert_close(*values, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        *(torch.autograd.grad(value, embeddings)[0] for value in values), rtol=1e-6, atol=1e-6
    )


def test_the_peers_p2s_grad_is_the_mean_over_classes_as_well(batch):
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    ours, peer = P2SGradLoss(CLASSES, DIM), losses.P2SGradLoss(DIM, CLASSES)
    peer.weight.data = ours.proxies.detach().double().T.clone()
    torch.testing.assert_close(
        2 / CLASSES * ours(*batch), peer(*batch), rtol=1e-5, atol=1e-5
    )  # it rounds W to 1e-5


def test_the_peers_instance_loss_has_the_rows_themselves_as_proxies(batch):
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    rows, labels = batch[0][:8], torch.arange(8)
    ours = InstanceLoss(8, DIM, scale=64.0, normalize=True).double()
    ours.proxies.data = rows.clone()
    torch.testing.assert_close(
        ours(rows, labels), losses.InstanceLoss(gamma=64)(rows, labels), rtol=1e-6, atol=1e-6
    )


def test_without_a_margin_they_are_the_normalized_softmax(batch):
    expected = NormalizedSoftmaxLoss(CLASSES, DIM, temperature=1 / 16)(
        *batch
    )  # the same seed draws the same proxies
    for kind in (ArcFaceLoss, CosFaceLoss):
        torch.testing.assert_close(kind(CLASSES, DIM, margin=0.0, scale=16.0)(*batch), expected)
    one_center = SubCenterArcFaceLoss(CLASSES, DIM, centers=1)
    torch.testing.assert_close(one_center(*batch), ArcFaceLoss(CLASSES, DIM)(*batch))
    torch.testing.assert_close(
        InstanceLoss(CLASSES, DIM, scale=16.0, normalize=True)(*batch), expected
    )


def test_the_gradient_of_p2s_grad_is_the_papers(batch):
    loss = P2SGradLoss(CLASSES, DIM, reduction="sum").double()
    embeddings = batch[0].requires_grad_()
    compared = normalize(embeddings, dim=1) @ normalize(loss.proxies.detach(), dim=1).T
    printed = (compared - torch.eye(CLASSES, dtype=torch.float64)[batch[1]]).detach()
    (expected,) = torch.autograd.grad(compared, embeddings, printed)
    torch.testing.assert_close(
        torch.autograd.grad(loss(embeddings, batch[1]), embeddings)[0], expected
    )


def test_gradient_reaches_the_proxies(batch):
    loss = SubCenterArcFaceLoss(CLASSES, DIM, scale=4.0).double()

    def value(proxies):
        return torch.func.functional_call(loss, {"proxies": proxies}, batch)

    assert gradcheck(value, (loss.proxies.detach().requires_grad_(),))


def test_a_sample_on_its_proxy_or_opposite_has_a_finite_gradient():
    loss = ArcFaceLoss(CLASSES, DIM)
    for sign in (1, -1):
        rows = (sign * loss.proxies.detach()).clone().requires_grad_()
        assert torch.autograd.grad(loss(rows, torch.arange(CLASSES)), rows)[0].isfinite().all()
    assert shift_angle(torch.tensor([1.0, -1.0]), 0.5).tolist() == pytest.approx(
        [math.cos(0.5), -math.cos(0.5)]
    )


def test_bad_arguments_are_rejected():
    for options in ({"margin": -0.1}, {"scale": 0.0}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            ArcFaceLoss(CLASSES, DIM, **options)


def test_stays_finite_where_a_plain_exponential_overflows(batch):
    for kind in (ArcFaceLoss, CosFaceLoss, SubCenterArcFaceLoss, InstanceLoss):
        assert kind(CLASSES, DIM, scale=1e4)(batch[0].float(), batch[1]).isfinite()
