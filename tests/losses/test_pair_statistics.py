"""Losses over statistics of pairs against the printed formulas and the peer."""

import pytest
import torch

from vicinal.distances import SignalToNoise
from vicinal.errors import ConfigError, DataError
from vicinal.losses import (
    IntraPairVarianceLoss,
    SignalToNoiseContrastiveLoss,
    ThresholdConsistentMarginLoss,
    VICRegLoss,
)

LABELS = torch.tensor([0, 1, 1, 2, 2, 2, 3, 0])


def pairs(embeddings, labels, compare):
    """What positive pairs and what negative pairs are, in both orders."""
    positive, negative = [], []
    for i, row in enumerate(embeddings):
        for k, other in enumerate(embeddings):
            if i != k:
                (positive if labels[i] == labels[k] else negative).append(compare(row, other))
    return positive, negative


def cosine(x, y):
    return float(x @ y / (x.norm() * y.norm()))


def mean(values):
    return sum(values) / max(1, len(values))


@pytest.fixture
def embeddings(rng):
    return torch.randn(8, 4, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("slack", [0.01, 0.5])
def test_intra_pair_variance_is_the_printed_formula(embeddings, slack):
    positive, negative = pairs(embeddings, LABELS, cosine)
    pull = mean([max(0, (1 - slack) * mean(positive) - s) ** 2 for s in positive])
    push = mean([max(0, s - 1.01 * mean(negative)) ** 2 for s in negative])
    assert IntraPairVarianceLoss(slack)(embeddings, LABELS).item() == pytest.approx(pull + push)


def test_threshold_consistent_margin_is_the_printed_formula(embeddings):
    positive, negative = pairs(embeddings, LABELS, cosine)
    weak, strong = [0.9 - s for s in positive if s <= 0.9], [s - 0.2 for s in negative if s >= 0.2]
    loss = ThresholdConsistentMarginLoss(0.9, 0.2, 2.0, 3.0)
    assert loss(embeddings, LABELS).item() == pytest.approx(2 * mean(weak) + 3 * mean(strong))


def test_signal_to_noise_is_the_printed_formula(embeddings):
    positive, negative = pairs(embeddings, LABELS, lambda x, y: float((x - y).var() / x.var()))
    terms = positive + [max(0, 3 - d) for d in negative]
    assert SignalToNoiseContrastiveLoss(3.0)(embeddings, LABELS).item() == pytest.approx(
        mean(terms)
    )


def vicreg_by_hand(loss, views, first, second):
    total = 0.0
    for view in views:
        columns = view.T
        covariance = [
            [float(((a - a.mean()) * (b - b.mean())).sum() / (len(a) - 1)) for b in columns]
            for a in columns
        ]
        for j, row in enumerate(covariance):
            total += (
                loss.variance * max(0, loss.spread - (row[j] + loss.epsilon) ** 0.5) / len(columns)
            )
            total += loss.covariance * sum(c**2 for k, c in enumerate(row) if k != j) / len(columns)
    return total + loss.invariance * mean(
        [float((a - b).square().mean()) for a, b in zip(first, second, strict=True)]
    )


def test_vicreg_is_the_printed_formula(embeddings):
    anchors, others = embeddings.chunk(2)
    loss, labels = VICRegLoss(spread=1.5, blocks=True), torch.arange(4).repeat(2)
    expected = vicreg_by_hand(loss, [anchors, others], anchors, others)
    assert loss(embeddings, labels).item() == pytest.approx(expected)
    together = VICRegLoss()
    assert together(embeddings, labels).item() == pytest.approx(
        vicreg_by_hand(together, [embeddings], anchors, others)
    )


@pytest.mark.parametrize(
    ("loss", "peer"),
    [
        (IntraPairVarianceLoss(), "IntraPairVarianceLoss"),
        (ThresholdConsistentMarginLoss(), "ThresholdConsistentMarginLoss"),
    ],
    ids=["intra_pair_variance", "threshold_consistent_margin"],
)
def test_equals_the_peer_in_value_and_gradient(loss, peer, rng):
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    given, labels = (
        torch.randn(30, 3, generator=rng, dtype=torch.float64).requires_grad_(),
        torch.arange(30) // 4,
    )
    values = loss(given, labels), getattr(losses, peer)()(given, labels)
    torch.testing.assert_close(*values, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        *(torch.autograd.grad(value, given)[0] for value in values), rtol=1e-6, atol=1e-6
    )


def test_the_peers_signal_to_noise_loss_adds_the_means_of_both_kinds(rng):
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    reducers = pytest.importorskip("pytorch_metric_learning.reducers")
    given, labels = torch.randn(12, 5, generator=rng, dtype=torch.float64), torch.arange(12) // 3
    c = SignalToNoiseContrastiveLoss(normalize=True).comparisons(given, labels)
    push = (1 - c.negative[c.keep_negative]).relu()
    theirs = losses.SignalToNoiseRatioContrastiveLoss(reducer=reducers.MeanReducer())(given, labels)
    torch.testing.assert_close(
        c.positive[c.keep_positive].mean() + push.mean(), theirs, rtol=1e-6, atol=1e-6
    )


def test_vicreg_equals_the_peer_whose_variance_is_halved(rng):
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    reducers = pytest.importorskip("pytorch_metric_learning.reducers")
    given = torch.randn(24, 6, generator=rng, dtype=torch.float64).requires_grad_()
    theirs = losses.VICRegLoss(variance_mu=50, reducer=reducers.MeanReducer())(
        given[:12], ref_emb=given[12:]
    )
    ours = VICRegLoss(blocks=True)(given, torch.arange(12).repeat(2))
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    gradients = [torch.autograd.grad(value, given)[0] for value in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-6)


def test_collapse_costs_vicreg_the_whole_spread():
    value = VICRegLoss()(torch.ones(8, 3), LABELS)
    assert value.item() == pytest.approx(25 * (1 - 1e-2), rel=1e-5)


def test_a_row_without_signal_is_at_distance_0():
    rows = torch.tensor([[2.0, 2.0, 2.0], [1.0, 0.0, -1.0]], requires_grad=True)
    found = SignalToNoise()(rows)
    assert found[0].tolist() == [0.0, 0.0] and found[1].tolist() == pytest.approx([1.0, 0.0])
    assert torch.autograd.grad(found.sum(), rows)[0].isfinite().all()


def test_what_has_no_meaning_is_rejected(embeddings):
    with pytest.raises(ConfigError, match="no nearest points of arcs"):
        SignalToNoise().between_arcs(embeddings, LABELS, LABELS)
    with pytest.raises(DataError, match="two rows for each pair, got 7"):
        VICRegLoss(blocks=True)(embeddings[:7], LABELS[:7])
