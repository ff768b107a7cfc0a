"""Exact search over a matrix that may be a memory map: the store that needs nothing to be installed or started.

It is ``evaluation.neighbors`` with the matrix prepared once and asked often. Rows of length 1 are multiplied where they
lie, so a file larger than memory is never copied; and a search can be narrowed to some of the rows.
"""

import warnings
from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int

from vicinal.errors import DataError
from vicinal.evaluation.neighbors import SLACK, Gallery, Metric, require_finite
from vicinal.retrieval.index.store import Found, Ids, Queries, Where

_GATHER = 8  # a part of the rows smaller than 1/8 is copied out rather than masked: a product over all costs more
_CHUNK_BYTES = 2**26  # of products at a time


class FlatStore:
    """All vectors in one matrix.

    Args:
        vectors: float32; kept, not copied, where it may be (rows no longer than 1, Euclidean).
        ids: of the rows, ascending, so that ties by row are ties by id.
        metric: as in ``neighbor_chunks``.
        matching: the rows that have given attributes, ascending (``Attributes.rows``); without it none has any.
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
            raise DataError(f"{len(vectors)} vectors need as many ascending ids; got {len(self.ids)}.")
        with warnings.catch_warnings():  # torch warns of arrays that may not be written; nothing here writes
            warnings.simplefilter("ignore", UserWarning)
            self._rows = torch.from_numpy(vectors)
        self.metric, self.matching = metric, matching

    @cached_property
    def gallery(self) -> Gallery:
        return Gallery(self._rows, self.metric, in_place=True)

    def close(self) -> None:
        """Do nothing: the memory map goes with the matrix."""

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
        return Found(np.append(ids, -1)[places], np.concatenate([chunk.distances.numpy() for chunk in chunks]))

    def _allowed(self, where: Where, exclude: Ids) -> Int[np.ndarray, "m"] | None:
        """The rows to search among; None for all of them."""
        rows = None
        if where:
            rows = np.empty(0, np.int64) if self.matching is None else self.matching(where)
        if exclude:
            some = np.arange(len(self.ids)) if rows is None else rows
            rows = some[~np.isin(self.ids[some], np.fromiter(exclude, np.int64))]
        return rows
