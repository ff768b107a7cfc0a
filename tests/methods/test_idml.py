"""IDML against its authors' formula, written out one pair at a time."""

import pytest
import torch
from tests.methods.build import on_vectors
from torch.autograd import grad
from torch.testing import assert_close

from vicinal.arguments import build as rebuilt
from vicinal.arguments import describe
from vicinal.data.records import Batch
from vicinal.losses import ProxyAnchorLoss
from vicinal.methods import IDML
from vicinal.methods.idml import introspective_similarity
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import MODELS

LABELS = torch.tensor([0, 0, 0, 1, 1, 2, 2])


def similarity(semantic, uncertain, proxy, gamma=4.0, tau=5.0):
    x = semantic / semantic.norm()
    apart = ((x - proxy) ** 2).sum()
    level = ((uncertain - torch.zeros_like(uncertain)) ** 2).sum()
    cosine = x @ (proxy / proxy.norm())
    return 1 - (1 - cosine) * torch.exp(-(level + gamma) / (tau * apart))


def proxy_anchor(semantic, uncertain, proxies, labels):
    pulls = pushes = 0
    present = set(labels.tolist())
    for label, proxy in enumerate(proxies):
        pull = push = 1
        for x, u, y in zip(semantic, uncertain, labels.tolist(), strict=True):
            s = similarity(x, u, proxy)
            if y == label:
                pull = pull + torch.exp(-32 * (s - 0.1))
            else:
                push = push + torch.exp(32 * (s + 0.1))
        pulls = pulls + torch.log(torch.as_tensor(pull))
        pushes = pushes + torch.log(torch.as_tensor(push))
    return pulls / len(present) + pushes / len(proxies)


def a_method(**settings):
    loss = ProxyAnchorLoss(classes=4, dim=4)
    return on_vectors(IDML(**settings), loss, 6, 4, rows=7).double()


def a_batch():
    rng = torch.Generator().manual_seed(1)
    return Batch(torch.randn(7, 6, generator=rng).double(), LABELS, torch.arange(7))


@pytest.mark.parametrize("mixup", [False, True])
def test_a_step_descends_the_printed_loss(mixup):
    method = a_method(mixup=mixup)
    batch = method.prepare(a_batch())
    head = method.embedder.head
    other = method.embedder.uncertainty_head
    proxies = method.loss.proxies
    x = batch.inputs
    loss = proxy_anchor(head(x), other(x), proxies, LABELS)
    if mixup:
        factor = float(batch.extras["factor"])
        order = batch.extras["order"]
        mixed = factor * x + (1 - factor) * x[order]
        loss = loss + factor * proxy_anchor(head(mixed), other(mixed), proxies, LABELS)
        loss = loss + (1 - factor) * proxy_anchor(head(mixed), other(mixed), proxies, LABELS[order])
    learned = [head.weight, head.bias, other.weight, other.bias, proxies]
    gradients = grad(loss, learned)
    result = method.step(batch)
    assert_close(result.scalars["loss"], loss.detach(), rtol=1e-9, atol=1e-12)
    for parameter, gradient in zip(learned, gradients, strict=True):
        assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-12)


def test_at_a_proxy_value_and_gradient_are_finite():
    p = torch.tensor([[1.0, 0.0]])
    x = p.clone().requires_grad_()
    found = introspective_similarity(x, torch.ones(1, 2), p, 4.0, 5.0)
    assert found.item() == 1 and grad(found.sum(), x)[0].isfinite().all()


@pytest.mark.parametrize(("form", "learns"), [("ours", True), ("authors", False)])
def test_the_length_of_the_uncertainty_is_what_learns(form, learns):
    """On the sphere, as the authors have it, it is the same for every sample."""
    method = a_method(form=form)
    method(a_batch())
    gradient = method.embedder.uncertainty_head.weight.grad
    assert (gradient.abs().max() > 1e-9) == learns


def test_proxies_begin_as_long_as_those_of_the_authors():
    lengths = a_method().loss.proxies.norm(dim=1)
    assert_close(lengths, torch.full_like(lengths, (2 * 4 / 4) ** 0.5))


def test_the_second_head_is_of_the_model_and_learns_like_the_first():
    embedder = a_method().embedder
    again = rebuilt(describe(embedder), MODELS).double()
    again.load_state_dict(embedder.state_dict())
    inputs = a_batch().inputs
    assert_close(again.ambiguity(inputs), embedder.ambiguity(inputs))
    assert_close(again(inputs), embedder(inputs))
    optimizer, _ = OptimizerConfig(head_factor=3.0).build(embedder, steps=1)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert len({rates[id(p)] for p in embedder.parameters()}) == 1
