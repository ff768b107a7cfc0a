"""Any network of the timm library by its name; timm itself is imported only when one is built."""

import importlib
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from torch import Tensor, nn

from vicinal.errors import ConfigError
from vicinal.models.backbone import Backbone, probe
from vicinal.models.preprocessing import Preprocessing


class TimmBackbone(Backbone):
    """A timm network without its classifier: vectors ``[n c]``, or maps ``[n c h w]`` or tokens ``[n t c]``.

    Args:
        name: as ``timm.create_model`` takes it, for example ``"resnet50.a1_in1k"``.
        freeze_norm: keep batch norm as it is while training, see ``Backbone``.
        size: side of the input images; None is the one that timm states. Position embeddings get this size, and those
            of a weight file are resampled to it.
        drop_path: probability with which residual branches are dropped while training, largest at the last block.
        pooled: whether timm's own pooling, and what follows it, make a vector of maps or tokens.
    """

    def __init__(
        self,
        name: str,
        *,
        freeze_norm: bool = False,
        size: int | None = None,
        drop_path: float = 0.0,
        pooled: bool = True,
    ) -> None:
        super().__init__(freeze_norm=freeze_norm)
        self.name, self.size, self.drop_path, self.pooled = name, size, drop_path, pooled
        self.preprocessing = self.preprocessing_for(name)
        self._side = size or self.preprocessing.size or 224
        try:
            self.network: nn.Module = self._create(pretrained=False)
            names = set(self.network.state_dict())
            if not pooled:
                self._unpool()
            self._last = getattr(self.network, "output_fmt", "") == "NHWC" and not pooled  # channels are the last axis
            shape = tuple(probe(self, (3, self._side, self._side)).shape)
        except (AssertionError, RuntimeError, ValueError) as error:
            raise self._unfit(error) from error
        if not pooled and len(shape) == 2:
            raise ConfigError(f"timm:{name} cannot be used without its own pooling. Leave out model.pooling.")
        settings: Any = getattr(self.network, "pretrained_cfg", {})
        heads = settings.get("classifier") or ()
        heads = (heads,) if isinstance(heads, str) else heads
        self.classifiers = (*(f"{head}." for head in heads), *sorted(names - set(self.network.state_dict())))
        self.width = shape[1] if len(shape) in (2, 4) else shape[2]
        if len(shape) == 3:
            tokens = getattr(self.network, "num_prefix_tokens", None)
            self.prefix_tokens = int(hasattr(self.network, "cls_token")) if tokens is None else int(tokens)
        self._freeze()  # timm has initialised the rest in its own way

    @classmethod
    def preprocessing_for(cls, name: str = "", **arguments: Any) -> Preprocessing:
        """Return what timm's data config says about the input of a network, without building it."""
        timm = _timm()
        if not timm.is_model(name):
            near = get_close_matches(name, timm.list_models(), n=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ". `timm.list_models()` names them."
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
            mean=tuple(data["mean"]),
            std=tuple(data["std"]),
            size=int(data["input_size"][-1]),
            interpolation=data["interpolation"],
        )

    def forward(self, inputs: Tensor) -> Tensor:
        features: Tensor = self.network(inputs)
        return features.permute(0, 3, 1, 2) if self._last else features

    @property
    def trunk(self) -> nn.Module:
        return self.network

    def find_weights(self, name: str) -> Mapping[str, Tensor]:
        """Return timm's own weights of this network; timm downloads them where its cache lacks them."""
        try:
            weights: Mapping[str, Tensor] = self._create(pretrained=True).state_dict()
        except Exception as error:  # whatever the libraries under timm raise without a connection
            raise ConfigError(
                f"weights {name!r} of timm:{self.name} are neither in timm's cache nor could they be downloaded: "
                f"{str(error).splitlines()[0] if str(error) else type(error).__name__:.200} "
                f"Download them on a machine with a connection, set model.weights to the path of a file, or set "
                f"model.weights=none."
            ) from error
        return weights

    def adapt(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Rename and resample tensors as timm does when it loads weights of its own."""
        convert = getattr(sys.modules[type(self.network).__module__], "checkpoint_filter_fn", None)
        return tensors if convert is None else dict(convert(tensors, self.network))

    def _create(self, *, pretrained: bool) -> nn.Module:
        """Build the network, for another input size than timm's own where its architecture asks for the size."""
        options: dict[str, Any] = {"pretrained": pretrained, "num_classes": 0}
        if self.drop_path:
            options["drop_path_rate"] = self.drop_path
        create = _timm().create_model
        try:
            if self._side != self.preprocessing.size:
                try:
                    network: nn.Module = create(self.name, img_size=self._side, **options)
                    return network
                except TypeError:
                    pass  # a network without `img_size` takes images of any size; `_shape` tries
            network = create(self.name, **options)
        except TypeError as error:
            raise ConfigError(f"timm:{self.name} cannot be built with drop_path={self.drop_path}: {error}") from error
        return network

    def _unpool(self) -> None:
        try:
            self.network.reset_classifier(0, "")  # type: ignore[operator]
        except (TypeError, AssertionError, AttributeError) as error:
            raise ConfigError(
                f"timm:{self.name} cannot be used without its own pooling. Leave out model.pooling."
            ) from error

    def _unfit(self, error: Exception) -> ConfigError:
        """Return an error that names the size of images that works; a ConfigError stays as it is."""
        if isinstance(error, ConfigError):
            return error
        if self._side == self.preprocessing.size:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            return ConfigError(f"timm:{self.name} cannot be used here: {reason}. Choose another network.")
        pooling = "" if self.pooled else " with a pooling other than its own"
        return ConfigError(
            f"timm:{self.name} cannot take images of {self._side} pixels{pooling}. Set "
            f"transform.size={self.preprocessing.size}{'' if self.pooled else ', or leave out model.pooling'}."
        )


def _timm() -> Any:
    try:
        return importlib.import_module("timm")
    except (ImportError, RuntimeError) as error:  # the second where torchvision was built for another torch
        raise ConfigError(
            f"timm's networks need timm, which cannot be imported here: {error}. Run `pip install 'vicinal[timm]'`."
        ) from error
