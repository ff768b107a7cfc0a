"""Networks without public weights: a small convolutional one, hashed n-grams of texts, and none at
all for feature vectors."""

from typing import ClassVar

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional

from vicinal.arguments import Width
from vicinal.errors import ConfigError

# of n-grams: smaller parameters move faster at the low rates that trained networks beside them want
_SCALE = 16.0


class SmallConvNet(nn.Module):
    """Blocks of 3x3 convolution, batch norm, ReLU and 2x2 maximum pooling.

    Each block halves the side and the last gives the feature's width, as in the few-shot
    literature's "Conv-4" (Vinyals et al. 2016), with widths that grow.

    Args:
        channels: 1 for gray, 3 for color pictures.
        widths: output channels of each block.
    """

    def __init__(self, channels: int = 1, widths: tuple[Width, ...] = (32, 64, 128)) -> None:
        super().__init__()
        if not widths:
            raise ConfigError("SmallConvNet needs at least one block, got empty widths.")
        self.channels = channels
        self.widths = tuple(widths)
        self.width = widths[-1]
        blocks: list[nn.Module] = []
        for before, after in zip((channels, *widths), widths, strict=False):
            # The batch norm's shift is the bias.
            convolution = nn.Conv2d(before, after, 3, padding=1, bias=False)
            blocks += [convolution, nn.BatchNorm2d(after), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
        self.blocks = nn.Sequential(*blocks)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.blocks(inputs)


class Identity(nn.Module):
    """f(x) = x for feature vectors of a known width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = self.input_width = width

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs


class NGrams(nn.Module):
    """The mean of learned vectors of a text's n-grams of bytes, by their hashes (Bojanowski et al.
    2017).

    Capital letters of ASCII count as small ones, and a space stands before and after the text.

    >>> words = torch.tensor([[111, 119, 108, 0], [79, 87, 76, 0]], dtype=torch.uint8)
    >>> NGrams(width=8, buckets=64)(words).shape
    torch.Size([2, 8])

    Args:
        width: of the vectors.
        buckets: vectors that the n-grams share.
        sizes: the n of n-grams.
    """

    kind: ClassVar[str] = "text"
    vectors: ClassVar[bool] = True

    def __init__(
        self, width: Width = 128, buckets: Width = 2**13, sizes: tuple[Width, ...] = (2, 3, 4)
    ) -> None:
        super().__init__()
        self.width = width
        self.buckets = buckets
        self.sizes = tuple(sizes)
        self.weight = nn.Parameter(torch.randn(buckets, width) / _SCALE)

    def forward(self, inputs: UInt8[Tensor, "n bytes"]) -> Float[Tensor, "n c"]:
        text = inputs.long()
        text = text + 32 * ((text >= 65) & (text <= 90))
        text = functional.pad(torch.where(text == 0, 32, text), (1, max(self.sizes)), value=32)
        ends = (inputs != 0).sum(dim=1, keepdim=True) + 2  # of the text between its two spaces
        hashes = []
        counted = []
        for size in self.sizes:
            windows = text.unfold(1, size, 1)
            powers = torch.tensor(
                [pow(1_000_003, place, 2**20) for place in range(size)], device=text.device
            )
            # Below 2^63 (Knuth's multiplicative hash).
            mixed = (windows * powers).sum(dim=2) * 2_654_435_761
            hashes.append(mixed.bitwise_right_shift(16) % self.buckets)
            counted.append(torch.arange(windows.shape[1], device=text.device) + size <= ends)
        keep = torch.cat(counted, dim=1).to(self.weight.dtype)
        share = keep / keep.sum(dim=1, keepdim=True).clamp(min=1)
        ids = torch.cat(hashes, dim=1)
        return _SCALE * functional.embedding_bag(
            ids, self.weight, mode="sum", per_sample_weights=share
        )
