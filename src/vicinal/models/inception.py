"""Inception networks: GoogLeNet (Szegedy et al., CVPR 2015) and BN-Inception (Ioffe and Szegedy,
ICML 2015)."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from vicinal.models.backbone import CAFFE, HALF, Backbone, convolve, fold, initialize, max_pool

# Per module: 1x1; 3x3 reduced, 3x3; "5x5" reduced, "5x5"; pooled, projected.           Szegedy et
# al. 2015, Table 1
_GOOGLENET = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
# Per module: 1x1; 3x3 reduced, 3x3; double 3x3 reduced, double 3x3; pooled, projected. 0 leaves a
# convolution out, and then the module halves the side.
# Ioffe and Szegedy 2015, Figure 5
_BN_INCEPTION = {
    "3a": (64, 64, 64, 64, 96, 32),
    "3b": (64, 64, 96, 64, 96, 64),
    "3c": (0, 128, 160, 64, 96, 0),
    "4a": (224, 64, 96, 96, 128, 128),
    "4b": (192, 96, 128, 96, 128, 128),
    "4c": (160, 128, 160, 128, 160, 128),
    "4d": (96, 128, 192, 160, 192, 128),
    "4e": (0, 128, 192, 192, 256, 0),
    "5a": (352, 192, 320, 160, 224, 128),
    "5b": (352, 192, 320, 192, 224, 128),
}


class GoogLeNet(Backbone):
    """Inception v1: 1,024 feature maps at 1/32 of the input's side, 5.6 million parameters.

    Differs: the paper's network (the BVLC weights of HDML's authors) has no batch norm; this one
        loads torchvision's
    ``googlenet-1378be20.pth``, which was ported from TensorFlow and has. There the "5x5" branch is
    3x3, and so here. torchvision's own pre-trained module takes ImageNet's mean and deviation and
    maps them to -1..1 inside (``transform_input``); here the preprocessing says -1..1 and nothing
    is mapped.

    >>> backbone = GoogLeNet().eval()
    >>> backbone(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 1024, 2, 2])

    Args:
        freeze_norm: keep batch norm as it is while training, see ``Backbone``.
    """

    preprocessing = HALF
    classifiers = ("aux1.", "aux2.", "fc.")
    public_file = "googlenet-1378be20.pth"

    def __init__(self, *, freeze_norm: bool = False) -> None:
        super().__init__(freeze_norm=freeze_norm)
        self.conv1 = _ConvNorm(3, 64, 7, stride=2)
        self.conv2 = _ConvNorm(64, 64, 1)
        self.conv3 = _ConvNorm(64, 192, 3)
        self.width = 192
        for name, widths in _GOOGLENET.items():
            self.add_module(f"inception{name}", _Inception(self.width, *widths))
            self.width = widths[0] + widths[2] + widths[4] + widths[5]
        initialize(self)
        self._freeze()

    def forward(self, inputs: Tensor) -> Tensor:
        maps = _pool(self.conv1(inputs))
        maps = _pool(self.conv3(self.conv2(maps)))
        for name in _GOOGLENET:
            if name in ("4a", "5a"):
                maps = _pool(
                    maps, 3 if name == "4a" else 2
                )  # 2 and not 3, as in the ported weights
            maps = getattr(self, f"inception{name}")(maps)
        return maps


class _Inception(nn.Module):
    def __init__(
        self,
        before: int,
        one: int,
        three_reduced: int,
        three: int,
        five_reduced: int,
        five: int,
        pooled: int,
    ) -> None:
        super().__init__()
        self.branch1 = _ConvNorm(before, one, 1)
        self.branch2 = nn.Sequential(
            _ConvNorm(before, three_reduced, 1), _ConvNorm(three_reduced, three, 3)
        )
        self.branch3 = nn.Sequential(
            _ConvNorm(before, five_reduced, 1), _ConvNorm(five_reduced, five, 3)
        )
        self.branch4 = nn.Sequential(_MaxPool(), _ConvNorm(before, pooled, 1))

    def forward(self, inputs: Tensor) -> Tensor:
        first = cast(list[_ConvNorm], [self.branch1, self.branch2[0], self.branch3[0]])
        one, three, five = _convolve(inputs, [(layer.conv, layer.bn) for layer in first])
        return torch.cat(
            [one, self.branch2[1](three), self.branch3[1](five), self.branch4(inputs)], dim=1
        )


class _MaxPool(nn.Module):
    """Maxima over 3x3 windows around each pixel."""

    def forward(self, inputs: Tensor) -> Tensor:
        return max_pool(inputs, 3, padding=1)


class _ConvNorm(nn.Module):
    """Convolution, batch norm, ReLU; odd kernels keep the side but for the stride."""

    def __init__(self, before: int, after: int, kernel: int, *, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, after, kernel, stride=stride, padding=kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(
            after, eps=1e-3
        )  # TensorFlow's, which the weights were trained with

    def forward(self, inputs: Tensor) -> Tensor:
        return _convolve(inputs, [(self.conv, self.bn)])[0]


class BNInception(Backbone):
    """Inception v2: 1,024 feature maps at 1/32 of the input's side, 10.3 million parameters.

    The network of the multi-similarity and proxy losses' published results. Its weights are from
    Caffe by way of pretrained-models: BGR, 0..255. The file's names are flat
    (``inception_3a_1x1_bn.weight``), so the modules are too.

    Differs: the pooled branches of 4c and 4d have 128 channels, as in the public weights; the paper
        has 96.

    >>> backbone = BNInception()
    >>> backbone.width, backbone.preprocessing.channels
    (1024, 'BGR')

    Args:
        freeze_norm: keep batch norm as it is while training, see ``Backbone``.
    """

    preprocessing = CAFFE
    classifiers = (
        "last_linear.",
        "fc.",
    )  # the second in the file that pretrained-models' own was made from
    publisher = "pretrained-models"
    public_file = "bn_inception-52deb4733.pth"

    def __init__(self, *, freeze_norm: bool = False) -> None:
        super().__init__(freeze_norm=freeze_norm)
        self._add("conv1_7x7_s2", 3, 64, 7, stride=2)
        self._add("conv2_3x3_reduce", 64, 64, 1)
        self._add("conv2_3x3", 64, 192, 3)
        self.width = 192
        for module in _BN_INCEPTION:
            width = 0
            for branch in _branches(module):
                channels = self.width
                for name, after, kernel, stride in branch:
                    self._add(name, channels, after, kernel, stride=stride)
                    channels = after
                width += channels
            self.width = width
        initialize(self)
        self._freeze()

    def forward(self, inputs: Tensor) -> Tensor:
        maps = _pool(self._layers(inputs, "conv1_7x7_s2"))
        maps = _pool(self._layers(maps, "conv2_3x3_reduce", "conv2_3x3"))
        for module in _BN_INCEPTION:
            *convolved, projected = [[name for name, *_ in branch] for branch in _branches(module)]
            first = self._convolve(maps, *(names[0] for names in convolved))
            outputs = [
                self._layers(found, *names[1:])
                for found, names in zip(first, convolved, strict=True)
            ]
            if projected:
                pool = max_pool if module == "5b" else functional.avg_pool2d
                outputs.append(self._layers(pool(maps, 3, stride=1, padding=1), *projected))
            else:
                outputs.append(_pool(maps))
            maps = torch.cat(outputs, dim=1)
        return maps

    def _add(self, name: str, before: int, after: int, kernel: int, *, stride: int = 1) -> None:
        # The bias is idle before a batch norm, but the public file has it.
        self.add_module(name, nn.Conv2d(before, after, kernel, stride=stride, padding=kernel // 2))
        self.add_module(f"{name}_bn", nn.BatchNorm2d(after))

    def _layers(self, maps: Tensor, *names: str) -> Tensor:
        for name in names:
            (maps,) = self._convolve(maps, name)
        return maps

    def _convolve(self, maps: Tensor, *names: str) -> Sequence[Tensor]:
        return _convolve(
            maps, [(getattr(self, name), getattr(self, f"{name}_bn")) for name in names]
        )


def _branches(module: str) -> list[list[tuple[str, int, int, int]]]:
    """Return the convolutions of each branch of a module: name, channels, kernel, stride. The
    pooled branch is last."""
    one, three_reduced, three, double_reduced, double, pooled = _BN_INCEPTION[module]
    name, stride = f"inception_{module}", 1 if one else 2
    return [
        *([[(f"{name}_1x1", one, 1, 1)]] if one else []),
        [(f"{name}_3x3_reduce", three_reduced, 1, 1), (f"{name}_3x3", three, 3, stride)],
        [
            (f"{name}_double_3x3_reduce", double_reduced, 1, 1),
            (f"{name}_double_3x3_1", double, 3, 1),
            (f"{name}_double_3x3_2", double, 3, stride),
        ],
        [(f"{name}_pool_proj", pooled, 1, 1)] if pooled else [],
    ]


def _convolve(maps: Tensor, layers: Sequence[tuple[nn.Conv2d, nn.BatchNorm2d]]) -> Sequence[Tensor]:
    """Apply convolution, batch norm and ReLU of each layer to the same maps; on a GPU all at once
    where that works."""
    joined = _join(layers) if maps.is_cuda and len(layers) > 1 else None
    if joined is None:
        return [functional.relu(convolve(maps, *layer), inplace=True) for layer in layers]
    together: Tensor = functional.relu(layers[0][0]._conv_forward(maps, *joined), inplace=True)
    return torch.split(together, [layer.out_channels for layer, _ in layers], dim=1)


def _join(layers: Sequence[tuple[nn.Conv2d, nn.BatchNorm2d]]) -> tuple[Tensor, Tensor] | None:
    """Return weight and bias of one convolution that does what several of the same maps do; None
    unless norms fold.

    The maps are read once, forward and backward, and have one gradient instead of the sum of
    several.
    """
    folded = [found for layer in layers if (found := fold(*layer)) is not None]
    if len(folded) < len(layers):
        return None
    weights, shifts = zip(*folded, strict=True)
    return torch.cat(weights), torch.cat(shifts)


def _pool(maps: Tensor, kernel: int = 3) -> Tensor:
    """Halve the side; a window that starts inside but ends outside counts, as in Caffe and
    TensorFlow."""
    return max_pool(maps, kernel, stride=2, ceil_mode=True)
