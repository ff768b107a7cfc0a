"""The model slot: names, arguments, heads, and the same random draws as a network built by hand."""

import pytest
import torch
from torch import nn

from vicinal.arguments import describe
from vicinal.errors import ConfigError
from vicinal.models import (
    BACKBONES,
    EfficientNetLite,
    Embedder,
    Identity,
    ModelConfig,
    ResNet,
    SmallResNet,
)
from vicinal.models.backbone import CAFFE, HALF, IMAGENET


def same(one, other):
    states = one.state_dict(), other.state_dict()
    return states[0].keys() == states[1].keys() and all(
        torch.equal(v, states[1][k]) for k, v in states[0].items()
    )


@pytest.mark.parametrize(
    ("config", "facts", "by_hand"),
    [
        (
            ModelConfig(
                name="small_resnet", arguments={"widths": [4, 8], "attention": "fcam"}, dim=5
            ),
            {"channels": 1},
            lambda: Embedder(SmallResNet(1, (4, 8), attention="fcam"), 5),
        ),
        (
            ModelConfig(name="identity", dim=5, head_norm=True, start="glorot"),
            {"width": 7},
            lambda: Embedder(Identity(7), 5, head_norm=True),
        ),
        (
            ModelConfig(
                name="efficientnet_lite1", weights="none", freeze_norm=True, pooling="generalized"
            ),
            {},
            lambda: Embedder(
                EfficientNetLite("lite1", freeze_norm=True), 512, pooling="generalized"
            ),
        ),
    ],
)
def test_a_config_draws_what_its_parts_would(config, facts, by_hand):
    torch.manual_seed(3)
    built = config.build(**facts)
    torch.manual_seed(3)
    expected = by_hand()
    assert same(built, expected) and describe(built) == describe(expected)


def test_heads():
    features = torch.randn(4, 6)
    linear, mlp, none = (
        ModelConfig(name="identity", dim=3, head=head, normalize=False).build(width=6)
        for head in ("linear", "mlp", "none")
    )
    assert isinstance(linear.head, nn.Linear) and linear(features).shape == mlp(features).shape == (
        4,
        3,
    )
    assert [type(layer) for layer in mlp.head] == [nn.Linear, nn.ReLU, nn.Linear] and mlp.head[
        0
    ].out_features == 6
    assert torch.equal(none(features), features) and none.dim is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "resnet50x"}, r"unknown model 'resnet50x'; did you mean 'resnet50'\?"),
        (
            {"name": "small", "arguments": {"width": 3}},
            r"argument of model small 'width'; did you mean 'widths'\?",
        ),
        ({"name": "resnet18", "arguments": {"depth": 50}}, r"argument of model resnet18 'depth'"),
        ({"head": "mpl"}, r"did you mean 'mlp'\?"),
        ({"pooling": "avg"}, r"model.pooling: unknown value 'avg'"),
        ({"start": "pca"}, r"model\.start"),
        ({"dim": 0}, r"model\.dim must be at least 1 .*got 0"),
        ({"start": "principal", "head": "mlp"}, r"model\.start=principal computes a linear head"),
        (
            {"start": "discriminant", "head_norm": True},
            r"model\.head_norm=True\. Set .* model\.head_norm=false",
        ),
        (
            {"start": "glorot", "dim": None},
            r"model\.start=glorot .* need a head, got .* model\.dim=None",
        ),
        (
            {"head_norm": True, "head": "none"},
            r"model\.head_norm=True need a head, got model\.head=none",
        ),
        ({"name": "small", "weights": "imagenet"}, "small has no public weights"),
        ({"name": "small", "freeze_norm": True}, r"Use model\.freeze"),
    ],
)
def test_settings_that_cannot_work_are_rejected_before_anything_is_built(settings, message):
    with pytest.raises(ConfigError, match=message):
        ModelConfig(**settings)


def test_data_that_do_not_fit_are_rejected():
    with pytest.raises(ConfigError, match=r"identity does not take images\. Set model\.name=small"):
        ModelConfig(name="identity").build()
    with pytest.raises(
        ConfigError, match=r"small does not take feature vectors\. Set model\.name=identity"
    ):
        ModelConfig(name="small").build(width=3)
    with pytest.raises(ConfigError, match=r"takes 3 channels, got 1\. Set transform\.channels=3"):
        ModelConfig(name="resnet18", weights="none").build(channels=1)
    with pytest.raises(ConfigError, match=r"takes the class token.*Set model\.pooling=average"):
        ModelConfig(name="small", pooling="token").build()


def test_preprocessing_is_known_without_building(monkeypatch):
    monkeypatch.setattr(nn.Module, "__init__", lambda *_: pytest.fail("a network was built"))
    found = {name: ModelConfig(name=name).expected for name in BACKBONES}
    assert found["resnet50"] == IMAGENET and found["bn_inception"] == CAFFE
    assert found["efficientnet_lite0"].mean == HALF.mean
    assert [found[f"efficientnet_lite{n}"].size for n in range(3)] == [224, 240, 260]
    assert found["small"].size == 64


def test_weights_settle_whether_batch_norm_is_frozen(tmp_path, filled):
    assert not ModelConfig(name="resnet18", weights="none").build().backbone.freeze_norm
    torch.save(filled(ResNet(18)).state_dict(), tmp_path / "w.pth")
    config = ModelConfig(name="resnet18", weights=str(tmp_path / "w.pth"))
    assert config.has_weights() and config.build().backbone.freeze_norm
    assert not ModelConfig(name="resnet18", weights="missing.pth").has_weights()
    with pytest.raises(
        ConfigError, match=r"missing\.pth does not exist\. Check the path in model\.weights"
    ):
        ModelConfig(name="resnet18", weights="missing.pth").build()


def test_auto_weights_are_resolved_and_asking_for_them_draws_nothing(monkeypatch):
    assert ModelConfig().weights == "imagenet" and ModelConfig(name="small").weights == "none"
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
    state = torch.get_rng_state()
    assert not ModelConfig().has_weights() and ModelConfig(name="small").has_weights()
    assert torch.equal(torch.get_rng_state(), state)
