"""From a read example to a network's input; chance comes in as numbers (see ``draws``), never from
a generator here.

An image goes through three steps. ``prepare`` is deterministic: channels, size, padding, as uint8.
``crops`` is the only place where drawn numbers become parameters, for a whole batch at once. Then
it is cut and mirrored, and ``finish`` normalizes. Images that are already prepared and lie in one
tensor (``keep_decoded``) take the same crops and the same finish, so they give the same pixels.

Parameters are a pure function of numbers in [0, 1), so the same numbers give the same picture in a
loader's worker and on a GPU. The numbers of an image have fixed places, and a new option takes new
places after the last: switching one on changes nothing about the others.
"""

import random
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from PIL import Image, ImageOps
from torch import Tensor, nn
from torch.nn import functional

from vicinal.arguments import Limits, Positive, Settings, Share
from vicinal.data.records import Kind, to_device
from vicinal.errors import ConfigError

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


Images = Float[Tensor, "n c h w"]
Draws = Float[np.ndarray, "n k"]
Fit = Literal["squash", "shorter"]
Side = Annotated[int, Limits("[1, 16384]")]


class ImageTransform(Settings):
    """Resize, pad, crop, mirror, normalize.

    Args:
        size: side of the square that comes out.
        resize: length to which the image is brought first; None leaves it as it is.
        fit: ``"shorter"`` gives the shorter side that length and keeps the aspect, ``"squash"``
            gives it to both.
        pad: pixels of ``fill`` added on each side before the crop: a random crop then shifts the
            image.
        fill: gray level of the padding, 0 to 255.
        crop: how the square is cut while training: from the ``"center"``, at a ``"random"`` place,
            or ``"resized"`` from a random box (torchvision's RandomResizedCrop); the center when
            there are no draws.
        mirror: swap left and right in half of the draws.
        channels: 1 (gray) or 3 (RGB); images are converted.
        mean: taken off each channel after scaling, in the order of ``order``; one number stands for
            all channels.
        std: what each channel is divided by then.
        canvas: side of the center square that is kept of a resized image; None keeps it whole.
            Images are then all of one size, which tensors of decoded images need, and crops never
            see what lies outside.
        area: least and largest share of the image in a resized crop.
        order: of the channels that come out; ``"BGR"`` for weights from Caffe.
        scale: the value of white before ``mean`` is taken off: 1, or 255 for some weights.
        interpolation: of ``resize``; boxes of resized crops are always brought to ``size``
            bilinearly.
        test_size: side of the square cut from images that are embedded; by default ``size``.
            Resized crops enlarge what they show, so a network trained on them knows larger images
            better (Touvron et al. 2019).
    """

    slot: ClassVar[str] = "transform"
    kind: ClassVar[Kind] = "images"
    draws: ClassVar[int] = BOXES.stop  # numbers drawn for an image, in fixed places, used or not
    size: Side
    resize: Side | None = None
    fit: Fit = "shorter"
    pad: Annotated[int, Limits("[0, 4096]")] = 0
    fill: Annotated[int, Limits("[0, 255]")] = 0
    crop: Literal["center", "random", "resized"] = "center"
    mirror: bool = False
    channels: Literal[1, 3] = 3
    mean: tuple[float, ...] = (0.5,)
    std: tuple[Positive, ...] = (0.5,)
    canvas: Side | None = None
    area: tuple[Share, ...] = (0.08, 1.0)
    order: Literal["RGB", "BGR"] = "RGB"
    scale: Positive = 1.0
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"
    test_size: Side | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        side = self.resize if self.canvas is None else self.canvas
        cut = max(self.size, self.test_size or 0) - 2 * self.pad
        if cut > (side or cut) or (self.canvas or 0) > (self.resize or self.canvas or 0):
            names = ("size", "test_size", "pad", "canvas", "resize")
            raise ConfigError(
                "a crop must lie in the padded canvas, and that in the resized image; got "
                f"{', '.join(f'{name} = {getattr(self, name)}' for name in names)}. Raise `resize` "
                "or `canvas`."
            )
        if len(self.area) != 2 or not 0 < self.area[0] <= self.area[1]:
            raise ConfigError(
                f"transform.area must be two rising numbers above 0, got {self.area}."
            )
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.channels):
                raise ConfigError(
                    f"transform.{name} needs 1 or {self.channels} numbers, got {values}."
                )

    @property
    def preparation(self) -> tuple[object, ...]:
        """All settings on which the pixels of ``prepare`` depend."""
        names = ("resize", "fit", "canvas", "pad", "fill", "channels", "interpolation")
        return tuple(getattr(self, name) for name in names)

    @property
    def prepared_side(self) -> int | None:
        """Side of the square that ``prepare`` gives for any image; None where it depends on the
        image."""
        side = self.resize if self.canvas is None and self.fit == "squash" else self.canvas
        return None if side is None else side + 2 * self.pad

    def evaluation(self) -> "ImageTransform":
        """Return the deterministic transform for testing: center crop of ``test_size``, nothing
        drawn."""
        size = self.size if self.test_size is None else self.test_size
        return replace(self, size=size, test_size=None, crop="center", mirror=False)

    def batch(self, images: Sequence[Image.Image], draws: Draws | None = None) -> Images:
        return self.finish(self.cut_drawn([self.prepare(image) for image in images], draws))

    def cut_drawn(
        self, prepared: Sequence[UInt8[Tensor, "c _ _"]], draws: Draws | None
    ) -> UInt8[Tensor, "n c size size"]:
        """Cut on the host what the draws say, resized by Pillow where it must be, and mirrored."""
        sizes = np.array([pixels.shape[1:] for pixels in prepared], dtype=np.int64).reshape(-1, 2)
        crops = self.crops(sizes, draws)
        shape = len(prepared), self.channels, self.size, self.size
        cut = torch.empty(shape, dtype=torch.uint8)
        boxes = zip(prepared, crops.boxes.tolist(), crops.mirrored.tolist(), strict=True)
        for row, (pixels, (top, left, height, width), mirrored) in enumerate(boxes):
            box = pixels[:, top : top + height, left : left + width]
            if (height, width) != (self.size, self.size):
                # The width first: in one call, Pillow 13 takes the side first that saves more.
                narrow = as_image(box).resize((self.size, height), Image.Resampling.BILINEAR)
                box = as_pixels(narrow.resize((self.size,) * 2, Image.Resampling.BILINEAR))
            cut[row] = box.flip(-1) if mirrored else box
        return cut

    def prepare(self, image: Image.Image, name: str = "the image") -> UInt8[Tensor, "c h w"]:
        """Do the deterministic part: channels, size, canvas and padding; an error tells the image's
        ``name``."""
        image = _with_channels(image, self.channels)
        if self.resize is not None:
            shorter = min(image.size) if self.fit == "shorter" else 0
            width, height = (
                round(side * self.resize / shorter) if shorter else self.resize
                for side in image.size
            )
            image = image.resize((width, height), Image.Resampling[self.interpolation.upper()])
        side = self.size - 2 * self.pad if self.canvas is None else self.canvas
        if min(image.size) < side:
            setting = "size" if self.canvas is None else "canvas"
            raise ConfigError(
                f"{name}: a square of {side} pixels cannot be cut from an image of {image.width} x "
                f"{image.height}. Set `resize`, or lower `{setting}`."
            )
        if self.canvas is not None:
            left, top = ((length - side) // 2 for length in image.size)
            image = image.crop((left, top, left + side, top + side))
        if self.pad:
            image = ImageOps.expand(
                image, self.pad, fill=self.fill if self.channels == 1 else (self.fill,) * 3
            )
        return as_pixels(image)

    def crops(self, sizes: Int[np.ndarray, "n 2"], draws: Draws | None) -> Crops:
        """Return parameters for images of some heights and widths as a pure function of numbers
        drawn in [0, 1); without numbers, the center."""
        centers = (sizes - self.size) // 2
        boxes = np.concatenate([centers, np.full_like(sizes, self.size)], axis=1)
        mirrored = np.zeros(len(sizes), dtype=bool)
        if draws is not None:
            if self.crop == "random":
                boxes[:, :2] = (draws[:, PLACE] * (sizes - self.size + 1)).astype(np.int64)
            elif self.crop == "resized":
                boxes = resized_boxes(sizes, draws, self.area)
            if self.mirror:
                mirrored = draws[:, MIRROR] < 0.5
        return Crops(torch.from_numpy(boxes), torch.from_numpy(mirrored))

    def cut_there(
        self, images: UInt8[Tensor, "m h w c"], rows: Int[Tensor, "n"], crops: Crops
    ) -> Float[Tensor, "n c size size"] | UInt8[Tensor, "n c size size"]:
        """Cut rows of prepared images on the device where they lie, as ``cut_drawn`` does."""
        boxes, mirrored = (to_device(part, images.device) for part in crops)
        cut = cut_resized if self.crop == "resized" else cut_squares
        return cut(images, rows, Crops(boxes, mirrored), self.size)

    def finish(self, cut: UInt8[Tensor, "n c h w"] | Images) -> Images:
        """Order channels and normalize pixels of 0..255, on the device where they are."""
        gain, offset = self.normalization(cut.device)
        cut = _laid_out(cut)
        return torch.addcmul(offset, cut.flip(1) if self.order == "BGR" else cut, gain)

    @lru_cache(maxsize=8)  # noqa: B019  (settings are small; a copy to a GPU for each batch is not)
    def normalization(self, device: torch.device) -> Float[Tensor, "2 c 1 1"]:
        """Return what multiplies pixels of 0..255 and what is added then."""
        mean, std = (
            np.broadcast_to(np.array(values), self.channels) for values in (self.mean, self.std)
        )
        factors = np.stack([self.scale / (255 * std), -mean / std]).astype(np.float32)
        return to_device(torch.from_numpy(factors), device)[:, :, None, None]


def _laid_out(images: Tensor) -> Tensor:
    """Lay images out with channels last, in which convolutions take less time."""
    return images.contiguous(memory_format=torch.channels_last)


def _with_channels(image: Image.Image, channels: int) -> Image.Image:
    mode = "L" if channels == 1 else "RGB"
    return image if image.mode == mode else image.convert(mode)


def as_pixels(image: Image.Image) -> UInt8[Tensor, "c h w"]:
    # a copy: torch wants to own writable memory
    return torch.from_numpy(np.atleast_3d(np.array(image))).permute(2, 0, 1)


def as_image(pixels: UInt8[Tensor, "c h w"]) -> Image.Image:
    array = pixels.permute(1, 2, 0).numpy()
    return Image.fromarray(np.ascontiguousarray(array if array.shape[2] == 3 else array[:, :, 0]))


@dataclass(frozen=True)
class FeatureTransform:
    """Convert feature vectors to float32.

    >>> FeatureTransform(normalize=True).batch(np.array([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])

    Args:
        normalize: bring each vector to length 1; a vector of zeros stays as it is.
    """

    kind: ClassVar[Kind] = "features"
    normalize: bool = False

    def evaluation(self) -> "FeatureTransform":
        return self

    def batch(
        self, features: Float[np.ndarray, "n d"] | Sequence[Float[np.ndarray, "d"]]
    ) -> Float[Tensor, "n d"]:
        vectors = torch.from_numpy(np.array(features, dtype=np.float32))
        return nn.functional.normalize(vectors, dim=1) if self.normalize else vectors


@dataclass(frozen=True)
class TextTransform:
    """Turn texts into their UTF-8 bytes, filled up with zeros.

    >>> TextTransform().batch(["owl", "é"])
    tensor([[111, 119, 108],
            [195, 169,   0]], dtype=torch.uint8)
    """

    kind: ClassVar[Kind] = "text"

    def evaluation(self) -> "TextTransform":
        return self

    def batch(self, texts: Sequence[str]) -> UInt8[Tensor, "n bytes"]:
        rows = np.array(
            [text.encode() for text in texts], dtype=np.bytes_
        )  # as long as the longest
        return torch.from_numpy(rows.view(np.uint8).reshape(len(rows), rows.itemsize))


@dataclass(frozen=True)
class OwnTransform:
    """A callable of the user's own for training pictures: torchvision's v2, albumentations, or any
    function.

    Its randomness is seeded for each picture from the run's seed, the epoch and the row, so that a
    resumed run sees the same pixels. Evaluation uses ``base``.

    Args:
        function: from a ``PIL.Image`` to a tensor ``[c h w]``; an albumentations pipeline is called
            as it expects.
        base: ours, for evaluation.
    """

    kind: ClassVar[Kind] = "images"
    draws: ClassVar[int] = 1
    function: Callable[..., Any]
    base: ImageTransform

    def evaluation(self) -> ImageTransform:
        return self.base.evaluation()

    def prepare(self, image: Image.Image, name: str = "the image") -> Image.Image:
        return _with_channels(image, self.base.channels)

    def finish(self, cut: Images) -> Images:
        return _laid_out(cut)

    def cut_drawn(self, prepared: Sequence[Image.Image], draws: Draws) -> Images:
        seeds = draws[:, 0] * 2**31
        # What augmentation libraries draw from, and others may go on to draw from.
        state = random.getstate(), np.random.get_state()  # noqa: NPY002
        with torch.random.fork_rng(devices=[]):
            tensors = [self._augmented(*one) for one in zip(prepared, seeds.tolist(), strict=True)]
        random.setstate(state[0])
        np.random.set_state(state[1])  # noqa: NPY002
        return torch.stack(tensors)

    def _augmented(self, image: Image.Image, draw: float) -> Float[Tensor, "c h w"]:
        seed = int(draw)
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        if type(self.function).__module__.startswith("albumentations"):
            found = self.function(image=np.asarray(image))["image"]
        else:
            found = self.function(image)
        if not isinstance(found, Tensor) or found.ndim != 3 or len(found) != self.base.channels:
            raise ConfigError(
                f"a transform of your own gives tensors [{self.base.channels} h w], got "
                f"{getattr(found, 'shape', found)}. End it with torchvision's ToImage and ToDtype, "
                "or albumentations' ToTensorV2."
            )
        return found.float() if found.is_floating_point() else found.float() / 255


def own_transform(transform: "TrainingTransform") -> "Transform":
    """Return ours: behind a transform of the user's own, the one that states sizes and channels."""
    return transform.base if isinstance(transform, OwnTransform) else transform


Transform = ImageTransform | FeatureTransform | TextTransform
TrainingTransform = Transform | OwnTransform
TRANSFORMS: dict[str, type[Transform]] = {
    kind.__name__: kind for kind in typing.get_args(Transform)
}


# -- crops of whole batches -----------------------------------------------------------------------


def resized_boxes(
    sizes: Int[np.ndarray, "n 2"],
    draws: Draws,
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
    sides = np.rint(np.sqrt(np.stack([areas / aspects, areas * aspects], axis=-1)))
    aspect = np.clip(sizes[:, 1] / sizes[:, 0], *RATIO)
    largest = np.rint(np.stack([sizes[:, 1] / aspect, sizes[:, 0] * aspect], axis=1))
    largest = np.clip(largest, 1, sizes)
    fits = ((sides > 0) & (sides <= sizes[:, None])).all(axis=2)
    tried = fits.any(axis=1)[:, None]
    sides = np.where(tried, sides[np.arange(len(sides)), fits.argmax(axis=1)], largest)
    room = sizes - sides
    place = np.where(tried, draws[:, PLACE] * (room + 1), room / 2)
    return np.concatenate([place, sides], axis=1).astype(np.int64)


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


def rotate(images: Images, degrees: Float[Tensor, "n"]) -> Images:
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
