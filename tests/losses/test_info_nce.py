"""Softmax and sigmoid losses over pairs against the printed formulas and the peer."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from vicinal.losses import InfoNCELoss, SigmoidLoss, SupervisedContrastiveLoss, TupletMarginLoss

LABELS = {
    "two each": [0, 0, 1, 1],
    "uneven": [0, 1, 1, 2, 2, 2, 3],
    "one class": [0, 0, 0],
    "none alike": [0, 1, 2],
}


def by_hand(loss, embeddings, labels):
    """The mean over positive pairs that have negatives, and over anchors for the sigmoid loss."""
    unit, terms = [row / row.norm() for row in embeddings], []
    for i, label in enumerate(labels):
        positive = [
            float(unit[i] @ unit[k]) for k in range(len(labels)) if k != i and labels[k] == label
        ]
        negative = [float(unit[i] @ unit[k]) for k in range(len(labels)) if labels[k] != label]
        if isinstance(loss, SigmoidLoss):
            logits = [loss.temperature * s + loss.bias for s in positive]
            logits += [-(loss.temperature * s + loss.bias) for s in negative]
            terms.append(-sum(math.log(1 / (1 + math.exp(-logit))) for logit in logits))
            continue
        for s in positive if negative else []:
            if isinstance(loss, InfoNCELoss):
                own, others = s / loss.temperature, [other / loss.temperature for other in negative]
            else:
                own, others = (
                    loss.scale * math.cos(math.acos(s) - loss.slack),
                    [loss.scale * o for o in negative],
                )
            terms.append(-math.log(math.exp(own) / (math.exp(own) + sum(map(math.exp, others)))))
    return sum(terms) / max(1, len(terms))


@pytest.fixture
def embeddings(rng):
    return lambda n, dim=3: torch.randn(n, dim, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize(
    "loss", [InfoNCELoss(0.5), TupletMarginLoss(0.2, 8.0), SigmoidLoss(4.0, -2.0)], ids=repr
)
def test_equals_the_printed_formula(labels, loss, embeddings):
    given = embeddings(len(labels))
    assert loss(given, torch.tensor(labels)).item() == pytest.approx(
        by_hand(loss, given, labels), rel=1e-6
    )


@pytest.mark.parametrize(
    ("loss", "peer"),
    [
        (InfoNCELoss(0.07), ("NTXentLoss", {"temperature": 0.07})),
        (TupletMarginLoss(), ("TupletMarginLoss", {})),
    ],
    ids=["info_nce", "tuplet_margin"],
)
def test_equals_the_peer_in_value_and_gradient(loss, peer, embeddings):
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    labels, given = (
        torch.cat([torch.arange(36) // 4, torch.tensor([50, 51])]),
        embeddings(38, 8).requires_grad_(),
    )
    if isinstance(loss, TupletMarginLoss):
        loss.slack = math.radians(5.73)
    values = loss(given, labels), getattr(losses, peer[0])(**peer[1])(given, labels)
    torch.testing.assert_close(*values, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        *(torch.autograd.grad(value, given)[0] for value in values), rtol=1e-6, atol=1e-6
    )


def test_two_views_are_simclr(embeddings):
    """With two rows a label the sum over all others is NT-Xent as printed, and the supervised
    contrastive loss."""
    given, labels = embeddings(10), torch.arange(5).repeat(2)
    unit = normalize(given, dim=1)
    logits = (unit @ unit.T / 0.07).fill_diagonal_(-torch.inf)
    torch.testing.assert_close(
        InfoNCELoss()(given, labels), cross_entropy(logits, torch.arange(10).roll(5))
    )
    torch.testing.assert_close(
        InfoNCELoss()(given, labels), SupervisedContrastiveLoss(0.07)(given, labels)
    )


def test_without_slack_the_tuplet_margin_loss_is_info_nce(embeddings):
    given, labels = embeddings(12), torch.arange(12) // 3
    torch.testing.assert_close(
        TupletMarginLoss(0.0, 10.0)(given, labels), InfoNCELoss(0.1)(given, labels)
    )


def test_temperature_and_bias_are_learned(embeddings):
    loss = SigmoidLoss()
    loss(embeddings(8).float(), torch.arange(8) // 2).backward()
    assert {name for name, _ in loss.named_parameters()} == {"log_temperature", "offset"}
    assert all(parameter.grad.abs() > 0 for parameter in loss.parameters())
    before = loss(embeddings(8).float(), torch.arange(8) // 2)
    assert before.isfinite()


def test_a_pair_that_coincides_has_a_finite_gradient():
    given = torch.ones(6, 3).requires_grad_()
    assert (
        torch.autograd.grad(TupletMarginLoss()(given, torch.arange(6) // 2), given)[0]
        .isfinite()
        .all()
    )


def test_stays_finite_where_a_plain_exponential_overflows(embeddings):
    given, labels = embeddings(8).float().requires_grad_(), torch.arange(8) // 2
    for loss in (InfoNCELoss(1e-4), TupletMarginLoss(scale=1e4), SigmoidLoss(1e4)):
        value = loss(given, labels)
        assert value.isfinite() and torch.autograd.grad(value, given)[0].isfinite().all()
