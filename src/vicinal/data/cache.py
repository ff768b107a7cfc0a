"""Arrays that are slow to make and can be made again, kept in the user's cache."""

import contextlib
from collections.abc import Callable, Mapping

import numpy as np

from vicinal.data.location import cache_folder
from vicinal.errors import DataError
from vicinal.files import read_arrays, write_arrays

Arrays = Mapping[str, np.ndarray]


def cached(name: str, make: Callable[[], Arrays], sound: Callable[[Arrays], bool]) -> Arrays:
    """The arrays that the cache has under a name; made anew where it has none, or damaged ones.

    Args:
        name: of the file, with a hash of all that the arrays depend on.
        make: makes them.
        sound: whether arrays from the cache are what ``make`` would give, as far as one can see; a KeyError is a no.
    """
    folder = cache_folder()
    if folder is None:
        return make()
    path = folder / f"{name}.npz"
    try:
        arrays = read_arrays(path)
        if sound(arrays):
            return arrays
    except (OSError, DataError, KeyError):
        pass  # absent, unreadable or damaged: all the same, for it can be made again
    made = make()
    with contextlib.suppress(OSError):  # a cache that cannot be written costs seconds the next time, no more
        write_arrays(path, made)
    return made
