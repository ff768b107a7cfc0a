"""Small data sets in temporary folders."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vicinal.data import glyphs


def picture(seed: int, size: tuple[int, int] = (12, 10), ending: str = "png") -> bytes:
    """A picture of its own for each seed; width and height as Pillow has them."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, {"png": "PNG", "jpg": "JPEG"}[ending])
    return file.getvalue()


@pytest.fixture(scope="session")
def codes():
    return glyphs.characters()


@pytest.fixture(scope="session")
def drawings(codes):
    """Every character in every font: a second's work, done once."""
    return glyphs.plain_drawings(codes)


@pytest.fixture
def write_pictures(tmp_path):
    """``write_pictures("a/1.png", "b/2.png", ...)`` below ``tmp_path``; the root comes back."""

    def write(*paths: str, size: tuple[int, int] = (12, 10)) -> Path:
        for seed, path in enumerate(paths):
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(picture(seed, size, file.suffix[1:]))
        return tmp_path

    return write


@pytest.fixture
def class_folders(write_pictures):
    """Four classes a, b, c, d with three pictures each."""
    return write_pictures(*(f"{name}/{number}.jpg" for name in "abcd" for number in range(3)))
