"""FCAM: its gates, its size, and what it leaves as it was."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from vicinal.models import FCAM, ResNet, SmallResNet
from vicinal.models.resnet import attend


@pytest.fixture
def module(rng):
    module = FCAM(32)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5, generator=rng)
    return module.double()


@pytest.fixture
def maps(rng):
    return torch.randn(2, 32, 15, 15, generator=rng, dtype=torch.float64)


def by_hand(module, maps):
    """The formulas as printed, with the authors' ReLU after each context filter."""

    def mlp(v):
        inner = (module.squeeze.weight[:, :, 0, 0] @ v).clamp(min=0)
        return module.expand.weight[:, :, 0, 0] @ inner

    results = []
    for image in maps:
        flat = image.flatten(1)
        gate = 1 / (1 + torch.exp(-(mlp(flat.max(dim=1).values) + mlp(flat.mean(dim=1)))))
        inner = gate[:, None, None] * image
        masks = torch.stack([inner.mean(dim=0), inner.max(dim=0).values])[None]
        contexts = [
            nn.functional.conv2d(masks, c.weight, c.bias, padding=c.kernel_size[0] // 2).clamp(
                min=0
            )
            for c in module.contexts
        ]
        weights = module.mix.weight[0, :, 0, 0]
        mixed = sum(w * c[0, 0] for w, c in zip(weights, contexts, strict=True)) + module.mix.bias
        results.append(inner / (1 + torch.exp(-mixed)))
    return torch.stack(results)


def test_equals_the_printed_formulas(module, maps):
    assert_close(module(maps), by_hand(module, maps))


@pytest.mark.parametrize(
    "make", [lambda a: SmallResNet(1, (16, 32), attention=a), lambda a: ResNet(18, attention=a)]
)
def test_attention_leaves_all_that_is_drawn_besides_as_it_was(make):
    drawn = {}
    for attention in ("none", "fcam"):
        torch.manual_seed(0)
        network = make(attention)
        drawn[attention] = network.state_dict(), torch.rand(3)
    plain, after = drawn["none"]
    attended, after_too = drawn["fcam"]
    assert all(torch.equal(value, attended[name]) for name, value in plain.items())
    assert len(attended) > len(plain) and torch.equal(after, after_too)


@pytest.mark.parametrize(("depth", "blocks", "widest"), [(18, 8, 512), (50, 16, 2048)])
def test_stands_in_every_block_before_the_input_is_added(depth, blocks, widest):
    found = [
        module for module in ResNet(depth, attention="fcam").modules() if isinstance(module, FCAM)
    ]
    assert len(found) == blocks and max(module.squeeze.in_channels for module in found) == widest


def test_a_block_adds_its_input_to_what_attention_lets_through(rng):
    network = SmallResNet(1, (8,)).eval()
    maps = torch.rand(1, 8, 5, 5, generator=rng)
    (block,) = network.stages
    inner = []
    block.attention = nn.Identity()
    block.attention.register_forward_hook(lambda module, given, out: inner.append(out))
    plain = block(maps)
    attend(network, "fcam")
    assert isinstance(block.attention, FCAM)
    assert_close(plain, (inner[0] + maps).relu())
    assert_close(block(maps), (block.attention(inner[0]) + maps).relu())
