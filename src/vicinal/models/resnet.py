"""Residual networks (He et al., CVPR 2016): those of ImageNet in torchvision's layout, and a small
one."""

from itertools import pairwise
from typing import Annotated, Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vicinal.arguments import Limits, Width, check_arguments
from vicinal.errors import ConfigError
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
Attention = Literal["none", "fcam"]
CONTEXTS = (3, 5, 7)  # sides of the context filters
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
        depth: Literal[18, 34, 50, 101, 152] = 50,
        *,
        freeze_norm: bool = False,
        version: Version = "v1.5",
        attention: Attention = "none",
    ) -> None:
        super().__init__(freeze_norm=freeze_norm)
        self.depth = depth
        self.version = version
        self.attention = attention
        check_arguments(self)
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
    """A 3x3 convolution, then residual blocks, each but the first at half the side of the one
    before.

    The shape of He et al. 2016, Section 4.2, for pictures of 32 pixels, with widths to choose and
    one block in each stage.

    Args:
        channels: 1 for gray, 3 for color pictures.
        widths: channels of each block.
        stride: of the first convolution; 2 takes a quarter of the time.
        attention: what stands in every residual block, before its input is added: nothing, or
            ``"fcam"``.
    """

    def __init__(
        self,
        channels: int = 1,
        widths: tuple[Width, ...] = (32, 64, 128),
        *,
        stride: Annotated[int, Limits("[1, 8]")] = 1,
        attention: Attention = "none",
    ) -> None:
        super().__init__()
        if not widths:
            raise ConfigError("SmallResNet needs at least one block, got empty widths.")
        self.channels = channels
        self.widths = tuple(widths)
        self.stride = stride
        self.attention = attention
        check_arguments(self)
        self.width = widths[-1]
        self.conv1 = nn.Conv2d(channels, widths[0], 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.stages = nn.Sequential(
            _Block(widths[0], widths[0], stride=1, bottleneck=None),
            *(_Block(*pair, stride=2, bottleneck=None) for pair in pairwise(widths)),
        )
        initialize(self)
        attend(self, attention)

    def forward(self, inputs: Tensor) -> Tensor:
        maps = functional.relu(convolve(inputs, self.conv1, self.bn1), inplace=True)
        return self.stages(maps)


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
    before: int, width: int, count: int, *, stride: int, bottleneck: Version | None
) -> list[_Block]:
    """Build a stage of ``count`` blocks, of which the first has the stride."""
    first = _Block(before, width, stride=stride, bottleneck=bottleneck)
    return [
        first,
        *(_Block(first.width, width, stride=1, bottleneck=bottleneck) for _ in range(count - 1)),
    ]


# -- attention inside residual blocks --------------------------------------------------------------


class FCAM(nn.Module):
    """Channel attention, then spatial attention with filters of three sizes; the shape stays.

        Z_C(U) = σ(f(max U) + f(avg U)),        U' = Z_C(U) ⊗ U                      Cai et al. 2019
        s = [avg over channels U'; max over channels U']
        Z_S(U') = σ(f_1x1[f_3x3(s); f_5x5(s); f_7x7(s)]),        U'' = Z_S(U') ⊗ U'

    f is one MLP for both poolings, c -> c/16 -> c, without biases. It has c²/8 + 173 parameters
    where 16 divides c.

    Differs: the context filters are followed by ReLU, as in the authors' code; the formula has
        none, but without it the four filters would be one. Where c < 16 the MLP has one hidden
        unit.

    Args:
        channels: c.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = max(1, channels // 16)
        self.squeeze = nn.Conv2d(channels, hidden, 1, bias=False)
        self.expand = nn.Conv2d(hidden, channels, 1, bias=False)
        self.contexts = nn.ModuleList(nn.Conv2d(2, 1, side, padding=side // 2) for side in CONTEXTS)
        self.mix = nn.Conv2d(len(CONTEXTS), 1, 1)

    def forward(self, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        maps = self.channel_gate(maps) * maps
        return self.spatial_gate(maps) * maps

    def channel_gate(self, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c 1 1"]:
        """Compute Z_C: how much of each channel passes, at all places alike."""
        pooled = maps.amax(dim=(2, 3), keepdim=True), maps.mean(dim=(2, 3), keepdim=True)
        largest, average = (self.expand(self.squeeze(each).relu()) for each in pooled)
        return torch.sigmoid(largest + average)

    def spatial_gate(self, maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n 1 h w"]:
        """Compute Z_S: how much of each place passes, by what is around it."""
        masks = torch.cat([maps.mean(dim=1, keepdim=True), maps.amax(dim=1, keepdim=True)], dim=1)
        return torch.sigmoid(
            self.mix(torch.cat([context(masks).relu() for context in self.contexts], dim=1))
        )


def attend(network: nn.Module, attention: Attention) -> None:
    """Give every residual block of a network the attention it asks for; a constructor's last line.

    A block is a module with ``attention`` and ``width``. Weights are drawn aside, so that a network
    with attention and one without start from the same other weights, and what is drawn after
    them is the same too.
    """
    if attention == "none":
        return
    with torch.random.fork_rng(devices=[]):
        for block in list(network.modules()):
            if isinstance(getattr(block, "attention", None), nn.Identity):
                block.attention = FCAM(int(block.width))  # type: ignore[arg-type]
