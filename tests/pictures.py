"""Pictures for tests that ask for no more than some."""

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
