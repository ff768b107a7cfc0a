"""Attention over maps inside residual blocks: FCAM (Cai et al., ICCV 2019)."""

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vicinal.errors import ConfigError, unknown

Attention = Literal["none", "fcam"]
CONTEXTS = (3, 5, 7)  # sides of the context filters


class FCAM(nn.Module):
    """Channel attention, then spatial attention with filters of three sizes; the shape stays.

        Z_C(U) = σ(f(max U) + f(avg U)),        U' = Z_C(U) ⊗ U                      Cai et al. 2019
        s = [avg over channels U'; max over channels U']
        Z_S(U') = σ(f_1x1[f_3x3(s); f_5x5(s); f_7x7(s)]),        U'' = Z_S(U') ⊗ U'

    f is one MLP for both poolings, c -> c/16 -> c, without biases. It has c²/8 + 173 parameters
    where 16 divides c.

    Differs: the context filters are followed by ReLU, as in the authors' code; the formula has
        none, but without it the
    four filters would be one. Where c < 16 the MLP has one hidden unit.

    Args:
        channels: c.
        reduction: by how much the MLP narrows.
    """

    def __init__(self, channels: int, *, reduction: int = 16) -> None:
        super().__init__()
        if channels < 1 or reduction < 1:
            raise ConfigError(
                f"FCAM needs channels and reduction of at least 1, got {channels} and {reduction}."
            )
        self.channels = channels
        self.reduction = reduction
        hidden = max(1, channels // reduction)
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
    if attention not in get_args(Attention):
        raise ConfigError(unknown("attention", attention, get_args(Attention)))
    if attention == "none":
        return
    with torch.random.fork_rng(devices=[]):
        for block in list(network.modules()):
            if isinstance(getattr(block, "attention", None), nn.Identity):
                block.attention = FCAM(int(block.width))  # type: ignore[arg-type]
