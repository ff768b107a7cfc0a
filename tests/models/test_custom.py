"""Networks of the user's own: found width, untouched random state, and rebuilding only when
trusted."""

import sys
from types import ModuleType

import pytest
import torch
from torch import nn

from vicinal.arguments import build, describe
from vicinal.errors import ConfigError
from vicinal.models import MODELS, CustomBackbone, Embedder, ModelConfig
from vicinal.models.custom import trusted


class Net(nn.Module):
    """Keeps its argument, draws in its forward pass, and gives a map, tokens or a vector."""

    def __init__(self, width=6, kind="map"):
        super().__init__()
        self.width = width
        self.kind = kind
        self.layer = nn.Conv2d(3, width, 3)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, images):
        maps = self.norm(self.layer(images + torch.rand(())))
        if self.kind == "strange":
            return {"features": maps}
        return {
            "map": maps,
            "tokens": maps.flatten(2).transpose(1, 2),
            "vector": maps.mean(dim=(2, 3)),
        }[self.kind]


class Forgetful(nn.Module):
    def __init__(self, hidden_width=6):
        super().__init__()
        self.layer = nn.Linear(4, hidden_width)

    def forward(self, vectors):
        return self.layer(vectors)


@pytest.fixture
def package(monkeypatch):
    """The classes above as a package that can be imported by name."""
    module = ModuleType("mypackage")
    for kind in (Net, Forgetful):
        monkeypatch.setattr(kind, "__module__", "mypackage")
        setattr(module, kind.__name__, kind)
    monkeypatch.setitem(sys.modules, "mypackage", module)


@pytest.mark.parametrize("kind", ["map", "tokens", "vector"])
def test_the_width_is_found_without_a_trace(kind):
    net = Net(7, kind).train()
    state = torch.get_rng_state()
    statistics = net.norm.running_mean.clone()
    backbone = CustomBackbone(net, (3, 8, 8))
    assert backbone.width == 7 and net.training and net.norm.training
    assert torch.equal(torch.get_rng_state(), state) and torch.equal(
        net.norm.running_mean, statistics
    )
    assert Embedder(backbone, 3)(torch.zeros(2, 3, 8, 8)).shape == (2, 3)


def test_outputs_and_inputs_that_do_not_fit_are_explained():
    with pytest.raises(ConfigError, match=r"got dict from .*:Net"):
        CustomBackbone(Net(kind="strange"), (3, 8, 8))
    with pytest.raises(
        ConfigError, match=r"cannot take an input of shape \[2, 1, 8, 8\].*transform\.channels"
    ):
        CustomBackbone(Net(), (1, 8, 8))
    with pytest.raises(ConfigError, match=r"gives vectors, got model\.pooling=max"):
        ModelConfig(module=Net(kind="vector"), pooling="max").build(size=8)


@pytest.mark.usefixtures("package")
def test_a_description_names_the_class_and_rebuilds_only_when_trusted():
    embedder = ModelConfig(module=Net(5), dim=3).build(size=8)
    described = describe(embedder)
    assert described["backbone"] == {
        "class": "CustomBackbone",
        "factory": "mypackage:Net",
        "arguments": {"width": 5, "kind": "map"},
        "shape": [3, 8, 8],
    }
    with pytest.raises(ConfigError, match="--trust mypackage:Net"):
        build(described, MODELS)
    for trust in (
        {"mypackage:Net"},
        "mypackage:Net",
        Net,
        {"mypackage:Net": Net},
        embedder,
        Net(5),
    ):
        again = build(described, MODELS | trusted(trust))
        again.load_state_dict(embedder.state_dict())
        assert describe(again) == described


@pytest.mark.usefixtures("package")
def test_a_class_that_forgets_its_arguments_is_rebuilt_without_them():
    embedder = ModelConfig(module=Forgetful(9), dim=3).build(width=4)
    described = describe(embedder)
    assert described["backbone"]["arguments"] is None
    with pytest.raises(ConfigError, match=r"module=network\)\.$"):
        build(described, MODELS)
    # A copy of the live network.
    build(described, MODELS | trusted(embedder)).load_state_dict(embedder.state_dict())
    assert build(described, MODELS | trusted(Forgetful)).width == 6


@pytest.mark.usefixtures("package")
def test_names_that_cannot_be_imported_are_explained():
    with pytest.raises(ConfigError, match="'mypackage:Nat' cannot be imported"):
        trusted(["mypackage:Nat"])
    with pytest.raises(ConfigError, match="model mypackage:Net is code of your own"):
        ModelConfig(name="mypackage:Net")


def test_one_module_serves_two_builds():
    net = Net()
    first = ModelConfig(module=net, dim=3, freeze="all").build(size=8)
    assert all(p.requires_grad for p in net.parameters()) and first.backbone.module is not net


def test_a_trusted_class_is_also_found_in_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "my_net_here.py").write_text("class Net:\n    pass\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert trusted(["my_net_here:Net"])["my_net_here:Net"].__name__ == "Net" and sys.path == before
    with pytest.raises(
        ConfigError, match=r"'my_net_here' cannot be imported.*package\.module:Class"
    ):
        trusted(["my_net_here"])
