"""timm's networks through a stand-in for timm, and through timm itself where it is installed."""

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from vicinal.description import build, describe
from vicinal.errors import ConfigError
from vicinal.models import MODELS, TimmBackbone, load_pretrained
from vicinal.models.preprocessing import HALF


class Network(nn.Module):
    """What is used of a timm network."""

    def __init__(self, pretrained):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 6, 1), nn.BatchNorm2d(6)
        self.num_features, self.pretrained_cfg = 6, {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
        if pretrained:
            nn.init.constant_(self.stem.weight, 3.0)

    def forward(self, inputs):
        return self.norm(self.stem(inputs)).mean(dim=(2, 3))


@pytest.fixture
def timm(monkeypatch):
    def create_model(name, *, pretrained, num_classes):
        assert num_classes == 0
        return Network(pretrained)

    names = ["small_net", "large_net"]
    stand_in = SimpleNamespace(create_model=create_model, is_model=names.__contains__, list_models=lambda: names)
    monkeypatch.setitem(sys.modules, "timm", stand_in)


@pytest.mark.usefixtures("timm")
def test_a_network_by_name_gives_vectors_and_carries_its_preprocessing():
    backbone = TimmBackbone("small_net")
    assert backbone(torch.zeros(2, 3, 4, 4)).shape == (2, backbone.width) == (2, 6)
    assert backbone.preprocessing == HALF
    assert describe(build(describe(backbone), MODELS)) == describe(backbone)


@pytest.mark.usefixtures("timm")
def test_norm_is_frozen_on_request():
    norm = TimmBackbone("small_net", freeze_norm=True).train().network.norm
    assert not norm.training and not norm.weight.requires_grad


@pytest.mark.usefixtures("timm")
def test_pretrained_weights_are_a_step_of_their_own():
    backbone = TimmBackbone("small_net")
    assert not (backbone.network.stem.weight == 3).any()
    assert not load_pretrained(backbone, "imagenet").missing
    assert (backbone.network.stem.weight == 3).all()


@pytest.mark.usefixtures("timm")
def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="timm has no model 'smal_net'; did you mean small_net"):
        TimmBackbone("smal_net")


def test_without_timm_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)  # what Python itself puts there for "not to be imported"
    with pytest.raises(ConfigError, match=r"pip install 'vicinal\[timm\]'"):
        TimmBackbone("small_net")


def test_a_real_network_where_timm_is_installed(rng):
    pytest.importorskip("timm", reason="timm cannot be imported here", exc_type=(ImportError, RuntimeError))
    backbone = TimmBackbone("resnet18").eval()
    with torch.no_grad():
        assert backbone(torch.randn(1, 3, 64, 64, generator=rng)).shape == (1, backbone.width)
