"""Proxy Synthesis against the loss of its samples and classes, mixed one at a time."""

import math

import numpy as np
import pytest
import torch
from tests.methods.build import on_vectors
from torch.func import functional_call
from torch.testing import assert_close

from vicinal.data.records import Batch
from vicinal.losses import (
    InstanceLoss,
    NormalizedSoftmaxLoss,
    ProxyAnchorLoss,
    SoftTripleLoss,
)
from vicinal.methods import ProxySynthesis

LABELS = torch.tensor([5, 2, 9, 2, 5, 2])
KNOWN = (2, 3, 5, 9)
PROXY = {label: place for place, label in enumerate(KNOWN)}
FACTOR = 0.3


def unit(x):
    return x / x.norm()


def mixed(x, y):
    return FACTOR * x + (1 - FACTOR) * y


def by_hand(rows, proxies, partner, normalize=True):
    """Samples, labels and proxies of real and synthetic classes: ``partner`` says which two classes
    are mixed, and a class's i-th sample is mixed with the other's i-th, or from the first again."""
    x = [unit(row) if normalize else row for row in rows]
    p = [unit(proxy) if normalize else proxy for proxy in proxies]
    samples = list(zip(x, LABELS.tolist(), strict=True))
    classes = dict(zip(KNOWN, p, strict=True))
    for label, other in partner.items():
        mine, theirs = (
            [z for z, y in zip(x, LABELS, strict=True) if y == c] for c in (label, other)
        )
        for place, sample in enumerate(mine):
            samples.append((mixed(sample, theirs[place % len(theirs)]), f"{label}+{other}"))
        classes[f"{label}+{other}"] = mixed(p[PROXY[label]], p[PROXY[other]])
    return samples, classes


# Of the classes 2, 5 and 9 of the batch, each with the next but ``turn``; 3 has no sample.
PARTNERS = {0: {2: 5, 5: 9, 9: 2}, 1: {2: 9, 5: 2, 9: 5}, 6: {2: 5, 5: 9, 9: 2}}
LOSSES = [
    (NormalizedSoftmaxLoss, True),
    (InstanceLoss, False),
    (ProxyAnchorLoss, True),
]


def a_method(loss, **settings):
    return on_vectors(ProxySynthesis(**settings), loss, 6, 4).double()


@pytest.mark.parametrize(("kind", "normalize"), LOSSES)
@pytest.mark.parametrize("turn", PARTNERS)
@pytest.mark.parametrize("mu", [0.0, 2 / 3, 1.0])
def test_the_loss_is_that_of_real_and_synthetic_classes(kind, normalize, turn, mu, rng):
    method = a_method(kind(4, 4, known=KNOWN), mu=mu)
    rows = torch.randn(6, 4, generator=rng, dtype=torch.float64, requires_grad=True)
    factor = torch.tensor(FACTOR, dtype=torch.float64)
    proxies = method.loss.proxies
    ours = method.of_all(rows, LABELS, factor, torch.tensor(turn))
    partner = dict(list(PARTNERS[turn].items())[: round(3 * mu)])
    samples, classes = by_hand(rows, proxies, partner, normalize)
    given = torch.stack([sample for sample, _ in samples])
    labels = torch.tensor([list(classes).index(label) for _, label in samples])
    whole = {"proxies": torch.stack(list(classes.values()))}
    expected = functional_call(kind(len(classes), 4), whole, (given, labels))
    values = [(one, *torch.autograd.grad(one, [rows, proxies])) for one in (ours, expected)]
    assert_close(*values, rtol=1e-9, atol=1e-12)


def test_without_synthetic_classes_it_is_the_loss():
    loss = SoftTripleLoss(4, 4, known=KNOWN, centers=2).double()
    rows = torch.randn(6, 4, dtype=torch.float64)
    drawn = torch.tensor(0.2), torch.tensor(3)
    plain = loss(rows, LABELS)
    assert_close(a_method(loss, mu=0.0).of_all(rows, LABELS, *drawn), plain)
    of_one_class = torch.full((6,), 3)
    alone = loss(rows, of_one_class)
    assert_close(a_method(loss).of_all(rows, of_one_class, *drawn), alone)


def test_a_batch_draws_its_mixture_by_seed_and_step(rng):
    batch = Batch(torch.randn(6, 6, generator=rng), LABELS, torch.arange(6))
    loss = NormalizedSoftmaxLoss(4, 4, known=KNOWN)
    first, again = (a_method(loss).prepare(batch).extras for _ in range(2))
    assert first == again
    method = a_method(loss, alpha=0.4).float()
    drawn = []
    for step in range(400):
        method.schedule.last_epoch = step
        drawn.append(float(method.prepare(batch).extras["factor"]))
    # Beta(α, α) has mean 1/2 and variance 1 / (4 (2α + 1)).
    assert np.mean(drawn) == pytest.approx(0.5, abs=0.06)
    assert np.std(drawn) == pytest.approx(math.sqrt(1 / (4 * 1.8)), abs=0.03)
    before = method.loss.proxies.clone()
    assert method(batch).scalars["loss"].isfinite() and not torch.equal(before, method.loss.proxies)
