"""Smaller vectors and better rankings, measured: bytes, time, Recall@1 and MAP@R of each way to
store a gallery.

Queries stay float32 and are compared with what the codes decode to. Rescoring orders the nearest by
codes again by their float32 vectors, which may lie on disk.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize as to_unit_length

from vicinal.distances import Metric
from vicinal.errors import ConfigError, unknown
from vicinal.evaluation import reranking
from vicinal.evaluation.neighbors import Gallery, Neighbors, Queries, ordered
from vicinal.evaluation.retrieval import query_scores, ranks_needed, relevant_counts

_RESCORED = 4
_LEAST = 100  # candidates for each neighbor asked for, and at least so many
_CACHE_BYTES = 2**21  # of candidates' vectors at a time
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
        if name not in QUANTIZERS:
            raise ConfigError(unknown("quantization", name, QUANTIZERS))
    if metric == "poincare" and (quantize or rerank):
        raise ConfigError(
            "embeddings in the Poincaré ball are neither quantized nor re-ranked. Give dims alone."
        )


def compact_scores(
    embeddings: Queries,
    labels: Int[Tensor, "q"],
    *,
    gallery: Float[Tensor, "g d"] | None = None,
    gallery_labels: Int[Tensor, "g"] | None = None,
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
        ways = [("float32", "", Gallery(rows).search(x, k, own=own), whole)]
        if rerank:
            ranking = partial(reranking.rerank, k=k, gallery=None if gallery is None else rows)
            ways.append(("float32", "re-ranked", map(ranking, [x]), whole))
        for name in dict.fromkeys(quantize):
            stored = QUANTIZERS[name](rows)
            held = Gallery(stored.rows)
            ways.append((name, "", held.search(x, k, own=own), stored))
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


def _rescored(
    queries: Tensor, held: Gallery, rows: Tensor, k: int, own: Tensor | None
) -> Iterator[Neighbors]:
    """Find candidates by what codes decode to, and order them by their float32 rows."""
    width = min(max(_RESCORED * k, _LEAST), len(rows))
    few = max(1, _CACHE_BYTES // (4 * queries.shape[1] * width))
    for chunk in held.search(queries, width, own=own):
        ids = chunk.ids.sort(dim=1).values  # so that ties come in order of their ids
        block = queries[chunk.start : chunk.start + len(ids)].unsqueeze(1)
        pairs = zip(torch.split(block, few), torch.split(ids, few), strict=True)
        exact = [torch.cdist(part, rows[theirs], compute_mode=_EXACT) for part, theirs in pairs]
        yield ordered(chunk.start, torch.cat(exact).squeeze(1), ids, k)
