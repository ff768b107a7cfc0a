"""Any classification network of torchvision by its name; torchvision is imported only when one is built."""

import importlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vicinal.errors import ConfigError, unknown
from vicinal.models.backbone import Backbone, probe
from vicinal.models.preprocessing import IMAGENET, Preprocessing

# Pooling, classifier and auxiliary classifiers, as torchvision names them.
_LEFT_OUT = ("avgpool", "flatten", "dropout", "fc", "classifier", "head", "heads", "aux1", "aux2", "AuxLogits")


class TorchvisionBackbone(Backbone):
    """A torchvision network without pooling and classifier: maps ``[n c h w]``, or tokens ``[n t c]`` of a ViT.

    Args:
        name: as ``torchvision.models.get_model`` takes it, for example ``"convnext_tiny"``.
        freeze_norm: keep batch norm as it is while training, see ``Backbone``.
        size: side of the input images; None is that of the default weights. Position embeddings get this size, and
            those of a weight file are resampled to it.
    """

    classifiers = tuple(f"{name}." for name in _LEFT_OUT)

    def __init__(self, name: str, *, freeze_norm: bool = False, size: int | None = None) -> None:
        super().__init__(freeze_norm=freeze_norm)
        self.name, self.size = name, size
        self.preprocessing = self.preprocessing_for(name)
        self._side = size or self.preprocessing.size or 224
        try:
            self.network: nn.Module = _models().get_model(name, weights=None, **self._options())
            for part in [part for part, _ in self.network.named_children() if part in _LEFT_OUT]:
                delattr(self.network, part)
            self.prefix_tokens = int(hasattr(self.network, "class_token"))
            shape = tuple(probe(self, (3, self._side, self._side)).shape)
        except (AssertionError, RuntimeError, ValueError) as error:
            raise ConfigError(
                f"torchvision:{name} cannot take images of {self._side} pixels: {str(error).splitlines()[0]} Set "
                f"transform.size={self.preprocessing.size}."
            ) from error
        self.width = shape[2] if self.prefix_tokens else shape[1]
        self._freeze()

    @classmethod
    def preprocessing_for(cls, name: str = "", **arguments: Any) -> Preprocessing:
        """Return what the transforms of the default weights say about the input, without building the network."""
        models = _models()
        if name not in models.list_models(module=models):
            raise ConfigError(unknown("model of torchvision", name, models.list_models(module=models)))
        weights = getattr(models.get_model_weights(name), "DEFAULT", None)
        if weights is None:
            return IMAGENET
        transform = weights.transforms()
        return Preprocessing(
            mean=tuple(transform.mean),
            std=tuple(transform.std),
            size=int(transform.crop_size[0]),
            interpolation=transform.interpolation.value,
        )

    def forward(self, inputs: Tensor) -> Tensor:
        network: Any = self.network
        maps: Tensor = network._transform_input(inputs) if hasattr(network, "_transform_input") else inputs
        if self.prefix_tokens:
            patches = network._process_input(maps)
            tokens: Tensor = network.encoder(torch.cat([network.class_token.expand(len(patches), -1, -1), patches], 1))
            return tokens
        for part in network.children():
            for layer in part if isinstance(part, nn.ModuleList) else (part,):
                maps = layer(maps)
        return maps.relu() if type(network).__name__ == "DenseNet" else maps  # where torchvision's forward has it

    @property
    def trunk(self) -> nn.Module:
        return self.network

    def find_weights(self, name: str) -> Mapping[str, Tensor]:
        """Return torchvision's default weights; torchvision downloads them where its cache lacks them."""
        try:
            weights: Mapping[str, Tensor] = (
                _models().get_model_weights(self.name).DEFAULT.get_state_dict(progress=False, check_hash=True)
            )
        except (OSError, AttributeError, RuntimeError) as error:
            raise ConfigError(
                f"weights {name!r} of torchvision:{self.name} are neither in torch's cache nor could they be "
                f"downloaded: {error}. Set model.weights to the path of a file, or set model.weights=none."
            ) from error
        return weights

    def adapt(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Resample the position embedding of a ViT."""
        if "encoder.pos_embedding" not in tensors:
            return tensors
        module = importlib.import_module("torchvision.models.vision_transformer")
        patch = int(self.network.patch_size)  # type: ignore[arg-type]
        return dict(module.interpolate_embeddings(self._side, patch, dict(tensors)))

    def _options(self) -> dict[str, Any]:
        if self.name.startswith("vit_"):
            return {"image_size": self._side}
        if self.name.startswith("maxvit"):
            return {"input_size": (self._side, self._side)}
        if self.name in ("googlenet", "inception_v3"):  # their weights were ported from TensorFlow, hence -1..1 inside
            return {"init_weights": False, "transform_input": True}
        return {}


def _models() -> Any:
    try:
        return importlib.import_module("torchvision.models")
    except (ImportError, RuntimeError) as error:  # the second where it was built for another torch
        raise ConfigError(
            f"torchvision's networks need torchvision, which cannot be imported here: {error}. Install the version "
            f"of torchvision that belongs to torch {torch.__version__}."
        ) from error
