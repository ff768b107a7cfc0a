"""Exact nearest neighbors in chunks: a float32 product proposes, float64 differences decide.

The product form |g|² - 2 q·g is fast but loses the digits in which near neighbors differ, and its
rounding depends on where a row lies in its chunk. So it only proposes a few candidates more than
asked for; their distances are then taken again as differences in float64. A bound on the product's
rounding tells whether anything outside the candidates could still belong to the nearest; rows where
it could (many duplicates) are given more candidates, in the end all. The result is therefore that
of the plain double loop, for any chunk size and device.
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import embedding, pad

from vicinal.distances import Metric, Poincare, squared_lengths
from vicinal.errors import ConfigError, DataError, check_known, few

Queries = Float[Tensor, "q d"]
Rows = Float[Tensor, "g d"]
Without = Int[Tensor, "q"] | Bool[Tensor, "g"] | None
_GROUP = 64  # values per group of which only the least is looked at first
_CANDIDATE_BYTES = 40  # of what a candidate takes until its distance is known
_BLOCK_BYTES = 2**29  # of a gallery that a CPU prepares at once: a larger one may lie on the disk
_PASS = 4096  # rows per pass where a float64 copy is made in passing
_UNIT = 1.001  # the proposal's bound has a hundredth to spare
# As large as the gallery, which is read again for each chunk: at least near the last-level cache of
# a CPU, and large enough to fill a GPU.
_CHUNK_BYTES = {"cpu": (2**25, 2**27), "cuda": (2**29, 2**29)}


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


def neighbors(
    queries: Queries,
    k: int,
    *,
    gallery: Rows | None = None,
    own: Int[Tensor, "q"] | None = None,
    metric: Metric = "euclidean",
) -> Neighbors:
    """Find the ``k`` nearest gallery rows of every query, on the device where the rows lie.

    Neighbors are ordered by distance in float64; equal distances by the lower id. Without a
    ``gallery`` each query is sought among the others: it is left out by its position, so duplicates
    of it remain its neighbors. Where the gallery has fewer than ``k`` rows to offer, ids end in -1
    and distances in infinity. Half precision is computed as float32. ``"cosine"`` is 1 - cosine
    similarity, of rows scaled to length 1 beforehand; a zero row has similarity 0 with all rows but
    zero rows, with which it has 1. ``"poincare"`` is `vicinal.distances.Poincare` of rows in the
    ball of radius 1, the output of a hyperbolic head; all rows are compared in float64.

    Args:
        queries: rows to find neighbors for.
        k: neighbors per query, at least 1.
        gallery: rows to find them among; None for leave-one-out.
        own: the position of each query in the gallery, where it is not to be found.
        metric: ``"euclidean"``, ``"cosine"`` or ``"poincare"``.

    >>> line = torch.tensor([[0.0], [1.0], [3.0]])
    >>> neighbors(line, 2).ids.tolist()
    [[1, 2], [0, 2], [1, 0]]
    """
    among = Gallery.of(queries, gallery, metric)
    if gallery is None:
        own = torch.arange(len(queries))
    return among.nearest(queries, k, without=own)


def joined(chunks: Iterable[Neighbors], queries: Queries, k: int) -> Neighbors:
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


def ordered(
    start: int, distances: Float[Tensor, "q n"], ids: Int[Tensor, "q n"], k: int
) -> Neighbors:
    """Order ``k`` ids of each row by their distances; those of -1 have none."""
    values, order = distances.masked_fill(ids < 0, torch.inf).sort(dim=1, stable=True)
    more = (0, max(0, k - ids.shape[1]))
    found = pad(ids.gather(1, order)[:, :k], more, value=-1)
    return Neighbors(start, found, pad(values[:, :k], more, value=torch.inf))


def require_finite(rows: Float[Tensor, "n d"], name: str) -> None:
    """Raise a DataError that names the rows with NaN or infinity, where there are any."""
    if rows.numel() == 0:
        return
    least, most = rows.aminmax(dim=1)
    bad = (~(least.isfinite() & most.isfinite())).nonzero().flatten().tolist()
    if bad:
        raise DataError(
            f"{name} must be finite, but {len(bad)} of {len(rows)} rows hold NaN or infinity: rows "
            f"{few(bad, 10)}. Check the inputs of these rows, or the training that made the model."
        )


class Gallery:
    """Rows prepared once for many searches.

    Args:
        rows: finite rows; kept, not copied, where they are float and the metric is Euclidean.
        metric: as in ``neighbors``.
        in_place: multiply with the rows where they lie, if none is longer than 1: a memory map is
            never copied.
    """

    def __init__(self, rows: Rows, metric: Metric = "euclidean", *, in_place: bool = False) -> None:
        self.given = rows.detach()
        self.metric = metric
        self._in_place = in_place

    @classmethod
    def of(cls, queries: Queries, gallery: Rows | None, metric: Any) -> "Gallery":
        """Check queries and gallery, and prepare the rows to search among: the gallery, or the
        queries themselves."""
        check_known("metric", metric, get_args(Metric))
        require_finite(queries, "embeddings" if gallery is None else "queries")
        if gallery is None:
            return cls(queries, metric)
        if len(gallery) == 0 or gallery.shape[1] != queries.shape[1]:
            raise DataError(
                "a gallery needs at least one row, as long as the queries; got queries "
                f"{tuple(queries.shape)} and a gallery {tuple(gallery.shape)}."
            )
        require_finite(gallery, "gallery")
        return cls(gallery.to(queries.device), metric)

    @cached_property
    def rows(self) -> Rows:
        return _prepared(self.given, self.metric)

    @cached_property
    def proposal(self) -> "Proposal":
        within = self._in_place and all(
            float(part.norm(dim=1).max()) <= _UNIT for part in torch.split(self.rows, _PASS)
        )
        return Proposal(self.rows, in_place=within)

    def nearest(self, queries: Queries, k: int, **how: Any) -> Neighbors:
        """Find the nearest rows of all queries, as ``search`` does."""
        return joined(self.search(queries, k, **how), queries, k)

    def search(
        self,
        queries: Queries,
        k: int,
        *,
        without: Without = None,
        chunk_bytes: int | None = None,
    ) -> Iterator[Neighbors]:
        """Find the nearest rows of finite queries, some queries at a time.

        Args:
            without: a row for each query that it does not find, or True for each row that no query
                finds.
            chunk_bytes: size of the largest temporary; the default suits the device.
        """
        if k < 1:
            raise ConfigError(f"a search needs k of at least 1; got k = {k}.")
        for found in self._search(queries, k, without, chunk_bytes):
            yield replace(found, distances=found.distances.float())

    def _search(
        self, queries: Queries, k: int, without: Without, chunk_bytes: int | None
    ) -> Iterator[Neighbors]:
        """Search as ``search`` does, by distances in float64; for a query without a row of its own
        ``without`` is -1."""
        size = max(2 * k, _BLOCK_BYTES // (4 * self.given.shape[1]))
        if size < len(self.given) and self.given.is_cpu and not self._in_place:
            yield from self._in_blocks(size, queries, k, without, chunk_bytes)
            return
        among = self.rows
        least, most = _CHUNK_BYTES["cuda" if among.is_cuda else "cpu"]
        budget = chunk_bytes or min(max(least, among.nbytes), most)
        hidden = without if without is not None and without.dtype == torch.bool else None
        count = len(among) if hidden is None else int((~hidden).sum())
        # Candidates pay only where k asks for less than half of the rows: gathering one costs about
        # as much as two distances in passing. Else float64 values, their order and a copy.
        whole = self.metric == "poincare" or 2 * k >= count
        if hidden is not None and (whole or 4 * count < len(among)):  # gathering takes less
            kept = (~hidden).nonzero().squeeze(1)
            left = copy.copy(self)
            left.rows = among[kept]
            vars(left).pop("proposal", None)
            ids = pad(kept, (0, 1), value=-1)  # the last stands for none
            for found in left._search(queries, k, None, chunk_bytes):
                yield replace(found, ids=ids[found.ids])
            return
        per_chunk = max(1, budget // max(1, (24 if whole else 4) * len(among)))
        for start in range(0, len(queries), per_chunk):
            part = slice(start, start + per_chunk)
            block = _prepared(queries[part], self.metric)
            reach = None
            if whole:
                values = self._distances(block)
            else:
                values, reach = self.proposal(block)
            if hidden is not None:
                values[:, : len(among)].masked_fill_(hidden, torch.inf)
            elif without is not None:
                mine = without[part].to(values.device)
                rows = (mine >= 0).nonzero().squeeze(1)
                values[rows, mine[rows]] = torch.inf
            if reach is None:
                places = torch.arange(len(among), device=values.device).expand_as(values)
                found = ordered(start, values, places, k)
            else:
                found = joined(_nearest(block, values, reach, among, k, budget), block, k)
            ids = found.ids.masked_fill(found.distances.isinf(), -1)
            distances = found.distances
            if self.metric == "cosine":
                distances = distances.square() / 2  # |a - b|² = 2 - 2 cos for rows of length 1
            yield Neighbors(start, ids, distances)

    def _in_blocks(
        self, size: int, queries: Queries, k: int, without: Without, chunk_bytes: int | None
    ) -> Iterator[Neighbors]:
        """Search some rows after the others, each for many queries: distances in float64 order what
        is found as they would in one search."""
        some = max(1, _BLOCK_BYTES // (64 * k))
        for first in range(0, len(queries), some):
            asked = queries[first : first + some]
            ids = torch.empty(len(asked), 0, dtype=torch.long)
            best = Neighbors(first, ids, ids.double())
            for start in range(0, len(self.given), size):
                among = Gallery(self.given[start : start + size], self.metric)
                out = without
                if without is not None and without.dtype == torch.bool:
                    out = without[start : start + size]
                elif without is not None:
                    out = without[first : first + some].cpu() - start
                    out = out.where(out < len(among.given), -1).clamp(min=-1)
                found = joined(among._search(asked, k, out, chunk_bytes), asked, k)
                ids = torch.cat(
                    [best.ids, found.ids.where(found.ids < 0, found.ids + start)], dim=1
                )
                best = ordered(first, torch.cat([best.distances, found.distances], dim=1), ids, k)
            yield best

    def _distances(self, block: Float[Tensor, "b d"]) -> Float[Tensor, "b g"]:
        """The distances to all rows, from differences in float64."""
        parts = torch.split(self.rows, _PASS)
        exact = torch.cat([_apart(block, part) for part in parts], dim=1)
        if self.metric != "poincare":
            return exact
        return Poincare().of_lengths(
            exact, squared_lengths(block.double()), squared_lengths(self.rows.double())
        )


class Proposal:
    """The gallery's order around a query from one product, and how far that can be wrong.

    Args:
        among: the gallery.
        in_place: multiply with the gallery as it lies instead of a copy about its mean. The bound
            below holds only where no row is longer than 1, which is for the caller to know.
    """

    def __init__(self, among: Rows, *, in_place: bool = False) -> None:
        self.dtype = torch.float32 if _multiplies_in_float32(among.device) else torch.float64
        self.center = among.new_zeros(among.shape[1], dtype=torch.float64)
        self.scale = 1.0
        self.rows = among
        if not in_place or among.dtype != self.dtype:
            # Distances do not change with the origin, nor does their order with the unit. About the
            # mean and in units of the farthest row, the product neither overflows nor spends its
            # digits on what all rows share.
            parts = torch.split(among, _PASS)
            for part in parts:
                self.center += part.sum(dim=0, dtype=torch.float64) / len(among)
            farthest = max(float((part - self.center).norm(dim=1).max()) for part in parts)
            self.scale = farthest or 1.0
            self.rows = _filled(
                torch.empty_like(among, dtype=self.dtype),
                among,
                lambda part: (part - self.center) / self.scale,
            )
        self.squares = _filled(
            self.rows.new_empty(len(among)), self.rows, lambda part: squared_lengths(part.double())
        )

    def __call__(
        self, block: Float[Tensor, "b d"]
    ) -> tuple[Float[Tensor, "b w"], Float[Tensor, "b"]]:
        """Return ``|g|² - 2 q·g``, and for each query the gap beyond which two values must differ.

        Each row of values ends in infinities, so that all are whole groups.

        With unit roundoff u and |g| <= 1, the coordinates' rounding costs at most 4u|q| + 2u; the
        product, in any order of summation, 2du|q| (Higham 2002, Eq. (3.5)); |g|² and the last
        addition 2u + 2u|q|. Two values are wrong by at most twice the sum; 1.01 covers terms in u².
        """
        query = ((block - self.center) / self.scale).to(self.dtype)
        width = -(-len(self.rows) // _GROUP) * _GROUP
        values = query.new_empty(len(query), width)
        values[:, len(self.rows) :] = torch.inf
        # With alpha=-2 oneDNN takes twice the time on ARM.
        torch.addmm(self.squares, -2 * query, self.rows.T, out=values[:, : len(self.rows)])
        length: Tensor = torch.linalg.vector_norm(query, dim=1, dtype=torch.float64)
        return values, 2 * 1.01 * 2.0**-24 * ((2 * block.shape[1] + 6) * length + 4)


def _multiplies_in_float32(device: torch.device) -> bool:
    """False where the user lets float32 products run in TF32 or bfloat16, for which the bound does
    not hold."""
    backend: Any = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn
    precision = getattr(getattr(backend, "matmul", None), "fp32_precision", None)
    if precision is None:  # torch before 2.9
        return torch.get_float32_matmul_precision() == "highest"
    return precision in ("ieee", "none")


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

    def unit(part: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(part, dim=1, keepdim=True, dtype=torch.float64)
        # The last is a direction of their own for rows without one.
        return torch.cat([part / length.where(length > 0, 1.0), length == 0], dim=1)

    return _filled(rows.new_empty(len(rows), rows.shape[1] + 1, dtype=exact), rows, unit)


def _filled(target: Tensor, rows: Tensor, make: Callable[[Tensor], Tensor]) -> Tensor:
    """Fill an array with what is made of rows, some at a time: whole, they would be copied as
    float64, and pieces that are kept between such copies would hold the memory of all of them."""
    for part, made in zip(torch.split(rows, _PASS), torch.split(target, _PASS), strict=True):
        made.copy_(make(part))
    return target


def _nearest(
    block: Float[Tensor, "b d"],
    values: Float[Tensor, "b w"],
    reach: Float[Tensor, "b"],
    among: Rows,
    k: int,
    budget: int,
) -> list[Neighbors]:
    """The nearest rows by float64 differences, taken of all rows whose values do not rule them out.

    A group holds every so-manieth column, since rows of a class often lie side by side. The k-th
    least of the groups' minima is no less than the k-th least value, and what lies above it by more
    than values can be wrong is not among the nearest.
    """
    size = _GROUP
    while size > 1 and 4 * k * size > values.shape[1]:
        size //= 2
    grouped = values.view(len(values), size, -1)
    minima = grouped.amin(dim=1)
    limit = (minima.topk(k, largest=False).values[:, -1] + reach).to(values.dtype).unsqueeze(1)
    limit = torch.nextafter(limit, torch.full_like(limit, torch.inf))
    limit = limit.clamp(max=torch.finfo(values.dtype).max)  # what is infinite is left out
    width = int((minima <= limit).sum(dim=1).max())
    fit = max(1, budget // max(1, _CANDIDATE_BYTES * size * width))
    if fit < len(block):  # of many equal rows
        parts = zip(*(torch.split(part, fit) for part in (block, values, reach)), strict=True)
        return [
            found
            for some, theirs, reaches in parts
            for found in _nearest(some, theirs, reaches, among, k, budget)
        ]
    group = minima.topk(width, largest=False).indices.unsqueeze(1)
    offered = grouped.gather(2, group.expand(-1, size, -1)).flatten(1)
    places = torch.arange(size, device=group.device).unsqueeze(1) * minima.shape[1]
    width = int((offered <= limit).sum(dim=1).max())
    near = offered.topk(width, largest=False)
    candidates = (group + places).flatten(1).gather(1, near.indices)
    # Sorted, so that ties come in order of their ids.
    candidates = candidates.masked_fill(near.values > limit, -1).sort(dim=1).values
    per_pass = max(1, budget // max(1, 12 * width * block.shape[1]))
    return [
        ordered(
            0, _apart(left.unsqueeze(1), embedding(right.clamp(min=0), among)).squeeze(1), right, k
        )
        for left, right in zip(
            torch.split(block, per_pass), torch.split(candidates, per_pass), strict=True
        )
    ]


def _apart(
    left: Float[Tensor, "*b m d"], right: Float[Tensor, "*b n d"]
) -> Float[Tensor, "*b m n"]:
    """Euclidean distances from differences in float64: equal rows have equal distances, wherever
    they lie."""
    return torch.cdist(left.double(), right.double(), compute_mode="donot_use_mm_for_euclid_dist")
