"""Cutting many images out of one resident tensor at once, on whatever device it lies; no Python per image."""

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from vicinal.data.crops import Crops


def cut_squares(
    images: UInt8[Tensor, "m c h w"], rows: Int[Tensor, "n"], crops: Crops, size: int
) -> UInt8[Tensor, "n c size size"]:
    """Squares of ``size`` pixels, mirrored where the crops say so; heights and widths are not looked at."""
    channels, height, _ = images.shape[1:]
    steps = torch.arange(size, device=images.device)
    # First whole lines, which are copied eight pixels at a time, then the columns of each line.
    planes = rows[:, None] * channels + torch.arange(channels, device=images.device)
    lines = planes[:, :, None] * height + (crops.top[:, None] + steps)[:, None]
    columns = crops.left[:, None] + torch.where(crops.mirrored[:, None], size - 1 - steps, steps)
    return _picked(images.flatten(0, 2), lines).gather(3, columns[:, None, None].expand(-1, channels, size, -1))


def cut_resized(
    images: UInt8[Tensor, "m c h w"], rows: Int[Tensor, "n"], crops: Crops, size: int
) -> Float[Tensor, "n c size size"]:
    """Boxes brought to ``size`` pixels by the triangle filter, as ``Image.crop(...).resize(..., BILINEAR)`` does it.

    Like Pillow we filter along rows, round to whole grey levels, filter along columns and round again, each filter one
    matrix per image. So the two differ, by one level, only where float32 and Pillow's 22-bit fixed point fall on
    different sides of a half, or where Pillow 13 takes the columns first. What is outside the box has no say.
    """
    channels, height, width = images.shape[1:]
    across = triangle_weights(crops.left, crops.width, size, width, mirrored=crops.mirrored)
    down = triangle_weights(crops.top, crops.height, size, height)
    # Rows before channels: then both filters are batched products, [h c, w] by [w, size] and [size, h] by [h, c size].
    lines = _picked(images, rows).transpose(1, 2).flatten(1, 2)
    with torch.autocast(images.device.type, enabled=False):  # bfloat16 weights would be off by half a grey level
        # A half goes up in Pillow, so we add one and cut off; weights sum to 1, so it may be added to the pixels.
        narrow = torch.bmm(lines + 0.5, across.mT).floor_()
        small = torch.bmm(down, narrow.view(len(rows), height, channels * size)).add_(0.5).floor_()
    return small.view(len(rows), size, channels, size).transpose(1, 2)


def triangle_weights(
    first: Int[Tensor, "n"],
    length: Int[Tensor, "n"],
    size: int,
    extent: int,
    *,
    mirrored: Bool[Tensor, "n"] | None = None,
) -> Float[Tensor, "n size extent"]:
    """How much of each of ``extent`` pixels goes into each of ``size``, for the pixels from ``first`` on.

        w(x) ~ max(0, 1 - |x + 1/2 - c| / r),   c = first + (j + 1/2) s,   s = length / size,   r = max(s, 1)

    Bilinear interpolation where the box grows; where it shrinks the triangle is widened, which keeps fine patterns from
    turning into coarse ones (Pillow's ``BILINEAR``, torch's ``antialias=True``).
    """
    steps = torch.arange(size, device=first.device) + 0.5
    pixels = torch.arange(extent, device=first.device) + 0.5
    scale = (length / size)[:, None]
    outputs = steps.expand(len(first), size)
    if mirrored is not None:
        outputs = torch.where(mirrored[:, None], size - outputs, outputs)
    # Lengths are in units of the triangle's half width; what is outside the box is beyond the reach of any triangle.
    reach = scale.clamp(min=1)
    inside = pixels - first[:, None]
    inside = torch.where((inside > 0) & (inside < length[:, None]), inside / reach, torch.inf)
    weights = (1 - (inside[:, None] - (outputs * scale / reach)[:, :, None]).abs_()).clamp_(min=0)
    return weights.div_(weights.sum(dim=2, keepdim=True))


def _picked(images: UInt8[Tensor, "m *image"], rows: Int[Tensor, "..."]) -> UInt8[Tensor, "..."]:
    """``images[rows]``, eight pixels at a time where lines hold a multiple of eight: a GPU copies them faster."""
    if images.shape[-1] % 8 == 0 and images.is_contiguous():
        return images.view(torch.int64)[rows].view(torch.uint8)
    return images[rows]
