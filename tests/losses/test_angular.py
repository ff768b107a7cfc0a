"""AngularLoss against Wang's sum of each (anchor, positive), written out."""

import inspect
import math
from dataclasses import replace

import pytest
import torch
from torch.autograd import gradcheck

from vicinal.errors import ConfigError
from vicinal.losses import AngularLoss, NPairLoss
from vicinal.losses import loss as base
from vicinal.tuples import Triplets

LABELS = {
    "two each": [0, 0, 1, 1],
    "uneven": [0, 1, 1, 2, 2, 2, 3],
    "one class": [0, 0, 0],
    "none alike": [0, 1, 2],
}


def by_hand(loss, embeddings, labels):
    """The formula as printed: no masks, no batching, no log-sum-exp trick."""
    if loss.normalize:
        embeddings = [row / row.norm() for row in embeddings]
    n, tuples = range(len(labels)), []
    steep = math.tan(loss.angle * math.pi / 180) ** 2
    for a in n:
        for p in n:
            negatives = [embeddings[k] for k in n if labels[k] != labels[a]]
            if p == a or labels[p] != labels[a] or not negatives:
                continue
            anchor, positive = embeddings[a], embeddings[p]
            alike = float(anchor @ positive)
            f = [
                4 * steep * float((anchor + positive) @ x) - 2 * (1 + steep) * alike
                for x in negatives
            ]
            value = math.log1p(sum(map(math.exp, f)))
            if loss.n_pair:
                value = (
                    math.log1p(sum(math.exp(float(anchor @ x) - alike) for x in negatives))
                    + loss.weight * value
                )
            tuples.append(value)
    return sum(tuples) / max(1, len(tuples))


@pytest.fixture
def embeddings(rng):
    return lambda n, dim=3: torch.randn(n, dim, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize(
    "options", [{}, {"angle": 36.0}, {"n_pair": True, "weight": 3.0}, {"normalize": False}]
)
def test_equals_the_printed_sum(labels, options, embeddings):
    given, loss = embeddings(len(labels)), AngularLoss(**options)
    assert loss(given, torch.tensor(labels)).item() == pytest.approx(by_hand(loss, given, labels))


def test_gradient_matches_finite_differences(embeddings):
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    assert gradcheck(
        lambda e: AngularLoss(n_pair=True)(e, labels), (embeddings(6).requires_grad_(),)
    )


def test_equals_the_peer_in_value_and_gradient(unit_vectors):
    """On unit vectors and along the sphere: the peer normalises anchors and positives, but not the
    negatives."""
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    given, labels = unit_vectors(40, 8).requires_grad_(), torch.arange(40) // 4
    values = AngularLoss(40.0)(given, labels), losses.AngularLoss(alpha=40)(given, labels)
    torch.testing.assert_close(*values)
    ours, theirs = (torch.autograd.grad(value, given)[0] for value in values)
    torch.testing.assert_close(ours, theirs - (theirs * given).sum(dim=1, keepdim=True) * given)


def test_n_pair_adds_the_n_pair_loss(embeddings):
    given, labels = embeddings(9), torch.arange(9) // 3
    parts = NPairLoss(l2=0.0, normalize=True)(given, labels), AngularLoss()(given, labels)
    torch.testing.assert_close(AngularLoss(n_pair=True)(given, labels), parts[0] + 2 * parts[1])


def test_collapse_counts_the_negatives():
    """At 45 degrees f is 4 · 2 - 2 · 2 = 4 for each of them."""
    value = AngularLoss()(torch.ones(8, 3), torch.arange(8) // 2)
    assert value.item() == pytest.approx(math.log1p(6 * math.exp(4)))


def test_f_is_the_bound_on_the_angle_less_what_unit_vectors_have_in_common(unit_vectors):
    """‖x_a - x_p‖² - 4 tan²α ‖x_n - (x_a + x_p) / 2‖² and f differ by a number that is the same for
    every triplet."""
    a, p, n = unit_vectors(3, 4)
    steep = math.tan(math.radians(40)) ** 2
    value = AngularLoss(40.0).on_triplets(
        torch.stack([a, p, n]), Triplets(*torch.tensor([[0], [1], [2]]))
    )
    bound = (a - p).square().sum() - 4 * steep * (n - (a + p) / 2).square().sum()
    torch.testing.assert_close(value.expm1().log(), bound + 6 * steep - 2)


def test_length_and_rotation_do_not_matter(embeddings):
    given, labels = embeddings(8), torch.arange(8) // 2
    rotation, _ = torch.linalg.qr(embeddings(3))
    stretched = given @ rotation * torch.arange(1, 9)[:, None]
    torch.testing.assert_close(AngularLoss()(stretched, labels), AngularLoss()(given, labels))


def test_a_large_batch_keeps_only_its_inputs_and_gives_the_same(embeddings, monkeypatch):
    given, labels, loss = embeddings(9).requires_grad_(), torch.arange(9) // 3, AngularLoss()
    (small,) = torch.autograd.grad(loss(given, labels), given)
    monkeypatch.setattr(base, "BLOCK", 0)
    torch.testing.assert_close(torch.autograd.grad(loss(given, labels), given)[0], small)


def test_synthetic_negatives_enter_through_the_core_seen_from_both_ends(embeddings, rng):
    """As HDML makes them for one anchor each: its positive is compared with the same ones."""
    given, labels, loss = embeddings(6), torch.arange(6) // 2, AngularLoss(reduction="none")
    synthetic = torch.randn(6, 4, 3, generator=rng, dtype=torch.float64)
    c, mates = loss.comparisons(given, labels), given[[1, 0, 3, 2, 5, 4]]
    negative = loss.distance(given, synthetic)
    there = torch.ones_like(negative, dtype=torch.bool)
    theirs = replace(c, negative=loss.distance(mates, synthetic), keep_negative=there)
    rows = replace(
        c, negative=negative, keep_negative=there, partner=torch.arange(6)[:, None], partners=theirs
    )
    for i in range(6):
        batch = torch.cat([given[[i]], mates[[i]], synthetic[i]])
        expected = loss(batch, torch.tensor([0, 0, 1, 1, 1, 1]))[0]
        torch.testing.assert_close(loss.core(rows).sums[i], expected)


def test_without_partner_the_negatives_are_compared_with_the_middle(embeddings):
    given, labels, loss = embeddings(6), torch.arange(6) // 2, AngularLoss()
    c = loss.comparisons(given, labels)
    middle = (c.negative + c.negative[c.partner.squeeze(1)]) / 2
    torch.testing.assert_close(loss.core(replace(c, negative=middle, partner=None)), loss.core(c))


def test_stays_finite_where_a_plain_exponential_overflows(embeddings):
    given = (1e4 * embeddings(8)).float().requires_grad_()
    loss = AngularLoss(80.0, normalize=False, n_pair=True)(given, torch.arange(8) // 2)
    assert loss.isfinite() and torch.autograd.grad(loss, given)[0].isfinite().all()


def test_an_angle_that_bounds_nothing_is_rejected():
    for angle in (0.0, 90.0):
        with pytest.raises(ConfigError, match=f"got {angle}"):
            inspect.unwrap(AngularLoss.__init__)(AngularLoss(), angle)
