"""Vectors as they are made, by the hash of what they were made of: an interrupted indexing loses none.

Fixed-size entries are appended to one file: SHA-256 of the content, the vector, and a checksum of both. A crash can cut
off the last batch of entries or leave it half written; those whose checksum does not fit are made again.
"""

import os
import zlib
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
from jaxtyping import Float

_MAGIC = b"vicinal vectors 1\n"


class VectorJournal:
    """The vectors of one model.

    Args:
        path: the file; made if need be.
        dim: length of the vectors.
        model: fingerprint of what makes them; a journal of another model is begun anew.
    """

    def __init__(self, path: Path, *, dim: int, model: str) -> None:
        self._header = _MAGIC + sha256(f"{dim} {model}".encode()).digest()
        self._entry = np.dtype([("digest", "V32"), ("vector", "<f4", (dim,)), ("check", "<u4")])
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self._places = path, dict[bytes, int]()
        with path.open("ab"):  # so that it is there
            pass
        self._file = path.open("r+b")
        self._restore()

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, digest: str) -> bool:
        return bytes.fromhex(digest) in self._places

    def vector(self, digest: str) -> Float[np.ndarray, "d"]:
        self._file.seek(len(self._header) + self._places[bytes.fromhex(digest)] * self._entry.itemsize)
        entry = np.frombuffer(self._file.read(self._entry.itemsize), dtype=self._entry)
        return np.array(entry["vector"][0])

    def append(self, digests: Sequence[str], vectors: Float[np.ndarray, "n d"]) -> None:
        """Keep these; when it returns, they survive a power cut."""
        entries = np.zeros(len(digests), self._entry)
        entries["vector"] = vectors
        for row, digest in enumerate(digests):
            entries["digest"][row] = np.void(bytes.fromhex(digest))
            entries["check"][row] = zlib.crc32(entries[row : row + 1].tobytes()[:-4])
        self._file.seek(0, os.SEEK_END)
        self._file.write(entries.tobytes())
        self._file.flush()
        os.fsync(self._file.fileno())
        for digest in digests:
            self._places[bytes.fromhex(digest)] = self._count
            self._count += 1

    def close(self) -> None:
        self._file.close()

    def clear(self) -> None:
        """Remove the file: its vectors are in a generation now."""
        self.close()
        self.path.unlink(missing_ok=True)

    def _restore(self) -> None:
        """Find the whole entries; cut off what follows the first that is not."""
        self._count = 0
        if self._file.read(len(self._header)) != self._header:
            self._file.seek(0)
            self._file.truncate()
            self._file.write(self._header)
            self._file.flush()
            return
        for content in self._entries():
            if zlib.crc32(content[:-4]) != int.from_bytes(content[-4:], "little"):
                break
            self._places[content[:32]] = self._count
            self._count += 1
        self._file.truncate(len(self._header) + self._count * self._entry.itemsize)

    def _entries(self) -> Iterator[bytes]:
        size = self._entry.itemsize
        while len(content := self._file.read(size)) == size:
            yield content
