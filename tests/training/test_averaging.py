"""The moving average of weights: the formula, without waiting for the device."""

import copy

import pytest
import torch
from tests.gpu import never_waiting

from vicinal.models import Embedder, SmallConvNet
from vicinal.training.trainer import average_weights


@pytest.fixture
def embedder():
    torch.manual_seed(0)
    return Embedder(SmallConvNet(1, (4, 8)), 3).train()


def test_the_average_is_the_formula_written_out(embedder, rng):
    average = copy.deepcopy(embedder)
    expected = copy.deepcopy(embedder.state_dict())
    for t, decay in enumerate((1 / 10, 2 / 11, 3 / 12, 0.25, 0.25)):
        with torch.no_grad():
            embedder(torch.randn(6, 1, 8, 8, generator=rng))  # moves the norms' statistics
            for parameter in embedder.parameters():
                parameter += torch.randn(parameter.shape, generator=rng)
        average_weights(average, embedder, 0.25, t)
        for name, tensor in embedder.state_dict().items():
            whole = not tensor.is_floating_point()
            expected[name] = tensor if whole else decay * expected[name] + (1 - decay) * tensor
    for name, tensor in average.state_dict().items():
        torch.testing.assert_close(tensor, expected[name])


@pytest.mark.gpu
def test_an_update_does_not_wait_for_the_gpu(embedder):
    average = copy.deepcopy(embedder.cuda())
    with never_waiting():
        average_weights(average, embedder, 0.9, 0)
