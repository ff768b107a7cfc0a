"""SmallResNet: its shape."""

import pytest
import torch

from vicinal.errors import ConfigError
from vicinal.models import SmallResNet


@pytest.mark.parametrize(("stride", "side"), [(1, 8), (2, 4)])
def test_each_stage_but_the_first_halves_the_side(stride, side):
    network = SmallResNet(1, (4, 8, 12), blocks=2, stride=stride)
    assert network(torch.zeros(2, 1, 32, 32)).shape == (2, 12, side, side)
    assert network.width == 12 and len(network.stages) == 6


def test_a_network_without_stages_is_refused():
    with pytest.raises(ConfigError, match=r"widths=\(\)"):
        SmallResNet(1, ())
