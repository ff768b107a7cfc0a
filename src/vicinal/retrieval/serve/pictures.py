"""Pictures in and out: an upload is measured before it is decoded, and what is sent was encoded here."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from io import BytesIO
from threading import Lock

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from vicinal.data.images import upright
from vicinal.retrieval.serve.errors import RequestError, text
from vicinal.retrieval.serve.library import FORMATS, Limits

_SMALL = 64  # pixels; below, PNG is as small as JPEG and shows no artefacts


def decoded(data: bytes, limits: Limits) -> Image.Image:
    """Decode the uploaded picture, upright. Its type is told by its content, its size by its header."""
    if not data:
        raise RequestError(422, "a picture as the body.", "an empty body.", "Send the bytes of an image file.")
    try:
        image = Image.open(BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError as error:
        asked, got = f"a picture: {', '.join(FORMATS)}.", f"{len(data):,} bytes that are none of these."
        raise RequestError(415, asked, got, "Send an image file, or convert it to one of these.") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _too_many_pixels(limits, "far more") from error
    except Exception as error:  # decoders raise whatever their parsing of a damaged header runs into
        raise _damaged(error) from error
    with image:
        if image.width * image.height > limits.upload_pixels:
            raise _too_many_pixels(limits, f"{image.width:,} x {image.height:,}")
        if max(image.size) > limits.upload_aspect * min(image.size):
            # A model that brings the shorter side to 256 would make of 1 x 1,000,000 pixels 256 times as many.
            asked = f"a picture at most {limits.upload_aspect} times as long as wide."
            raise RequestError(413, asked, f"{image.width:,} x {image.height:,} pixels.", "Crop it.")
        try:
            image.load()
        except Exception as error:  # likewise
            raise _damaged(error) from error
        return _eight_bit(upright(image))


def encoded(image: Image.Image, side: int) -> tuple[bytes, str]:
    """Encode the picture with its longer side at most ``side``, without its metadata; return its media type, too."""
    upright = ImageOps.exif_transpose(image)
    upright.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=2.0)
    bare = Image.frombytes(upright.mode, upright.size, upright.tobytes())  # EXIF, comments and profiles stay behind
    file, small = BytesIO(), max(bare.size) <= _SMALL
    if small:
        bare.save(file, "png")
    else:
        bare.save(file, "jpeg", quality=85)
    return file.getvalue(), "image/png" if small else "image/jpeg"


def _eight_bit(image: Image.Image) -> Image.Image:
    """16-bit gray as files of a collection are read; all other modes are the model's to convert."""
    if image.mode == "I" or image.mode.startswith("I;16"):  # Pillow would clip 16 bits to 255, to white
        return Image.fromarray((np.clip(np.asarray(image), 0, 65535) // 256).astype(np.uint8))
    return image.copy()


class Shelf:
    """The encoded pictures used last, up to a number of bytes."""

    def __init__(self, most: int) -> None:
        self.most, self.held = most, 0
        self._kept: OrderedDict[Hashable, tuple[bytes, str]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], tuple[bytes, str]]) -> tuple[bytes, str]:
        """What was kept under ``key``, or made now; two who ask at once may both make it."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = make()
        with self._lock:
            if key not in self._kept and len(made[0]) <= self.most:
                self._kept[key] = made
                self.held += len(made[0])
            while self.held > self.most:
                self.held -= len(self._kept.popitem(last=False)[1][0])
        return made


def _too_many_pixels(limits: Limits, got: str) -> RequestError:
    asked = f"a picture of at most {limits.upload_pixels:,} pixels."
    return RequestError(413, asked, f"{got} pixels.", "Send a smaller version.")


def _damaged(error: Exception) -> RequestError:
    got = f"one that cannot be decoded ({type(error).__name__}: {text(str(error)).rstrip('.'):.120})."
    return RequestError(422, "a whole picture.", got, "It may be cut off or damaged; send it again.")
