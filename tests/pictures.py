"""Pictures for tests that ask for no more than some."""

import struct
import zlib

import numpy as np
from PIL import Image


def paint(folder, classes, each, side=24):
    """Write noise of each class, all of different sizes, and return the folder."""
    rng = np.random.default_rng(0)
    for label in range(classes):
        (folder / f"class_{label}").mkdir(parents=True)
        for number in range(each):
            pixels = rng.integers(0, 256, (side + label, side + number, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"class_{label}" / f"{number}.png")
    return folder


def claiming(width, height, held=1):
    """A gray PNG that claims a size, and holds so many zeros."""
    png = b"\x89PNG\r\n\x1a\n"
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    for name, data in ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(held))), (b"IEND", b"")):
        part = name + data
        png += struct.pack(">I", len(data)) + part + struct.pack(">I", zlib.crc32(part))
    return png
