"""Whatever a user's program holds - paths, pictures, arrays, vectors, one or many - as one input after the other."""

from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from PIL import Image
from torch import Tensor

from vicinal.data.images import read_image, upright
from vicinal.errors import DataError
from vicinal.index.exact import require_finite

_IMAGE = "a path, a PIL image, or a uint8 array [h w] or [h w 3]"


def images(inputs: Any, *, grey: bool) -> Iterator[tuple[str, Image.Image]]:
    """Decoded images, each with the name by which an error should call it.

    Args:
        inputs: one image or many: an iterable, an array ``[n h w 3]``, or ``[n h w]`` where the model is ``grey``.
        grey: whether the model sees one channel. To another, ``[n h w]`` is refused: ``[3 h w]``, an image with its
            channels first, would pass for three grey ones.
    """
    inputs = _array(inputs)
    if isinstance(inputs, (str, PathLike, Image.Image)):
        inputs = [inputs]
    elif isinstance(inputs, np.ndarray) and inputs.dtype.kind not in "OU":  # not an array of paths
        stacked = inputs.ndim == 4 or (inputs.ndim == 3 and inputs.shape[-1] != 3 and grey)
        inputs = inputs if stacked else [inputs]
    if not isinstance(inputs, Iterable):
        raise DataError(f"this model embeds images: {_IMAGE}, one or many. {_came(inputs)} came.")
    return (_image(value, f"image {place}") for place, value in enumerate(inputs))


def vectors(inputs: Any, width: int) -> Iterator[Float32[np.ndarray, "width"]]:
    """Feature vectors of the right length, finite: from an array ``[d]`` or ``[n d]``, or an iterable of ``[d]``."""
    inputs = _array(inputs)
    if isinstance(inputs, (str, PathLike, Image.Image)) or not isinstance(inputs, Iterable):
        raise DataError(
            f"this model embeds feature vectors: float arrays [{width}] or [n, {width}]. {_came(inputs)} came."
        )
    one = isinstance(inputs, np.ndarray) and inputs.ndim < 2 and inputs.dtype != object
    one |= (
        isinstance(inputs, (list, tuple)) and len(inputs) > 0 and all(isinstance(each, (int, float)) for each in inputs)
    )
    return (_vector(value, place, width) for place, value in enumerate([inputs] if one else inputs))


def _image(value: Any, name: str) -> tuple[str, Image.Image]:
    value = _array(value)
    if isinstance(value, (str, PathLike)):
        return str(value), read_image(Path(value))
    if isinstance(value, Image.Image):
        return name, _eight_bit(value, name)
    hint = ""
    if isinstance(value, np.ndarray):
        colour = value.ndim == 3 and value.shape[2] in (1, 3)
        if value.dtype == np.uint8 and value.size and (value.ndim == 2 or colour):
            pixels = value[:, :, 0] if value.ndim == 3 and value.shape[2] == 1 else value
            return name, Image.fromarray(np.ascontiguousarray(pixels))
        if value.dtype.kind == "f":
            hint = " Bring its pixels to 0..255 and `.astype(numpy.uint8)`."
        elif value.ndim == 3 and value.shape[0] in (1, 3):
            hint = " Channels come last: `.transpose(1, 2, 0)`."
    raise DataError(f"{name} should be {_IMAGE}, but {_came(value)} came.{hint}")


def _eight_bit(image: Image.Image, name: str) -> Image.Image:
    """As files are read: upright, transparency dropped; what has more than 8 bits is its owner's to bring to 8."""
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        raise DataError(
            f"{name} is a PIL image of mode {image.mode}, whose range nobody knows here. Bring it to 8 bits (mode L or "
            f"RGB), or give the path of its file."
        )
    image = upright(image)
    if "transparency" in image.info:  # Pillow warns when a palette loses it at once
        image = image.convert("RGBA")
    return image if image.mode in ("L", "RGB") else image.convert("RGB")


def _vector(value: Any, place: int, width: int) -> Float32[np.ndarray, "width"]:
    try:
        vector = np.asarray(_array(value), dtype=np.float32)
    except (TypeError, ValueError):
        raise DataError(f"feature vector {place} should be {width} numbers, but {_came(value)} came.") from None
    if vector.shape != (width,):
        raise DataError(f"feature vector {place} should have shape [{width}], but {list(vector.shape)} came.")
    require_finite(torch.from_numpy(vector)[None], f"feature vector {place}")
    return vector


def _array(value: Any) -> Any:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value


def _came(value: Any) -> str:
    """What came, so that its owner recognises it.

    >>> _came(np.zeros((2, 3), dtype=np.float32)), _came(7)
    ('a float32 array [2, 3]', 'int 7')
    """
    if isinstance(value, np.ndarray):
        return f"a {value.dtype} array {list(value.shape)}"
    return f"{type(value).__name__} {value!r:.60}"
