"""Networks: backbones, the embedder over them, and their description as JSON."""

from vicinal.models.attention import FCAM, Attention
from vicinal.models.backbone import Backbone
from vicinal.models.bn_inception import BNInception
from vicinal.models.convolutional import SmallConvNet
from vicinal.models.efficientnet_lite import EfficientNetLite
from vicinal.models.embedder import Embedder
from vicinal.models.googlenet import GoogLeNet
from vicinal.models.identity import Identity
from vicinal.models.orientation import OrientationHead
from vicinal.models.preprocessing import Preprocessing
from vicinal.models.resnet import ResNet
from vicinal.models.small_resnet import SmallResNet
from vicinal.models.timm import TimmBackbone
from vicinal.models.two_stream import TwoStreamEmbedder
from vicinal.models.weights import LoadReport, load_pretrained, load_weights

# The only constructors that model.json may name; a new model is added here.
MODELS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        Embedder,
        TwoStreamEmbedder,
        SmallConvNet,
        SmallResNet,
        Identity,
        GoogLeNet,
        BNInception,
        ResNet,
        EfficientNetLite,
        TimmBackbone,
    )
}

__all__ = [
    "FCAM",
    "MODELS",
    "Attention",
    "BNInception",
    "Backbone",
    "EfficientNetLite",
    "Embedder",
    "GoogLeNet",
    "Identity",
    "LoadReport",
    "OrientationHead",
    "Preprocessing",
    "ResNet",
    "SmallConvNet",
    "SmallResNet",
    "TimmBackbone",
    "TwoStreamEmbedder",
    "load_pretrained",
    "load_weights",
]
