"""The input that a set of public weights was trained on: size, resampling, scale, channel order, mean and deviation."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from vicinal.errors import ConfigError, unknown

Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos"]


@dataclass(frozen=True)
class Preprocessing:
    """From RGB in 0..1 to a backbone's input: ``(scale · x - mean) / std``, channels in the weights' own order.

    Args:
        mean: taken off each channel after scaling, in the order of ``channels``.
        std: what each channel is divided by then.
        channels: ``"RGB"``, or ``"BGR"`` for weights that came from Caffe.
        scale: the value of white: 1, or 255.
        size: side of the square images in pixels; None where the weights do not settle it.
        interpolation: filter that images are resized with.
    """

    mean: tuple[float, float, float]
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    channels: Literal["RGB", "BGR"] = "RGB"
    scale: float = 1.0
    size: int | None = None
    interpolation: Interpolation = "bilinear"

    def __post_init__(self) -> None:
        if self.interpolation not in get_args(Interpolation):
            raise ConfigError(unknown("interpolation", self.interpolation, get_args(Interpolation)))
        if self.channels not in ("RGB", "BGR"):
            raise ConfigError(unknown("order of channels", self.channels, ("RGB", "BGR")))
        if len(self.mean) != 3 or len(self.std) != 3 or min(self.std) <= 0 or self.scale <= 0:
            raise ConfigError(
                f"a preprocessing has 3 means, 3 deviations above 0 and a scale above 0, got mean = {self.mean}, "
                f"std = {self.std}, scale = {self.scale}."
            )

    @property
    def rgb_mean(self) -> tuple[float, ...]:
        """The mean in the units and order of the pixels: RGB, 0..1. A transform that normalises there uses this."""
        return tuple(value / self.scale for value in self._rgb(self.mean))

    @property
    def rgb_std(self) -> tuple[float, ...]:
        """The deviation that goes with ``rgb_mean``; only the order of channels is left to change then.

        >>> CAFFE.rgb_std == (1 / 255,) * 3
        True
        """
        return tuple(value / self.scale for value in self._rgb(self.std))

    def __call__(self, pixels: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n 3 h w"]:
        """The backbone's input from RGB pixels in 0..1, on whatever device they are.

        >>> CAFFE(torch.ones(1, 3, 1, 1)).flatten().tolist()
        [151.0, 138.0, 127.0]
        """
        ordered = pixels.flip(1) if self.channels == "BGR" else pixels
        mean, std = (
            torch.tensor(value, dtype=pixels.dtype, device=pixels.device).view(1, 3, 1, 1)
            for value in (self.mean, self.std)
        )
        return (ordered * self.scale - mean) / std

    def _rgb(self, values: tuple[float, ...]) -> tuple[float, ...]:
        return values[::-1] if self.channels == "BGR" else values


IMAGENET = Preprocessing(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), size=224)  # torchvision's ResNets
HALF = Preprocessing(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), size=224)  # weights ported from TensorFlow: -1..1
CAFFE = Preprocessing(mean=(104.0, 117.0, 128.0), channels="BGR", scale=255.0, size=224)  # BN-Inception
