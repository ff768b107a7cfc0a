"""Residual networks (He et al., CVPR 2016) in torchvision's layout."""

from torch import Tensor, nn
from torch.nn import functional

from vicinal.errors import ConfigError
from vicinal.models.attention import Attention, attend
from vicinal.models.backbone import Backbone
from vicinal.models.folding import convolve
from vicinal.models.preprocessing import IMAGENET

# Depth: blocks per stage, and whether they are bottlenecks.                              He et al. 2016, Table 1
_DEPTHS = {
    18: ((2, 2, 2, 2), False),
    34: ((3, 4, 6, 3), False),
    50: ((3, 4, 6, 3), True),
    101: ((3, 4, 23, 3), True),
    152: ((3, 8, 36, 3), True),
}
_FILES = {18: "f37072fd", 34: "b627a593", 50: "0676ba61", 101: "63fe2227", 152: "394f9c45"}  # hashes in their names
_WIDTHS = (64, 128, 256, 512)


class ResNet(Backbone):
    """ResNet-18 and -34 (512 feature maps), ResNet-50, -101 and -152 (2,048), at 1/32 of the input's side.

    Differs: the stride of a bottleneck is in its 3x3 convolution, as in torchvision ("v1.5"), not in the first 1x1.

    Args:
        depth: 18, 34, 50, 101 or 152.
        freeze_norm: keep batch norm as it is while training, see ``Backbone``.
        attention: what stands in every residual block, before its input is added: nothing, or ``"fcam"``. Public files
            have no weights for it, so it keeps those it was drawn with.
    """

    preprocessing = IMAGENET
    classifiers = ("fc.",)
    optional = (".attention.",)

    def __init__(self, depth: int = 50, *, freeze_norm: bool = False, attention: Attention = "none") -> None:
        super().__init__(freeze_norm=freeze_norm)
        if depth not in _DEPTHS:
            raise ConfigError(f"ResNet has a depth of {', '.join(map(str, _DEPTHS))}, got depth={depth}.")
        self.depth, self.attention = depth, attention
        self.public_file = f"resnet{depth}-{_FILES[depth]}.pth"
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        repeats, bottleneck = _DEPTHS[depth]
        block, expansion = (_Bottleneck, 4) if bottleneck else (BasicBlock, 1)
        before = 64
        for stage, (count, width) in enumerate(zip(repeats, _WIDTHS, strict=True), start=1):
            blocks: list[nn.Module] = []
            for place in range(count):
                stride = 2 if stage > 1 and place == 0 else 1  # the pooling before stage 1 has halved already
                blocks.append(block(before, width, stride=stride))
                before = width * expansion
            self.add_module(f"layer{stage}", nn.Sequential(*blocks))
        self.width = before
        self._initialise()
        attend(self, attention)

    def forward(self, inputs: Tensor) -> Tensor:
        maps = functional.relu(convolve(inputs, self.conv1, self.bn1), inplace=True)
        maps = functional.max_pool2d(maps, 3, stride=2, padding=1)
        for stage in range(1, len(_WIDTHS) + 1):
            maps = getattr(self, f"layer{stage}")(maps)
        return maps


class BasicBlock(nn.Module):
    """y = ReLU(x + f(x)) with two 3x3 convolutions in f, and attention to what f gives where there is any."""

    def __init__(self, before: int, width: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.width, self.attention = width, nn.Identity()
        self.downsample = _shortcut(before, width, stride)

    def forward(self, inputs: Tensor) -> Tensor:
        maps = functional.relu(convolve(inputs, self.conv1, self.bn1), inplace=True)
        maps = self.attention(convolve(maps, self.conv2, self.bn2))
        return functional.relu(maps + self.downsample(inputs), inplace=True)


class _Bottleneck(nn.Module):
    """y = ReLU(x + f(x)); f narrows with 1x1, filters with 3x3 and widens fourfold with 1x1."""

    def __init__(self, before: int, width: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.width, self.attention = 4 * width, nn.Identity()
        self.downsample = _shortcut(before, 4 * width, stride)

    def forward(self, inputs: Tensor) -> Tensor:
        maps = functional.relu(convolve(inputs, self.conv1, self.bn1), inplace=True)
        maps = functional.relu(convolve(maps, self.conv2, self.bn2), inplace=True)
        maps = self.attention(convolve(maps, self.conv3, self.bn3))
        return functional.relu(maps + self.downsample(inputs), inplace=True)


def _shortcut(before: int, after: int, stride: int) -> nn.Module:
    """The identity, or a projection where size or width change (option B of the paper)."""
    if stride == 1 and before == after:
        return nn.Identity()
    return _Projection(nn.Conv2d(before, after, 1, stride=stride, bias=False), nn.BatchNorm2d(after))


class _Projection(nn.Module):
    def __init__(self, convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        for name, module in zip("01", (convolution, norm), strict=True):  # the public files' names for them
            self.add_module(name, module)

    def forward(self, inputs: Tensor) -> Tensor:
        return convolve(inputs, getattr(self, "0"), getattr(self, "1"))
