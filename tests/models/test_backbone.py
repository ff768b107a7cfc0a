"""What all published backbones share: preprocessing, frozen and folded batch norm, descriptions
without weights."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from vicinal.models import EfficientNetLite, Embedder, ResNet
from vicinal.models.backbone import convolve

# One with plain convolutions and one with depthwise ones; BN-Inception shares the code under test.
BACKBONES = {"resnet18": partial(ResNet, 18), "lite0": EfficientNetLite}


def _norms(module):
    return [m for m in module.modules() if isinstance(m, torch.nn.BatchNorm2d)]


def _statistics(module):
    return [tensor.clone() for name, tensor in module.named_buffers() if "running" in name]


@pytest.mark.parametrize("name", BACKBONES)
def test_frozen_norm_stays_as_it_is_through_training(name, rng):
    embedder = Embedder(BACKBONES[name](freeze_norm=True), 4)
    embedder.eval().train()
    assert embedder.training and embedder.backbone.training
    before = _statistics(embedder)
    embedder(torch.randn(2, 3, 32, 32, generator=rng)).sum().backward()
    assert all(torch.equal(a, b) for a, b in zip(before, _statistics(embedder), strict=True))
    for norm in _norms(embedder):
        assert not norm.training and norm.weight.grad is None and norm.bias.grad is None
    assert any(p.grad is not None for p in embedder.backbone.parameters())


def test_frozen_norm_survives_the_conversion_to_several_processes():
    backbone = torch.nn.SyncBatchNorm.convert_sync_batchnorm(
        EfficientNetLite(freeze_norm=True)
    ).train()
    norms = [m for m in backbone.modules() if isinstance(m, torch.nn.SyncBatchNorm)]
    assert norms and not any(norm.training or norm.weight.requires_grad for norm in norms)


@pytest.mark.slow
@pytest.mark.parametrize("name", BACKBONES)
def test_the_whole_network_is_one_graph(name, picture):
    backbone = BACKBONES[name](freeze_norm=True).train()
    compiled = torch.compile(backbone, backend="eager", fullgraph=True)
    assert_close(compiled(picture(64)), backbone(picture(64)))


def pair(rng, *, affine: bool = True, bias: bool = False) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    convolution = nn.Conv2d(3, 6, 3, stride=2, padding=1, groups=3, bias=bias)
    norm = nn.BatchNorm2d(6, affine=affine)
    for tensor in (*norm.parameters(), norm.running_mean, norm.running_var):
        tensor.data.copy_(0.5 + torch.rand(6, generator=rng))
    return convolution.double(), norm.double()


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_those_of_both(rng, affine, bias):
    convolution, norm = pair(rng, affine=affine, bias=bias)
    norm.eval()
    inputs = torch.randn(2, 3, 8, 8, generator=rng, dtype=torch.float64, requires_grad=True)
    parameters = (inputs, *convolution.parameters(), *norm.parameters())
    folded = convolve(inputs, convolution, norm)
    plain = norm(convolution(inputs))
    assert_close(folded, plain)
    weights = torch.randn(plain.shape, generator=rng, dtype=torch.float64)
    ours, theirs = (
        torch.autograd.grad((weights * maps).sum(), parameters) for maps in (folded, plain)
    )
    for mine, other in zip(ours, theirs, strict=True):
        assert_close(mine, other)


def test_a_norm_in_training_normalizes_by_its_batch_and_counts_it(rng):
    convolution, norm = pair(rng)
    other_norm = copy.deepcopy(norm)
    inputs = torch.randn(4, 3, 8, 8, generator=rng, dtype=torch.float64)
    assert torch.equal(convolve(inputs, convolution, norm), other_norm(convolution(inputs)))
    assert torch.equal(norm.running_mean, other_norm.running_mean)
    assert int(norm.num_batches_tracked) == 1
