"""Writing a collection: one whole generation beside the old ones, made visible by one rename; one
writer at a time.

Vectors are kept from the moment they exist in a cache, by the hash of what they were made of: an
interrupted indexing loses none.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from vicinal.errors import ConfigError, DataError, RunError
from vicinal.files import (
    PARTS,
    check_links,
    lock_open_file,
    read_array,
    sync_directory,
    write_atomically,
    write_json,
    write_text,
)
from vicinal.retrieval.collection import (
    ABOUT,
    FORMAT,
    ITEMS,
    POINTER,
    VECTORS,
    CollectionDirectory,
    checksum_of,
)
from vicinal.retrieval.store import Item, Place

_LOCK = ".lock"
_PASS = 4096  # rows written at a time


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Hold the collection for this process alone; it is made where there is none.

    A folder that holds anything else is rejected: it is not ours to write to. The lock is the
    system's on an open file, which names its holder, so it ends with its holder however that ends.
    """
    path.mkdir(parents=True, exist_ok=True)
    check_links(path)
    foreign = (each.name for each in path.iterdir() if each.name != _LOCK and not each.match(PARTS))
    if not (path / POINTER).exists() and (name := next(foreign, None)) is not None:
        raise ConfigError(
            f"{path} is neither empty nor a collection: it holds {name}. Name another folder with "
            "--collection."
        )
    with (path / _LOCK).open("a") as lock:
        try:
            lock_open_file(lock.fileno(), wait=False)
        except BlockingIOError:
            raise RunError(
                f"{path} is being written by another process. Wait for it or stop it; search does "
                "not wait."
            ) from None
        if not (path / POINTER).exists():
            _point_to(path, 0)
        yield


def publish(
    path: Path,
    items: Sequence[Item],
    vectors: Iterable[Float[np.ndarray, "d"]] | Float[np.ndarray, "n d"],
    *,
    dim: int,
    places: Sequence[Place] = (),
    facts: Mapping[str, Any] | None = None,
) -> int:
    """Write a new generation and make it the newest; return its number.

    The generation before stays, which a reader may just be opening; older ones are removed.

    Args:
        path: the collection's folder, made if need be.
        items: by ascending id.
        vectors: one for each item, in the same order.
        places: what ``Item.place`` counts in.
        facts: further entries of ``about.json``.
    """
    collection = CollectionDirectory(path)
    number = 1 + collection.latest_generation()
    folder = collection.folder(number)
    part = folder.with_name(folder.name + ".part")
    for left in (folder, part):  # of a writer that ended before it could set the pointer
        shutil.rmtree(left, ignore_errors=True)
    part.mkdir(parents=True)
    write_atomically(part / VECTORS, lambda file: _write_rows(file, vectors, len(items), dim))
    lines = (json.dumps(asdict(item), ensure_ascii=False) + "\n" for item in items)
    write_text(part / ITEMS, "".join(lines))
    about = {
        "generation": number,
        "count": len(items),
        "dim": dim,
        "metric": "euclidean",
        "checksum": checksum_of(part / VECTORS),
        "places": [asdict(place) for place in places],
        **(facts or {}),
    }
    write_json(part / ABOUT, about)
    os.replace(part, folder)
    sync_directory(path)
    _point_to(path, number)
    for old in range(number - 2, 0, -1):
        # Whoever holds a memory map of it keeps that.
        if not collection.folder(old).exists():
            break
        shutil.rmtree(collection.folder(old), ignore_errors=True)
    return number


def _point_to(path: Path, number: int) -> None:
    write_json(path / POINTER, {"format": FORMAT, "generation": number})


def _write_rows(file: Any, vectors: Iterable[np.ndarray], count: int, dim: int) -> None:
    """Write an ``.npy`` some rows at a time: the whole need never be in memory."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (count, dim)}
    np.lib.format.write_array_header_1_0(file, header)
    rest = iter(vectors)
    written = 0
    while some := list(islice(rest, _PASS)):
        rows = np.ascontiguousarray(some, dtype="<f4")
        if rows.shape != (len(some), dim) or not np.isfinite(rows).all():
            raise DataError(
                f"vectors {written} to {written + len(some)} must be finite and of length {dim}. "
                "Check the training that made the model."
            )
        file.write(rows.tobytes())
        written += len(some)
    if written != count:
        raise DataError(f"{count} items need as many vectors; got {written}.")


class VectorCache:
    """The vectors of one model as they are made, by the SHA-256 of what they were made of: a file
    for each batch.

    Args:
        folder: of the collection.
        dim: length of the vectors.
        model: fingerprint of what makes them; caches of other models are removed.
    """

    def __init__(self, folder: Path, *, dim: int, model: str) -> None:
        self.path = folder / f"embedded-{model[:32]}"
        self._entry = np.dtype([("digest", "U64"), ("vector", "<f4", (dim,))])
        self._vectors: dict[str, np.ndarray] = {}
        for old in folder.glob("embedded-*"):
            if old != self.path:
                shutil.rmtree(old)
        for file in self.path.glob("*.npy"):
            entries = read_array(file, mapped=True)
            self.hold(entries["digest"].tolist(), entries["vector"])

    def hold(self, digests: Sequence[str], vectors: Float[np.ndarray, "n d"]) -> None:
        """Know these, too, which are kept elsewhere."""
        self._vectors.update(zip(digests, np.asarray(vectors), strict=True))

    def __contains__(self, digest: str) -> bool:
        return digest in self._vectors

    def __getitem__(self, digest: str) -> Float[np.ndarray, "d"]:
        return self._vectors[digest]

    def append(self, digests: Sequence[str], vectors: Float[np.ndarray, "n d"]) -> None:
        """Keep these; when it returns, they survive a power cut."""
        entries = np.zeros(len(digests), self._entry)
        entries["digest"] = digests
        entries["vector"] = vectors
        if digests:
            file = self.path / f"{digests[0]}.npy"
            write_atomically(file, lambda opened: np.save(opened, entries))
            self.hold(digests, read_array(file, mapped=True)["vector"])

    def clear(self) -> None:
        """Remove the files: their vectors are in a generation now."""
        shutil.rmtree(self.path, ignore_errors=True)
