"""Where images are cut, whether they are mirrored and how their colours change: drawn numbers made parameters.

All of it is a pure function of numbers in [0, 1), for a whole batch at once, so the same numbers give the same picture
in a loader's worker and on a GPU. The numbers of an image have fixed places, and a new option takes new places after
the last: switching one on changes nothing about the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

PLACE, MIRROR, COLOUR = slice(0, 2), 2, slice(3, 6)  # down and across; left-right; brightness, contrast, saturation
TRIES = 10  # torchvision's RandomResizedCrop gives up after as many
BOXES = slice(6, 6 + 2 * TRIES)  # area and aspect of each try


@dataclass(frozen=True)
class Crops:
    """One box, one side and one change of colour for each image; all tensors on one device.

    Attributes:
        top: first row of the box; ``left``, its first column.
        height: rows of the box, ``width`` its columns: brought to the size of the output where they differ from it.
        mirrored: whether left and right are swapped.
        colour: factors of brightness, contrast and saturation; 1 changes nothing.
    """

    top: Int[Tensor, "n"]
    left: Int[Tensor, "n"]
    height: Int[Tensor, "n"]
    width: Int[Tensor, "n"]
    mirrored: Bool[Tensor, "n"]
    colour: Float[Tensor, "n 3"]

    def __getitem__(self, rows: slice) -> "Crops":
        return Crops(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def to(self, device: torch.device) -> "Crops":
        """The same on a device, without waiting for it."""
        return Crops(**{field.name: sent(getattr(self, field.name), device) for field in fields(self)})


def sent(values: Tensor, device: torch.device) -> Tensor:
    """A host tensor on a device. From pinned memory a copy to a GPU does not make the host wait."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)


def resized_boxes(
    heights: Int[np.ndarray, "n"],
    widths: Int[np.ndarray, "n"],
    draws: Float[np.ndarray, "n k"],
    area: Sequence[float],
    ratio: Sequence[float],
) -> Int[np.ndarray, "n 4"]:
    """Boxes (top, left, height, width) of a random share of the area and a random aspect.

    The rule is torchvision's RandomResizedCrop: an area even between the two shares, an aspect (width to height) even
    on a logarithmic scale; of ten tries the first that fits in the image is placed at random. Where none fits, the
    largest box of an allowed aspect is cut from the centre.
    """
    tries = draws[:, BOXES].reshape(-1, TRIES, 2)
    areas = (heights * widths)[:, None] * (area[0] + tries[..., 0] * (area[1] - area[0]))
    aspects = np.exp(np.log(ratio[0]) + tries[..., 1] * (np.log(ratio[1]) - np.log(ratio[0])))
    sides = np.rint(np.sqrt(np.stack([areas / aspects, areas * aspects], axis=-1))).astype(np.int64)
    whole = np.stack([heights, widths], axis=1)
    fits = ((sides > 0) & (sides <= whole[:, None])).all(axis=2)
    chosen = sides[np.arange(len(sides)), fits.argmax(axis=1)]
    place = (draws[:, PLACE] * (whole - chosen + 1)).astype(np.int64)
    none = ~fits.any(axis=1)
    chosen[none] = _largest(heights[none], widths[none], ratio)
    place[none] = (whole[none] - chosen[none]) // 2
    return np.concatenate([place, chosen], axis=1)


def _largest(heights: np.ndarray, widths: np.ndarray, ratio: Sequence[float]) -> np.ndarray:
    aspect = np.clip(widths / heights, ratio[0], ratio[1])
    rows = np.clip(np.rint(widths / aspect), 1, heights)
    columns = np.clip(np.rint(heights * aspect), 1, widths)
    return np.stack([rows, columns], axis=1).astype(np.int64)
