"""Exact search over a matrix that may be a memory map: the store that needs nothing to be installed or started.

As in ``exact``, a float32 product proposes and float64 differences decide, so ties and order are those of the plain
double loop. What differs: the matrix is prepared once and asked often; rows of length 1 are multiplied where they lie,
so a file larger than memory is never copied; and a search can be narrowed to some of the rows.
"""

import warnings
from collections.abc import Callable, Collection, Mapping
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vicinal.errors import ConfigError, DataError
from vicinal.index.exact import Metric, neighbours, require_finite
from vicinal.index.proposal import Proposal
from vicinal.index.store import Found

_SLACK = 16  # candidates beyond k, as in exact
_WIDEN = 4
_GROUP = 64  # values per group of which only the least is looked at first
_GATHER = 8  # a part of the rows smaller than 1/8 is copied out rather than masked: a product over all costs more
_CHUNK_BYTES = 2**26  # of products at a time
_PASS = 4096  # rows per pass where a float64 copy is made in passing
_UNIT = 1.001  # the proposal's bound has a hundredth to spare


class FlatStore:
    """All vectors in one matrix.

    Args:
        vectors: float32; kept, not copied, where it may be (rows no longer than 1, Euclidean).
        ids: of the rows, ascending, so that ties by row are ties by id.
        metric: as in ``exact.neighbours``.
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
            raise DataError(f"{len(vectors)} vectors need as many ids, ascending, but {len(self.ids)} came.")
        with warnings.catch_warnings():  # torch warns of arrays that may not be written; nothing here writes
            warnings.simplefilter("ignore", UserWarning)
            self._rows = torch.from_numpy(vectors)
        self.metric, self.matching = metric, matching

    def __len__(self) -> int:
        return len(self.ids)

    def close(self) -> None:
        """Nothing to let go of: the memory map goes with the matrix."""

    def search(
        self,
        queries: Float[np.ndarray, "q d"],
        k: int,
        *,
        where: Mapping[str, str] | None = None,
        exclude: Collection[int] = (),
    ) -> Found:
        """As ``Store.search``; exact, whatever is asked."""
        if k < 1:
            raise ConfigError(f"a search gives at least 1 neighbour per query, but k = {k} was asked for.")
        asked = torch.from_numpy(np.array(queries, dtype=np.float32))
        require_finite(asked, "queries")
        rows = self._allowed(where, exclude)
        count = len(self) if rows is None else len(rows)
        if not count or not len(asked):
            return Found(np.full((len(asked), k), -1), np.full((len(asked), k), np.inf, np.float32))
        if rows is not None and (count * _GATHER < len(self) or 2 * (k + _SLACK) >= count):
            found = neighbours(asked, k, gallery=self._rows[torch.from_numpy(rows)], metric=self.metric)
            places, distances = np.append(rows, -1)[found.ids.numpy()], found.distances.numpy()
        elif 2 * (k + _SLACK) >= count:
            found = neighbours(asked, k, gallery=self._rows, metric=self.metric)
            places, distances = found.ids.numpy(), found.distances.numpy()
        else:
            places, distances = self._proposed(asked, k, rows)
        return Found(np.append(self.ids, -1)[places], distances)

    def _allowed(self, where: Mapping[str, str] | None, exclude: Collection[int]) -> Int[np.ndarray, "m"] | None:
        """The rows to search among; None for all of them."""
        rows = None
        if where:
            rows = np.empty(0, np.int64) if self.matching is None else self.matching(where)
        if exclude:
            some = np.arange(len(self)) if rows is None else rows
            rows = some[~np.isin(self.ids[some], np.fromiter(exclude, np.int64))]
        return rows

    @cached_property
    def _prepared(self) -> tuple[Tensor, Proposal]:
        """Rows between which distances are taken, and what proposes them."""
        rows = self._rows
        if self.metric == "cosine":
            length = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64, keepdim=True)
            rows = torch.cat([rows / length.where(length > 0, 1.0), length == 0], dim=1).float()
        longest = max(float(part.norm(dim=1).max()) for part in torch.split(rows, _PASS))
        return rows, Proposal(rows, in_place=longest <= _UNIT)

    def _proposed(self, asked: Tensor, k: int, rows: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        among, proposal = self._prepared
        if self.metric == "cosine":
            length = torch.linalg.vector_norm(asked, dim=1, dtype=torch.float64, keepdim=True)
            asked = torch.cat([asked / length.where(length > 0, 1.0), length == 0], dim=1).float()
        barred = None
        if rows is not None:
            barred = torch.ones(len(among), dtype=torch.bool)
            barred[torch.from_numpy(rows)] = False
        places, distances = list[Tensor](), list[Tensor]()
        for block in torch.split(asked, max(1, _CHUNK_BYTES // (4 * len(among)))):
            values = proposal.buffer(len(block))
            reach = proposal(block, out=values)
            if barred is not None:
                values.masked_fill_(barred, torch.inf)
            ids, exact = _nearest(block, among, k, values, reach, len(among) if rows is None else len(rows))
            places.append(ids)
            distances.append(exact)
        exact = torch.cat(distances)
        if self.metric == "cosine":
            exact = exact.square() / 2  # |a - b|² = 2 - 2 cos for rows of length 1
        return torch.cat(places).numpy(), exact.float().numpy()


def _nearest(
    block: Float[Tensor, "b d"],
    among: Float[Tensor, "g d"],
    k: int,
    values: Float[Tensor, "b g"],
    reach: Float[Tensor, "b"],
    count: int,
) -> tuple[Int[Tensor, "b k"], Float[Tensor, "b k"]]:
    """The nearest by candidates where these settle it, by more of them and at last by all where not.

    Rows that may not be found have infinite values; ``count`` others are left, more than twice the candidates.
    """
    ids = torch.empty(len(block), k, dtype=torch.long)
    distances = torch.empty(len(block), k, dtype=torch.float64)
    unsettled, width = torch.arange(len(block)), k + _SLACK
    while len(unsettled):
        width = width if 2 * width < count else count
        some = values if len(unsettled) == len(block) else values[unsettled]
        least, candidates = _least(some, width)
        # Nothing outside the candidates is nearer than the last of them: if that one lies beyond the k-th by more
        # than the values can be wrong, the nearest k, and all that tie with them, are candidates.
        settled = least[:, -1] - least[:, k - 1] > reach[unsettled]
        if width == count:
            settled |= True
        per_pass = max(1, _CHUNK_BYTES // (12 * width * block.shape[1]))  # gathered in float32, then in float64
        pairs = zip(torch.split(unsettled[settled], per_pass), torch.split(candidates[settled], per_pass), strict=True)
        for query, near in pairs:
            ids[query], distances[query] = _decided(block[query], among, near.sort(dim=1).values, k)
        unsettled, width = unsettled[~settled], width * _WIDEN
    return ids, distances


def _decided(
    queries: Float[Tensor, "b d"], among: Float[Tensor, "g d"], near: Int[Tensor, "b w"], k: int
) -> tuple[Int[Tensor, "b k"], Float[Tensor, "b k"]]:
    """The nearest k of some rows by differences in float64; equal distances in the order in which the rows come."""
    rows = among.index_select(0, near.flatten()).view(*near.shape, queries.shape[1])
    exact = torch.cdist(queries[:, None].double(), rows.double(), compute_mode="donot_use_mm_for_euclid_dist")
    order = exact.squeeze(1).sort(dim=1, stable=True)
    return near.gather(1, order.indices[:, :k]), order.values[:, :k]


def _least(values: Float[Tensor, "b g"], width: int) -> tuple[Float[Tensor, "b w"], Int[Tensor, "b w"]]:
    """The least values of each row, ascending, and where they are: ``topk`` over groups first.

    Of the groups of neighbouring columns only those with the ``width`` least minima can hold any of the ``width``
    least values: each of these groups offers one value already.
    """
    groups = values.shape[1] // _GROUP
    if groups < 4 * width:
        found = values.topk(width, largest=False)
        return found.values, found.indices
    whole = groups * _GROUP
    grouped = values[:, :whole].view(len(values), groups, _GROUP)
    chosen = grouped.amin(dim=2).topk(width, largest=False).indices
    offered = grouped.gather(1, chosen.unsqueeze(2).expand(-1, -1, _GROUP)).flatten(1)
    columns = (chosen.unsqueeze(2) * _GROUP + torch.arange(_GROUP)).flatten(1)
    rest = torch.arange(whole, values.shape[1]).expand(len(values), -1)
    offered, columns = torch.cat([offered, values[:, whole:]], dim=1), torch.cat([columns, rest], dim=1)
    found = offered.topk(width, largest=False)
    return found.values, columns.gather(1, found.indices)
