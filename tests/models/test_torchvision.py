"""torchvision's networks through a stand-in, and through torchvision itself where it is
installed."""

import sys
from enum import Enum
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from vicinal.arguments import build, describe
from vicinal.errors import ConfigError
from vicinal.models import MODELS, ModelConfig, load_pretrained
from vicinal.models.backbone import Preprocessing, load_weights
from vicinal.models.libraries import TorchvisionBackbone

STATED = Preprocessing(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), size=8, interpolation="bicubic")
INSTALLED = {
    "reason": "torchvision cannot be imported here",
    "exc_type": (ImportError, RuntimeError),
}


class Conv(nn.Module):
    """What is used of a torchvision network."""

    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(3, 6, 1)
        self.blocks = nn.ModuleList([nn.BatchNorm2d(6)])
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(6, 10)


@pytest.fixture
def torchvision(monkeypatch):
    class Weights(Enum):
        DEFAULT = 1

        def transforms(self):
            interpolation = SimpleNamespace(value="bicubic")
            return SimpleNamespace(
                mean=[0.5] * 3, std=[0.5] * 3, crop_size=[8], interpolation=interpolation
            )

        def get_state_dict(self, *, progress, check_hash):
            raise OSError("no route to host")

    models = ModuleType("torchvision.models")
    vars(models).update(
        get_model=lambda name, *, weights: Conv(),
        list_models=lambda *, module: ["conv"],
        get_model_weights=lambda name: Weights,
    )
    monkeypatch.setitem(sys.modules, "torchvision", ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.models", models)


@pytest.mark.usefixtures("torchvision")
def test_a_network_by_name_gives_maps_without_its_classifier(tmp_path):
    config = ModelConfig(name="torchvision:conv", weights="none", pooling="max", dim=4)
    assert config.expected == STATED
    embedder = config.build(size=5)
    assert embedder.backbone(torch.zeros(2, 3, 5, 5)).shape == (2, 6, 5, 5)
    assert describe(build(describe(embedder), MODELS)) == describe(embedder)
    torch.save(Conv().state_dict(), tmp_path / "w.pth")
    load_pretrained(embedder.backbone, tmp_path / "w.pth")


@pytest.mark.usefixtures("torchvision")
def test_unknown_names_and_missing_weights_are_explained():
    with pytest.raises(
        ConfigError, match="unknown model of torchvision 'conf'; did you mean 'conv'"
    ):
        TorchvisionBackbone("conf")
    with pytest.raises(
        ConfigError, match=r"nor could they be downloaded: no route to host.*model\.weights=none"
    ):
        load_pretrained(TorchvisionBackbone("conv"), "imagenet")


def test_without_torchvision_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    with pytest.raises(ConfigError, match="need torchvision, which cannot be imported here"):
        TorchvisionBackbone("resnet18")


@pytest.mark.parametrize(
    "name",
    [
        "resnet18",
        "densenet121",
        "mobilenet_v3_small",
        "shufflenet_v2_x0_5",
        "googlenet",
        "swin_t",
        "regnet_y_400mf",
    ],
)
def test_maps_of_a_real_network_are_those_that_it_pools(name, rng):
    """The network's own classifier over the average of our maps gives its own logits."""
    models = pytest.importorskip("torchvision.models", **INSTALLED)
    backbone = TorchvisionBackbone(name, size=64).eval()
    whole = models.get_model(name, weights=None, **backbone._options()).eval()
    whole.load_state_dict({**whole.state_dict(), **backbone.network.state_dict()})
    inputs = torch.randn(2, 3, 64, 64, generator=rng)
    classifier = next(
        getattr(whole, part) for part in ("fc", "classifier", "head") if hasattr(whole, part)
    )
    with torch.no_grad():
        pooled = backbone(inputs).mean(dim=(2, 3))
        assert_close(classifier(pooled), whole(inputs), atol=1e-4, rtol=1e-4)
    load_weights(backbone.trunk, whole.state_dict(), ignore=backbone.classifiers)


def test_tokens_of_a_real_transformer_at_another_size(tmp_path, rng):
    models = pytest.importorskip("torchvision.models", **INSTALLED)
    whole = models.get_model("vit_b_32", weights=None)
    torch.save(whole.state_dict(), tmp_path / "w.pth")
    config = ModelConfig(name="torchvision:vit_b_32", weights=str(tmp_path / "w.pth"), dim=8)
    embedder = config.build(size=64).eval()
    assert embedder.pooling == "token" and config.expected.size == 224
    assert embedder.backbone(torch.randn(1, 3, 64, 64, generator=rng)).shape == (1, 5, 768)
    native = ModelConfig(
        name="torchvision:vit_b_32", weights=str(tmp_path / "w.pth"), head="none", normalize=False
    )
    inputs = torch.randn(1, 3, 224, 224, generator=rng)
    with torch.no_grad():
        assert_close(whole.eval().heads(native.build().eval()(inputs)), whole(inputs))
