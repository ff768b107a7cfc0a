"""Writing a collection: one whole generation beside the old ones, made visible by one rename; one writer at a time."""

import fcntl
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from vicinal.errors import DataError, RunError
from vicinal.files import read_json, sync_directory, write_atomically, write_json, write_text
from vicinal.index.exact import Metric
from vicinal.search.archives import FOLDER as ARCHIVES
from vicinal.search.collection import (
    ABOUT,
    FORMAT,
    ITEMS,
    POINTER,
    VECTORS,
    CollectionDirectory,
    Item,
    generation_folder,
)
from vicinal.search.places import Place

_KEPT = 2  # the newest and the one before it, which a reader may just be opening
_LOCK = ".lock"
_PASS = 4096  # rows written at a time


def publish(
    path: Path,
    items: Sequence[Item],
    vectors: Iterable[Float[np.ndarray, "d"]] | Float[np.ndarray, "n d"],
    *,
    dim: int,
    metric: Metric = "euclidean",
    places: Sequence[Place] = (),
    next_id: int | None = None,
    facts: Mapping[str, Any] | None = None,
    engine: Callable[[int, Path], Mapping[str, Any]] | None = None,
) -> int:
    """Write a new generation and make it the newest; return its number.

    Args:
        path: the collection's folder, made if need be.
        items: by ascending id.
        vectors: one for each item, in the same order.
        places: what ``Item.place`` counts in.
        next_id: the id that the next new item will get; by default beyond the last here.
        facts: further entries of ``about.json``.
        engine: brings another engine to this generation, given its number and the folder with the vectors, before
            anyone is told of it; what it returns is kept as ``store``.
    """
    ids = [item.id for item in items]
    if ids != sorted(set(ids)):
        raise DataError("items of a generation have ascending ids, each once.")
    path.mkdir(parents=True, exist_ok=True)
    number = _newest(path) + 1
    folder = generation_folder(path, number)
    part = folder.with_name(folder.name + ".part")
    for left in (folder, part):  # of a writer that ended before it could set the pointer
        shutil.rmtree(left, ignore_errors=True)
    part.mkdir()
    _write_vectors(part / VECTORS, vectors, len(items), dim)
    write_text(part / ITEMS, "".join(json.dumps(asdict(item), ensure_ascii=False) + "\n" for item in items))
    about = {
        "format": FORMAT,
        "generation": number,
        "count": len(items),
        "dim": dim,
        "metric": metric,
        "next_id": next_id if next_id is not None else (ids[-1] + 1 if ids else 0),
        "places": [asdict(place) for place in places],
        **(facts or {}),
        "store": None if engine is None else dict(engine(number, part)),
    }
    write_json(part / ABOUT, about)
    os.replace(part, folder)
    sync_directory(path)
    write_json(path / POINTER, {"format": FORMAT, "generation": number})
    _remove_old(path, number)
    return number


def _newest(path: Path) -> int:
    return CollectionDirectory(path).latest_generation() if (path / POINTER).is_file() else 0


def _write_vectors(path: Path, vectors: Iterable[np.ndarray], count: int, dim: int) -> None:
    """An ``.npy`` written row by row: the whole need never be in memory."""

    def write(file: Any) -> None:
        header = {"descr": "<f4", "fortran_order": False, "shape": (count, dim)}
        np.lib.format.write_array_header_1_0(file, header)
        written, held = 0, list[np.ndarray]()
        for vector in vectors:
            held.append(vector)
            if len(held) == _PASS:
                written += _write_rows(file, held, written, dim)
        written += _write_rows(file, held, written, dim)
        if written != count:
            raise DataError(f"{count} items need as many vectors, but {written} came.")

    write_atomically(path, write)


def _write_rows(file: Any, held: list[np.ndarray], before: int, dim: int) -> int:
    if not held:
        return 0
    rows = np.ascontiguousarray(held, dtype="<f4")
    if rows.shape != (len(held), dim) or not np.isfinite(rows).all():
        raise DataError(
            f"vectors {before} to {before + len(held)} should be finite and of length {dim}, but are not. "
            f"Look at the training that made the model."
        )
    file.write(rows.tobytes())
    count = len(held)
    held.clear()
    return count


def _remove_old(path: Path, newest: int) -> None:
    """Readers keep their memory maps of what is removed here; only the names go."""
    for folder in path.glob("generation-*"):
        number = folder.name.removeprefix("generation-").removesuffix(".part")
        if number.isdigit() and int(number) <= newest - _KEPT:
            shutil.rmtree(folder, ignore_errors=True)
    used = {
        place["root"]
        for number in range(max(1, newest - _KEPT + 1), newest + 1)
        for place in read_json(generation_folder(path, number) / ABOUT)["places"]
    }
    for folder in (path / ARCHIVES).glob("*"):
        if f"{ARCHIVES}/{folder.name}" not in used:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Hold the collection for this process alone.

    The lock is the kernel's on an open file, so it goes with its holder however that ends, and one that a dead process
    left behind is free. The file names the holder for whoever has to wait.
    """
    path.mkdir(parents=True, exist_ok=True)
    with (path / _LOCK).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(
                f"{path} is being written by {_holder(path)}. Wait for it or stop it; searching needs no waiting."
            ) from None
        write = {"process": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        lock.truncate(0)
        lock.write(json.dumps(write))
        lock.flush()
        try:
            yield
        finally:
            lock.truncate(0)


def _holder(path: Path) -> str:
    with suppress(DataError, OSError, KeyError, TypeError):
        holder = read_json(path / _LOCK)
        return f"process {holder['process']} on {holder['host']} since {holder['since']}"
    return "another process"
