"""Better rankings from the same vectors by k-reciprocal encoding (Zhong et al., CVPR 2017).

Re-ranking compares what two rows have for neighbors. Its encoding is sparse (a few hundred numbers
a row) and distances are taken some rows at a time: memory grows with the rows, not with their
pairs.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize as to_unit_length

from vicinal.distances import Metric
from vicinal.errors import ConfigError
from vicinal.evaluation.neighbors import Neighbors, joined, neighbors, ordered

# For a pair of rows: its distance, its overlap, and what is between.
_PAIR_BYTES = 24


def rerank(
    queries: Float[Tensor, "q d"],
    k: int,
    *,
    gallery: Float[Tensor, "g d"] | None = None,
    k1: int = 20,
    k2: int = 6,
    lambda_: float = 0.3,
    metric: Metric = "euclidean",
    chunk_bytes: int = 2**26,
) -> Neighbors:
    """Find the ``k`` nearest rows of each query by k-reciprocal encoding (Zhong et al., CVPR 2017).

    Rows are alike where they are among each other's ``k1`` nearest, and have such neighbors in
    common:

        d*(p, g) = (1 - λ) d_J(p, g) + λ d(p, g)

    with d_J the Jaccard distance of the neighbors, each weighted by exp(-d) and averaged over the
    ``k2`` nearest rows, and d the squared distance over the query's largest one, both as in the
    authors' code. Defaults are the authors'.

    Args:
        queries: rows to find neighbors for.
        k: neighbors per query.
        gallery: rows to find them among; None for leave-one-out. Queries help to find each other's
            neighbors.
        k1: neighbors that may be reciprocal.
        k2: rows over which encodings are averaged, the row itself among them; 1 averages none.
        lambda_: weight of the distance itself; 1 leaves the ranking as it was.
        metric: ``"euclidean"`` or ``"cosine"``.
        chunk_bytes: size of the largest temporary.

    >>> rows = torch.tensor([[0.0], [1.0], [1.9], [9.0], [9.5]])
    >>> rerank(rows, 2, k1=2, k2=1).ids.tolist()
    [[1, 2], [0, 2], [1, 0], [4, 2], [3, 2]]
    """
    if not 1 <= k2 <= k1 + 1 or not 0 <= lambda_ <= 1 or k < 1:
        raise ConfigError(
            "re-ranking needs k of at least 1, k2 from 1 to k1 + 1 and lambda_ from 0 to 1; got k "
            f"= {k}, k1 = {k1}, k2 = {k2} and lambda_ = {lambda_}."
        )
    if metric == "poincare":
        raise ConfigError("re-ranking takes Euclidean or cosine distances, got metric='poincare'.")
    rows = queries if gallery is None else torch.cat([queries, gallery.to(queries)])
    near = neighbors(rows, min(k1, len(rows) - 1), metric=metric).ids.cpu()
    ranks = torch.cat([torch.arange(len(rows)).unsqueeze(1), near], dim=1).numpy()
    rows = to_unit_length(rows, dim=1) if metric == "cosine" else rows - rows.mean(dim=0)
    per_chunk = max(1, chunk_bytes // (_PAIR_BYTES * len(rows)))
    encoding = _encoding(rows, ranks, k1, min(k2, len(rows)), per_chunk)
    columns = encoding.tocsc()
    first = 0 if gallery is None else len(queries)
    found = []
    for start in range(0, len(queries), per_chunk):
        size = min(per_chunk, len(queries) - start)
        shared = torch.from_numpy(_shared(encoding[start : start + size], columns)).to(rows.device)
        values = (1 - lambda_) * (1 - shared / (2 - shared)) + lambda_ * _apart(rows, start, size)
        ids = torch.arange(len(rows) - first, device=rows.device).repeat(size, 1)
        if gallery is None:
            ids[torch.arange(size), start + torch.arange(size)] = -1
        found.append(ordered(start, values[:, first:], ids, k))
    return joined(found, queries, k)


def _encoding(rows: Tensor, ranks: Int[np.ndarray, "n r"], k1: int, k2: int, per_chunk: int) -> Any:
    """Encode each row by its weighted k-reciprocal neighbors, a sparse matrix of rows that sum to
    1.

    ``R`` of a row are those of its k1 nearest that have it among theirs; the half-sized ``R`` of
    one of them is added where more than two thirds of it are in ``R`` already.
    """
    from scipy.sparse import csr_matrix

    def links(width: int) -> Any:
        ends = np.arange(len(ranks) + 1) * ranks[:, :width].shape[1]
        nearest = ranks[:, :width].flatten()
        return csr_matrix(
            (np.ones(len(nearest), np.float32), nearest, ends), shape=(len(ranks), len(ranks))
        )

    near = links(k1 + 1)
    half = links(round(k1 / 2) + 1)
    reciprocal = near.multiply(near.T).tocsr()
    core = half.multiply(half.T).tocsr()
    common = reciprocal.multiply(reciprocal @ core).tocsr()  # core is symmetric
    common.data = (3 * common.data > 2 * np.diff(core.indptr)[common.indices]).astype(np.float32)
    encoding = (reciprocal + common @ core).tocsr()
    encoding.eliminate_zeros()
    counts = np.diff(encoding.indptr)
    for start in range(0, len(ranks), per_chunk):
        part = slice(encoding.indptr[start], encoding.indptr[min(start + per_chunk, len(ranks))])
        apart = _apart(rows, start, per_chunk).cpu().numpy()
        places = np.repeat(np.arange(len(apart)), counts[start : start + per_chunk])
        encoding.data[part] = np.exp(-apart[places, encoding.indices[part]])
    encoding.data /= np.repeat(np.asarray(encoding.sum(axis=1)).flatten(), counts)
    return encoding if k2 == 1 else (links(k2) @ encoding / k2).tocsr()


def _apart(rows: Tensor, start: int, size: int) -> Float[Tensor, "b n"]:
    """Squared distances of some rows to all, over the largest of each row."""
    values = torch.cdist(rows[start : start + size], rows).square()
    return values / values.amax(dim=1, keepdim=True).clamp(min=torch.finfo(values.dtype).tiny)


def _shared(block: Any, columns: Any) -> Float[np.ndarray, "b n"]:
    """Sum the smaller of two encodings' numbers over all places, for each row of a block and each
    row of all."""
    found = np.empty((block.shape[0], columns.shape[0]), np.float32)
    for row, part in enumerate(found):  # scipy's own slicing takes twice the time
        own = slice(block.indptr[row], block.indptr[row + 1])
        starts, ends = (columns.indptr[block.indices[own] + end] for end in (0, 1))
        counts = ends - starts
        # Positions of all numbers in the row's columns.
        places = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        least = np.minimum(np.repeat(block.data[own], counts), columns.data[places])
        part[:] = np.bincount(columns.indices[places], weights=least, minlength=len(part))
    return found
