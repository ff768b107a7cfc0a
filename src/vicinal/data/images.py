"""Image files as training, search and export read them: decoded, upright, RGB or 8-bit gray."""

import stat
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import ExifTags, Image, ImageOps

from vicinal.errors import DataError
from vicinal.files import IMAGE_FORMATS, open_image

MOST_PIXELS = 150_000_000  # 450 MB decoded
MOST_ASPECT = 100  # with a shorter side of 256 pixels, 6.5 million
HEIC = (".heic", ".heif")


def read_image(path: Path) -> Image.Image:
    """Decode the image at ``path``, upright, RGB or 8-bit gray; a DataError names the file."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would wait for whoever writes into it
            raise DataError("it is not a regular file")
        if path.suffix.lower() in HEIC:
            try:
                from pillow_heif import register_heif_opener
            except ImportError as error:
                fault = "pillow-heif is not installed: `pip install 'vicinal[heic]'`"
                raise DataError(fault) from error
            register_heif_opener()
            return decode(path, (*IMAGE_FORMATS, "HEIF"))
        return decode(path)
    except FileNotFoundError as error:
        raise DataError(f"image {path} is missing.") from error
    except Exception as error:  # decoders raise what their parsing of a damaged file runs into
        raise DataError(
            f"image {path} cannot be read: {error}. `vicinal data check` lists all such files; "
            "fix or remove them, or "
            f"leave them out: `training.skip_corrupt=true` in training, --skip-corrupt elsewhere."
        ) from error


def decode(file: Path | BinaryIO, formats: tuple[str, ...] = IMAGE_FORMATS) -> Image.Image:
    """Decode an image file, upright, RGB or 8-bit gray; raise what decoders raise, and a DataError
    for its size."""
    with open_image(file, formats) as image:
        width, height = image.size
        # They need more memory than any photograph, as they are or with a resized shorter side.
        if width * height > MOST_PIXELS or max(image.size) > MOST_ASPECT * min(image.size):
            raise DataError(
                f"{width:,} x {height:,} pixels are too many or too narrow; accepted are at most "
                f"{MOST_PIXELS / 10**6:g} million pixels and sides in a ratio of {MOST_ASPECT} to 1"
            )
        image.load()
        return eight_bit(upright(image))


def upright(image: Image.Image) -> Image.Image:
    """Turn a decoded image as its EXIF orientation says: a telephone only notes how it was held."""
    try:
        held = image.getexif().get(ExifTags.Base.Orientation, 1)
        return image if held == 1 else ImageOps.exif_transpose(image)
    except Exception:  # a picture whose tags are damaged is still a picture
        return image


def eight_bit(image: Image.Image) -> Image.Image:
    """Return an image as RGB or 8-bit gray."""
    if image.mode in ("L", "RGB"):
        return image
    if image.mode == "F":
        raise DataError(
            "its pixels are decimal numbers of unknown range; save it with 8 or 16 bits"
        )
    # Pillow would clip 16 bits to 255, to white.
    if image.mode == "I" or image.mode.startswith("I;16"):
        return Image.fromarray((np.clip(np.asarray(image), 0, 65535) // 256).astype(np.uint8))
    if "transparency" in image.info:  # Pillow warns when a palette loses it at once
        image = image.convert("RGBA")
    return image.convert("RGB")
