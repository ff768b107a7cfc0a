"""Networks: backbones, the embedder over them, and their description as JSON."""

from vicinal.models.attention import FCAM, Attention, AttentionPooling
from vicinal.models.backbone import Backbone, Preprocessing
from vicinal.models.config import BACKBONES, ModelConfig, backbone_class
from vicinal.models.custom import CustomBackbone, trusted
from vicinal.models.efficientnet_lite import EfficientNetLite
from vicinal.models.embedder import Embedder, TwoStreamEmbedder
from vicinal.models.finetuning import LoRALinear, count_parameters, layer_groups
from vicinal.models.inception import BNInception, GoogLeNet
from vicinal.models.libraries import TimmBackbone, TorchvisionBackbone
from vicinal.models.orientation import OrientationHead
from vicinal.models.resnet import ResNet, SmallResNet
from vicinal.models.small import Identity, SmallConvNet
from vicinal.models.weights import LoadReport, load_pretrained, load_weights

# The only constructors that model.json may name; a new model is added here.
_EMBEDDERS = (Embedder, TwoStreamEmbedder)
_BACKBONES = (SmallConvNet, SmallResNet, Identity, GoogLeNet, BNInception, ResNet, EfficientNetLite)
_WRAPPERS = (TimmBackbone, TorchvisionBackbone, CustomBackbone)
MODELS: dict[str, type] = {kind.__name__: kind for kind in (*_EMBEDDERS, *_BACKBONES, *_WRAPPERS)}

__all__ = ["BACKBONES", "MODELS", "Backbone", "ModelConfig", "Preprocessing", "backbone_class", "trusted"]
__all__ += ["Embedder", "OrientationHead", "TwoStreamEmbedder"]
__all__ += ["BNInception", "EfficientNetLite", "GoogLeNet", "Identity", "ResNet", "SmallConvNet", "SmallResNet"]
__all__ += ["CustomBackbone", "TimmBackbone", "TorchvisionBackbone"]
__all__ += ["FCAM", "Attention", "AttentionPooling", "LoRALinear", "count_parameters", "layer_groups"]
__all__ += ["LoadReport", "load_pretrained", "load_weights"]
