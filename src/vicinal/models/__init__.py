"""Networks: backbones, the embedder over them, and their description as JSON."""

from vicinal.models.convolutional import SmallConvNet
from vicinal.models.embedder import Embedder
from vicinal.models.identity import Identity

# The only constructors that model.json may name; a new model is added here.
MODELS: dict[str, type] = {kind.__name__: kind for kind in (Embedder, SmallConvNet, Identity)}

__all__ = ["MODELS", "Embedder", "Identity", "SmallConvNet"]
