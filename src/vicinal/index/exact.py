"""Exact nearest neighbours in chunks: a float32 product proposes, float64 differences decide.

The product form |g|² - 2 q·g is fast but loses the digits in which near neighbours differ, and its rounding depends
on where a row lies in its chunk. So it only proposes a few candidates more than asked for; their distances are
then taken anew as differences in float64. A bound on the product's rounding tells whether anything outside the
candidates could still belong to the nearest; rows where it could (many duplicates) are given more candidates, in
the end all. The answer is therefore that of the plain double loop, whatever the chunk size and the device.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vicinal.errors import ConfigError, DataError, unknown
from vicinal.index.proposal import Proposal

Metric = Literal["euclidean", "cosine"]

_SLACK = 16  # candidates beyond k; distances of unrelated rows rarely crowd more than that into the rounding's reach
_WIDEN = 4  # growth of the candidates for rows where they did not settle the matter
_PASS = 4096  # rows per pass where a float64 copy is made in passing
_CHUNK_BYTES = {"cpu": 2**25, "cuda": 2**29}  # near the last-level cache of a CPU; large enough to fill a GPU


@dataclass(frozen=True)
class Neighbours:
    """The nearest gallery rows of the queries ``start .. start + q``, nearest first.

    Attributes:
        start: position of the first of these queries among all.
        ids: positions in the gallery; -1 where the gallery has no further row.
        distances: their distances, infinite where the id is -1.
    """

    start: int
    ids: Int[Tensor, "q k"]
    distances: Float[Tensor, "q k"]


def neighbours(
    queries: Float[Tensor, "q d"],
    k: int,
    *,
    gallery: Float[Tensor, "g d"] | None = None,
    metric: Metric = "euclidean",
    chunk_bytes: int | None = None,
) -> Neighbours:
    """The ``k`` nearest gallery rows of every query, all at once; arguments as in ``neighbour_chunks``.

    >>> line = torch.tensor([[0.0], [1.0], [3.0]])
    >>> neighbours(line, 2).ids.tolist()
    [[1, 2], [0, 2], [1, 0]]
    """
    empty = Neighbours(0, queries.new_empty(0, k, dtype=torch.long), queries.new_empty(0, k, dtype=torch.float32))
    chunks = list(neighbour_chunks(queries, k, gallery=gallery, metric=metric, chunk_bytes=chunk_bytes)) or [empty]
    return Neighbours(0, torch.cat([chunk.ids for chunk in chunks]), torch.cat([chunk.distances for chunk in chunks]))


def neighbour_chunks(
    queries: Float[Tensor, "q d"],
    k: int,
    *,
    gallery: Float[Tensor, "g d"] | None = None,
    metric: Metric = "euclidean",
    chunk_bytes: int | None = None,
) -> Iterator[Neighbours]:
    """The ``k`` nearest gallery rows of every query, some queries at a time, on the device where the rows lie.

    Neighbours are ordered by distance in float64; equal distances by the lower id. Without a ``gallery`` each query
    is sought among the others: it is left out by its position, so duplicates of it remain its neighbours. Where the
    gallery has fewer than ``k`` rows to offer, ids end in -1 and distances in infinity. Half precision is computed
    as float32. ``"cosine"`` is 1 - cosine similarity, of rows scaled to length 1 beforehand; a zero row has similarity
    0 with all rows but zero rows, with which it has 1.

    Args:
        queries: rows to find neighbours for.
        k: neighbours per query, at least 1.
        gallery: rows to find them among; None for leave-one-out.
        metric: ``"euclidean"`` or ``"cosine"``.
        chunk_bytes: size of the largest temporary; the default suits the device.
    """
    if metric not in ("euclidean", "cosine"):
        raise ConfigError(unknown("metric", metric, ("euclidean", "cosine")))
    if k < 1:
        raise ConfigError(f"a search gives at least 1 neighbour per query, but k = {k} was asked for.")
    if gallery is not None and (len(gallery) == 0 or gallery.shape[1] != queries.shape[1]):
        raise DataError(
            f"queries {tuple(queries.shape)} cannot be sought in a gallery {tuple(gallery.shape)}: "
            f"it needs at least one row, of the queries' length."
        )
    rows = _prepared(queries, metric, "queries" if gallery is not None else "embeddings")
    among = rows if gallery is None else _prepared(gallery.to(queries.device), metric, "gallery")
    budget = chunk_bytes or _CHUNK_BYTES.get(rows.device.type, _CHUNK_BYTES["cpu"])
    return _search(rows, among, k, alone=gallery is None, squared=metric == "cosine", budget=budget)


def require_finite(rows: Float[Tensor, "n d"], name: str) -> None:
    """Refuse rows that hold NaN or infinity, naming them."""
    if rows.numel() == 0:
        return
    least, most = rows.aminmax(dim=1)
    bad = (~(least.isfinite() & most.isfinite())).nonzero().flatten().tolist()
    if bad:
        some = ", ".join(map(str, bad[:10])) + (", ..." if len(bad) > 10 else "")
        raise DataError(
            f"{name} must be finite, but {len(bad)} of {len(rows)} rows hold NaN or infinity: rows {some}. "
            f"Look at the inputs of these rows, or at the training that made the model."
        )


def _prepared(rows: Tensor, metric: Metric, name: str) -> Tensor:
    """Rows as the search takes them: finite, float32 or float64, of length 1 for cosine."""
    require_finite(rows, name)
    rows = rows.detach()
    if rows.device.type == "mps":  # has no float64, which decides
        rows = rows.cpu()
    exact = torch.promote_types(rows.dtype, torch.float32)
    if metric == "euclidean":
        return rows.to(exact)
    unit = rows.new_zeros(len(rows), rows.shape[1] + 1, dtype=exact)
    for part, target in zip(torch.split(rows, _PASS), torch.split(unit, _PASS), strict=True):
        length = torch.linalg.vector_norm(part, dim=1, dtype=torch.float64)
        target[:, :-1] = part / length.where(length > 0, 1.0).unsqueeze(1)
        target[:, -1] = length == 0  # a direction of their own for rows without one
    return unit


def _search(rows: Tensor, among: Tensor, k: int, *, alone: bool, squared: bool, budget: int) -> Iterator[Neighbours]:
    """Propose and decide, one chunk of queries after the other; without proposals where k asks for most of the rows."""
    proposal = Proposal(among) if _worth_proposing(k + _SLACK, among) else None
    per_chunk = max(1, budget // ((4 if proposal else 24) * len(among)))  # float32 values, or float64, order and copy
    buffer = proposal.buffer(min(per_chunk, len(rows))) if proposal else None
    for start in range(0, len(rows), per_chunk):
        block = rows[start : start + per_chunk]
        own = torch.arange(start, start + len(block), device=rows.device) if alone else None
        if proposal is None or buffer is None:
            ids, distances = _nearest_of_all(block, among, k, own)
        else:
            values = buffer[: len(block)]
            reach = proposal(block, out=values)
            ids, distances = _nearest(block, among, k, own, values, reach, budget)
        if squared:
            distances = distances.square() / 2  # |a - b|² = 2 - 2 cos for rows of length 1
        yield Neighbours(start, ids, distances.float())


def _worth_proposing(width: int, among: Tensor) -> bool:
    return 2 * width < len(among)  # gathering a candidate costs about as much as two distances in passing


def _nearest(
    block: Float[Tensor, "b d"],
    among: Float[Tensor, "g d"],
    k: int,
    own: Int[Tensor, "b"] | None,
    values: Float[Tensor, "b g"],
    reach: Float[Tensor, "b"],
    budget: int,
) -> tuple[Int[Tensor, "b k"], Float[Tensor, "b k"]]:
    """The nearest by candidates where these settle it, by more of them and at last by all rows where not."""
    ids = torch.empty(len(block), k, dtype=torch.long, device=block.device)
    distances = torch.empty(len(block), k, dtype=torch.float64, device=block.device)
    if own is not None:
        values.scatter_(1, own.unsqueeze(1), torch.inf)
    width = k + _SLACK
    unsettled = torch.arange(len(block), device=block.device)
    while len(unsettled) and _worth_proposing(width, among):
        # Nothing outside the candidates is nearer than the last of them: if that one lies beyond the k-th by more
        # than the values can be wrong, the nearest k, and all that tie with them, are candidates.
        found = (values if len(unsettled) == len(block) else values[unsettled]).topk(width, largest=False)
        settled = found.values[:, -1] - found.values[:, k - 1] > reach[unsettled]
        queries, candidates = unsettled[settled], found.indices[settled]
        per_pass = max(1, budget // (12 * width * block.shape[1]))  # gathered in float32, then in float64
        for query, some in zip(torch.split(queries, per_pass), torch.split(candidates, per_pass), strict=True):
            some = some.sort(dim=1).values  # so that the stable sort by distance leaves ties in order of their ids
            near = among.index_select(0, some.flatten()).view(*some.shape, block.shape[1])
            order = _distances(block[query].unsqueeze(1), near).squeeze(1).sort(dim=1, stable=True)
            ids[query] = some.gather(1, order.indices[:, :k])
            distances[query] = order.values[:, :k]
        unsettled, width = unsettled[~settled], width * _WIDEN
    for query in torch.split(unsettled, max(1, budget // (24 * len(among)))):
        ids[query], distances[query] = _nearest_of_all(block[query], among, k, None if own is None else own[query])
    return ids, distances


def _nearest_of_all(
    block: Float[Tensor, "b d"], among: Float[Tensor, "g d"], k: int, own: Int[Tensor, "b"] | None
) -> tuple[Int[Tensor, "b k"], Float[Tensor, "b k"]]:
    """The nearest by the distances to all rows; padded with -1 and infinity."""
    exact = torch.cat([_distances(block, part) for part in torch.split(among, _PASS)], dim=1)
    if own is not None:
        exact.scatter_(1, own.unsqueeze(1), torch.inf)
    distances, ids = (part[:, :k] for part in exact.sort(dim=1, stable=True))
    missing = k - ids.shape[1]
    distances = torch.nn.functional.pad(distances, (0, missing), value=torch.inf)
    return torch.nn.functional.pad(ids, (0, missing)).masked_fill(distances.isinf(), -1), distances


def _distances(left: Float[Tensor, "*b m d"], right: Float[Tensor, "*b n d"]) -> Float[Tensor, "*b m n"]:
    """Euclidean distances from differences in float64: equal rows have equal distances, wherever they lie."""
    return torch.cdist(left.double(), right.double(), compute_mode="donot_use_mm_for_euclid_dist")
