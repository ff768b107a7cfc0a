"""Networks without public weights: a small convolutional one, and none at all for feature
vectors."""

from torch import Tensor, nn

from vicinal.arguments import Width
from vicinal.errors import ConfigError


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
        maps: Tensor = self.blocks(inputs)
        return maps


class Identity(nn.Module):
    """f(x) = x for feature vectors of a known width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = self.input_width = width

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs
