"""Augmentation of whole batches: boxes from drawn numbers, cut, resized and rotated on any device.

Parameters are a pure function of numbers in [0, 1), so the same numbers give the same picture in a
loader's worker and on a GPU. The numbers of an image have fixed places, and a new option takes new
places after the last: switching one on changes nothing about the others.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor
from torch.nn import functional

PLACE = slice(0, 2)  # down and across
MIRROR = 2
TRIES = 10  # torchvision's RandomResizedCrop gives up after as many
BOXES = slice(6, 6 + 2 * TRIES)  # area and aspect of each try
RATIO = (3 / 4, 4 / 3)  # least and largest width to height of a resized crop


class Crops(NamedTuple):
    """Where each image is cut.

    Attributes:
        boxes: top, left, height and width; resized to the output where they differ from it.
        mirrored: whether left and right are swapped.
    """

    boxes: Int[Tensor, "n 4"]
    mirrored: Bool[Tensor, "n"]


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Return a host tensor on a device. From pinned memory a copy to a GPU does not make the host
    wait."""
    if device.type == "cuda" and values.device.type == "cpu":
        values = values.pin_memory()
    return values.to(device, non_blocking=True)


def resized_boxes(
    sizes: Int[np.ndarray, "n 2"],
    draws: Float[np.ndarray, "n k"],
    area: Sequence[float],
) -> Int[np.ndarray, "n 4"]:
    """Return boxes (top, left, height, width) of a random share of the area and a random aspect.

    ``sizes`` are heights and widths. The rule is torchvision's RandomResizedCrop: an area even
    between the two shares, an aspect (width to height) even on a logarithmic scale; of ten tries
    the first that fits in the image is placed at random. Where none fits, the largest box of an
    allowed aspect is cut from the center.
    """
    tries = draws[:, BOXES].reshape(-1, TRIES, 2)
    areas = sizes.prod(axis=1)[:, None] * (area[0] + tries[..., 0] * (area[1] - area[0]))
    aspects = np.exp(np.log(RATIO[0]) + tries[..., 1] * (np.log(RATIO[1]) - np.log(RATIO[0])))
    sides = np.rint(np.sqrt(np.stack([areas / aspects, areas * aspects], axis=-1))).astype(np.int64)
    fits = ((sides > 0) & (sides <= sizes[:, None])).all(axis=2)
    chosen = sides[np.arange(len(sides)), fits.argmax(axis=1)]
    place = (draws[:, PLACE] * (sizes - chosen + 1)).astype(np.int64)
    none = ~fits.any(axis=1)
    chosen[none] = _largest(sizes[none, 0], sizes[none, 1])
    place[none] = (sizes[none] - chosen[none]) // 2
    return np.concatenate([place, chosen], axis=1)


def _largest(heights: np.ndarray, widths: np.ndarray) -> np.ndarray:
    aspect = np.clip(widths / heights, *RATIO)
    rows = np.clip(np.rint(widths / aspect), 1, heights)
    columns = np.clip(np.rint(heights * aspect), 1, widths)
    return np.stack([rows, columns], axis=1).astype(np.int64)


def cut_squares(
    images: UInt8[Tensor, "m h w c"], rows: Int[Tensor, "n"], crops: Crops, size: int
) -> UInt8[Tensor, "n c size size"]:
    """Cut squares of ``size`` pixels, mirrored where the crops say so; heights and widths are
    ignored."""
    top, left = crops.boxes[:, :2, None].unbind(dim=1)
    steps = torch.arange(size, device=images.device)
    columns = left + torch.where(crops.mirrored[:, None], size - 1 - steps, steps)
    cut = images[rows[:, None, None], (top + steps)[:, :, None], columns[:, None]]
    return cut.permute(0, 3, 1, 2)


def cut_resized(
    images: UInt8[Tensor, "m h w c"], rows: Int[Tensor, "n"], crops: Crops, size: int
) -> Float[Tensor, "n c size size"]:
    """Resize boxes to ``size`` pixels by the triangle filter, as ``Image.crop(...).resize(...,
    BILINEAR)`` does it.

    Like Pillow we filter along rows, round to whole gray levels, filter along columns and round
    again, each filter one matrix per image. So the two differ, by one level, only where float32 and
    Pillow's 22-bit fixed point fall on different sides of a half, or where Pillow 13 takes the
    columns first. What is outside the box is ignored.
    """
    height, width, channels = images.shape[1:]
    top, left, rows_in, columns_in = crops.boxes.unbind(dim=1)
    across = triangle_weights(left, columns_in, size, width, mirrored=crops.mirrored)
    down = triangle_weights(top, rows_in, size, height)
    # Rows before channels: then both filters are batched products, [h c, w] by [w, size] and [size,
    # h] by [h, c size].
    lines = images[rows].transpose(2, 3).flatten(1, 2)
    # Bfloat16 weights would be off by half a gray level.
    with torch.autocast(images.device.type, enabled=False):
        # A half goes up in Pillow, so we add one and cut off; weights sum to 1, so it may be added
        # to the pixels.
        narrow = torch.bmm(lines + 0.5, across.mT).floor_()
        small = torch.bmm(down, narrow.view(len(rows), height, channels * size)).add_(0.5).floor_()
    return small.view(len(rows), size, channels, size).transpose(1, 2)


def triangle_weights(
    first: Int[Tensor, "n"],
    length: Int[Tensor, "n"],
    size: int,
    extent: int,
    mirrored: Bool[Tensor, "n"] | None = None,
) -> Float[Tensor, "n size extent"]:
    """Return how much of each of ``extent`` pixels goes into each of ``size``, for the pixels from
    ``first`` on.

        w(x) ~ max(0, 1 - |x + 1/2 - c| / r),   c = first + (j + 1/2) s,   s = length / size,
            r = max(s, 1)

    Bilinear interpolation where the box grows; where it shrinks the triangle is widened, which
    keeps fine patterns from turning into coarse ones (Pillow's ``BILINEAR``, torch's
    ``antialias=True``).
    """
    steps = torch.arange(size, device=first.device) + 0.5
    pixels = torch.arange(extent, device=first.device) + 0.5
    scale = (length / size)[:, None]
    outputs = steps.expand(len(first), size)
    if mirrored is not None:
        outputs = torch.where(mirrored[:, None], size - outputs, outputs)
    # Lengths are in units of the triangle's half width; what is outside the box is beyond the reach
    # of any triangle.
    reach = scale.clamp(min=1)
    inside = pixels - first[:, None]
    inside = torch.where((inside > 0) & (inside < length[:, None]), inside / reach, torch.inf)
    weights = (1 - (inside[:, None] - (outputs * scale / reach)[:, :, None]).abs_()).clamp_(min=0)
    return weights.div_(weights.sum(dim=2, keepdim=True))


def rotate(
    images: Float[Tensor, "n c h w"], degrees: Float[Tensor, "n"]
) -> Float[Tensor, "n c h w"]:
    """Rotate square pictures counter-clockwise about their center, bilinearly; the border fills the
    corners.

    The sense is that of Pillow's ``Image.rotate``.
    """
    angle = torch.deg2rad(degrees.to(images.dtype))
    zero = torch.zeros_like(angle)
    # Where each pixel comes from: rotated back, in coordinates whose second one points down.
    rows = (
        torch.stack([angle.cos(), -angle.sin(), zero]),
        torch.stack([angle.sin(), angle.cos(), zero]),
    )
    grid = functional.affine_grid(
        torch.stack(rows).permute(2, 0, 1), list(images.shape), align_corners=False
    )
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)
