"""Exact nearest neighbors in chunks: a float32 product proposes, float64 differences decide.

The product form |g|² - 2 q·g is fast but loses the digits in which near neighbors differ, and its
rounding depends on where a row lies in its chunk. So it only proposes a few candidates more than
asked for; their distances are then taken again as differences in float64. A bound on the product's
rounding tells whether anything outside the candidates could still belong to the nearest; rows where
it could (many duplicates) are given more candidates, in the end all. The result is therefore that
of the plain double loop, whatever the chunk size and the device.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from vicinal.distances import Metric, Poincare, squared_lengths
from vicinal.errors import ConfigError, DataError, few, unknown

# candidates beyond k; distances of unrelated rows rarely crowd more than that into the rounding's
# reach
SLACK = 16
_WIDEN = 4  # growth of the candidates for rows where they did not settle the matter
_GROUP = 64  # values per group of which only the least is looked at first
_PASS = 4096  # rows per pass where a float64 copy is made in passing
_UNIT = 1.001  # the proposal's bound has a hundredth to spare
_CHUNK_BYTES = {
    "cpu": 2**25,
    "cuda": 2**29,
}  # near the last-level cache of a CPU; large enough to fill a GPU
# Where ranks are counted: each product packs the gallery anew, and little else is kept.
_HITS_BYTES = 2**26


@dataclass(frozen=True)
class Neighbors:
    """The nearest gallery rows of the queries ``start .. start + q``, nearest first.

    Attributes:
        start: position of the first of these queries among all.
        ids: positions in the gallery; -1 where the gallery has no further row.
        distances: their distances, infinite where the id is -1.
    """

    start: int
    ids: Int[Tensor, "q k"]
    distances: Float[Tensor, "q k"]


@dataclass(frozen=True)
class Hits:
    """Which of the nearest gallery rows of the queries ``start .. start + q`` have their query's
    label."""

    start: int
    hits: Bool[Tensor, "q k"]


def neighbors(
    queries: Float[Tensor, "q d"],
    k: int,
    *,
    gallery: Float[Tensor, "g d"] | None = None,
    metric: Metric = "euclidean",
) -> Neighbors:
    """Find the ``k`` nearest gallery rows of every query, all at once; arguments as in
    ``neighbor_chunks``.

    >>> line = torch.tensor([[0.0], [1.0], [3.0]])
    >>> neighbors(line, 2).ids.tolist()
    [[1, 2], [0, 2], [1, 0]]
    """
    return joined(neighbor_chunks(queries, k, gallery=gallery, metric=metric), queries, k)


def joined(chunks: Iterable[Neighbors], queries: Float[Tensor, "q d"], k: int) -> Neighbors:
    """Put the chunks of all queries together."""
    empty = Neighbors(
        0, queries.new_empty(0, k, dtype=torch.long), queries.new_empty(0, k, dtype=torch.float32)
    )
    found = list(chunks) or [empty]
    return Neighbors(
        0,
        torch.cat([chunk.ids for chunk in found]),
        torch.cat([chunk.distances for chunk in found]),
    )


def nearest_first(
    distances: Float[Tensor, "q n"], ids: Int[Tensor, "q n"], k: int
) -> tuple[Int[Tensor, "q k"], Float[Tensor, "q k"]]:
    """Order the ``k`` least distances of each row, equal ones by the lower id; what is infinitely
    far has id -1."""
    width = min(k, distances.shape[1])
    values, places = _least(distances, width)
    found, order = ids.gather(1, places).sort(dim=1)
    values, again = values.gather(1, order).sort(dim=1, stable=True)
    found = found.gather(1, again).masked_fill(values.isinf(), -1)
    return pad(found, (0, k - width), value=-1), pad(values, (0, k - width), value=torch.inf)


def drop_own(own: int | Tensor, ids: Tensor, distances: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Leave each query's own row out of its neighbors, or else the last, so that ``k`` are left.

    Args:
        own: the row of each query, or that of the first, where the others follow it.
        ids: neighbors of each query.
        distances: of them.
        k: how many to keep.
    """
    rows = own if isinstance(own, Tensor) else own + torch.arange(len(ids), device=ids.device)
    order = (ids == rows.unsqueeze(1)).to(torch.uint8).sort(dim=1, stable=True).indices[:, :k]
    return ids.gather(1, order), distances.gather(1, order)


