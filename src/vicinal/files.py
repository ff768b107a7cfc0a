"""Atomic writing (to a temporary file, synced, renamed) and safe reading of JSON and NumPy files."""

import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import RLock
from typing import Any, BinaryIO

import numpy as np

from vicinal.errors import DataError

# numpy parses an array's header with ``ast``. In Python 3.11 all threads share its count of recursions: where a garbage
# collection lets another thread parse in between, the first fails with a SystemError (CPython issue 106905). Reentrant,
# because what a collection runs may read, too.
_HEADERS = RLock()

# What numpy and zipfile raise over damaged archives, besides their own.
_DAMAGED = (ValueError, OSError, EOFError, TypeError, AttributeError, NotImplementedError)


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, sync it, and rename it into place.

    A reader, or a process started after ``kill -9``, sees the old content or the new, never a part.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes private files; these are ordinary ones
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make a rename inside ``path`` survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    write_atomically(path, lambda file: file.write(text.encode()))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an ``.npz`` of plain arrays; an object array (which would need pickle) is an error."""
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise DataError(f"array {name!r} for {path} holds Python objects; convert it to numbers or fixed text.")
    write_atomically(path, lambda file: np.savez_compressed(file, **dict(arrays)))  # type: ignore[arg-type]


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not readable as JSON: {error}. Restore it from a copy, or remove it.") from error


def read_array(path: Path, *, mapped: bool = False) -> np.ndarray:
    """Read the array of an ``.npy``, never unpickling; ``mapped`` leaves it on the disk, read-only."""
    with _HEADERS:
        found: np.ndarray = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    return found


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read all arrays of an ``.npz``, never unpickling."""
    try:
        # Opened here: numpy would leave the handle of a cut-off archive open.
        with path.open("rb") as file, _HEADERS, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise
    except (*_DAMAGED, zipfile.BadZipFile, zlib.error) as error:
        pickled = "allow_pickle" in str(error)  # numpy's word; such arrays could run code when they are read
        advice = ". Save columns of text as text: `numpy.asarray(labels, dtype=str)`." if pickled else ""
        raise DataError(f"{path} is not readable as an .npz of plain arrays: {error}{advice}") from error


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
