"""Better rankings from the same vectors: k-reciprocal re-ranking and alpha query expansion.

Re-ranking compares what two rows have for neighbors, so it needs all pairs of rows. Its encoding is sparse (a few
hundred numbers a row) and distances are taken some rows at a time: memory grows with the rows, not with their pairs.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from vicinal.distances import Metric
from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.neighbors import Gallery, Neighbors, joined, nearest_first, neighbor_chunks, require_finite

_CHUNK_BYTES = 2**26  # of distances and overlaps at a time
_BYTES = 24  # for a pair of rows: its distance, its overlap, and what is between


def rerank(
    queries: Float[Tensor, "q d"],
    k: int,
    *,
    gallery: Float[Tensor, "g d"] | None = None,
    k1: int = 20,
    k2: int = 6,
    lambda_: float = 0.3,
    metric: Metric = "euclidean",
) -> Neighbors:
    """Find the ``k`` nearest rows of each query by k-reciprocal encoding (Zhong et al., CVPR 2017).

    Rows are alike where they are among each other's ``k1`` nearest, and have such neighbors in common:

        d*(p, g) = (1 - λ) d_J(p, g) + λ d(p, g)

    with d_J the Jaccard distance of the neighbors, each weighted by exp(-d) and averaged over the ``k2`` nearest rows,
    and d the squared distance over the query's largest one, both as in the authors' code. Defaults are the authors'.

    Args:
        queries: rows to find neighbors for.
        k: neighbors per query.
        gallery: rows to find them among; None for leave-one-out. Queries help to find each other's neighbors.
        k1: neighbors that may be reciprocal.
        k2: rows over which encodings are averaged, the row itself among them; 1 averages none.
        lambda_: weight of the distance itself; 1 leaves the ranking as it was.
        metric: ``"euclidean"`` or ``"cosine"``.

    >>> rows = torch.tensor([[0.0], [1.0], [1.9], [9.0], [9.5]])
    >>> rerank(rows, 2, k1=2, k2=1).ids.tolist()
    [[1, 2], [0, 2], [1, 0], [4, 2], [3, 2]]
    """
    chunks = reranked_chunks(queries, k, gallery=gallery, k1=k1, k2=k2, lambda_=lambda_, metric=metric)
    return joined(chunks, queries, k)


def reranked_chunks(
    queries: Float[Tensor, "q d"],
    k: int,
    *,
    gallery: Float[Tensor, "g d"] | None = None,
    k1: int = 20,
    k2: int = 6,
    lambda_: float = 0.3,
    metric: Metric = "euclidean",
    chunk_bytes: int = _CHUNK_BYTES,
) -> Iterator[Neighbors]:
    """Re-rank as ``rerank`` does, some queries at a time."""
    if not 1 <= k2 <= k1 + 1 or not 0 <= lambda_ <= 1 or k < 1:
        raise ConfigError(
            f"re-ranking needs k of at least 1, k2 from 1 to k1 + 1 and lambda_ from 0 to 1; "
            f"got k = {k}, k1 = {k1}, k2 = {k2} and lambda_ = {lambda_}."
        )
    if metric == "poincare":
        raise ConfigError("re-ranking takes Euclidean or cosine distances, got metric='poincare'.")
    rows = queries if gallery is None else torch.cat([queries, gallery.to(queries)])
    if len(rows) < 2:
        raise DataError(f"re-ranking compares rows with each other, got {len(rows)}. Pass at least 2.")
    require_finite(rows, "embeddings")
    among = Gallery(rows, metric)
    found = joined(among.search(None, min(k1, len(rows) - 1)), rows, k1).ids.cpu()
    ranks = torch.cat([torch.arange(len(rows)).unsqueeze(1), found], dim=1).numpy()
    per_chunk = max(1, chunk_bytes // (_BYTES * len(rows)))
    encoding = _encoding(among, ranks, k1, min(k2, len(rows)), per_chunk)
    columns, first = encoding.tocsc(), 0 if gallery is None else len(queries)
    for start in range(0, len(queries), per_chunk):
        size = min(per_chunk, len(queries) - start)
        shared = torch.from_numpy(_shared(encoding[start : start + size], columns)).to(rows.device)
        values = (1 - lambda_) * (1 - shared / (2 - shared)) + lambda_ * _distances(among, start, size)
        if gallery is None:
            values[torch.arange(size), start + torch.arange(size)] = torch.inf
        ids = torch.arange(len(rows) - first, device=rows.device).expand(size, -1)
        yield Neighbors(start, *nearest_first(values[:, first:], ids, k))


def _encoding(among: Gallery, ranks: Int[np.ndarray, "n r"], k1: int, k2: int, per_chunk: int) -> Any:
    """Encode each row by its weighted k-reciprocal neighbors, a sparse matrix of rows that sum to 1.

    ``R`` of a row are those of its k1 nearest that have it among theirs; the half-sized ``R`` of one of them is added
    where more than two thirds of it are in ``R`` already.
    """
    from scipy.sparse import csr_matrix

    def links(width: int) -> Any:
        ends = np.arange(len(ranks) + 1) * ranks[:, :width].shape[1]
        nearest = ranks[:, :width].flatten()
        return csr_matrix((np.ones(len(nearest), np.float32), nearest, ends), shape=(len(ranks), len(ranks)))

    near, half = links(k1 + 1), links(round(k1 / 2) + 1)
    reciprocal, core = near.multiply(near.T).tocsr(), half.multiply(half.T).tocsr()
    common = reciprocal.multiply(reciprocal @ core).tocsr()  # core is symmetric
    common.data = (3 * common.data > 2 * np.diff(core.indptr)[common.indices]).astype(np.float32)
    encoding = (reciprocal + common @ core).tocsr()
    for start in range(0, len(ranks), per_chunk):
        size = min(per_chunk, len(ranks) - start)
        part = slice(encoding.indptr[start], encoding.indptr[start + size])
        counts = np.diff(encoding.indptr[start : start + size + 1])
        apart = _distances(among, start, size).cpu().numpy()[np.repeat(np.arange(size), counts), encoding.indices[part]]
        # What is stored as 0 was no member: `common @ core` keeps places whose sum is 0.
        encoding.data[part] = np.exp(-apart) * (encoding.data[part] > 0)
    encoding.data /= np.repeat(np.asarray(encoding.sum(axis=1)).flatten(), np.diff(encoding.indptr))
    encoding.eliminate_zeros()
    return encoding if k2 == 1 else (links(k2) @ encoding / k2).tocsr()


def _distances(among: Gallery, start: int, size: int) -> Float[Tensor, "b n"]:
    """Squared distances of some rows to all, over the largest of each row."""
    proposal = among.proposal
    values = proposal.buffer(size)
    proposal(among.rows[start : start + size], out=values)
    values.add_(proposal.squares[start : start + size].unsqueeze(1)).clamp_(min=0)
    return values.div_(values.amax(dim=1, keepdim=True).clamp(min=torch.finfo(values.dtype).tiny))


def _shared(block: Any, columns: Any) -> Float[np.ndarray, "b n"]:
    """Sum the smaller of two encodings' numbers over all places, for each row of a block and each row of all."""
    found = np.empty((block.shape[0], columns.shape[0]), np.float32)
    for row, part in enumerate(found):  # row by row: some columns are long
        own = slice(block.indptr[row], block.indptr[row + 1])
        starts, ends = (columns.indptr[block.indices[own] + end] for end in (0, 1))
        counts = ends - starts
        # Positions of all numbers in the row's columns.
        places = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        least = np.minimum(np.repeat(block.data[own], counts), columns.data[places])
        part[:] = np.bincount(columns.indices[places], weights=least, minlength=len(part))
    return found


