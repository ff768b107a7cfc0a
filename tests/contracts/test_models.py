"""Every model that model.json may name can be described, rebuilt and loaded."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from tests.encoders import saved

from vicinal.arguments import build, describe
from vicinal.models import (
    MODELS,
    BNInception,
    CustomBackbone,
    EfficientNetLite,
    Embedder,
    Identity,
    ImageEncoder,
    NGrams,
    ResNet,
    SmallConvNet,
    SmallResNet,
    TextEncoder,
    TwoStreamEmbedder,
)
from vicinal.models.custom import trusted
from vicinal.models.libraries import TimmBackbone, TorchvisionBackbone


def timm_backbone():
    pytest.importorskip(
        "timm", reason="timm cannot be imported here", exc_type=(ImportError, RuntimeError)
    )
    return TimmBackbone("resnet18", size=64, pooled=False)


def torchvision_backbone():
    reason = "torchvision cannot be imported here"
    pytest.importorskip("torchvision", reason=reason, exc_type=(ImportError, RuntimeError))
    return TorchvisionBackbone("resnet18")


def encoder(kind):
    pytest.importorskip("transformers")
    with TemporaryDirectory() as folder:
        saved(Path(folder), kind)
        return (TextEncoder if kind == "Bert" else ImageEncoder)(f"hf:{folder}")


EXAMPLES = {
    "Embedder": lambda: Embedder(
        SmallConvNet(3, (4, 8)),
        5,
        pooling="generalized",
        hidden=6,
        head_norm=True,
        freeze="blocks.0.*",
    ),
    "SmallConvNet": lambda: SmallConvNet(1, (4, 8)),
    "Identity": lambda: Identity(7),
    "BNInception": BNInception,
    "ResNet": lambda: ResNet(18, freeze_norm=True, attention="fcam"),
    "SmallResNet": lambda: SmallResNet(1, (4, 8), attention="fcam"),
    "TwoStreamEmbedder": lambda: TwoStreamEmbedder(
        Embedder(Identity(7), 3), Embedder(SmallConvNet(1, (4, 8)), 3)
    ),
    "EfficientNetLite": lambda: EfficientNetLite("lite1", drop_connect=0.2),
    "NGrams": lambda: NGrams(buckets=16, sizes=(2, 3)),
    "ImageEncoder": lambda: encoder("Dinov2"),
    "TextEncoder": lambda: encoder("Bert"),
    "TimmBackbone": timm_backbone,
    "TorchvisionBackbone": torchvision_backbone,
    "CustomBackbone": lambda: CustomBackbone(SmallConvNet(1, (4, 8)), (1, 8, 8)),
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_description_rebuilds_the_same_network(name):
    model = EXAMPLES[name]()
    again = build(describe(model), MODELS | trusted({"vicinal.models.small:SmallConvNet"}))
    assert type(again) is MODELS[name]
    assert describe(again) == describe(model)
    again.load_state_dict(model.state_dict())
    assert all(
        torch.equal(a, b)
        for a, b in zip(model.state_dict().values(), again.state_dict().values(), strict=True)
    )
