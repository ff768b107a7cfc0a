"""Smaller vectors and better rankings, measured: bytes, time, Recall@1 and MAP@R of each way to
store a gallery.

Queries stay float32 and are compared with what the codes decode to. Rescoring orders the nearest by
codes again by their float32 vectors, which may lie on disk.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor
from torch.nn.functional import normalize as to_unit_length

from vicinal.distances import Metric
from vicinal.errors import ConfigError, unknown
from vicinal.evaluation import reranking
from vicinal.evaluation.neighbors import Gallery, Neighbors, ordered
from vicinal.evaluation.retrieval import query_scores, ranks_needed, relevant_counts

_RESCORED = 4
_LEAST = 100  # candidates for each neighbor asked for, and at least so many
_CACHE_BYTES = 2**21  # of candidates' vectors at a time
_EXACT = "donot_use_mm_for_euclid_dist"


class Int8Quantizer:
    """A byte for a number: 256 even steps from the least to the largest value of its dimension."""

    def __init__(self, rows: Float[Tensor, "n d"]) -> None:
        self.low, high = rows.aminmax(dim=0)
        self.step = ((high - self.low) / 255).clamp(min=torch.finfo(rows.dtype).tiny)
        self.tables = 8 * rows.shape[1]

    def encode(self, rows: Float[Tensor, "n d"]) -> UInt8[Tensor, "n d"]:
        return ((rows - self.low) / self.step).round().clamp(0, 255).to(torch.uint8)

    def decode(self, codes: UInt8[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        return codes * self.step + self.low


class BinaryQuantizer:
    """A bit for a number: whether it lies above the mean of its dimension; decoded to the mean of
    those that do or not.

    >>> quantizer = BinaryQuantizer(torch.tensor([[1.0, 4.0], [3.0, 4.0], [5.0, 1.0]]))
    >>> codes = quantizer.encode(torch.tensor([[9.0, 0.0]]))
    >>> codes.tolist(), quantizer.decode(codes).tolist()
    ([[128]], [[5.0, 1.0]])
    """

    def __init__(self, rows: Float[Tensor, "n d"]) -> None:
        self.center = rows.mean(dim=0)
        above = rows > rows.mean(dim=0)
        count = above.sum(dim=0)
        total = (rows * above).sum(dim=0)
        self.above = total / count.clamp(min=1)
        self.below = (rows.sum(dim=0) - total) / (len(rows) - count).clamp(min=1)
        self.tables = 12 * rows.shape[1]

    def encode(self, rows: Float[Tensor, "n d"]) -> UInt8[Tensor, "n b"]:
        bits = np.packbits((rows > self.center).cpu().numpy(), axis=1)
        return torch.from_numpy(bits).to(rows.device)

    def decode(self, codes: UInt8[Tensor, "n b"]) -> Float[Tensor, "n d"]:
        bits = np.unpackbits(codes.cpu().numpy(), axis=1, count=len(self.center))
        return torch.where(torch.from_numpy(bits).to(codes.device).bool(), self.above, self.below)


# Fitted to some rows: turns rows into bytes and back; ``tables`` are bytes beside the codes.
Quantizer = Int8Quantizer | BinaryQuantizer
QUANTIZERS: dict[str, type[Quantizer]] = {"int8": Int8Quantizer, "binary": BinaryQuantizer}


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
    embeddings: Float[Tensor, "q d"],
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
        ways = [("float32", "", Gallery(rows).search(x, k, own=own), 4 * size, 0)]
        if rerank:
            ranking = partial(reranking.rerank, k=k, gallery=None if gallery is None else rows)
            ways.append(("float32", "re-ranked", map(ranking, [x]), 4 * size, 0))
        for name in dict.fromkeys(quantize):
            quantizer = QUANTIZERS[name](rows)
            codes = quantizer.encode(rows)
            held = Gallery(quantizer.decode(codes))
            width = codes.shape[1]
            ways.append((name, "", held.search(x, k, own=own), width, quantizer.tables))
            again = _rescored(x, held, rows, k, own)
            ways.append((name, "rescored", again, width, quantizer.tables))
        for stored, refined, chunks, width, tables in ways:
            start = time.perf_counter()
            scores = query_scores(chunks, labels, gallery_labels).means()
            seconds = time.perf_counter() - start
            found.append(
                CompactScores(
                    dims=size,
                    stored=stored,
                    refined=refined,
                    vector_bytes=width,
                    rescoring_bytes=4 * size if refined == "rescored" else 0,
                    total_bytes=width * len(rows) + tables,
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
