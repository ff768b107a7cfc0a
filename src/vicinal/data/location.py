"""Where data lies: the folder of data sets that VICINAL_DATA names, and the user's cache of what
can be made again."""

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from vicinal.errors import DataError
from vicinal.files import read_arrays, write_arrays

_VARIABLE = "VICINAL_DATA"
_REPOSITORY = Path(__file__).parents[3]  # repository/src/vicinal/data/location.py


def data_root() -> Path:
    """Return the folder of data sets: VICINAL_DATA, or ``../shared/data`` from the repository. It
    need not exist."""
    named = os.environ.get(_VARIABLE)
    return Path(named).expanduser() if named else _REPOSITORY.parent / "shared" / "data"


def expanded(path: str) -> Path:
    """Expand ``$VICINAL_DATA/...`` and ``~`` in a data set's ``path``.

    The data set keeps the short form, so that a run's description holds on another machine too.
    """
    for spelling in (f"${_VARIABLE}", f"${{{_VARIABLE}}}"):
        if path == spelling or path.startswith(spelling + "/"):
            return data_root() / path[len(spelling) :].lstrip("/")
    return Path(path).expanduser()


def existing(path: str) -> Path:
    """Return ``expanded(path)``; an error where no file or folder lies there."""
    found = expanded(path)
    if not found.exists():
        unset = _VARIABLE in path and not os.environ.get(_VARIABLE)
        advice = f"Set {_VARIABLE} to the folder of data sets." if unset else "Check the path."
        raise DataError(f"no data at {path}: {found} does not exist. {advice}")
    if not found.is_file() and not found.is_dir():  # a pipe would wait for whoever writes into it
        raise DataError(f"{found} is neither a file nor a folder. Check the path.")
    return found


def cached(name: str, make: Callable[[], Mapping[str, np.ndarray]]) -> Mapping[str, np.ndarray]:
    """Return the arrays that the user's cache has under a name; make them where it has none, or
    damaged ones.

    Args:
        name: of the file, with a hash of all that the arrays depend on.
        make: makes them.
    """
    path = cache_folder() / f"{name}.npz"
    if not path.is_absolute():  # of a user without a home
        return make()
    with contextlib.suppress(OSError, DataError):  # absent or damaged: it can be made again
        return read_arrays(path)
    made = make()
    # A cache that cannot be written costs seconds the next time, no more.
    with contextlib.suppress(OSError):
        write_arrays(path, made)
    return made


def cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/vicinal`` or ``~/.cache/vicinal``."""
    named = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(named) / "vicinal"