def neighbor_chunks(
    queries: Float[Tensor, "q d"],
    k: int,
    *,
    gallery: Float[Tensor, "g d"] | None = None,
    metric: Metric = "euclidean",
    chunk_bytes: int | None = None,
) -> Iterator[Neighbors]:
    """Find the ``k`` nearest gallery rows of every query, some queries at a time, on the device
    where the rows lie.

    Neighbors are ordered by distance in float64; equal distances by the lower id. Without a
    ``gallery`` each query is sought among the others: it is left out by its position, so duplicates
    of it remain its neighbors. Where the gallery has fewer than ``k`` rows to offer, ids end in -1
    and distances in infinity. Half precision is computed as float32. ``"cosine"`` is 1 - cosine
    similarity, of rows scaled to length 1 beforehand; a zero row has similarity 0 with all rows but
    zero rows, with which it has
    1. ``"poincare"`` is `vicinal.distances.Poincare` of rows in the ball of radius 1, the output of
       a hyperbolic head; all rows are compared in float64.

    Args:
        queries: rows to find neighbors for.
        k: neighbors per query, at least 1.
        gallery: rows to find them among; None for leave-one-out.
        metric: ``"euclidean"``, ``"cosine"`` or ``"poincare"``.
        chunk_bytes: size of the largest temporary; the default suits the device.
    """
    among = Gallery.of(queries, gallery, metric)
    return among.search(None if gallery is None else queries, k, chunk_bytes=chunk_bytes)


def require_finite(rows: Float[Tensor, "n d"], name: str) -> None:
    """Raise a DataError that names the rows with NaN or infinity, where there are any."""
    if rows.numel() == 0:
        return
    least, most = rows.aminmax(dim=1)
    bad = (~(least.isfinite() & most.isfinite())).nonzero().flatten().tolist()
    if bad:
        raise DataError(
            f"{name} must be finite, but {len(bad)} of {len(rows)} rows hold NaN or infinity: "
            f"rows {few(bad, 10)}. "
            f"Check the inputs of these rows, or the training that made the model."
        )


