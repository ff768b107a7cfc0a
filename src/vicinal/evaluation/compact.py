"""Smaller vectors and better rankings, measured: bytes, time, Recall@1 and MAP@R of each way to
store a gallery.

Queries stay float32 and are compared with what the codes decode to. Rescoring orders the nearest by
codes again by their float32 vectors, which may lie on disk.

Re-ranking (k-reciprocal encoding, Zhong et al., CVPR 2017) compares what two rows have for
neighbors. Its encoding is sparse (a few hundred numbers a row) and distances are taken some rows at
a time: memory grows with the rows, not with their pairs.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn.functional import normalize as to_unit_length

from vicinal.distances import Metric
from vicinal.errors import ConfigError, check_known
from vicinal.evaluation.neighbors import Gallery, Neighbors, Queries, joined, neighbors, ordered
from vicinal.evaluation.retrieval import query_scores, ranks_needed, relevant_counts

_RESCORED = 4
_LEAST = 100  # candidates for each neighbor asked for, and at least so many
_CACHE_BYTES = 2**21  # of candidates' vectors at a time
# For a pair of rows: its distance, its overlap, and what is between.
_PAIR_BYTES = 24
_EXACT = "donot_use_mm_for_euclid_dist"


class Stored(NamedTuple):
    """Rows as they are read from codes, the bytes of a row's code and of all rows' tables."""

    rows: Float[Tensor, "n d"]
    vector_bytes: int
    tables: int


def int8(rows: Float[Tensor, "n d"]) -> Stored:
    """A byte for a number: 256 even steps from the least to the largest value of its dimension."""
    low, high = rows.aminmax(dim=0)
    step = ((high - low) / 255).clamp(min=torch.finfo(rows.dtype).tiny)
    codes = ((rows - low) / step).round().clamp(0, 255)
    return Stored(codes * step + low, rows.shape[1], 8 * rows.shape[1])


def binary(rows: Float[Tensor, "n d"]) -> Stored:
    """A bit for a number: whether it lies above the mean of its dimension; read as the mean of
    those that do or not.

    >>> binary(torch.tensor([[1.0, 4.0], [3.0, 4.0], [5.0, 1.0]])).rows[2].tolist()
    [5.0, 1.0]
    """
    above = rows > rows.mean(dim=0)
    count = above.sum(dim=0)
    total = (rows * above).sum(dim=0)
    rest = (rows.sum(dim=0) - total) / (len(rows) - count).clamp(min=1)
    decoded = torch.where(above, total / count.clamp(min=1), rest)
    return Stored(decoded, -(-rows.shape[1] // 8), 12 * rows.shape[1])


QUANTIZERS: dict[str, Callable[[Tensor], Stored]] = {"int8": int8, "binary": binary}


@dataclass(frozen=True)
class CompactScores:
    """What one way to store and search a gallery takes and finds.

    Attributes:
        dims: first numbers of each embedding that are kept.
        stored: ``"float32"``, ``"int8"`` or ``"binary"``.
        refined: ``""``, ``"rescored"`` (by float32) or ``"re-ranked"``.
        vector_bytes: of a stored vector.
        rescoring_bytes: of its float32 numbers, where they are read again.
        total_bytes: of the gallery as it is searched, with the tables of its codes.
        query_seconds: time to find and score a query's neighbors when all are asked together.
        recall_at_1: share of queries whose nearest has their label.
        map_at_r: mean average precision at R.
    """

    dims: int
    stored: str
    refined: str
    vector_bytes: int
    rescoring_bytes: int
    total_bytes: int
    query_seconds: float
    recall_at_1: float
    map_at_r: float


def check_compact(
    dims: Sequence[int],
    quantize: Sequence[str],
    *,
    rerank: bool = False,
    dim: int,
    metric: Metric = "euclidean",
) -> None:
    """Raise for what `compact_scores` could not measure, before there are embeddings."""
    for size in dims:
        if not 1 <= size <= dim:
            raise ConfigError(f"dims are from 1 to the {dim} numbers of an embedding, got {size}.")
    for name in quantize:
        check_known("quantization", name, QUANTIZERS)
    if metric == "poincare" and (quantize or rerank):
        raise ConfigError(
            "embeddings in the Poincaré ball are neither quantized nor re-ranked. Give dims alone."
        )


def compact_scores(
    embeddings: Queries,
    labels: Shaped[Tensor, "q *c"],
    *,
    gallery: Float[Tensor, "g d"] | None = None,
    gallery_labels: Shaped[Tensor, "g *c"] | None = None,
    dims: Sequence[int] = (),
    quantize: Sequence[str] = (),
    rerank: bool = False,
    normalize: bool = True,
    metric: Metric = "euclidean",
) -> list[CompactScores]:
    """Measure smaller embeddings: of each size as float32, then by each quantization, without and
    with rescoring.

    Args:
        embeddings: queries; without a gallery each is sought among the others.
        labels: their classes.
        gallery: rows to find neighbors among.
        gallery_labels: their classes.
        dims: first numbers of each embedding to keep; the whole is always measured.
        quantize: ``"int8"``, ``"binary"`` or both.
        rerank: also re-rank (``vicinal.evaluation.rerank``).
        normalize: scale to length 1, again after truncation.
        metric: of the whole embeddings; ``"cosine"`` scales to length 1.

    >>> labels = torch.arange(60) // 6
    >>> rows = torch.nn.functional.one_hot(labels, 16).float() + 0.1 * torch.eye(60, 16)
    >>> for row in compact_scores(rows, labels, dims=[8], quantize=["binary"]):
    ...     sizes = row.vector_bytes, row.rescoring_bytes, row.total_bytes
    ...     print(row.dims, row.stored, row.refined, *sizes)
    8 float32  32 0 1920
    8 binary  1 0 156
    8 binary rescored 1 32 156
    16 float32  64 0 3840
    16 binary  2 0 312
    16 binary rescored 2 64 312
    """
    dim = embeddings.shape[1]
    check_compact(dims, quantize, rerank=rerank, dim=dim, metric=metric)
    k = ranks_needed(relevant_counts(labels, gallery_labels), (1,))
    own = torch.arange(len(embeddings), device=embeddings.device) if gallery is None else None
    found = list[CompactScores]()
    for size in sorted({*dims, dim}):
        x = embeddings[:, :size].float()
        rows = x if gallery is None else gallery[:, :size].float()
        if normalize or metric == "cosine":
            x = to_unit_length(x, dim=1)
            rows = to_unit_length(rows, dim=1)
        whole = Stored(rows, 4 * size, 0)
        ways = [("float32", "", Gallery(rows).search(x, k, without=own), whole)]
        if rerank:
            among = None if gallery is None else rows
            ways.append(("float32", "re-ranked", _reranked(x, k, among), whole))
        for name in dict.fromkeys(quantize):
            stored = QUANTIZERS[name](rows)
            held = Gallery(stored.rows)
            ways.append((name, "", held.search(x, k, without=own), stored))
            ways.append((name, "rescored", _rescored(x, held, rows, k, own), stored))
        for name, refined, chunks, stored in ways:
            start = time.perf_counter()
            scores = query_scores(chunks, labels, gallery_labels).means()
            seconds = time.perf_counter() - start
            found.append(
                CompactScores(
                    dims=size,
                    stored=name,
                    refined=refined,
                    vector_bytes=stored.vector_bytes,
                    rescoring_bytes=4 * size if refined == "rescored" else 0,
                    total_bytes=stored.vector_bytes * len(rows) + stored.tables,
                    query_seconds=seconds / len(labels),
                    recall_at_1=scores["recall@1"],
                    map_at_r=scores["map@r"],
                )
            )
    return found


def _reranked(queries: Tensor, k: int, gallery: Tensor | None) -> Iterator[Neighbors]:
    yield rerank(queries, k, gallery=gallery)


def _rescored(
    queries: Tensor, held: Gallery, rows: Tensor, k: int, own: Tensor | None
) -> Iterator[Neighbors]:
    """Find candidates by what codes decode to, and order them by their float32 rows."""
    width = min(max(_RESCORED * k, _LEAST), len(rows))
    few = max(1, _CACHE_BYTES // (4 * queries.shape[1] * width))
    for chunk in held.search(queries, width, without=own):
        ids = chunk.ids.sort(dim=1).values  # so that ties come in order of their ids
        block = queries[chunk.start : chunk.start + len(ids)].unsqueeze(1)
        pairs = zip(torch.split(block, few), torch.split(ids, few), strict=True)
        exact = [torch.cdist(part, rows[theirs], compute_mode=_EXACT) for part, theirs in pairs]
        yield ordered(chunk.start, torch.cat(exact).squeeze(1), ids, k)


# -- re-ranking -----------------------------------------------------------------------------------


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
    for part, row in zip(found, block, strict=True):
        least = columns[:, row.indices]
        least.data = np.minimum(least.data, np.repeat(row.data, np.diff(least.indptr)))
        part[:] = least.sum(axis=1).ravel()
    return found
