"""The model slot: a network by name, its head, and what of it trains."""

import copy
import inspect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from vicinal.arguments import Positive, Settings, Width, class_name, parameters
from vicinal.errors import ConfigError, unknown
from vicinal.models.backbone import (
    HALF,
    PREPROCESSING,
    PUBLIC,
    Backbone,
    Preprocessing,
    load_pretrained,
)
from vicinal.models.custom import CustomBackbone
from vicinal.models.efficientnet_lite import EfficientNetLite
from vicinal.models.embedder import Embedder, Pooling
from vicinal.models.encoders import MINILM, Encoder, ImageEncoder, TextEncoder, reads_text
from vicinal.models.inception import BNInception
from vicinal.models.libraries import LibraryBackbone, TimmBackbone, TorchvisionBackbone
from vicinal.models.resnet import ResNet, SmallResNet
from vicinal.models.small import Identity, NGrams, SmallConvNet

COMPUTED_STARTS = ("principal", "discriminant", "best", "fitted")
LINEAR = ("lanml", "pnca", "nca", "gmml")  # heads that an estimator of `vicinal.linear` fits

BACKBONES: dict[str, type[nn.Module]] = {
    "small": SmallConvNet,
    "small_resnet": SmallResNet,
    **dict.fromkeys(
        ("efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2"), EfficientNetLite
    ),
    "bn_inception": BNInception,
    **dict.fromkeys(("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"), ResNet),
    "identity": Identity,
    "ngrams": NGrams,
    MINILM: TextEncoder,
}
PREFIXES: dict[str, type[LibraryBackbone]] = {
    "timm:": TimmBackbone,
    "torchvision:": TorchvisionBackbone,
    "hf:": ImageEncoder,  # or TextEncoder, as the network reads
    "st:": TextEncoder,
}
_ENCODERS = ("hf:", "st:", MINILM)
FROM_SCRATCH = replace(HALF, size=64)  # input of networks that start from random weights
_SETTLED = (
    *("name", "variant", "depth", "freeze_norm", "channels", "width", "size", "pooled", "config"),
    "n_components",  # of estimators; `dim` bounds the rank
)


