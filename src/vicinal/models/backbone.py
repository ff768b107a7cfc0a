"""What the published backbones share: a width, what their public weights expect, and frozen batch norm."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from vicinal.errors import ConfigError
from vicinal.models.preprocessing import Preprocessing


class Backbone(nn.Module, ABC):
    """A network whose parameters bear the names of the public weight files, without their classifier.

    A constructor only builds and initialises, so that a network described in ``model.json`` is rebuilt on a machine
    that lacks those files; ``load_pretrained`` is the step that reads them.

    Attributes:
        width: channels of what ``forward`` returns.
        preprocessing: what the public weights were trained to see.
        classifiers: beginnings of names in the public files that belong to heads left out here.
        public_file: the file to fetch where no package carries the weights.
        freeze_norm: whether batch norm keeps the running statistics and the affine parameters it has. Statistics of
            small batches of similar images are poor ones, and most published metric-learning code freezes them.
    """

    width: int
    preprocessing: Preprocessing
    classifiers: ClassVar[tuple[str, ...]] = ()
    public_file: ClassVar[str] = ""

    def __init__(self, *, freeze_norm: bool) -> None:
        super().__init__()
        self.freeze_norm = freeze_norm

    @abstractmethod
    def forward(self, inputs: Tensor) -> Tensor: ...

    @property
    def trunk(self) -> nn.Module:
        """The module whose names are those of the public files."""
        return self

    def find_weights(self, name: str) -> Path | Mapping[str, Tensor]:
        """The weights called ``name`` that are on this machine, or a refusal that says how to get them."""
        raise ConfigError(
            f"weights {name!r} of {type(self).__name__} come in no package. "
            f"Fetch {self.public_file} and give the path of that file instead."
        )

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.freeze_norm:
            for norm in self._norms():
                norm.eval()
        return self

    def _initialise(self) -> None:
        """Draw the convolutions as He et al. 2015 do, and freeze what is to be frozen; a constructor's last line."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                # Fan-in, since the fan-out of a depthwise weight counts channels that its outputs never reach.
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        self._freeze()

    def _freeze(self) -> None:
        if self.freeze_norm:
            for norm in self._norms():
                norm.requires_grad_(False)
            self.train(self.training)

    def _norms(self) -> list[nn.Module]:
        """Looked up each time: SyncBatchNorm may have taken the place of what was built."""
        return [module for module in self.modules() if isinstance(module, _BatchNorm)]
