"""SEE against what its simplex has to be, and the loss of its expansions written out."""

import math

import pytest
import torch
from tests.methods.build import on_vectors
from torch.testing import assert_close

from vicinal.data.records import Batch
from vicinal.errors import ConfigError
from vicinal.losses import ProxyAnchorLoss
from vicinal.methods import SEE
from vicinal.methods.see import around_proxies

LABELS = torch.tensor([5, 2, 9, 2, 5, 2])
KNOWN = (2, 3, 5, 9)


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_sample_and_its_expansions_are_a_simplex_around_the_proxy(count, rng):
    samples, proxies = unit(torch.randn(2, 3, 8, generator=rng, dtype=torch.float64))
    noise = torch.randn(3, count - 1, 8, generator=rng, dtype=torch.float64)
    made = around_proxies(samples, proxies, noise)
    assert made.shape == (3, count, 8)
    for z, w, others, random in zip(samples, proxies, made, noise, strict=True):
        assert_close(others.norm(dim=1), torch.ones(count, dtype=torch.float64))
        assert_close(others @ w, (z @ w).expand(count))
        corners = torch.stack([z, *others]) - (z @ w) * w
        level = 1 - (z @ w) ** 2
        expected = level * torch.eye(count + 1) - level / count * (1 - torch.eye(count + 1))
        assert_close(corners @ corners.T, expected.double())
        # In the random directions and those of sample and proxy alone.
        spanned = torch.stack([z, w, *random])
        assert torch.linalg.matrix_rank(torch.cat([spanned, others])) == count + 1


def test_a_sample_at_its_proxy_stays_there():
    x = torch.eye(4)[:1]
    made = around_proxies(x, x, torch.randn(1, 1, 4))
    assert_close(made, x[None].expand(1, 2, 4))


def a_method(**settings):
    loss = ProxyAnchorLoss(4, 5, known=KNOWN)
    return on_vectors(SEE(**settings), loss, 6, 5, steps=100).double()


def test_the_nearest_are_expanded_and_the_proxies_alone_learn_from_it(rng):
    method = a_method(expansions=3, weight=0.2, share=0.5)
    method.schedule.last_epoch = 100
    inputs = torch.randn(6, 6, generator=rng, dtype=torch.float64)
    batch = method.prepare(Batch(inputs, LABELS, torch.arange(6)))
    noise = batch.extras["noise"].double()
    assert noise.shape == (3, 2, 5)
    proxies = method.loss.proxies
    head = method.embedder.head.weight
    rows = method.embedder.embed(inputs)
    own = torch.stack([unit(proxies[KNOWN.index(y)]) for y in LABELS.tolist()]).detach()
    nearest = sorted(range(6), key=lambda i: -float(unit(rows[i].detach()) @ own[i]))[:3]
    made = around_proxies(unit(rows.detach())[nearest], own[nearest], noise)
    of_expansions = method.loss(made.flatten(0, 1), LABELS[nearest].repeat_interleave(3))
    expected = method.loss(rows, LABELS) + 0.2 * of_expansions
    gradients = torch.autograd.grad(expected, [head, proxies])
    before = [head.clone(), proxies.clone()]
    assert_close(method.step(batch).scalars["loss"], expected.detach())
    for old, new, gradient in zip(before, (head, proxies), gradients, strict=True):
        assert_close(old - new, 0.1 * gradient)


def test_the_share_rises_by_a_cosine_from_nothing(rng):
    method = a_method(share=0.4, expansions=3)
    batch = Batch(torch.randn(6, 6, generator=rng).double(), LABELS, torch.arange(6))
    for step, share in ((0, 0.0), (25, 0.2 * (1 - math.sqrt(0.5))), (50, 0.2), (100, 0.4)):
        method.schedule.last_epoch = step
        assert len(method.prepare(batch).extras["noise"]) == round(6 * share)
    method.schedule.last_epoch = 0
    plain = method.loss(method.embedder.embed(batch.inputs), LABELS)
    assert method(batch).scalars["loss"] == plain


def test_more_expansions_than_dimensions_are_rejected():
    with pytest.raises(ConfigError, match="below the embedding's 5 dimensions"):
        a_method(expansions=5)