class Gallery:
    """Rows prepared once for many searches.

    Args:
        rows: finite rows; kept, not copied, where they are float and the metric is Euclidean.
        metric: as in ``neighbor_chunks``.
        in_place: multiply with the rows where they lie, if none is longer than 1: a memory map is
            never copied.
    """

    def __init__(
        self, rows: Float[Tensor, "g d"], metric: Metric = "euclidean", *, in_place: bool = False
    ) -> None:
        self.rows = _prepared(rows, metric)
        self.metric = metric
        self._in_place = in_place

    @classmethod
    def of(
        cls, queries: Float[Tensor, "q d"], gallery: Float[Tensor, "g d"] | None, metric: Any
    ) -> "Gallery":
        """Check queries and gallery, and prepare the rows to search among: the gallery, or the
        queries themselves."""
        if metric not in get_args(Metric):
            raise ConfigError(unknown("metric", metric, get_args(Metric)))
        require_finite(queries, "embeddings" if gallery is None else "queries")
        if gallery is None:
            return cls(queries, metric)
        if len(gallery) == 0 or gallery.shape[1] != queries.shape[1]:
            shapes = f"queries {tuple(queries.shape)} and a gallery {tuple(gallery.shape)}"
            raise DataError(
                f"a gallery needs at least one row, as long as the queries; got {shapes}."
            )
        require_finite(gallery, "gallery")
        return cls(gallery.to(queries.device), metric)

    @cached_property
    def proposal(self) -> "Proposal":
        within = self._in_place and all(
            float(part.norm(dim=1).max()) <= _UNIT for part in torch.split(self.rows, _PASS)
        )
        return Proposal(self.rows, in_place=within)

    def _asked(self, queries: Tensor | None, chunk_bytes: int | None) -> tuple[Tensor, int]:
        """Return the rows to search for, and the bytes that a chunk may take."""
        rows = self.rows if queries is None else _prepared(queries, self.metric)
        return rows, chunk_bytes or _CHUNK_BYTES.get(rows.device.type, _CHUNK_BYTES["cpu"])

    def search(
        self,
        queries: Float[Tensor, "q d"] | None,
        k: int,
        *,
        excluded: Bool[Tensor, "g"] | None = None,
        chunk_bytes: int | None = None,
    ) -> Iterator[Neighbors]:
        """Find the nearest rows of finite queries, some queries at a time; None searches each row
        among the others.

        Args:
            excluded: rows that are never found.
        """
        if k < 1:
            raise ConfigError(f"a search needs k of at least 1; got k = {k}.")
        rows, budget = self._asked(queries, chunk_bytes)
        count = len(self.rows) if excluded is None else int((~excluded).sum())
        # Without proposals where k asks for most of the rows; float32 values, or else float64,
        # order and copy.
        proposing = self.metric != "poincare" and _worth_proposing(k + SLACK, count)
        per_chunk = max(1, budget // ((4 if proposing else 24) * len(self.rows)))
        buffer = self.proposal.buffer(min(per_chunk, len(rows))) if proposing else None
        for start in range(0, len(rows), per_chunk):
            block = rows[start : start + per_chunk]
            own = (
                torch.arange(start, start + len(block), device=rows.device)
                if queries is None
                else None
            )
            if buffer is None:
                ids, distances = _nearest_of_all(block, self.rows, k, own, excluded, self.metric)
            else:
                values = buffer[: len(block)]
                reach = self.proposal(block, out=values)
                ids, distances = _nearest(
                    block, self.rows, k, own, excluded, values, reach, count, budget
                )
            if self.metric == "cosine":
                distances = distances.square() / 2  # |a - b|² = 2 - 2 cos for rows of length 1
            yield Neighbors(start, ids, distances.float())

    def hits(
        self,
        queries: Float[Tensor, "q d"] | None,
        labels: Int[Tensor, "q"],
        gallery_labels: Int[Tensor, "g"],
        k: int,
        *,
        chunk_bytes: int | None = None,
    ) -> Iterator[Hits]:
        """Find which of the ``k`` nearest rows have their query's label, where few rows have it; on
        a CPU.

        The same as from ``search``, without finding the others: the rank of a row is the number of
        rows before it.
        """
        rows, budget = self._asked(queries, chunk_bytes or _HITS_BYTES)
        order = gallery_labels.argsort(stable=True)
        ordered = gallery_labels[order]
        first, end = (
            torch.searchsorted(ordered, labels.contiguous(), right=right) for right in (False, True)
        )
        per_chunk = max(1, budget // (4 * len(self.rows)))
        buffer = self.proposal.buffer(min(per_chunk, len(rows)))
        for start in range(0, len(rows), per_chunk):
            part = slice(start, start + per_chunk)
            block = rows[part]
            values = buffer[: len(rows[part])]
            reach = self.proposal(block, out=values)
            place = first[part].unsqueeze(1) + torch.arange(
                int((end - first)[part].max()), device=rows.device
            )
            relevant = torch.where(
                place < end[part].unsqueeze(1), order[place.clamp(max=len(order) - 1)], -1
            )
            if queries is None:
                own = torch.arange(start, start + len(block), device=rows.device)
                _hide(values, own, None)
                relevant = relevant.masked_fill(relevant == own.unsqueeze(1), -1)
            ranks = _ranks(block, self.rows, relevant, k, values, reach, budget)
            hits = torch.zeros(len(block), k + 1, dtype=torch.bool, device=rows.device)
            yield Hits(start, hits.scatter_(1, ranks, True)[:, :k])


class Proposal:
    """The gallery's order around a query from one product, and how far that can be wrong.

    Args:
        among: the gallery.
        in_place: multiply with the gallery as it lies instead of a copy about its mean. The bound
            below holds only where no row is longer than 1, which is for the caller to know.
    """

    def __init__(self, among: Float[Tensor, "g d"], *, in_place: bool = False) -> None:
        self.dtype = torch.float32 if _multiplies_in_float32(among.device) else torch.float64
        parts = torch.split(among, _PASS)
        if in_place and among.dtype == self.dtype:
            self.center = among.new_zeros(among.shape[1], dtype=torch.float64)
            self.scale = 1.0
            self.rows = among
        else:
            # Distances do not change with the origin, nor does their order with the unit. About the
            # mean and in units of the farthest row, the product neither overflows nor spends its
            # digits on what all rows share.
            self.center = torch.stack([part.sum(dim=0, dtype=torch.float64) for part in parts]).sum(
                dim=0
            ) / len(among)
            farthest = max(float((part - self.center).norm(dim=1).max()) for part in parts)
            self.scale = farthest or 1.0
            self.rows = torch.empty_like(among, dtype=self.dtype)
            for part, target in zip(parts, torch.split(self.rows, _PASS), strict=True):
                target.copy_((part - self.center) / self.scale)
        # Some rows at a time, into one array: whole, the rows would be copied as float64, and
        # pieces that are kept between such copies would hold the memory of all of them.
        self.squares = torch.empty(len(among), dtype=self.dtype, device=self.rows.device)
        for part, target in zip(
            torch.split(self.rows, _PASS), torch.split(self.squares, _PASS), strict=True
        ):
            target.copy_(torch.linalg.vector_norm(part, dim=1, dtype=torch.float64).square())

    def buffer(self, queries: int) -> Float[Tensor, "q g"]:
        return torch.empty(queries, len(self.rows), dtype=self.dtype, device=self.rows.device)

    def __call__(
        self, block: Float[Tensor, "b d"], out: Float[Tensor, "b g"]
    ) -> Float[Tensor, "b"]:
        """Fill ``out`` with ``|g|² - 2 q·g``; return for each query the gap beyond which two values
        must differ.

        With unit roundoff u and |g| <= 1, the coordinates' rounding costs at most 4u|q| + 2u; the
        product, in any order of summation, 2du|q| (Higham 2002, Eq. (3.5)); |g|² and the last
        addition 2u + 2u|q|. Two values are wrong by at most twice the sum; 1.01 covers terms in u².
        """
        query = ((block - self.center) / self.scale).to(self.dtype)
        # With alpha=-2 oneDNN takes twice the time on ARM.
        torch.addmm(self.squares, -2 * query, self.rows.T, out=out)
        length: Tensor = torch.linalg.vector_norm(query, dim=1, dtype=torch.float64)
        return 2 * 1.01 * 2.0**-24 * ((2 * block.shape[1] + 6) * length + 4)


def _multiplies_in_float32(device: torch.device) -> bool:
    """False where the user lets float32 products run in TF32 or bfloat16, for which the bound does
    not hold."""
    backend: Any = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn
    return backend.matmul.fp32_precision in ("ieee", "none")


def _prepared(rows: Tensor, metric: Metric) -> Tensor:
    """Rows as the search takes them: float32 or float64, of length 1 for cosine."""
    rows = rows.detach()
    if rows.device.type == "mps":  # has no float64, which decides
        rows = rows.cpu()
    exact = torch.promote_types(rows.dtype, torch.float32)
    if metric == "poincare" and len(rows) and not float(squared_lengths(rows.to(exact)).max()) < 1:
        raise DataError(
            "points of the Poincaré ball are shorter than 1, got a longer row. Pass a hyperbolic "
            "head's."
        )
    if metric != "cosine":
        return rows.to(exact)
    unit = rows.new_zeros(len(rows), rows.shape[1] + 1, dtype=exact)
    for part, target in zip(torch.split(rows, _PASS), torch.split(unit, _PASS), strict=True):
        length = torch.linalg.vector_norm(part, dim=1, dtype=torch.float64)
        target[:, :-1] = part / length.where(length > 0, 1.0).unsqueeze(1)
        target[:, -1] = length == 0  # a direction of their own for rows without one
    return unit


def _worth_proposing(width: int, count: int) -> bool:
    # Gathering a candidate costs about as much as two distances in passing.
    return 2 * width < count


def _nearest(
    block: Float[Tensor, "b d"],
    among: Float[Tensor, "g d"],
    k: int,
    own: Int[Tensor, "b"] | None,
    excluded: Bool[Tensor, "g"] | None,
    values: Float[Tensor, "b g"],
    reach: Float[Tensor, "b"],
    count: int,
    budget: int,
) -> tuple[Int[Tensor, "b k"], Float[Tensor, "b k"]]:
    """The nearest by candidates where these settle it, by more of them and at last by all rows
    where not."""
    ids = torch.empty(len(block), k, dtype=torch.long, device=block.device)
    distances = torch.empty(len(block), k, dtype=torch.float64, device=block.device)
    _hide(values, own, excluded)
    width = k + SLACK
    unsettled = torch.arange(len(block), device=block.device)
    while len(unsettled) and _worth_proposing(width, count):
        # Nothing outside the candidates is nearer than the last of them: if that one lies beyond
        # the k-th by more than the values can be wrong, the nearest k, and all that tie with them,
        # are candidates.
        least, columns = _least(
            values if len(unsettled) == len(block) else values[unsettled], width
        )
        settled = least[:, -1] - least[:, k - 1] > reach[unsettled]
        queries = unsettled[settled]
        candidates = columns[settled]
        # Gathered in float32, then in float64.
        per_pass = max(1, budget // (12 * width * block.shape[1]))
        for query, some in zip(
            torch.split(queries, per_pass), torch.split(candidates, per_pass), strict=True
        ):
            # So that the stable sort by distance leaves ties in order of their ids.
            some = some.sort(dim=1).values
            near = among.index_select(0, some.flatten()).view(*some.shape, block.shape[1])
            order = _distances(block[query].unsqueeze(1), near).squeeze(1).sort(dim=1, stable=True)
            ids[query] = some.gather(1, order.indices[:, :k])
            distances[query] = order.values[:, :k]
        unsettled = unsettled[~settled]
        width = width * _WIDEN
    rest = torch.split(unsettled, max(1, budget // (24 * len(among)))) if len(unsettled) else ()
    for query in rest:
        left_out = None if own is None else own[query]
        ids[query], distances[query] = _nearest_of_all(block[query], among, k, left_out, excluded)
    return ids, distances


def _nearest_of_all(
    block: Float[Tensor, "b d"],
    among: Float[Tensor, "g d"],
    k: int,
    own: Int[Tensor, "b"] | None,
    excluded: Bool[Tensor, "g"] | None,
    metric: Metric = "euclidean",
) -> tuple[Int[Tensor, "b k"], Float[Tensor, "b k"]]:
    """The nearest by the distances to all rows; padded with -1 and infinity."""
    exact = torch.cat([_distances(block, part) for part in torch.split(among, _PASS)], dim=1)
    if metric == "poincare":
        exact = Poincare().of_lengths(
            exact, squared_lengths(block.double()), squared_lengths(among.double())
        )
    _hide(exact, own, excluded)
    distances, ids = (part[:, :k] for part in exact.sort(dim=1, stable=True))
    missing = k - ids.shape[1]
    distances = pad(distances, (0, missing), value=torch.inf)
    return pad(ids, (0, missing)).masked_fill(distances.isinf(), -1), distances


def worth_counting(relevant: int, k: int, gallery: Float[Tensor, "g d"]) -> bool:
    """Whether ``Gallery.hits`` is cheaper than a search: on a CPU, for ranks far beyond the rows
    that are right."""
    return (
        gallery.device.type == "cpu"
        and k >= 64
        and 4 * relevant <= k
        and _worth_proposing(k, len(gallery))
    )


def _ranks(
    block: Float[Tensor, "b d"],
    among: Float[Tensor, "g d"],
    relevant: Int[Tensor, "b r"],
    k: int,
    values: Float[Tensor, "b g"],
    reach: Float[Tensor, "b"],
    budget: int,
) -> Int[Tensor, "b r"]:
    """Count the gallery rows before each relevant one; k where these are k or more, or its id is
    -1.

    Values count those that certainly come before; float64 decides about the few whose values are
    too near to tell.
    """
    own = values.gather(1, relevant.clamp(min=0)).double().masked_fill(relevant < 0, torch.inf)
    before, doubtful = _counted(values, own, reach, k)
    per_pass = max(1, budget // (40 * block.shape[1]))
    for query, place, other in (part.unbind() for part in torch.split(doubtful, per_pass, dim=1)):
        mine = relevant[query, place]
        left = block[query].unsqueeze(1)
        theirs, ours = (
            _distances(left, among[rows].unsqueeze(1)).flatten() for rows in (other, mine)
        )
        nearer = (theirs < ours) | ((theirs == ours) & (other < mine))
        before.index_put_((query, place), nearer.long(), accumulate=True)
    return before.clamp(max=k).where(relevant >= 0, k)


def _counted(
    values: Float[Tensor, "b g"], own: Float[Tensor, "b r"], reach: Float[Tensor, "b"], k: int
) -> tuple[Int[Tensor, "b r"], Int[Tensor, "3 pairs"]]:
    """Count with NumPy, which passes over a row in a few microseconds: how many certainly come
    before; which may."""
    matrix = values.numpy()
    before = np.full(own.shape, k)
    # In the values' own type: NumPy would copy each row as float64. The next number covers what
    # that rounds.
    lower, upper = (
        np.nextafter(
            (own + sign * reach.unsqueeze(1)).to(values.dtype).numpy(),
            matrix.dtype.type(sign * np.inf),
        )
        for sign in (-1, 1)
    )
    there = own.isfinite().sum(dim=1).tolist()

    def count(query: int) -> list[np.ndarray]:
        row = matrix[query]
        low = lower[query]
        high = upper[query]
        places = np.argsort(low)[: there[query]]
        first = 0
        # Of those that can be among the first k; the farthest has all others before it.
        end = len(places)
        middle = end - 1
        while first < end:
            if np.count_nonzero(row < low[places[middle]]) < k:
                first = middle + 1
            else:
                end = middle
            middle = (first + end) // 2
        places = places[:end]
        if not len(places):
            return []
        near = np.flatnonzero(row <= high[places[-1]])
        found = row[near]
        ordered = np.sort(found)
        starts = np.searchsorted(ordered, low[places])
        ends = np.searchsorted(ordered, high[places], "right")
        before[query, places] = starts
        doubtful = places[ends - starts > 1]
        others = [
            (place, near[(found >= low[place]) & (found <= high[place])]) for place in doubtful
        ]
        return [
            np.stack([np.full_like(ids, query), np.full_like(ids, place), ids])
            for place, ids in others
        ]

    threads = torch.get_num_threads()
    # A task for each query would cost a third more.
    parts = torch.arange(len(matrix)).chunk(4 * threads)
    with ThreadPoolExecutor(threads) as pool:
        found = pool.map(
            lambda part: [pair for query in part.tolist() for pair in count(query)], parts
        )
        pairs = [pair for some in found for pair in some]
    return torch.from_numpy(before), torch.from_numpy(
        np.concatenate([np.empty((3, 0), np.int64), *pairs], axis=1)
    )


def _hide(
    values: Float[Tensor, "b g"], own: Int[Tensor, "b"] | None, excluded: Bool[Tensor, "g"] | None
) -> None:
    if own is not None:
        values.scatter_(1, own.unsqueeze(1), torch.inf)
    if excluded is not None:
        values.masked_fill_(excluded, torch.inf)


def _distances(
    left: Float[Tensor, "*b m d"], right: Float[Tensor, "*b n d"]
) -> Float[Tensor, "*b m n"]:
    """Euclidean distances from differences in float64: equal rows have equal distances, wherever
    they lie."""
    return torch.cdist(left.double(), right.double(), compute_mode="donot_use_mm_for_euclid_dist")


def _least(
    values: Float[Tensor, "b g"], width: int
) -> tuple[Float[Tensor, "b w"], Int[Tensor, "b w"]]:
    """The least values of each row, ascending, and where they are; on a CPU ``topk`` over groups
    first.

    Of the groups of neighboring columns only those with the ``width`` least minima can hold any of
    the ``width`` least values: each of these groups offers one value already.
    """
    groups = values.shape[1] // _GROUP
    if groups < 4 * width or values.device.type != "cpu":
        found = values.topk(width, largest=False)
        return found.values, found.indices
    whole = groups * _GROUP
    grouped = values[:, :whole].view(len(values), groups, _GROUP)
    chosen = grouped.amin(dim=2).topk(width, largest=False).indices
    offered = grouped.gather(1, chosen.unsqueeze(2).expand(-1, -1, _GROUP)).flatten(1)
    columns = (chosen.unsqueeze(2) * _GROUP + torch.arange(_GROUP)).flatten(1)
    rest = torch.arange(whole, values.shape[1]).expand(len(values), -1)
    offered = torch.cat([offered, values[:, whole:]], dim=1)
    columns = torch.cat([columns, rest], dim=1)
    found = offered.topk(width, largest=False)
    return found.values, columns.gather(1, found.indices)
