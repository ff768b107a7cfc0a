"""What a collection holds, and the exact search over its vectors that needs no other engine.

``FlatStore`` is ``evaluation.neighbors`` with the matrix, which may be a memory map, prepared once
and asked often. Rows of length 1 are multiplied where they lie, so a file larger than memory is
never copied; and a search can be narrowed to some of the rows.
"""

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int

from vicinal.distances import Metric
from vicinal.errors import DataError
from vicinal.evaluation.neighbors import SLACK, Gallery, require_finite
from vicinal.files import followed

Queries = Float[np.ndarray, "q d"]
Where = Mapping[str, str] | None  # attributes that what is found must have
Ids = Collection[int]
Kind = Literal["folder", "table", "features", "data set"]
# a part of the rows smaller than 1/8 is copied out rather than masked: a product over all costs
# more
_GATHER = 8
_CHUNK_BYTES = 2**26  # of products at a time


@dataclass(frozen=True)
class Place:
    """A folder, table, array file or data set that was indexed.

    Attributes:
        path: what the user named, absolute; by it a place is known again.
        kind: which of these it is.
        root: folder below which the items' pictures lie, absolute; None where there are no picture
            files.
        split: the part of a data set that was indexed; ``"all"`` for all of it.
        images: what ``--images`` named, so that indexing again need not name it again.
        description: of a data set that keeps its pictures in another form than files, as
            ``DATASETS`` build it.
    """

    path: str
    kind: Kind
    root: str | None
    split: str = "all"
    images: str | None = None
    description: Any = None

    def file(self, path: str) -> Path | None:
        """Return the picture file of an item; None where this place has no files; a DataError
        outside the root.

        Links are followed before the check, so that neither ``..`` nor a link leads out.
        """
        if self.root is None:
            return None
        root = followed(Path(self.root))
        found = followed(root / path)
        if not found.is_relative_to(root):
            raise DataError(
                f"{path!r} leads out of the indexed folder {root} and is not read. Index that "
                "file's own."
            )
        return found


@dataclass(frozen=True)
class Item:
    """One item in a collection.

    Attributes:
        id: stays with the item through all generations, also when its content changes; never used
            again.
        path: where it lies below its place (``Snapshot.places``), ``/`` between parts; for feature
            vectors their name.
        label: its class, where one is known.
        metadata: further facts by which a search can be narrowed.
        place: position of the folder, table or array file it is from in ``Snapshot.places``.
        digest: SHA-256 of its content, by which a change is detected.
    """

    id: int
    path: str
    label: str | None
    metadata: Mapping[str, str] = field(default_factory=dict)
    place: int = 0
    digest: str = ""

    @property
    def attributes(self) -> dict[str, str]:
        """What a search can be narrowed by: metadata, ``label`` and ``path``."""
        return {**self.metadata, "path": self.path} | (
            {} if self.label is None else {"label": self.label}
        )


@dataclass(frozen=True)
class Found:
    """The nearest vectors of each query, nearest first; equal distances by the lower id.

    Attributes:
        ids: of the vectors, or their rows; -1 where there is no further one.
        distances: their distances, infinite where the id is -1.
    """

    ids: Int[np.ndarray, "q k"]
    distances: Float[np.ndarray, "q k"]


class Attributes:
    """Which rows have which value of which attribute.

    >>> attributes = Attributes([{"label": "wren", "sex": "f"}, {"label": "wren"}, {"label": "jay", "sex": "f"}])
    >>> attributes.rows({"label": "wren", "sex": "f"}).tolist()
    [0]
    >>> attributes.names
    ['label', 'sex']
    """

    def __init__(self, of_rows: Sequence[Mapping[str, str]]) -> None:
        self._of_rows = of_rows
        self._rows_by_value = cache(self._index)  # of an attribute when it is first asked for

    @cached_property
    def names(self) -> list[str]:
        return sorted(set().union(*self._of_rows))

    def values(self, name: str) -> dict[str, int]:
        """Count the rows of each value of an attribute, by value."""
        return {value: len(rows) for value, rows in sorted(self._rows_by_value(name).items())}

    def rows(self, where: Mapping[str, str]) -> Int[np.ndarray, "m"]:
        """Find the rows that have all of these, ascending; all of them where there is no
        condition."""
        found = np.arange(len(self._of_rows))
        for name, value in where.items():
            rows = np.array(self._rows_by_value(name).get(value, ()), np.int64)
            found = np.intersect1d(found, rows, assume_unique=True)
        return found

    def _index(self, name: str) -> dict[str, list[int]]:
        rows_by_value: dict[str, list[int]] = {}
        for row, attributes in enumerate(self._of_rows):
            if name in attributes:
                rows_by_value.setdefault(attributes[name], []).append(row)
        return rows_by_value


class FlatStore:
    """All vectors in one matrix.

    Args:
        vectors: float32; kept, not copied, where it may be (rows no longer than 1).
        metric: by which rows are near.
    """

    def __init__(self, vectors: Float[np.ndarray, "n d"], metric: Metric = "euclidean") -> None:
        with warnings.catch_warnings():  # torch warns of read-only arrays; nothing here writes
            warnings.simplefilter("ignore", UserWarning)
            self._rows = torch.from_numpy(vectors)
        self.vectors = vectors
        self.metric = metric

    @cached_property
    def gallery(self) -> Gallery:
        return Gallery(self._rows, self.metric, in_place=True)

    def search(
        self, queries: Queries, k: int, *, among: Int[np.ndarray, "m"] | None = None
    ) -> Found:
        """Find the ``k`` nearest rows of each query, exactly, among all or some ascending ones."""
        asked = torch.from_numpy(np.array(queries, dtype=np.float32))
        require_finite(asked, "queries")
        total = len(self._rows)
        count = total if among is None else len(among)
        if not count or not len(asked):
            return Found(np.full((len(asked), k), -1), np.full((len(asked), k), np.inf, np.float32))
        gallery, excluded, rows = self.gallery, None, np.arange(total)
        if among is not None and (count * _GATHER < total or 2 * (k + SLACK) >= count):
            gallery, rows = Gallery(self._rows[torch.from_numpy(among)], self.metric), among
        elif among is not None:
            excluded = torch.ones(total, dtype=torch.bool)
            excluded[torch.from_numpy(among)] = False
        chunks = list(gallery.search(asked, k, excluded=excluded, chunk_bytes=_CHUNK_BYTES))
        places = np.concatenate([chunk.ids.numpy() for chunk in chunks])
        return Found(
            np.append(rows, -1)[places],
            np.concatenate([chunk.distances.numpy() for chunk in chunks]),
        )
