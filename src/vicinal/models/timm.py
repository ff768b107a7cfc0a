"""Any network of the timm library by its name; timm itself is imported only when one is built."""

import importlib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from torch import Tensor, nn

from vicinal.errors import ConfigError
from vicinal.models.backbone import Backbone
from vicinal.models.preprocessing import Preprocessing


class TimmBackbone(Backbone):
    """A timm network without its classifier, with its own pooling, so that transformers fit too: ``[n c]``.

    Args:
        name: as ``timm.create_model`` takes it, for example ``"resnet50.a1_in1k"``.
        freeze_norm: keep batch norm as it is while training, see ``Backbone``.
    """

    def __init__(self, name: str, *, freeze_norm: bool = False) -> None:
        super().__init__(freeze_norm=freeze_norm)
        timm = _timm()
        if not timm.is_model(name):
            near = get_close_matches(name, timm.list_models(), n=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ". `timm.list_models()` names them."
            raise ConfigError(f"timm has no model {name!r}{hint}")
        self.name = name
        self.network: nn.Module = timm.create_model(name, pretrained=False, num_classes=0)
        settings: Any = self.network.pretrained_cfg
        self.preprocessing = Preprocessing(mean=tuple(settings["mean"]), std=tuple(settings["std"]))
        # Some networks have a hidden layer between pooling and classifier, which stays.
        self.width = int(getattr(self.network, "head_hidden_size", None) or self.network.num_features)
        self._freeze()  # timm has initialised the rest in its own way

    def forward(self, inputs: Tensor) -> Tensor:
        features: Tensor = self.network(inputs)
        return features

    @property
    def trunk(self) -> nn.Module:
        return self.network

    def find_weights(self, name: str) -> Mapping[str, Tensor]:
        """timm's own weights of this network; timm fetches them where its cache lacks them."""
        weights: Mapping[str, Tensor] = _timm().create_model(self.name, pretrained=True, num_classes=0).state_dict()
        return weights


def _timm() -> Any:
    try:
        return importlib.import_module("timm")
    except ImportError as error:
        raise ConfigError(
            f"timm's networks need timm, which cannot be imported here: {error}. Run `pip install 'vicinal[timm]'`."
        ) from error
