"""A small residual network for small pictures and CPU work."""

from torch import Tensor, nn
from torch.nn import functional

from vicinal.errors import ConfigError
from vicinal.models.attention import Attention, attend
from vicinal.models.folding import convolve
from vicinal.models.resnet import BasicBlock


class SmallResNet(nn.Module):
    """A 3x3 convolution, then stages of residual blocks, each but the first at half the side of the one before.

    The shape of He et al. 2016, Section 4.2, for pictures of 32 pixels, with widths and blocks to choose.

    Args:
        channels: 1 for grey, 3 for colour pictures.
        widths: channels of each stage.
        blocks: residual blocks in each stage.
        stride: of the first convolution; 2 takes a quarter of the time.
        attention: what stands in every residual block, before its input is added: nothing, or ``"fcam"``.
    """

    def __init__(
        self,
        channels: int = 1,
        widths: tuple[int, ...] = (32, 64, 128),
        *,
        blocks: int = 1,
        stride: int = 1,
        attention: Attention = "none",
    ) -> None:
        super().__init__()
        if not widths or blocks < 1:
            raise ConfigError(f"SmallResNet needs at least one stage and block, got widths={widths}, blocks={blocks}.")
        self.channels, self.widths, self.blocks, self.stride = channels, tuple(widths), blocks, stride
        self.attention, self.width = attention, widths[-1]
        self.conv1 = nn.Conv2d(channels, widths[0], 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        before, stages = widths[0], list[nn.Module]()
        for stage, width in enumerate(widths):
            for place in range(blocks):
                stages.append(BasicBlock(before, width, stride=2 if stage and not place else 1))
                before = width
        self.stages = nn.Sequential(*stages)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        attend(self, attention)

    def forward(self, inputs: Tensor) -> Tensor:
        maps = functional.relu(convolve(inputs, self.conv1, self.bn1), inplace=True)
        stages: Tensor = self.stages(maps)
        return stages
