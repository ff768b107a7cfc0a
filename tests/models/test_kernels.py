"""Triton's kernels against torch; on a GPU, or on a CPU with TRITON_INTERPRET=1."""

import os

import pytest
import torch

from vicinal.models import backbone

triton = pytest.importorskip("triton")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

from vicinal.models import kernels  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def maps(rng, *shape):
    rows = torch.randn(shape, generator=rng).to(DEVICE).contiguous(memory_format=torch.channels_last)
    return rows.requires_grad_()


@pytest.fixture
def enabled(monkeypatch):
    def switch(on):
        monkeypatch.setattr(backbone.Kernels, "enabled", on)

    return switch


@pytest.mark.parametrize("options", [(3, 1, 1, False), (3, 2, 0, True), (2, 2, 0, True), (3, 2, 1, True)])
def test_pooling_and_its_gradient_are_those_of_torch(rng, enabled, options):
    inputs, found = maps(rng, 2, 5, 7, 6), []
    inputs.data[0, 0, 2:5, 2:5] = 1.0  # equal values: the first counts
    for on in (False, True):
        enabled(on)
        pooled = backbone.max_pool(inputs, *options)
        weights = torch.linspace(-1, 1, pooled.numel(), device=DEVICE).view_as(pooled)
        found.append((pooled, *torch.autograd.grad((pooled * weights).sum(), inputs)))
    assert torch.equal(found[0][0], found[1][0])
    torch.testing.assert_close(found[1][1], found[0][1])


@pytest.mark.parametrize("stride", [1, 2])
def test_the_tiles_of_a_gradient_have_whole_strides(stride):
    for width in range(1, 120):
        for channels in (40, 64):
            cut = kernels.tiles(stride, channels, width, gradient=True)
            assert cut.lanes * cut.block >= 64 * cut.warps // 2
            assert cut.rows % stride == cut.columns % stride == 0
