"""Writing a collection: one whole generation beside the old ones, made visible by one rename; one
writer at a time.

Vectors are kept from the moment they exist in a journal, by the hash of what they were made of: an
interrupted indexing loses none.
"""

import json
import os
import shutil
import socket
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import sha256
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
    naming,
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

_KEPT = 2  # the newest and the one before it, which a reader may just be opening
_LOCK = ".lock"
_PASS = 4096  # rows written at a time
_MAGIC = b"vicinal vectors 1\n"


def publish(
    path: Path,
    items: Sequence[Item],
    vectors: Iterable[Float[np.ndarray, "d"]] | Float[np.ndarray, "n d"],
    *,
    dim: int,
    places: Sequence[Place] = (),
    facts: Mapping[str, Any] | None = None,
    engine: Callable[[int, Path], Mapping[str, Any]] | None = None,
) -> int:
    """Write a new generation and make it the newest; return its number.

    Args:
        path: the collection's folder, made if need be.
        items: by ascending id.
        vectors: one for each item, in the same order.
        places: what ``Item.place`` counts in.
        facts: further entries of ``about.json``; ``next_id``, of the next new item, is one beyond
            the last otherwise.
        engine: brings another engine to this generation, given its number and the file of the
            vectors, before anyone reads it; what it returns is kept as ``store``.
    """
    ids = [item.id for item in items]
    if ids != sorted(set(ids)):
        raise DataError("items of a generation need ascending ids, each once.")
    collection = CollectionDirectory(path)
    number = 1 + collection.latest_generation()
    folder = collection.folder(number)
    part = folder.with_name(folder.name + ".part")
    for left in (folder, part):  # of a writer that ended before it could set the pointer
        shutil.rmtree(left, ignore_errors=True)
    part.mkdir(parents=True)
    _write_vectors(part / VECTORS, vectors, len(items), dim)
    write_text(
        part / ITEMS, "".join(json.dumps(asdict(item), ensure_ascii=False) + "\n" for item in items)
    )
    about = {
        "generation": number,
        "count": len(items),
        "dim": dim,
        "metric": "euclidean",
        "next_id": ids[-1] + 1 if ids else 0,
        "places": [asdict(place) for place in places],
        "checksum": checksum_of(part / VECTORS),
        **(facts or {}),
        "store": None if engine is None else dict(engine(number, part / VECTORS)),
    }
    write_json(part / ABOUT, about)
    os.replace(part, folder)
    sync_directory(path)
    _point_to(path, number)
    for old in range(number - _KEPT, 0, -1):
        # Whoever holds a memory map of it keeps that.
        if not collection.folder(old).exists():
            break
        shutil.rmtree(collection.folder(old), ignore_errors=True)
    return number


def _point_to(path: Path, number: int) -> None:
    write_json(path / POINTER, {"format": FORMAT, "generation": number})


def _write_vectors(path: Path, vectors: Iterable[np.ndarray], count: int, dim: int) -> None:
    """Write an ``.npy`` some rows at a time: the whole need never be in memory."""

    def write(file: Any) -> None:
        header = {"descr": "<f4", "fortran_order": False, "shape": (count, dim)}
        np.lib.format.write_array_header_1_0(file, header)
        rest, written = iter(vectors), 0
        while some := list(islice(rest, _PASS)):
            rows = np.ascontiguousarray(some, dtype="<f4")
            if rows.shape != (len(some), dim) or not np.isfinite(rows).all():
                fault = (
                    f"vectors {written} to {written + len(some)} must be finite and of length {dim}"
                )
                raise DataError(f"{fault}. Check the training that made the model.")
            file.write(rows.tobytes())
            written += len(some)
        if written != count:
            raise DataError(f"{count} items need as many vectors; got {written}.")

    write_atomically(path, write)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Hold the collection for this process alone; it is made where there is none.

    A folder that holds anything else is rejected: it is not ours to write to. The lock is the
    system's on an open file, which names its holder, so it ends with its holder however that ends.
    """
    path.mkdir(parents=True, exist_ok=True)
    check_links(path)
    begun = (path / POINTER).exists()
    foreign = (each.name for each in path.iterdir() if each.name != _LOCK and not each.match(PARTS))
    if not begun and (name := next(foreign, None)) is not None:
        raise ConfigError(
            f"{path} is neither empty nor a collection: it holds {name}. Name another folder with "
            "--collection."
        )
    with (path / _LOCK).open("a+") as lock:
        try:
            with naming(path / _LOCK):
                lock_open_file(lock.fileno(), wait=False)
        except BlockingIOError:
            lock.seek(0)
            raise RunError(
                f"{path} is being written by {lock.read() or 'another process'}. Wait for it or "
                "stop it; search does not wait."
            ) from None
        lock.truncate(0)
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        lock.write(f"process {os.getpid()} on {socket.gethostname()} since {since}")
        lock.flush()
        if not (path / POINTER).exists():
            _point_to(path, 0)
        yield


class VectorJournal:
    """The vectors of one model as they are made, by the SHA-256 of what they were made of.

    Fixed-size entries are appended to one file: digest, vector, and a checksum of both. A crash can
    cut off the last batch of entries or leave it half written; those whose checksum does not fit
    are made again.

    Args:
        path: the file; made if need be.
        dim: length of the vectors.
        model: fingerprint of what makes them; a journal of another model is begun anew.
    """

    def __init__(self, path: Path, *, dim: int, model: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self.path, self._file = path, path.open("r+b")
        self._places, self._vector_bytes = dict[bytes, int](), 4 * dim
        header, size = _MAGIC + sha256(f"{dim} {model}".encode()).digest(), 32 + 4 * dim + 4
        if self._file.read(len(header)) != header:
            self._file.seek(0)
            self._file.truncate()
            self._file.write(header)
        end = len(header)
        while len(entry := self._file.read(size)) == size and _checksum(entry[:-4]) == entry[-4:]:
            self._places[entry[:32]] = end
            end += size
        self._file.truncate(end)  # what follows the first entry that is not whole
        self._file.flush()

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, digest: str) -> bool:
        return bytes.fromhex(digest) in self._places

    def vector(self, digest: str) -> Float[np.ndarray, "d"]:
        self._file.seek(self._places[bytes.fromhex(digest)] + 32)
        return np.frombuffer(self._file.read(self._vector_bytes), "<f4")

    def append(self, digests: Sequence[str], vectors: Float[np.ndarray, "n d"]) -> None:
        """Keep these; when it returns, they survive a power cut."""
        end = self._file.seek(0, os.SEEK_END)
        for digest, vector in zip(digests, vectors, strict=True):
            entry = bytes.fromhex(digest) + np.asarray(vector, "<f4").tobytes()
            self._places[entry[:32]] = end
            end += self._file.write(entry + _checksum(entry))
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def clear(self) -> None:
        """Remove the file: its vectors are in a generation now."""
        self.close()
        self.path.unlink(missing_ok=True)


def _checksum(entry: bytes) -> bytes:
    return zlib.crc32(entry).to_bytes(4, "little")
