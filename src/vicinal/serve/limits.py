"""What one request may ask for; the page and the API's description read the same numbers."""

from dataclasses import dataclass

from vicinal.errors import ConfigError

MEBIBYTE = 2**20


@dataclass(frozen=True)
class Limits:
    """Bounds of a request, all inclusive.

    Attributes:
        k: neighbours in one answer.
        listed: items in one page of a listing.
        upload_bytes: of a picture, counted while it arrives.
        upload_pixels: of a picture, read from its header before anything is decoded. 40 million cover a phone's
            camera and decode to 120 MB.
        upload_aspect: longer to shorter side of a picture.
        json_bytes: of any other body; a vector of 8,192 numbers in 20 digits fits six times.
        picture_side: longer side of a picture that is shown large.
        waiting: requests of one kind that may wait for a worker; the next one is answered 503.
    """

    k: int = 200
    listed: int = 200
    upload_bytes: int = 16 * MEBIBYTE
    upload_pixels: int = 40_000_000
    upload_aspect: int = 32
    json_bytes: int = 1 * MEBIBYTE
    picture_side: int = 1280
    waiting: int = 64

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ConfigError(f"the server's limit `{name}` is at least 1, but {value} came. Raise it.")


FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")  # of uploads, by content; what else Pillow reads is not offered
