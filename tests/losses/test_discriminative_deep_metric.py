"""DiscriminativeDeepMetricLoss against the generalised logistic loss of each pair."""

import inspect
import math

import pytest
import torch
from torch.autograd import gradcheck

from vicinal.errors import ConfigError
from vicinal.losses import DiscriminativeDeepMetricLoss

LABELS = {
    "two each": [0, 0, 1, 1],
    "uneven": [0, 1, 1, 2, 2, 2],
    "one class": [0, 0, 0],
    "none alike": [0, 1, 2],
}


def by_hand(loss, embeddings, labels):
    if loss.normalize:
        embeddings = [row / row.norm() for row in embeddings]
    pairs = []
    for i, first in enumerate(embeddings):
        for j, second in enumerate(embeddings):
            if i == j:
                continue
            distance = math.dist(first.tolist(), second.tolist()) ** (2 if loss.squared else 1)
            alike = 1 if labels[i] == labels[j] else -1
            z = 1 - alike * (loss.tau - distance)
            pairs.append(math.log1p(math.exp(loss.beta * z)) / loss.beta / 2)
    return sum(pairs) / len(pairs)


@pytest.fixture
def embeddings(rng):
    return lambda n, dim=3: torch.randn(n, dim, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize(
    "options", [{}, {"tau": 1.5, "beta": 2.0}, {"squared": False}, {"normalize": True}]
)
def test_equals_the_printed_terms(labels, options, embeddings):
    given, loss = embeddings(len(labels)), DiscriminativeDeepMetricLoss(**options)
    assert loss(given, torch.tensor(labels)).item() == pytest.approx(by_hand(loss, given, labels))


def test_gradient_matches_finite_differences(embeddings):
    loss, labels = DiscriminativeDeepMetricLoss(beta=2.0), torch.tensor([0, 0, 1, 1, 2])
    assert gradcheck(lambda e: loss(e, labels), (embeddings(5).requires_grad_(),))


def test_collapse_puts_positives_within_and_negatives_a_whole_tau_and_1_within():
    loss, labels = DiscriminativeDeepMetricLoss(tau=3.0, beta=10.0), torch.tensor([0, 0, 1, 1])
    g = [math.log1p(math.exp(10 * z)) / 10 / 2 for z in (1 - 3, 1 + 3)]
    assert loss(torch.ones(4, 2), labels).item() == pytest.approx((g[0] + 2 * g[1]) / 3)


def test_a_sharp_hinge_is_a_hinge(embeddings):
    given, labels = embeddings(8), torch.arange(8) // 2
    loss = DiscriminativeDeepMetricLoss(2.0, 1e6)
    c = loss.comparisons(given, labels)
    pull, push = (
        (c.positive - 1).relu() * c.keep_positive,
        (3 - c.negative).relu() * c.keep_negative,
    )
    torch.testing.assert_close(
        loss(given, labels), (pull.sum() + push.sum()) / 2 / 56, atol=1e-5, rtol=0
    )


def test_stays_finite_where_a_plain_exponential_overflows(embeddings):
    given = (1e3 * embeddings(8)).float().requires_grad_()
    loss = DiscriminativeDeepMetricLoss()(given, torch.arange(8) // 2)
    assert loss.isfinite() and torch.autograd.grad(loss, given)[0].isfinite().all()


def test_a_tau_that_no_positive_can_meet_is_rejected():
    with pytest.raises(ConfigError, match=r"tau must be above 1, got 1\.0"):
        inspect.unwrap(DiscriminativeDeepMetricLoss.__init__)(DiscriminativeDeepMetricLoss(), 1.0)
