"""BN-Inception (Ioffe and Szegedy, ICML 2015)."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from vicinal.models.backbone import CAFFE, Backbone, convolve, initialize

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
    # The second in the file that pretrained-models' own was made from.
    classifiers = (
        "last_linear.",
        "fc.",
    )
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
            outputs = [self._layers(maps, *names) for names in convolved]
            if projected:
                pool = functional.max_pool2d if module == "5b" else functional.avg_pool2d
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
            maps = convolve(maps, getattr(self, name), getattr(self, f"{name}_bn"))
            maps = functional.relu(maps, inplace=True)
        return maps


def _branches(module: str) -> list[list[tuple[str, int, int, int]]]:
    """Return the convolutions of each branch of a module: name, channels, kernel, stride. The
    pooled branch is last."""
    one, three_reduced, three, double_reduced, double, pooled = _BN_INCEPTION[module]
    name = f"inception_{module}"
    stride = 1 if one else 2
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


def _pool(maps: Tensor) -> Tensor:
    """Halve the side; a window that starts inside but ends outside counts, as in Caffe."""
    return functional.max_pool2d(maps, 3, stride=2, ceil_mode=True)