def expand_queries(
    queries: Float[Tensor, "q d"],
    *,
    gallery: Float[Tensor, "g d"] | None = None,
    count: int = 10,
    alpha: float = 3.0,
) -> Float[Tensor, "q d"]:
    """Move each query towards its nearest rows (alpha query expansion, Radenović et al., TPAMI 2019).

        q' = (q + Σ_i max(0, q·x_i)^α x_i) / |...|        over the nearest x_i, all rows of length 1

    The result is to be searched by cosine in the same rows. α = 0 is average query expansion.

    Args:
        queries: rows to expand; scaled to length 1.
        gallery: rows to find neighbors among; None for the other queries.
        count: neighbors of each.
        alpha: how much less a far neighbor counts.

    >>> expand_queries(torch.tensor([[1.0, 0.0]]), gallery=torch.tensor([[0.6, 0.8]]), alpha=1.0)
    tensor([[0.9430, 0.3328]])
    """
    if count < 1 or not alpha >= 0:
        raise ConfigError(f"expansion needs 1 neighbor and an alpha of 0 or more; got {count} and alpha = {alpha}.")
    unit = normalize(queries, dim=1)
    among = unit if gallery is None else normalize(gallery.to(queries), dim=1)
    expanded = unit.clone()
    for chunk in neighbor_chunks(unit, count, gallery=None if gallery is None else among):
        weights = (1 - chunk.distances.square() / 2).clamp(min=0) ** alpha
        weights = weights.masked_fill(chunk.ids < 0, 0).to(unit.dtype)
        expanded[chunk.start : chunk.start + len(weights)] += torch.einsum("qk,qkd->qd", weights, among[chunk.ids])
    return normalize(expanded, dim=1)
