"""BN-Inception (Ioffe and Szegedy, ICML 2015) in the layout of pretrained-models."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from vicinal.models.backbone import Backbone
from vicinal.models.folding import convolve
from vicinal.models.preprocessing import CAFFE


class _Widths(NamedTuple):
    """Output channels of a module's convolutions; 0 leaves one out, and then the module halves the side."""

    one: int
    three_reduced: int
    three: int
    double_reduced: int
    double: int
    pooling: Literal["average", "max"]
    pooled: int


_MODULES = {  # Ioffe and Szegedy 2015, Figure 5
    "3a": _Widths(64, 64, 64, 64, 96, "average", 32),
    "3b": _Widths(64, 64, 96, 64, 96, "average", 64),
    "3c": _Widths(0, 128, 160, 64, 96, "max", 0),
    "4a": _Widths(224, 64, 96, 96, 128, "average", 128),
    "4b": _Widths(192, 96, 128, 96, 128, "average", 128),
    "4c": _Widths(160, 128, 160, 128, 160, "average", 128),
    "4d": _Widths(96, 128, 192, 160, 192, "average", 128),
    "4e": _Widths(0, 128, 192, 192, 256, "max", 0),
    "5a": _Widths(352, 192, 320, 160, 224, "average", 128),
    "5b": _Widths(352, 192, 320, 192, 224, "max", 128),
}


class BNInception(Backbone):
    """Inception v2: 1,024 feature maps at 1/32 of the input's side, 10.3 million parameters.

    The network of the multi-similarity and proxy losses' published results. Its weights came from Caffe by way of
    pretrained-models: BGR, 0..255. The file's names are flat (``inception_3a_1x1_bn.weight``), so the modules are too.

    Differs: the pooled branches of 4c and 4d have 128 channels, as in the public weights; the paper has 96.

    Args:
        freeze_norm: keep batch norm as it is while training, see ``Backbone``.
    """

    preprocessing = CAFFE
    classifiers = ("last_linear.", "fc.")  # the second in the file that pretrained-models' own was made from
    publisher = "pretrained-models"
    public_file = "bn_inception-52deb4733.pth"

    def __init__(self, *, freeze_norm: bool = False) -> None:
        super().__init__(freeze_norm=freeze_norm)
        self._add("conv1_7x7_s2", 3, 64, 7, stride=2)
        self._add("conv2_3x3_reduce", 64, 64, 1)
        self._add("conv2_3x3", 64, 192, 3)
        before = 192
        for name, widths in _MODULES.items():
            before = self._add_module(f"inception_{name}", before, widths)
        self.width = before
        self._initialise()

    def forward(self, inputs: Tensor) -> Tensor:
        maps = _halved(self._apply_layer("conv1_7x7_s2", inputs))
        maps = self._apply_layer("conv2_3x3", self._apply_layer("conv2_3x3_reduce", maps))
        maps = _halved(maps)
        for name, widths in _MODULES.items():
            maps = self._apply_module(f"inception_{name}", maps, widths)
        return maps

    def _add(self, name: str, before: int, after: int, kernel: int, *, stride: int = 1) -> None:
        # The bias is idle before a batch norm, but the public file has it.
        self.add_module(name, nn.Conv2d(before, after, kernel, stride=stride, padding=kernel // 2))
        self.add_module(f"{name}_bn", nn.BatchNorm2d(after))

    def _add_module(self, name: str, before: int, widths: _Widths) -> int:
        """Add one module's layers and return its number of channels."""
        stride = 1 if widths.one else 2
        if widths.one:
            self._add(f"{name}_1x1", before, widths.one, 1)
        self._add(f"{name}_3x3_reduce", before, widths.three_reduced, 1)
        self._add(f"{name}_3x3", widths.three_reduced, widths.three, 3, stride=stride)
        self._add(f"{name}_double_3x3_reduce", before, widths.double_reduced, 1)
        self._add(f"{name}_double_3x3_1", widths.double_reduced, widths.double, 3)
        self._add(f"{name}_double_3x3_2", widths.double, widths.double, 3, stride=stride)
        if widths.pooled:
            self._add(f"{name}_pool_proj", before, widths.pooled, 1)
        return widths.one + widths.three + widths.double + (widths.pooled or before)

    def _apply_layer(self, name: str, maps: Tensor) -> Tensor:
        convolution, norm = getattr(self, name), getattr(self, f"{name}_bn")
        return functional.relu(convolve(maps, convolution, norm), inplace=True)

    def _apply_module(self, name: str, maps: Tensor, widths: _Widths) -> Tensor:
        branches = [self._apply_layer(f"{name}_1x1", maps)] if widths.one else []
        for layers in (("3x3_reduce", "3x3"), ("double_3x3_reduce", "double_3x3_1", "double_3x3_2")):
            branch = maps
            for layer in layers:
                branch = self._apply_layer(f"{name}_{layer}", branch)
            branches.append(branch)
        if not widths.pooled:
            branches.append(_halved(maps))
        else:
            pool = functional.avg_pool2d if widths.pooling == "average" else functional.max_pool2d
            branches.append(self._apply_layer(f"{name}_pool_proj", pool(maps, 3, stride=1, padding=1)))
        return torch.cat(branches, dim=1)


def _halved(maps: Tensor) -> Tensor:
    """Caffe's pooling: a window that starts inside but ends outside counts, hence ``ceil_mode``."""
    return functional.max_pool2d(maps, 3, stride=2, ceil_mode=True)
