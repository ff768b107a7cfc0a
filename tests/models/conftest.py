"""Networks and pictures that are the same on every machine: filled by formula, not from a
generator."""

import zlib

import pytest
import torch

PRIME = 1_000_003


def _scattered(name: str, count: int) -> torch.Tensor:
    """Numbers in [-0.5, 0.5) that look random and follow from a name alone; exact in 64-bit
    integers."""
    index = torch.arange(count, dtype=torch.int64)
    return (
        (index * index * 7919 + index * 104_729 + zlib.crc32(name.encode())) % PRIME
    ) / PRIME - 0.5


@pytest.fixture(scope="session")
def filled():
    """``filled(module)``: the module in evaluation mode, each tensor set from its name."""

    def fill(module: torch.nn.Module) -> torch.nn.Module:
        for name, tensor in module.state_dict().items():
            values = _scattered(name, tensor.numel()).reshape(tensor.shape)
            if tensor.ndim == 4:
                # He's deviation √(2 / fan-in); a uniform has √(1/12).
                values *= (24 / tensor[0].numel()) ** 0.5
            elif name.endswith(("running_var", ".weight")):
                values += 1.0
            tensor.copy_(values)
        return module.eval()

    return fill


@pytest.fixture(scope="session")
def picture():
    """``picture(side)``: one image [1 3 side side] in -1..1."""

    def make(side: int) -> torch.Tensor:
        return 2 * _scattered("picture", 3 * side * side).reshape(1, 3, side, side).float()

    return make
