"""Networks of timm and torchvision through stand-ins for them, and through themselves where they
are installed."""

import sys
from enum import Enum
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from vicinal.arguments import build, describe
from vicinal.errors import ConfigError
from vicinal.models import MODELS, ModelConfig, libraries, load_pretrained
from vicinal.models.backbone import Preprocessing, load_weights
from vicinal.models.libraries import TimmBackbone, TorchvisionBackbone

STATED = Preprocessing(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), size=8, interpolation="bicubic")
NO_ROUTE = r"nor could they be downloaded: no route to host.*model\.weights=none"
INSTALLED = {"reason": "it cannot be imported here", "exc_type": (ImportError, RuntimeError)}


class Conv(nn.Module):
    """What is used of a timm network that gives maps."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 1)
        self.norm = nn.BatchNorm2d(6)
        self.pooled = True
        self.pretrained_cfg = {"classifier": "fc"}

    def reset_classifier(self, classes, pooling):
        assert (classes, pooling) == (0, "")
        self.pooled = False

    def forward(self, inputs):
        maps = self.norm(self.stem(inputs))
        return maps.mean(dim=(2, 3)) if self.pooled else maps


class Tokens(Conv):
    """One with a position embedding, a class token and a pooling that learns."""

    num_prefix_tokens = 1

    def __init__(self, img_size=8):
        super().__init__()
        self.side = img_size
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + img_size**2, 6))
        self.attn_pool = nn.Linear(6, 6)

    def reset_classifier(self, classes, pooling):
        super().reset_classifier(classes, pooling)
        self.attn_pool = nn.Identity()

    def forward(self, inputs):
        assert inputs.shape[-1] == self.side
        patches = self.stem(inputs).flatten(2).transpose(1, 2)
        tokens = torch.cat([patches.mean(dim=1, keepdim=True), patches], dim=1) + self.pos_embed
        return self.attn_pool(tokens[:, 0]) if self.pooled else tokens


class Rigid(Tokens):
    """One whose size cannot be chosen."""

    def __init__(self):
        super().__init__()


class Last(Conv):
    """One whose channels are the last axis."""

    output_fmt = "NHWC"

    def forward(self, inputs):
        maps = super().forward(inputs)
        return maps if self.pooled else maps.permute(0, 2, 3, 1)


KINDS = {"conv": Conv, "tokens": Tokens, "rigid": Rigid, "last": Last}


@pytest.fixture
def timm(monkeypatch):
    def create_model(name, *, pretrained, num_classes, **options):
        assert num_classes == 0
        network = KINDS[name](**options)
        if pretrained:
            if name == "last":
                raise OSError("no route to host\nat great length")
            nn.init.constant_(network.stem.weight, 3.0)
        return network

    def get_pretrained_cfg(name):
        if "." in name:
            raise RuntimeError("Invalid pretrained tag (x) for conv.")
        return SimpleNamespace(to_dict=lambda: {"input_size": (3, 8, 8)})

    def resolve_data_config(*, pretrained_cfg):
        return {**pretrained_cfg, "mean": (0.5,) * 3, "std": (0.5,) * 3, "interpolation": "bicubic"}

    def resample(tensors, model):
        return {
            n: v[:, :1].expand(model.pos_embed.shape) if n == "pos_embed" else v
            for n, v in tensors.items()
        }

    stand_in = ModuleType("timm")
    vars(stand_in).update(
        create_model=create_model,
        is_model=lambda name: name.split(".")[0] in KINDS,
        list_models=lambda: list(KINDS),
        get_pretrained_cfg=get_pretrained_cfg,
        data=SimpleNamespace(resolve_data_config=resolve_data_config),
    )
    monkeypatch.setitem(sys.modules, "timm", stand_in)
    monkeypatch.setattr(
        sys.modules[Tokens.__module__], "checkpoint_filter_fn", resample, raising=False
    )


@pytest.mark.usefixtures("timm")
def test_a_network_by_name_gives_vectors_and_carries_its_preprocessing():
    backbone = TimmBackbone("conv")
    assert backbone(torch.zeros(2, 3, 4, 4)).shape == (2, backbone.width) == (2, 6)
    assert backbone.preprocessing == ModelConfig(name="timm:conv").expected == STATED
    assert describe(build(describe(backbone), MODELS)) == describe(backbone)


@pytest.mark.usefixtures("timm")
@pytest.mark.parametrize(
    ("name", "pooling", "shape"),
    [
        ("conv", "generalized", (2, 6, 5, 5)),
        ("last", "max", (2, 6, 5, 5)),
        ("tokens", "token", (2, 26, 6)),
        ("tokens", "average", (2, 26, 6)),
        ("tokens", None, (2, 6)),
    ],
)
def test_a_chosen_pooling_takes_the_place_of_timms(name, pooling, shape):
    embedder = ModelConfig(name=f"timm:{name}", pooling=pooling, weights="none", dim=4).build(
        size=5
    )
    inputs = torch.randn(2, 3, 5, 5)
    assert embedder.backbone(inputs).shape == shape and embedder(inputs).shape == (2, 4)
    again = build(describe(embedder), MODELS)
    again.load_state_dict(embedder.state_dict())
    assert torch.equal(again.eval()(inputs), embedder.eval()(inputs))


@pytest.mark.usefixtures("timm")
def test_a_position_embedding_gets_the_size_of_the_images_and_weights_are_resampled(tmp_path):
    source = Tokens()
    state = {f"model.{name}": value for name, value in source.state_dict().items()}
    torch.save({"model": {**state, "model.fc.weight": torch.zeros(9, 6)}}, tmp_path / "w.pth")
    backbone = TimmBackbone("tokens", size=4, pooled=False)
    assert backbone.network.pos_embed.shape == (1, 17, 6)
    load_pretrained(backbone, tmp_path / "w.pth")
    assert torch.equal(backbone.network.stem.weight, source.stem.weight)


@pytest.mark.usefixtures("timm")
def test_pretrained_weights_are_a_step_of_their_own():
    backbone = TimmBackbone("conv")
    assert not (backbone.network.stem.weight == 3).any()
    load_pretrained(backbone, "imagenet")
    assert (backbone.network.stem.weight == 3).all()


@pytest.mark.parametrize(
    ("name", "pooling", "size"),
    [
        ("resnet18", None, 64),
        ("test_convnext", "generalized", 64),
        ("test_vit", None, 96),
        ("test_vit", "token", 96),
        ("swin_tiny_patch4_window7_224", "max", 64),
    ],
)
def test_a_real_network_where_timm_is_installed(name, pooling, size, rng):
    pytest.importorskip("timm", **INSTALLED)
    embedder = (
        ModelConfig(name=f"timm:{name}", pooling=pooling, weights="none", dim=8)
        .build(size=size)
        .eval()
    )
    with torch.no_grad():
        assert embedder(torch.randn(2, 3, size, size, generator=rng)).shape == (2, 8)
    assert build(describe(embedder), MODELS).state_dict().keys() == embedder.state_dict().keys()


def test_dinov2_takes_224_pixels_and_loads_weights_of_518(tmp_path):
    timm = pytest.importorskip("timm", **INSTALLED)
    source = timm.create_model("vit_small_patch14_dinov2", depth=2)
    torch.save(
        {"state_dict": {f"module.{n}": v for n, v in source.state_dict().items()}},
        tmp_path / "w.pth",
    )
    backbone = TimmBackbone("vit_small_patch14_dinov2", size=224)
    del backbone.network.blocks[2:]
    load_pretrained(backbone, tmp_path / "w.pth")
    assert backbone.network.pos_embed.shape == (1, 257, 384)
    assert backbone.preprocessing.size == 518 and backbone.preprocessing.interpolation == "bicubic"


def test_a_torchvision_of_another_torch_is_named(monkeypatch):
    def broken(name):
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(libraries.importlib, "import_module", broken)
    with pytest.raises(ConfigError, match=r"torchvision and torch .* do not match.*constraints"):
        TimmBackbone("conv")


# -- torchvision ----------------------------------------------------------------------------------


class Plain(nn.Module):
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
        get_model=lambda name, *, weights: Plain(),
        list_models=lambda *, module: ["conv"],
        get_model_weights=lambda name: Weights,
    )
    monkeypatch.setitem(sys.modules, "torchvision", ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.models", models)


@pytest.mark.usefixtures("torchvision")
def test_a_network_of_torchvision_gives_maps_without_its_classifier(tmp_path):
    config = ModelConfig(name="torchvision:conv", weights="none", pooling="max", dim=4)
    assert config.expected == STATED
    embedder = config.build(size=5)
    assert embedder.backbone(torch.zeros(2, 3, 5, 5)).shape == (2, 6, 5, 5)
    assert describe(build(describe(embedder), MODELS)) == describe(embedder)
    torch.save(Plain().state_dict(), tmp_path / "w.pth")
    load_pretrained(embedder.backbone, tmp_path / "w.pth")


@pytest.mark.usefixtures("timm", "torchvision")
@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (TimmBackbone, "tokns", "timm has no model 'tokns'; did you mean tokens"),
        (TimmBackbone, "conv.x", "Invalid pretrained tag .* Leave out what follows the dot"),
        (
            TimmBackbone,
            "rigid",
            r"rigid cannot take images of 5 pixels: .*\. Set transform\.size=8",
        ),
        (TimmBackbone, "last", NO_ROUTE),
        (TorchvisionBackbone, "conf", "unknown model of torchvision 'conf'; did you mean 'conv'"),
        (TorchvisionBackbone, "conv", NO_ROUTE),
    ],
)
def test_names_sizes_and_weights_that_are_not_there_are_explained(kind, name, message):
    with pytest.raises(ConfigError, match=message):
        load_pretrained(kind(name, size=5), "imagenet")


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
