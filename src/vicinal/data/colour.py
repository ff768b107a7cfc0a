"""Colour jitter: brightness, contrast and saturation, each by a factor of the image's own."""

import torch
from jaxtyping import Float
from torch import Tensor

_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601, as Pillow's conversion to grey


def jitter(pixels: Float[Tensor, "n c h w"], factors: Float[Tensor, "n 3"]) -> Float[Tensor, "n c h w"]:
    """Images of 0..255 under factors of brightness, contrast and saturation; 1 changes nothing.

        brightness: b x;   contrast: c x + (1 - c) mean grey;   saturation: s x + (1 - s) grey;   each cut to 0..255

    The steps are torchvision's ColorJitter. Differs: they come in this order, where torchvision draws an order for
    each image; and there is no rounding between them.
    """
    brightness, contrast, saturation = factors.T[:, :, None, None, None]
    pixels = (pixels * brightness).clamp_(0, 255)
    mean = _grey(pixels.mean(dim=(2, 3), keepdim=True))
    pixels = torch.lerp(mean, pixels, contrast).clamp_(0, 255)
    return torch.lerp(_grey(pixels), pixels, saturation).clamp_(0, 255)


def _grey(pixels: Float[Tensor, "n c h w"]) -> Float[Tensor, "n 1 h w"]:
    if pixels.shape[1] == 1:
        return pixels
    grey: Tensor = pixels[:, 0] * _LUMA[0]  # not a product of matrices: it would be rounded where TF32 is on
    for channel in (1, 2):
        grey.add_(pixels[:, channel], alpha=_LUMA[channel])
    return grey[:, None]
