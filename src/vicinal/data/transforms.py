"""From a read example to a network's input; chance comes in as numbers (see ``draws``), never from a generator here.

An image goes through three steps. ``prepare`` is certain: channels, size, padding, as uint8. ``crops`` is the only
place where drawn numbers become parameters, for a whole batch at once. ``finish`` cuts, mirrors and normalises. So
images that are already prepared and lie in one tensor take the same last two steps and give the same pixels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from PIL import Image, ImageOps
from torch import Tensor, nn

from vicinal.data.records import Kind
from vicinal.errors import ConfigError, DataError, unknown

Fit = Literal["squash", "shorter"]
Crop = Literal["centre", "random"]


@dataclass(frozen=True)
class Crops:
    """Where each image is cut, and whether it is mirrored."""

    top: Int[np.ndarray, "n"]
    left: Int[np.ndarray, "n"]
    mirrored: Bool[np.ndarray, "n"]


@dataclass(frozen=True)
class ImageTransform:
    """Resize, pad, crop, mirror, normalise.

    Args:
        size: side of the square that comes out.
        resize: length to which the image is brought first; None leaves it as it is.
        fit: ``"shorter"`` gives the shorter side that length and keeps the aspect, ``"squash"`` gives it to both.
        pad: pixels of ``fill`` added on each side before the crop: a random crop then shifts the image.
        fill: grey level of the padding, 0 to 255.
        crop: where the square is cut while training; the centre when there are no draws.
        mirror: swap left and right in half of the draws.
        channels: 1 (grey) or 3 (RGB); images are converted.
        mean: taken off each channel after scaling to 0..1; one number stands for all channels.
        std: what each channel is divided by then.
    """

    kind: ClassVar[Kind] = "images"
    size: int
    resize: int | None = None
    fit: Fit = "shorter"
    pad: int = 0
    fill: int = 0
    crop: Crop = "centre"
    mirror: bool = False
    channels: int = 3
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("fit", self.fit, ("squash", "shorter")),
            ("crop", self.crop, ("centre", "random")),
        ):
            if value not in choices:
                raise ConfigError(unknown(f"value of `{name}`", value, choices))
        if self.channels not in (1, 3):
            raise ConfigError(f"images have 1 channel (grey) or 3 (RGB), but channels = {self.channels} came.")
        if self.size < 1 or self.pad < 0 or (self.resize is not None and self.resize < 1):
            raise ConfigError(
                f"lengths are in pixels, but size = {self.size}, resize = {self.resize}, pad = {self.pad}."
            )
        if self.resize is not None and self.resize + 2 * self.pad < self.size:
            raise ConfigError(
                f"a square of {self.size} pixels cannot be cut from an image resized to {self.resize} and padded by "
                f"{self.pad}. Raise `resize` or lower `size`."
            )
        if not 0 <= self.fill <= 255:
            raise ConfigError(f"`fill` is a grey level from 0 to 255, but {self.fill} came.")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.channels):
                raise ConfigError(
                    f"`{name}` has 1 number or one for each of {self.channels} channels, not {len(values)}."
                )
        if min(self.std) <= 0:
            raise ConfigError(f"`std` divides and must be above 0, but {self.std} came.")

    @property
    def draws(self) -> int:
        """How many uniform numbers an image needs: place down, place across, mirror; always in this order."""
        return 3 if self.crop == "random" or self.mirror else 0

    def evaluation(self) -> "ImageTransform":
        """The certain twin for testing: centre crop, no mirror."""
        return replace(self, crop="centre", mirror=False)

    def __call__(self, image: Image.Image, draws: Float[np.ndarray, "k"] | None = None) -> Float[Tensor, "c h w"]:
        """One image; without draws, as ``evaluation()`` would do it."""
        return self.batch([image], None if draws is None else draws[None])[0]

    def batch(
        self, images: Sequence[Image.Image], draws: Float[np.ndarray, "n k"] | None = None
    ) -> Float[Tensor, "n c h w"]:
        return self.assemble([self.prepare(image) for image in images], draws)

    def assemble(
        self, prepared: Sequence[UInt8[Tensor, "c _ _"]], draws: Float[np.ndarray, "n k"] | None = None
    ) -> Float[Tensor, "n c h w"]:
        """The last two steps for prepared images, which may differ in size."""
        sizes = np.array([pixels.shape[1:] for pixels in prepared], dtype=np.int64).reshape(-1, 2)
        crops = self.crops(sizes[:, 0], sizes[:, 1], draws)
        cut = torch.zeros(len(prepared), self.channels, self.size, self.size, dtype=torch.uint8)
        for row, pixels in enumerate(prepared):
            top, left = int(crops.top[row]), int(crops.left[row])
            cut[row] = pixels[:, top : top + self.size, left : left + self.size]
        return self.finish(cut, torch.from_numpy(crops.mirrored))

    def prepare(self, image: Image.Image) -> UInt8[Tensor, "c h w"]:
        """The certain part: channels, size and padding."""
        mode = "L" if self.channels == 1 else "RGB"
        image = image if image.mode == mode else image.convert(mode)
        if self.resize is not None:
            image = image.resize(self._resized(*image.size), Image.Resampling.BILINEAR)
        if self.pad:
            image = ImageOps.expand(image, self.pad, fill=self.fill if mode == "L" else (self.fill,) * 3)
        if min(image.size) < self.size:
            raise DataError(
                f"a square of {self.size} pixels cannot be cut from an image of {image.width} x {image.height}. "
                f"Set `resize`, or lower `size`."
            )
        pixels = np.array(image)  # a copy: torch wants to own writable memory
        return torch.from_numpy(pixels if pixels.ndim == 3 else pixels[:, :, None]).permute(2, 0, 1)

    def crops(
        self, heights: Int[np.ndarray, "n"], widths: Int[np.ndarray, "n"], draws: Float[np.ndarray, "n k"] | None
    ) -> Crops:
        """Parameters from numbers drawn in [0, 1), a pure function; without numbers, the centre."""
        spare = np.stack([heights, widths], axis=1) - self.size
        place, mirrored = spare // 2, np.zeros(len(spare), dtype=bool)
        if draws is not None and self.crop == "random":
            place = (draws[:, :2] * (spare + 1)).astype(np.int64)
        if draws is not None and self.mirror:
            mirrored = draws[:, 2] < 0.5
        return Crops(top=place[:, 0], left=place[:, 1], mirrored=mirrored)

    def finish(self, cut: UInt8[Tensor, "n c h w"], mirrored: Bool[Tensor, "n"]) -> Float[Tensor, "n c h w"]:
        """Mirror and normalise on whatever device the pixels are."""
        if self.mirror:
            cut = torch.where(mirrored[:, None, None, None], cut.flip(-1), cut)
        mean, std = (torch.tensor(value, device=cut.device).view(1, -1, 1, 1) for value in (self.mean, self.std))
        return (cut.float() / 255 - mean) / std

    def _resized(self, width: int, height: int) -> tuple[int, int]:
        length = self.resize or self.size
        if self.fit == "squash":
            return length, length
        shorter = min(width, height)
        return round(width * length / shorter), round(height * length / shorter)


@dataclass(frozen=True)
class FeatureTransform:
    """Feature vectors as float32.

    Args:
        normalize: bring each vector to length 1; a vector of zeros stays as it is.
    """

    kind: ClassVar[Kind] = "features"
    normalize: bool = False

    @property
    def draws(self) -> int:
        return 0

    def evaluation(self) -> "FeatureTransform":
        return self

    def __call__(self, features: Float[np.ndarray, "d"], draws: np.ndarray | None = None) -> Float[Tensor, "d"]:
        return self.batch(features[None])[0]

    def batch(self, features: Float[np.ndarray, "n d"]) -> Float[Tensor, "n d"]:
        vectors = torch.from_numpy(features.astype(np.float32))
        return nn.functional.normalize(vectors, dim=1) if self.normalize else vectors


Transform = ImageTransform | FeatureTransform
TRANSFORMS: dict[str, type] = {kind.__name__: kind for kind in (ImageTransform, FeatureTransform)}
