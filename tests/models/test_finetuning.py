"""Frozen parameters and LoRA, on networks small enough to compare in full."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from vicinal.arguments import build, describe
from vicinal.errors import ConfigError
from vicinal.models import (
    MODELS,
    Embedder,
    LoRALinear,
    ModelConfig,
    ResNet,
    count_parameters,
)
from vicinal.models.custom import trusted
from vicinal.models.finetuning import merge_lora


class Tokens(nn.Module):
    """Linear layers over each patch."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 64, 8, stride=8)
        self.norm = nn.LayerNorm(64)
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))

    def forward(self, images):
        return self.layers(self.norm(self.patches(images).flatten(2).transpose(1, 2)))


class Torchs(nn.Module):
    """torch's own encoder layer, which reads weights of its linear layers without calling them."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)

    def forward(self, tokens):
        return self.layer(tokens.unflatten(1, (4, 16)))


def transformer(**settings):
    return ModelConfig(module=Tokens(), dim=8, **settings).build(size=32)


def images(rng, count=4):
    return torch.randn(count, 3, 32, 32, generator=rng)


def train(embedder, inputs):
    optimizer = torch.optim.SGD([p for p in embedder.parameters() if p.requires_grad], lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        embedder(inputs).pow(4).sum().backward()
        optimizer.step()


def test_lora_starts_as_the_network_and_trains_its_updates_and_the_head_alone(rng):
    torch.manual_seed(0)
    plain = transformer()
    torch.manual_seed(0)
    embedder = transformer(lora=4)
    assert_close(embedder(images(rng)), plain(images(rng.manual_seed(0))))
    before = {name: value.clone() for name, value in embedder.named_parameters()}
    train(embedder, images(rng))
    changed = {
        name for name, value in embedder.named_parameters() if not torch.equal(value, before[name])
    }
    assert changed == {
        name for name in before if name.startswith("head.") or name.endswith((".a", ".b"))
    }


def test_merged_gives_a_plain_network_with_the_same_embeddings(rng):
    embedder = transformer(lora=4)
    train(embedder, images(rng))
    merged = embedder.merged()
    assert merged.lora is None and not any(
        isinstance(module, LoRALinear) for module in merged.modules()
    )
    assert merged.state_dict().keys() == transformer().state_dict().keys()
    inputs = images(rng)
    assert_close(merged.eval()(inputs), embedder.eval()(inputs), atol=1e-5, rtol=0)
    assert embedder.lora == 4  # the original keeps its updates


def test_the_update_is_the_papers(rng):
    base = nn.Linear(6, 5)
    layer = LoRALinear(copy.deepcopy(base), 2)
    nn.init.normal_(layer.b)
    inputs = torch.randn(3, 6, generator=rng)
    by_hand = inputs @ base.weight.T + base.bias + (inputs @ layer.a.T) @ layer.b.T
    assert_close(layer(inputs), by_hand)
    assert_close(inputs @ layer.weight.T + layer.bias, by_hand)


def test_layers_whose_weights_are_read_directly_are_updated_as_well(rng):
    embedder = ModelConfig(module=Torchs(), dim=4, lora=2).build(width=64)
    for module in embedder.modules():
        if isinstance(module, LoRALinear):
            nn.init.normal_(module.b)
    inputs = torch.randn(3, 64, generator=rng)
    slow = embedder.train()(inputs)
    with torch.inference_mode():
        assert_close(embedder.eval()(inputs), slow)  # torch takes another path here
        assert_close(embedder.merged().eval()(inputs), slow)


def test_a_described_network_rebuilds_with_lora():
    embedder = transformer(lora=4)
    again = build(describe(embedder), MODELS | trusted(embedder))
    again.load_state_dict(embedder.state_dict())
    assert count_parameters(again) == count_parameters(embedder)


def test_lora_where_there_is_nothing_to_update_says_what_to_do():
    with pytest.raises(ConfigError, match=r"ResNet has none wider than rank 8.*model\.freeze"):
        Embedder(ResNet(18), 4, lora=8)
    with pytest.raises(ConfigError, match="LoRA freezes the whole backbone"):
        ModelConfig(name="resnet18", lora=8, freeze="all")
    plain = Tokens()
    merge_lora(plain)  # without LoRA there is nothing to do
    assert not any(isinstance(module, LoRALinear) for module in plain.modules())


@pytest.mark.parametrize(
    ("pattern", "training"),
    [
        ("conv1.*,bn1.*,layer[12].*", {"layer3", "layer4"}),
        ("all", set()),
        ("layer[1-4].*", {"conv1", "bn1"}),
    ],
)
def test_frozen_parameters_do_not_train_and_their_norms_stay(pattern, training, rng):
    embedder = Embedder(ResNet(18), 4, freeze=pattern).train()
    before = {name: value.clone() for name, value in embedder.backbone.state_dict().items()}
    train(embedder, torch.randn(2, 3, 32, 32, generator=rng))
    after = embedder.backbone.state_dict()
    assert {
        name.split(".")[0] for name, value in after.items() if not torch.equal(value, before[name])
    } == training
    again = build(describe(embedder), MODELS)
    assert count_parameters(again) == count_parameters(embedder)


def test_freezing_what_is_not_there_says_what_there_is():
    with pytest.raises(
        ConfigError, match=r"matches freeze='block'\. Its parameters begin with conv1, bn1, layer1"
    ):
        Embedder(ResNet(18), 4, freeze="conv1*,block")
