"""What a collection holds, what search asks of a store of its vectors, and the store that needs no
other engine.

``FlatStore`` searches exactly over a matrix that may be a memory map. It is
``evaluation.neighbors`` with the matrix prepared once and asked often. Rows of length 1 are
multiplied where they lie, so a file larger than memory is never copied; and a search can be
narrowed to some of the rows.
"""

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float, Int

from vicinal.distances import Metric
from vicinal.errors import DataError
from vicinal.evaluation.neighbors import SLACK, Gallery, require_finite

Queries = Float[np.ndarray, "q d"]
Where = Mapping[str, str] | None  # attributes that what is found must have
Ids = Collection[int]
# a part of the rows smaller than 1/8 is copied out rather than masked: a product over all costs
# more
_GATHER = 8
_CHUNK_BYTES = 2**26  # of products at a time


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
        place: position of the folder, table, archive or array file it is from in
            ``Snapshot.places``.
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
        ids: of the vectors; -1 where the store has no further one.
        distances: their distances, infinite where the id is -1.
    """

    ids: Int[np.ndarray, "q k"]
    distances: Float[np.ndarray, "q k"]


class Store(Protocol):
    """Vectors by id, with attributes by which a search can be narrowed. What it holds does not
    change."""

    def search(self, queries: Queries, k: int, *, where: Where = None, exclude: Ids = ()) -> Found:
        """Find the ``k`` nearest vectors that have all attributes of ``where`` and no id of
        ``exclude``."""
        ...


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
        """Find the rows that have all of these, ascending; none where there is no condition."""
        found: np.ndarray | None = None
        for name, value in where.items():
            rows = np.array(self._rows_by_value(name).get(value, ()), np.int64)
            found = rows if found is None else np.intersect1d(found, rows, assume_unique=True)
        return np.empty(0, np.int64) if found is None else found

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
        ids: of the rows, ascending, so that ties by row are ties by id.
        metric: by which rows are near.
        matching: the rows that have given attributes, ascending (``Attributes.rows``); without it
            none has any.
    """

    def __init__(
        self,
        vectors: Float[np.ndarray, "n d"],
        ids: Int[np.ndarray, "n"] | None = None,
        *,
        metric: Metric = "euclidean",
        matching: Callable[[Mapping[str, str]], np.ndarray] | None = None,
    ) -> None:
        self.ids = np.arange(len(vectors)) if ids is None else ids
        if len(self.ids) != len(vectors) or (np.diff(self.ids) <= 0).any():
            raise DataError(
                f"{len(vectors)} vectors need as many ascending ids; got {len(self.ids)}."
            )
        with (
            warnings.catch_warnings()
        ):  # torch warns of arrays that may not be written; nothing here writes
            warnings.simplefilter("ignore", UserWarning)
            self._rows = torch.from_numpy(vectors)
        self.metric, self.matching = metric, matching

    @cached_property
    def gallery(self) -> Gallery:
        return Gallery(self._rows, self.metric, in_place=True)

    def search(self, queries: Queries, k: int, *, where: Where = None, exclude: Ids = ()) -> Found:
        """Search as ``Store.search`` says; exact, whatever is asked."""
        asked = torch.from_numpy(np.array(queries, dtype=np.float32))
        require_finite(asked, "queries")
        rows = self._allowed(where, exclude)
        count = len(self.ids) if rows is None else len(rows)
        if not count or not len(asked):
            return Found(np.full((len(asked), k), -1), np.full((len(asked), k), np.inf, np.float32))
        gallery, excluded, ids = self.gallery, None, self.ids
        if rows is not None and (count * _GATHER < len(self.ids) or 2 * (k + SLACK) >= count):
            gallery, ids = Gallery(self._rows[torch.from_numpy(rows)], self.metric), self.ids[rows]
        elif rows is not None:
            excluded = torch.ones(len(self.ids), dtype=torch.bool)
            excluded[torch.from_numpy(rows)] = False
        chunks = list(gallery.search(asked, k, excluded=excluded, chunk_bytes=_CHUNK_BYTES))
        places = np.concatenate([chunk.ids.numpy() for chunk in chunks])
        return Found(
            np.append(ids, -1)[places],
            np.concatenate([chunk.distances.numpy() for chunk in chunks]),
        )

    def _allowed(self, where: Where, exclude: Ids) -> Int[np.ndarray, "m"] | None:
        """Return the rows to search among; None for all of them."""
        rows = None
        if where:
            rows = np.empty(0, np.int64) if self.matching is None else self.matching(where)
        if exclude:
            some = np.arange(len(self.ids)) if rows is None else rows
            rows = some[~np.isin(self.ids[some], np.fromiter(exclude, np.int64))]
        return rows
