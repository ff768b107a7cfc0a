"""What a collection holds and what search asks of a store of its vectors, whichever engine stands behind it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
from jaxtyping import Float, Int

Queries = Float[np.ndarray, "q d"]
Where = Mapping[str, str] | None  # attributes that what is found must have
Ids = Collection[int]


@dataclass(frozen=True)
class Item:
    """One thing in a collection.

    Attributes:
        id: stays with the thing through all generations, also when its content changes; never used again.
        path: where it lies below its place (``Snapshot.places``), ``/`` between parts; for feature vectors their name.
        label: its class, where one is known.
        metadata: further facts by which a search can be narrowed.
        place: position of the folder, table, archive or array file it came from in ``Snapshot.places``.
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
        return {**self.metadata, "path": self.path} | ({} if self.label is None else {"label": self.label})


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
    """Vectors by id, with attributes by which a search can be narrowed. What it holds does not change."""

    def search(self, queries: Queries, k: int, *, where: Where = None, exclude: Ids = ()) -> Found:
        """Find the ``k`` nearest vectors that have all attributes of ``where`` and no id of ``exclude``."""
        ...

    def close(self) -> None:
        """Close files and connections."""
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
        self._lists: dict[str, dict[str, list[int]]] = {}  # made for an attribute when it is first asked for

    @cached_property
    def names(self) -> list[str]:
        return sorted(set().union(*self._of_rows))

    def values(self, name: str) -> dict[str, int]:
        """The values of an attribute, and how many rows have each."""
        return {value: len(rows) for value, rows in sorted(self._rows_by_value(name).items())}

    def rows(self, where: Mapping[str, str]) -> Int[np.ndarray, "m"]:
        """The rows that have all of these, ascending; none where there is no condition."""
        found: np.ndarray | None = None
        for name, value in where.items():
            rows = np.array(self._rows_by_value(name).get(value, ()), np.int64)
            found = rows if found is None else np.intersect1d(found, rows, assume_unique=True)
        return np.empty(0, np.int64) if found is None else found

    def _rows_by_value(self, name: str) -> dict[str, list[int]]:
        if name not in self._lists:
            lists: dict[str, list[int]] = {}
            for row, attributes in enumerate(self._of_rows):
                if name in attributes:
                    lists.setdefault(attributes[name], []).append(row)
            self._lists[name] = lists  # at once, so that another thread sees all of it or nothing
        return self._lists[name]
