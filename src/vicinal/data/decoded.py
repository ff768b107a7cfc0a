"""Decoded images shared by processes of one machine: the first decodes, the others wait for it and read its file.

Only where VICINAL_DECODED names a folder, as a bench does for its jobs: images decoded for one run serve all others.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from vicinal.files import read_array

VARIABLE = "VICINAL_DECODED"


def shared(
    names: Callable[[], str], fill: Callable[[UInt8[np.ndarray, "n c h w"]], bool], shape: tuple[int, ...]
) -> UInt8[np.ndarray, "n c h w"] | None:
    """The images as a read-only map of a file; None where none are shared, or they must not be.

    Args:
        names: everything that tells these images from others; they are taken to stay as they are.
        fill: decodes into an array; False if some could not be read, so that every process should see for itself.
        shape: of the array.
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        return None
    path = Path(folder) / f"{sha256(names().encode()).hexdigest()[:20]}.npy"
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone(path.with_suffix(".lock")):
        if not path.is_file():
            unfinished = path.with_suffix(".part")
            array = np.lib.format.open_memmap(unfinished, mode="w+", dtype=np.uint8, shape=shape)
            whole = fill(array)
            array.flush()
            if not whole:
                unfinished.unlink()
                return None
            unfinished.replace(path)
    return read_array(path, mapped=True)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time; the lock goes with the process, however that ends."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
