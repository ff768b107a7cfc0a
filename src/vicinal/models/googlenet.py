"""GoogLeNet (Szegedy et al., CVPR 2015), with batch norm, in torchvision's layout."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from vicinal.models.backbone import Backbone
from vicinal.models.folding import convolve
from vicinal.models.preprocessing import HALF

# Per module: 1x1; 3x3 reduced, 3x3; "5x5" reduced, "5x5"; pooled, projected.           Szegedy et al. 2015, Table 1
_MODULES = {
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


class GoogLeNet(Backbone):
    """Inception v1: 1,024 feature maps at 1/32 of the input's side, 5.6 million parameters.

    Differs: the paper's network (the BVLC weights of HDML's authors) has no batch norm; this one loads torchvision's
    ``googlenet-1378be20.pth``, which was ported from TensorFlow and has. There the "5x5" branch is 3x3, and so here.
    torchvision's own pre-trained module takes ImageNet's mean and deviation and maps them to -1..1 inside
    (``transform_input``); here the preprocessing says -1..1 and nothing is mapped.

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
        before = 192
        for name, widths in _MODULES.items():
            self.add_module(f"inception{name}", _Inception(before, *widths))
            before = widths[0] + widths[2] + widths[4] + widths[5]
        self.width = before
        self._initialise()

    def forward(self, inputs: Tensor) -> Tensor:
        maps = _pool(self.conv1(inputs))
        maps = _pool(self.conv3(self.conv2(maps)))
        for name in _MODULES:
            if name == "4a":
                maps = _pool(maps)
            elif name == "5a":
                maps = _pool(maps, 2)  # 2 and not 3, as in the ported weights
            maps = getattr(self, f"inception{name}")(maps)
        return maps


class _Inception(nn.Module):
    def __init__(
        self, before: int, one: int, three_reduced: int, three: int, five_reduced: int, five: int, pooled: int
    ) -> None:
        super().__init__()
        self.branch1 = _ConvNorm(before, one, 1)
        self.branch2 = nn.Sequential(_ConvNorm(before, three_reduced, 1), _ConvNorm(three_reduced, three, 3))
        self.branch3 = nn.Sequential(_ConvNorm(before, five_reduced, 1), _ConvNorm(five_reduced, five, 3))
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), _ConvNorm(before, pooled, 1))

    def forward(self, inputs: Tensor) -> Tensor:
        branches = (self.branch1, self.branch2, self.branch3, self.branch4)
        return torch.cat([branch(inputs) for branch in branches], dim=1)


class _ConvNorm(nn.Module):
    """Convolution, batch norm, ReLU; odd kernels keep the side but for the stride."""

    def __init__(self, before: int, after: int, kernel: int, *, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, after, kernel, stride=stride, padding=kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(after, eps=1e-3)  # TensorFlow's, which the weights were trained with

    def forward(self, inputs: Tensor) -> Tensor:
        return functional.relu(convolve(inputs, self.conv, self.bn), inplace=True)


def _pool(maps: Tensor, kernel: int = 3) -> Tensor:
    return functional.max_pool2d(maps, kernel, stride=2, ceil_mode=True)