class ModelConfig(Settings, kw_only=True):
    """A backbone, its pooling and a head.

    Attributes:
        name: network: one of ``vicinal list models``; ``timm:NAME`` or ``torchvision:NAME`` for a
            network of those libraries; ``hf:NAME`` or ``st:NAME`` for a folder or repository of
            transformers or sentence-transformers; ``package.module:Class`` for a class of your own.
        arguments: further arguments of the backbone's constructor; on the command line
            ``model.ARGUMENT=VALUE``.
        dim: size of the embedding; none leaves the head out.
        head: ``linear``; ``mlp``, two linear layers with ReLU between and a hidden layer as wide as
            the feature, as in SimCLR (Chen et al. 2020); ``hyperbolic``, a linear layer into the
            Poincaré ball, whose distance losses and evaluation then take (Ermolov et al. 2022);
            ``none`` takes the backbone's feature as the embedding.
        curvature: c of a hyperbolic head: the ball has curvature -c.
        clip: length to which a hyperbolic head clips its vectors first.
        head_norm: whether a batch norm precedes the head, as in the code of HDML's authors.
        pooling: how a map or tokens become a vector: ``average``, ``max``, ``both`` (their sum),
            ``generalized`` (mean of cubes) or ``token`` (class token of a transformer). By default
            the network's own: that of timm's networks, the class token of a torchvision
            transformer, else the average.
        normalize: whether embeddings are put on the unit sphere.
        weights: ``imagenet`` or ``public`` for public weights, ``none`` for random ones, or the
            path of a file (``.pth`` or ``.safetensors``; a classifier in it is ignored) or of a
            run, whose head is also taken where it fits. ``auto`` is ``imagenet`` for published
            networks, ``public`` for ``minilm``, ``hf:`` and ``st:``, and ``none`` for ``small``,
            ``small_resnet``, ``identity``, ``ngrams`` and networks of your own.
        preprocessing: the pictures that ``weights`` expect, where they are not the network's own:
            ``imagenet`` (torchvision's), ``half`` (-1..1), or ``caffe`` (BGR, 0..255, less their
            mean: He et al.'s ResNets, which want ``model.version=v1``).
        start: how a head starts that no run brings: drawn as torch does (``random``) or as Glorot
            and Bengio (2010) do (``glorot``, TensorFlow's default); or, if linear, computed from
            the features of the training set as their ``principal`` components or as
            ``discriminant`` directions.
            ``best`` is the better, on the held-out classes, of the features as they are and the
            discriminant directions; training competes with it. ``fitted`` is the only one of
            ``lanml``, ``pnca``, ``nca`` and ``gmml``: their estimator fits the head.
        start_length: mean length of the embeddings at a computed start.
        freeze: what of the backbone does not train: ``all``, or patterns over names of parameters
            with commas between, such as ``conv1.*,layer[12].*``.
        freeze_norm: whether batch norm keeps its statistics and parameters. By default it does
            wherever a published network starts from trained weights.
        lora: rank of low-rank updates to the backbone's linear layers (Hu et al. 2022), which then
            train alone; for transformers.
        text: network for the texts beside pictures, ``ngrams``, ``minilm``, ``hf:NAME`` or
            ``st:NAME``; by default the other tower of CLIP or SigLIP, or ``minilm`` where it is
            installed.
        freeze_text: whether that network keeps its weights, and only its head trains; by default
            all but ``ngrams`` do.
        streams: networks for data of two views: 2 gives queries and gallery images one each, 1
            shares one.
        module: a network of your own, in Python; see ``CustomBackbone``. The input that its weights
            expect is read from its ``preprocessing`` or, as timm has it, ``pretrained_cfg``.
    """

    slot: ClassVar[str] = "model"
    name: str = "efficientnet_lite0"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    dim: Width | None = 512
    head: Literal["linear", "mlp", "hyperbolic", "none"] = "linear"
    curvature: Positive = 0.1
    clip: Positive = 2.3
    head_norm: bool = False
    pooling: Pooling | None = None
    normalize: bool = True
    weights: str = "auto"
    preprocessing: Literal["imagenet", "half", "caffe"] | None = None
    start: Literal["random", "glorot", "principal", "discriminant", "best", "fitted"] = "random"
    start_length: Positive = 1.0
    freeze: str | None = None
    freeze_norm: bool | None = None
    lora: Width | None = None
    text: str | None = None
    freeze_text: bool | None = None
    streams: Literal[1, 2] = 2
    module: nn.Module | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.module is not None and ":" not in self.name:
            object.__setattr__(self, "name", class_name(type(self.module)))
        published = issubclass(self.backbone, Backbone)
        if self.weights == "auto":
            public = "public" if self.name.startswith(_ENCODERS) else "imagenet"
            object.__setattr__(self, "weights", public if published else "none")
        for key in self.arguments if self.module is None else ():
            if key not in self.parameters(self.name):
                raise ConfigError(
                    unknown(f"argument of model {self.name}", key, self.parameters(self.name))
                )
        if self.lora is not None and self.freeze is not None:
            raise ConfigError(
                f"LoRA freezes the whole backbone, got model.freeze={self.freeze} and "
                f"model.lora={self.lora}. Leave one of them out."
            )
        if self.weights in PUBLIC and not published:
            raise ConfigError(
                f"model {self.name} has no public weights, got model.weights={self.weights}. Set "
                "model.weights=none, or to the path of a file."
            )
        if self.freeze_norm is not None and not published:
            raise ConfigError(
                f"model.freeze_norm belongs to published networks, got model.name={self.name}. Use "
                "model.freeze, which also stops the batch norms of what it freezes."
            )
        if (self.name in LINEAR) != (self.start == "fitted"):
            raise ConfigError(
                f"model.start=fitted goes with {', '.join(LINEAR)} and with nothing else, got "
                f"model.name={self.name} and model.start={self.start}."
            )
        self._check_head()

    def _check_head(self) -> None:
        missing = self.head == "none" or self.dim is None
        computed = self.start in COMPUTED_STARTS
        got = (
            f"got model.head={self.head}, model.dim={self.dim} and model.head_norm={self.head_norm}"
        )
        if self.head == "hyperbolic" and missing:
            raise ConfigError(f"model.head=hyperbolic needs model.dim, {got}. Set model.dim=128.")
        if computed and (self.head not in ("linear", "hyperbolic") or missing or self.head_norm):
            raise ConfigError(
                f"model.start={self.start} computes a linear head, {got}. Set model.head=linear, "
                "model.dim and model.head_norm=false, or model.start=random."
            )
        if missing and (self.start == "glorot" or self.head_norm):
            raise ConfigError(
                f"model.start={self.start} and model.head_norm={self.head_norm} need a head, "
                f"{got}. Set model.head=linear and model.dim."
            )

    @staticmethod
    def parameters(name: str) -> dict[str, inspect.Parameter]:
        """Return what ``arguments`` may hold for a network: parameters of its constructor that
        nothing else settles."""
        return {
            key: one for key, one in parameters(constructor_of(name)).items() if key not in _SETTLED
        }

    @property
    def backbone(self) -> type[nn.Module]:
        """The class of the backbone."""
        return CustomBackbone if self.module is not None else backbone_class(self.name)

    @property
    def any_size(self) -> bool:
        """Whether the network is known to take images of any size."""
        return issubclass(self.backbone, Backbone) and not issubclass(
            self.backbone, LibraryBackbone
        )

    @property
    def expected(self) -> Preprocessing:
        """The input that the weights expect, known without building the network; -1..1 where
        nothing states it."""
        kind = self.backbone
        if self.preprocessing is not None:
            return PREPROCESSING[self.preprocessing]
        if issubclass(kind, Backbone):
            return kind.preprocessing_for(**self._settled())
        if kind is not CustomBackbone:
            return FROM_SCRATCH
        stated: Any = getattr(self.module, "pretrained_cfg", None)  # as timm's networks do
        if not isinstance(stated, Mapping) or not {"mean", "std"} <= stated.keys():
            return getattr(self.module, "preprocessing", HALF)
        return Preprocessing(
            tuple(stated["mean"]),
            tuple(stated["std"]),
            size=stated.get("input_size", (224,))[-1],
            interpolation=stated.get("interpolation") or "bilinear",
        )

    @property
    def from_run(self) -> bool:
        """Whether ``weights`` are those of a run, with its head."""
        return self.weights not in (*PUBLIC, "none") and Path(self.weights).is_dir()

    def has_weights(self) -> bool:
        """Return whether ``weights`` are on this machine; timm and torchvision only know when they
        load them."""
        if self.weights not in PUBLIC:
            return self.weights == "none" or Path(self.weights).exists()
        if issubclass(self.backbone, LibraryBackbone):
            return True
        with torch.random.fork_rng(devices=[]):
            backbone: Any = self.backbone(**self._settled())
        with suppress(ConfigError):
            return backbone.find_weights("imagenet") is not None
        return False

    def build(
        self,
        *,
        channels: int = 3,
        width: int | None = None,
        size: int | None = None,
        text: bool = False,
    ) -> Embedder:
        """Build the network and load its weights.

        Random numbers are drawn from torch's generator: the backbone's first, then the head's.

        Args:
            channels: of the images, 1 or 3.
            width: of the feature vectors, where the data are such.
            size: side of the images; None is the network's own.
            text: whether the data are texts.
        """
        if text != (getattr(self.backbone, "kind", "") == "text"):
            takes, use = ("pictures", "ngrams or minilm") if text else ("texts", "small")
            raise ConfigError(
                f"model {self.name} takes {takes}, which these data are not. Set model.name={use}."
            )
        backbone = self._backbone(channels, width, size)
        if self.weights != "none" and not (self.from_run and isinstance(backbone, Identity)):
            load_pretrained(backbone, self.weights)
        if self.pooling is not None and getattr(backbone, "vectors", False):
            raise ConfigError(
                f"model {self.name} gives vectors, got model.pooling={self.pooling}. Leave out "
                "model.pooling, or return maps [n c h w] or tokens [n t c]."
            )
        own: Pooling = "token" if getattr(backbone, "prefix_tokens", 0) else "average"
        return self._embedder(
            backbone, pooling=self.pooling or own, freeze=self.freeze, lora=self.lora
        )

    def build_text(self) -> Embedder:
        """Build the network of the texts beside pictures, with a head like theirs."""
        headless = self.head == "none" or self.dim is None
        if self.text is None or (headless and self.text != self.name):
            raise ConfigError(
                f"texts and pictures meet in model.dim numbers, got model.text={self.text}, "
                f"model.head={self.head} and model.dim={self.dim}. Set model.head=linear and "
                "model.dim=128."
            )
        backbone: nn.Module = NGrams() if self.text == "ngrams" else TextEncoder(self.text)
        if isinstance(backbone, Encoder):
            load_pretrained(backbone, "public")
        frozen = self.text != "ngrams" if self.freeze_text is None else self.freeze_text
        return self._embedder(backbone, freeze="all" if frozen else None)

    def _embedder(self, backbone: nn.Module, **arguments: Any) -> Embedder:
        return Embedder(
            backbone,
            None if self.head == "none" else self.dim,
            normalize=self.normalize and self.head != "hyperbolic",
            hidden=int(backbone.width) if self.head == "mlp" else None,  # type: ignore[arg-type]
            head_norm=self.head_norm,
            curvature=self.curvature if self.head == "hyperbolic" else None,
            clip=self.clip,
            **arguments,
        )

    def _backbone(self, channels: int, width: int | None, size: int | None) -> nn.Module:
        kind = self.backbone
        if self.module is not None:
            shape = (channels, size or 224, size or 224) if width is None else (width,)
            # A copy, so that the next run starts as this one.
            return CustomBackbone(copy.deepcopy(self.module), shape)
        if (kind is Identity) != (width is not None):
            got, use = ("feature vectors", "identity") if width is not None else ("images", "small")
            raise ConfigError(f"model {self.name} does not take {got}. Set model.name={use}.")
        if width is not None:
            return Identity(width)
        if issubclass(kind, Backbone) and channels != 3:
            raise ConfigError(
                f"model {self.name} takes 3 channels, got {channels}. Set transform.channels=3."
            )
        frozen = self.weights != "none" if self.freeze_norm is None else self.freeze_norm
        facts = {"channels": channels, "size": size, "freeze_norm": frozen}
        facts["pooled"] = self.pooling is None
        asked = parameters(kind)
        given = {key: value for key, value in facts.items() if key in asked}
        return kind(**self._settled(), **given, **self.arguments)

    def _settled(self) -> dict[str, Any]:
        """Return the constructor's arguments that the name settles."""
        kind = self.backbone
        if issubclass(kind, Encoder):
            return {"name": self.name}
        if issubclass(kind, LibraryBackbone):
            return {"name": self.name.partition(":")[2]}
        if kind is EfficientNetLite:
            return {"variant": self.name.removeprefix("efficientnet_")}
        return {"depth": int(self.name.removeprefix("resnet"))} if kind is ResNet else {}


def backbone_class(name: str) -> type[nn.Module]:
    """Return the class of the backbone that a name stands for.

    >>> backbone_class("resnet50x")
    Traceback (most recent call last):
    vicinal.errors.ConfigError: unknown model 'resnet50x'; did you mean 'resnet50'? ...
    """
    if name in BACKBONES:
        return BACKBONES[name]
    if name in LINEAR:
        return Identity
    if name.startswith(_ENCODERS):
        return TextEncoder if reads_text(name) else ImageEncoder
    for prefix, kind in PREFIXES.items():
        if name.startswith(prefix):
            return kind
    if ":" in name:
        raise ConfigError(
            f"model {name} is code of your own. Allow it with --trust {name}, or give an nn.Module."
        )
    raise ConfigError(
        unknown("model", name, (*BACKBONES, *LINEAR, *(f"{prefix}NAME" for prefix in PREFIXES)))
    )


def constructor_of(name: str) -> type:
    """Return the class that takes ``arguments``: the estimator that fits the head, or the
    backbone."""
    if name not in LINEAR:
        return backbone_class(name)
    from vicinal.linear import ESTIMATORS

    return ESTIMATORS[name]
