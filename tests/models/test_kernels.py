"""Triton's kernels against torch; on a GPU, or on a CPU with TRITON_INTERPRET=1."""

import os

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from vicinal.models import backbone
from vicinal.models.efficientnet_lite import _InvertedResidual

triton = pytest.importorskip("triton")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

from vicinal.models import kernels  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def maps(rng, *shape):
    rows = (
        torch.randn(shape, generator=rng).to(DEVICE).contiguous(memory_format=torch.channels_last)
    )
    return rows.requires_grad_()


def layout(tensor):
    """Strides; that of an axis of length 1 means nothing."""
    return [
        stride for stride, length in zip(tensor.stride(), tensor.shape, strict=True) if length > 1
    ]


@pytest.fixture
def enabled(monkeypatch):
    def switch(on):
        monkeypatch.setattr(backbone.Kernels, "enabled", on)

    return switch


@pytest.mark.parametrize(
    ("before", "after", "kernel", "stride", "expansion", "height", "width"),
    [(3, 3, 3, 1, 6, 6, 5), (3, 8, 5, 2, 6, 7, 6), (20, 8, 3, 2, 1, 6, 8), (4, 4, 5, 1, 5, 4, 7)],
)
def test_a_block_and_its_gradients_are_those_of_torch(
    rng, enabled, before, after, kernel, stride, expansion, height, width
):
    block = _InvertedResidual(before, after, kernel, stride, expansion, drop=0.0)
    for norm in block.modules():
        if isinstance(norm, nn.BatchNorm2d):
            for values in (norm.running_mean, norm.bias.data):
                values.copy_(torch.randn(values.shape, generator=rng))
            # Some are clipped at 6.
            norm.running_var.copy_(0.05 + torch.rand(norm.running_var.shape, generator=rng) / 4)
            norm.requires_grad_(False)
    block = block.eval().to(DEVICE, memory_format=torch.channels_last)
    inputs = maps(rng, 2, before, height, width)
    if expansion == 1:
        # As ReLU6 leaves them, the first block's.
        inputs = (6 * inputs.detach().sigmoid()).requires_grad_()
    weights = [weight for weight in block.parameters() if weight.requires_grad]
    outputs = []
    found = []
    with torch.backends.cudnn.flags(allow_tf32=False):
        for on in (False, True):
            enabled(on)
            outputs.append(block(inputs))
            ramp = torch.linspace(-1, 1, outputs[0].numel(), device=DEVICE).view_as(outputs[0])
            found.append(torch.autograd.grad((outputs[-1] * ramp).sum(), [inputs, *weights]))
    assert_close(outputs[1], outputs[0], rtol=1e-5, atol=1e-5)
    for mine, theirs in zip(found[1], found[0], strict=True):
        assert_close(mine, theirs, rtol=1e-4, atol=1e-5 * float(theirs.abs().max()))
    for gradients in found:
        # As fused optimizers ask.
        assert list(map(layout, gradients[1:])) == list(map(layout, weights))


@pytest.mark.parametrize("stride", [1, 2])
def test_the_tiles_of_a_gradient_have_whole_strides(stride):
    for width in range(1, 120):
        for kernel in (3, 5):
            cut = kernels.tiles(kernel, stride, width, gradient=True)
            assert cut.rows % stride == cut.columns % stride == 0
