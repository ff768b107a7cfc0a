"""Networks: backbones, the embedder over them, and their description as JSON."""

from vicinal.models.backbone import Backbone, load_pretrained
from vicinal.models.config import BACKBONES, PREFIXES, ModelConfig
from vicinal.models.custom import CustomBackbone
from vicinal.models.efficientnet_lite import EfficientNetLite
from vicinal.models.embedder import Embedder, TwoStreamEmbedder
from vicinal.models.encoders import ImageEncoder, TextEncoder
from vicinal.models.finetuning import LoRALinear, count_parameters
from vicinal.models.inception import BNInception
from vicinal.models.resnet import FCAM, ResNet, SmallResNet
from vicinal.models.small import Identity, NGrams, SmallConvNet

# The only constructors that model.json may name.
_EMBEDDERS = (Embedder, TwoStreamEmbedder, CustomBackbone)
MODELS: dict[str, type] = {
    kind.__name__: kind for kind in (*_EMBEDDERS, *BACKBONES.values(), *PREFIXES.values())
}

__all__ = ["BACKBONES", "MODELS", "Backbone", "Embedder", "ModelConfig", "TwoStreamEmbedder"]
__all__ += [
    "BNInception",
    "EfficientNetLite",
    "Identity",
    "ResNet",
    "SmallConvNet",
    "SmallResNet",
]
__all__ += ["ImageEncoder", "NGrams", "TextEncoder"]
__all__ += [
    "FCAM",
    "CustomBackbone",
    "LoRALinear",
    "count_parameters",
    "load_pretrained",
]
