"""Networks: backbones, the embedder over them, and their description as JSON."""

from vicinal.models.attention import FCAM, Attention, AttentionPooling
from vicinal.models.backbone import Backbone
from vicinal.models.bn_inception import BNInception
from vicinal.models.config import BACKBONES, ModelConfig, backbone_class
from vicinal.models.convolutional import SmallConvNet
from vicinal.models.custom import CustomBackbone, trusted
from vicinal.models.efficientnet_lite import EfficientNetLite
from vicinal.models.embedder import Embedder
from vicinal.models.finetuning import LoRALinear, count_parameters, layer_groups
from vicinal.models.googlenet import GoogLeNet
from vicinal.models.identity import Identity
from vicinal.models.orientation import OrientationHead
from vicinal.models.preprocessing import Preprocessing
from vicinal.models.resnet import ResNet
from vicinal.models.small_resnet import SmallResNet
from vicinal.models.timm import TimmBackbone
from vicinal.models.torchvision import TorchvisionBackbone
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
        TorchvisionBackbone,
        CustomBackbone,
    )
}

__all__ = [
    "BACKBONES",
    "FCAM",
    "MODELS",
    "Attention",
    "AttentionPooling",
    "BNInception",
    "Backbone",
    "CustomBackbone",
    "EfficientNetLite",
    "Embedder",
    "GoogLeNet",
    "Identity",
    "LoRALinear",
    "LoadReport",
    "ModelConfig",
    "OrientationHead",
    "Preprocessing",
    "ResNet",
    "SmallConvNet",
    "SmallResNet",
    "TimmBackbone",
    "TorchvisionBackbone",
    "TwoStreamEmbedder",
    "backbone_class",
    "count_parameters",
    "layer_groups",
    "load_pretrained",
    "load_weights",
    "trusted",
]
