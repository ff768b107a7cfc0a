"""Residual networks (He et al., CVPR 2016): those of ImageNet in torchvision's layout, and a small
one."""

from itertools import pairwise
from typing import Annotated, Literal, cast, get_args

from torch import Tensor, nn
from torch.nn import functional

from vicinal.arguments import Limits, Width
from vicinal.errors import ConfigError, unknown
from vicinal.models.attention import Attention, attend
from vicinal.models.backbone import IMAGENET, Backbone, convolve, initialize

# Depth: blocks per stage, whether they are bottlenecks, hash in the file's name.          He et al.
# 2016, Table 1
_DEPTHS = {
    18: ((2, 2, 2, 2), False, "f37072fd"),
    34: ((3, 4, 6, 3), False, "b627a593"),
    50: ((3, 4, 6, 3), True, "0676ba61"),
    101: ((3, 4, 23, 3), True, "63fe2227"),
    152: ((3, 8, 36, 3), True, "394f9c45"),
}
Version = Literal["v1", "v1.5"]
_WIDTHS = (64, 128, 256, 512)


class ResNet(Backbone):
    """ResNet-18 and -34 (512 feature maps), ResNet-50, -101 and -152 (2,048), at 1/32 of the
    input's side.

    Args:
        depth: 18, 34, 50, 101 or 152.
        freeze_norm: keep batch norm as it is while training, see ``Backbone``.
        version: where the stride of a bottleneck is: in its first 1x1 convolution (``"v1"``), as in
            the paper and its authors' weights, or in the 3x3 (``"v1.5"``), as in torchvision's.
        attention: what stands in every residual block, before its input is added: nothing, or
            ``"fcam"``. Public files have no weights for it, so it keeps those it was drawn with.
    """

    preprocessing = IMAGENET
    classifiers = ("fc.",)
    optional = (".attention.",)

    def __init__(
        self,
        depth: int = 50,
        *,
        freeze_norm: bool = False,
        version: Version = "v1.5",
        attention: Attention = "none",
    ) -> None:
        super().__init__(freeze_norm=freeze_norm)
        if version not in get_args(Version):
            raise ConfigError("model.version: " + unknown("value", version, get_args(Version)))
        if depth not in _DEPTHS:
            raise ConfigError(
                f"ResNet has a depth of {', '.join(map(str, _DEPTHS))}, got depth={depth}."
            )
        self.depth = depth
        self.version = version
        self.attention = attention
        counts, bottleneck, digest = _DEPTHS[depth]
        self.public_file = f"resnet{depth}-{digest}.pth"
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.width = 64
        for stage, (count, width) in enumerate(zip(counts, _WIDTHS, strict=True), start=1):
            stride = 1 if stage == 1 else 2  # the pooling before stage 1 has halved already
            blocks = _stage(
                self.width, width, count, stride=stride, bottleneck=version if bottleneck else None
            )
            self.add_module(f"layer{stage}", nn.Sequential(*blocks))
            self.width = blocks[-1].width
        initialize(self)
        self._freeze()
        attend(self, attention)

    def forward(self, inputs: Tensor) -> Tensor:
        maps = functional.relu(convolve(inputs, self.conv1, self.bn1), inplace=True)
        maps = functional.max_pool2d(maps, 3, stride=2, padding=1)
        for stage in range(1, len(_WIDTHS) + 1):
            maps = getattr(self, f"layer{stage}")(maps)
        return maps


class SmallResNet(nn.Module):
    """A 3x3 convolution, then stages of residual blocks, each but the first at half the side of the
    one before.

    The shape of He et al. 2016, Section 4.2, for pictures of 32 pixels, with widths and blocks to
    choose.

    Args:
        channels: 1 for gray, 3 for color pictures.
        widths: channels of each stage.
        blocks: residual blocks in each stage.
        stride: of the first convolution; 2 takes a quarter of the time.
        attention: what stands in every residual block, before its input is added: nothing, or
            ``"fcam"``.
    """

    def __init__(
        self,
        channels: int = 1,
        widths: tuple[Width, ...] = (32, 64, 128),
        *,
        blocks: Annotated[int, Limits("[1, 100]")] = 1,
        stride: Annotated[int, Limits("[1, 8]")] = 1,
        attention: Attention = "none",
    ) -> None:
        super().__init__()
        if not widths:
            raise ConfigError("SmallResNet needs at least one stage, got empty widths.")
        self.channels = channels
        self.widths = tuple(widths)
        self.blocks = blocks
        self.stride = stride
        self.attention = attention
        self.width = widths[-1]
        self.conv1 = nn.Conv2d(channels, widths[0], 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        stages = _stage(widths[0], widths[0], blocks, stride=1)
        for before, width in pairwise(widths):
            stages += _stage(before, width, blocks, stride=2)
        self.stages = nn.Sequential(*stages)
        initialize(self)
        attend(self, attention)

    def forward(self, inputs: Tensor) -> Tensor:
        maps: Tensor = self.stages(
            functional.relu(convolve(inputs, self.conv1, self.bn1), inplace=True)
        )
        return maps


class _Block(nn.Module):
    """y = ReLU(x + f(x)), with attention to what f gives where there is any.

    f has two 3x3 convolutions; in a bottleneck it narrows with 1x1, filters with 3x3 and widens
    fourfold with 1x1.
    """

    def __init__(self, before: int, width: int, *, stride: int, bottleneck: Version | None) -> None:
        super().__init__()
        layers = [(3, stride, width), (3, 1, width)]
        if bottleneck is not None:
            first, second = (stride, 1) if bottleneck == "v1" else (1, stride)
            layers = [(1, first, width), (3, second, width), (1, 1, 4 * width)]
        channels = before
        self.layers = len(layers)
        self.width = layers[-1][2]
        for place, (kernel, step, after) in enumerate(layers, start=1):
            convolution = nn.Conv2d(
                channels, after, kernel, stride=step, padding=kernel // 2, bias=False
            )
            self.add_module(f"conv{place}", convolution)
            self.add_module(f"bn{place}", nn.BatchNorm2d(after))
            channels = after
        self.attention = nn.Identity()
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or before != self.width:  # option B of the paper
            projection = nn.Conv2d(before, self.width, 1, stride=stride, bias=False)
            self.downsample = _Projection(projection, nn.BatchNorm2d(self.width))

    def forward(self, inputs: Tensor) -> Tensor:
        maps = inputs
        for place in range(1, self.layers + 1):
            maps = convolve(maps, getattr(self, f"conv{place}"), getattr(self, f"bn{place}"))
            if place < self.layers:
                maps = functional.relu(maps, inplace=True)
        return functional.relu(self.attention(maps) + self.downsample(inputs), inplace=True)


class _Projection(nn.Sequential):
    """Convolution and norm under the names of the public files: 0 and 1."""

    def forward(self, inputs: Tensor) -> Tensor:
        return convolve(inputs, cast(nn.Conv2d, self[0]), cast(nn.BatchNorm2d, self[1]))


def _stage(
    before: int, width: int, count: int, *, stride: int, bottleneck: Version | None = None
) -> list[_Block]:
    """Build a stage of ``count`` blocks, of which the first has the stride."""
    first = _Block(before, width, stride=stride, bottleneck=bottleneck)
    return [
        first,
        *(_Block(first.width, width, stride=1, bottleneck=bottleneck) for _ in range(count - 1)),
    ]
