"""WeightAverage: the formula, raw weights that come back, resume."""

import copy

import pytest
import torch
from tests.gpu import never_waiting

from vicinal.models import Embedder, SmallConvNet
from vicinal.training.checkpoint import load_checkpoint, save_checkpoint
from vicinal.training.trainer import WeightAverage


@pytest.fixture
def embedder():
    torch.manual_seed(0)
    embedder = Embedder(SmallConvNet(1, (4, 8)), 3)
    embedder.backbone.blocks[0].weight.requires_grad_(False)
    return embedder.train()


def step(embedder, seed):
    """Move every parameter that is not frozen, and the statistics of the batch norms."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        embedder(torch.randn(6, 1, 8, 8, generator=generator))
        for parameter in embedder.parameters():
            if parameter.requires_grad:
                parameter += torch.randn(parameter.shape, generator=generator)


def values(embedder):
    return {name: tensor.clone() for name, tensor in embedder.state_dict().items()}


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)


def test_the_average_is_the_formula_written_out(embedder):
    average = WeightAverage(embedder, 0.25)
    expected = values(embedder)
    for t, decay in enumerate((1 / 10, 2 / 11, 3 / 12, 0.25, 0.25)):
        step(embedder, t)
        average.update(embedder)
        for name, tensor in values(embedder).items():
            if tensor.is_floating_point():
                expected[name] = decay * expected[name] + (1 - decay) * tensor
            else:
                expected[name] = tensor
    with average.applied(embedder):
        for name, tensor in embedder.state_dict().items():
            torch.testing.assert_close(tensor, expected[name])
        assert int(embedder.state_dict()["backbone.blocks.1.num_batches_tracked"]) == 5


def test_frozen_parameters_take_no_memory(embedder):
    names = WeightAverage(embedder, 0.9).state_dict()["average"].keys()
    assert "backbone.blocks.0.weight" not in names and "head.weight" in names


def test_training_goes_on_with_its_own_weights(embedder):
    average = WeightAverage(embedder, 0.9)
    step(embedder, 0)
    own = values(embedder)
    places = [p.data_ptr() for p in embedder.parameters()]
    with average.applied(embedder):  # no update so far: the initial weights
        assert not torch.equal(embedder.head.weight, own["head.weight"])
        assert [p.data_ptr() for p in embedder.parameters()] == places
    assert_equal(values(embedder), own)
    with pytest.raises(KeyError), average.applied(embedder):
        raise KeyError
    assert_equal(values(embedder), own)


def test_a_resumed_average_is_the_same_bit_for_bit(embedder, tmp_path):
    average = WeightAverage(embedder, 0.9)
    for seed in range(3):
        step(embedder, seed)
        average.update(embedder)
    path = save_checkpoint(
        tmp_path, 3, {"average": average.state_dict(), "embedder": embedder.state_dict()}
    )
    saved = load_checkpoint(path)
    other = copy.deepcopy(embedder)
    step(other, 99)
    other.load_state_dict(saved["embedder"])
    resumed = WeightAverage(other, 0.9)
    resumed.load_state_dict(saved["average"])
    for seed in range(3, 6):
        step(embedder, seed)
        average.update(embedder)
        step(other, seed)
        resumed.update(other)
    assert resumed.updates == 6
    assert_equal(resumed.state_dict()["average"], average.state_dict()["average"])


@pytest.mark.gpu
def test_an_update_does_not_wait_for_the_gpu(embedder):
    average = WeightAverage(embedder.cuda(), 0.9)
    with never_waiting():
        average.update(embedder)
        with average.applied(embedder):
            pass
