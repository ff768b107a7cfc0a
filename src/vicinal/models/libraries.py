"""Networks of timm and torchvision by their names; the libraries are imported only when one is
built."""

import importlib
import sys
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vicinal.errors import ConfigError, unknown
from vicinal.models.backbone import IMAGENET, Backbone, Preprocessing, first_line, probe

# Pooling, classifier and auxiliary classifiers, as torchvision names them.
_LEFT_OUT = (
    "avgpool",
    "flatten",
    "dropout",
    "fc",
    "classifier",
    "head",
    "heads",
    "aux1",
    "aux2",
    "AuxLogits",
)


class LibraryBackbone(Backbone):
    """A network of a library without its classifier, built for one size of images.

    Args:
        name: of the network, as the library has it.
        freeze_norm: keep batch norm as it is while training, see ``Backbone``.
        size: side of the input images; None is the library's own.
    """

    library: ClassVar[str]
    imported: ClassVar[str]  # the module that is imported
    install: ClassVar[str]  # what to do where it cannot be

    def __init__(self, name: str, *, freeze_norm: bool = False, size: int | None = None) -> None:
        super().__init__(freeze_norm=freeze_norm)
        self.name = name
        self.size = size
        self.preprocessing = self._expected()
        self._side = size or self.preprocessing.size or 224
        try:
            self.network = self._build()
            self._shape = tuple(probe(self, self._input).shape)
        except (AssertionError, AttributeError, RuntimeError, TypeError, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            own = self.preprocessing.size
            hint = "Choose another network" if self._side == own else f"Set transform.size={own}"
            raise ConfigError(
                f"{self.title} cannot take images of {self._side} pixels: {first_line(error)}. "
                f"{hint}, or leave out model.pooling if it is set."
            ) from error
        self.width = self._shape[2] if len(self._shape) == 3 else self._shape[1]
        self._freeze()  # the library has initialized the rest in its own way

    @property
    def title(self) -> str:
        """The name in messages."""
        return f"{self.library}:{self.name}"

    @property
    def _input(self) -> tuple[int, ...]:
        """The shape of one input."""
        return (3, self._side, self._side)

    def _expected(self) -> Preprocessing:
        return self.preprocessing_for(name=self.name)

    @classmethod
    def _import(cls) -> Any:
        try:
            return importlib.import_module(cls.imported)
        except ImportError as error:
            raise ConfigError(
                f"{cls.library}'s networks need {cls.library}, which cannot be imported here: "
                f"{first_line(error)}. {cls.install}"
            ) from error
        except RuntimeError as error:  # torchvision's operators ask for the torch it was built for
            raise ConfigError(
                f"torchvision and torch {torch.__version__} do not match: {first_line(error)}. "
                "Install both at once, from one index: `pip install --upgrade torch torchvision`; "
                "constraints must pin both or none."
            ) from error

    @abstractmethod
    def _build(self) -> nn.Module:
        """Build the network without its classifier."""

    @abstractmethod
    def _download(self) -> Mapping[str, Tensor]:
        """Return the library's own weights, downloaded where its cache lacks them."""

    @property
    def trunk(self) -> nn.Module:
        return self.network

    def find_weights(self, name: str) -> Mapping[str, Tensor]:
        try:
            return self._download()
        except Exception as error:  # what the libraries raise without a connection
            raise ConfigError(
                f"weights {name!r} of {self.title} are neither in the cache of {self.library} nor "
                f"could they be downloaded: {first_line(error):.200}. Download them on a machine "
                "with a connection, set model.weights to the path of a file, or set "
                "model.weights=none."
            ) from error


class TimmBackbone(LibraryBackbone):
    """A timm network without its classifier: vectors ``[n c]``, or maps ``[n c h w]`` or tokens
    ``[n t c]``.

    Args:
        name: as ``timm.create_model`` takes it, for example ``"resnet50.a1_in1k"``.
        freeze_norm: keep batch norm as it is while training, see ``Backbone``.
        size: side of the input images; None is the one that timm states. Position embeddings get
            this size, and those of a weight file are resampled to it.
        pooled: whether timm's own pooling, and what follows it, make a vector of maps or tokens.
    """

    library = imported = "timm"
    install = "Run `pip install 'vicinal[timm]'`."

    def __init__(
        self,
        name: str,
        freeze_norm: bool = False,
        size: int | None = None,
        pooled: bool = True,
    ) -> None:
        self.pooled = pooled  # first, since the base's constructor builds with it
        super().__init__(name, freeze_norm=freeze_norm, size=size)
        if not pooled and len(self._shape) == 2:
            raise ConfigError(
                f"timm:{name} cannot be used without its own pooling. Leave out model.pooling."
            )
        if len(self._shape) == 3:
            of_class = hasattr(self.network, "cls_token")
            self.prefix_tokens = int(getattr(self.network, "num_prefix_tokens", of_class))

    @classmethod
    def preprocessing_for(cls, name: str = "") -> Preprocessing:
        """Return what timm's data config says about the input of a network, without building it."""
        timm = cls._import()
        if not timm.is_model(name):
            near = get_close_matches(name, timm.list_models(), n=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else "."
            raise ConfigError(f"timm has no model {name!r}{hint}")
        try:
            settings = timm.get_pretrained_cfg(name)
        except RuntimeError as error:
            raise ConfigError(
                f"timm has no weights called {name!r}: {error} Leave out what follows the dot."
            ) from error
        known = {"input_size": (3, 224, 224)} if settings is None else settings.to_dict()
        data = timm.data.resolve_data_config(pretrained_cfg=known)
        return Preprocessing(
            tuple(data["mean"]),
            tuple(data["std"]),
            size=int(data["input_size"][-1]),
            interpolation=data["interpolation"],
        )

    def forward(self, inputs: Tensor) -> Tensor:
        features: Tensor = self.network(inputs)
        channels_last = not self.pooled and getattr(self.network, "output_fmt", "") == "NHWC"
        return features.permute(0, 3, 1, 2) if channels_last else features

    def adapt(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Rename and resample tensors as timm does when it loads weights of its own."""
        convert = getattr(sys.modules[type(self.network).__module__], "checkpoint_filter_fn", None)
        return tensors if convert is None else dict(convert(tensors, self.network))

    @property
    def license(self) -> str:
        settings = self._import().get_pretrained_cfg(self.name)
        return str(getattr(settings, "license", None) or "unknown")

    def _build(self) -> nn.Module:
        network: nn.Module = self._create(pretrained=False)
        names = set(network.state_dict())
        if not self.pooled:
            network.reset_classifier(0, "")  # type: ignore[operator]
        heads = getattr(network, "pretrained_cfg", {}).get("classifier") or ()
        heads = (heads,) if isinstance(heads, str) else heads
        self.classifiers = (
            *(f"{head}." for head in heads),
            *sorted(names - set(network.state_dict())),
        )
        return network

    def _create(self, *, pretrained: bool) -> Any:
        """Build the network, for another input size than timm's own where its architecture asks for
        the size."""
        create = partial(
            self._import().create_model, self.name, pretrained=pretrained, num_classes=0
        )
        if self._side != self.preprocessing.size:
            # A network without `img_size` takes images of any size; probing it tells.
            with suppress(TypeError):
                return create(img_size=self._side)
        return create()

    def _download(self) -> Mapping[str, Tensor]:
        return self._create(pretrained=True).state_dict()


class TorchvisionBackbone(LibraryBackbone):
    """A torchvision network without pooling and classifier: maps ``[n c h w]``, or tokens ``[n t
    c]`` of a ViT.

    Args:
        name: as ``torchvision.models.get_model`` takes it, for example ``"convnext_tiny"``.
        freeze_norm: keep batch norm as it is while training, see ``Backbone``.
        size: side of the input images; None is that of the default weights. Position embeddings get
            this size, and those of a weight file are resampled to it.
    """

    library = "torchvision"
    imported = "torchvision.models"
    install = f"Install the torchvision that belongs to torch {torch.__version__}."
    classifiers = tuple(f"{name}." for name in _LEFT_OUT)

    @classmethod
    def preprocessing_for(cls, name: str = "") -> Preprocessing:
        """Return what the transforms of the default weights say about the input, without building
        the network."""
        models = cls._import()
        if name not in (known := models.list_models(module=models)):
            raise ConfigError(unknown("model of torchvision", name, known))
        weights = getattr(models.get_model_weights(name), "DEFAULT", None)
        if weights is None:
            return IMAGENET
        seen = weights.transforms()
        return Preprocessing(
            tuple(seen.mean),
            tuple(seen.std),
            size=int(seen.crop_size[0]),
            interpolation=seen.interpolation.value,
        )

    def forward(self, inputs: Tensor) -> Tensor:
        network: Any = self.network
        maps: Tensor = (
            network._transform_input(inputs) if hasattr(network, "_transform_input") else inputs
        )
        if self.prefix_tokens:
            patches = network._process_input(maps)
            tokens = torch.cat([network.class_token.expand(len(patches), -1, -1), patches], 1)
            return network.encoder(tokens)
        for part in network.children():
            for layer in part if isinstance(part, nn.ModuleList) else (part,):
                maps = layer(maps)
        # Where torchvision's forward has it.
        return maps.relu() if type(network).__name__ == "DenseNet" else maps

    def adapt(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Resample the position embedding of a ViT."""
        if "encoder.pos_embedding" not in tensors:
            return tensors
        module = importlib.import_module("torchvision.models.vision_transformer")
        patch = int(self.network.patch_size)  # type: ignore[arg-type]
        return dict(module.interpolate_embeddings(self._side, patch, dict(tensors)))

    def _build(self) -> nn.Module:
        network: nn.Module = self._import().get_model(self.name, weights=None, **self._options())
        for part in [part for part, _ in network.named_children() if part in _LEFT_OUT]:
            delattr(network, part)
        self.prefix_tokens = int(hasattr(network, "class_token"))
        return network

    def _options(self) -> dict[str, Any]:
        if self.name.startswith("vit_"):
            return {"image_size": self._side}
        if self.name.startswith("maxvit"):
            return {"input_size": (self._side, self._side)}
        # Their weights were ported from TensorFlow, hence -1..1 inside.
        if self.name in ("googlenet", "inception_v3"):
            return {"init_weights": False, "transform_input": True}
        return {}

    def _download(self) -> Mapping[str, Tensor]:
        weights = self._import().get_model_weights(self.name).DEFAULT
        return weights.get_state_dict(progress=False, check_hash=True)
