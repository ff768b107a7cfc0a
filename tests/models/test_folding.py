"""A norm that does not move is folded into its convolution without a trace in values, gradients or statistics."""

import copy

import pytest
import torch
from torch import nn

from vicinal.models.folding import convolve


def pair(rng, *, affine: bool = True, bias: bool = False) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    convolution, norm = nn.Conv2d(3, 6, 3, stride=2, padding=1, groups=3, bias=bias), nn.BatchNorm2d(6, affine=affine)
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
    folded, plain = convolve(inputs, convolution, norm), norm(convolution(inputs))
    torch.testing.assert_close(folded, plain)
    weights = torch.randn(plain.shape, generator=rng, dtype=torch.float64)
    ours, theirs = (torch.autograd.grad((weights * maps).sum(), parameters) for maps in (folded, plain))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


def test_a_norm_in_training_normalises_by_its_batch_and_counts_it(rng):
    convolution, norm = pair(rng)
    twin = copy.deepcopy(norm)
    inputs = torch.randn(4, 3, 8, 8, generator=rng, dtype=torch.float64)
    assert torch.equal(convolve(inputs, convolution, norm), twin(convolution(inputs)))
    assert torch.equal(norm.running_mean, twin.running_mean)
    assert int(norm.num_batches_tracked) == 1
