"""The scores of an embedding: neighbors are searched once, retrieval is scored as they arrive, clusters beside."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn.functional import normalize as to_unit_length

from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.clustering import cluster
from vicinal.evaluation.encoder import Embedded
from vicinal.evaluation.neighbors import Hits, Metric, Neighbors, hit_chunks, neighbor_chunks, worth_counting
from vicinal.evaluation.retrieval import Lone, QueryScores, query_scores, ranks_needed, relevant_counts


def evaluate(
    embeddings: Float[Tensor, "q d"] | Float[np.ndarray, "q d"],
    labels: Shaped[Tensor, "q"] | Shaped[np.ndarray, "q"],
    *,
    recalls: Sequence[int] = (1, 2, 4, 8),
    top_percent: bool = False,
    gallery: Float[Tensor, "g d"] | Float[np.ndarray, "g d"] | None = None,
    gallery_labels: Shaped[Tensor, "g"] | Shaped[np.ndarray, "g"] | None = None,
    normalize: bool = False,
    metric: Metric = "euclidean",
    lone: Lone = "exclude",
    clustering: bool = True,
    restarts: int = 3,
    seed: int = 0,
    device: torch.device | str | None = None,
    chunk_bytes: int | None = None,
) -> dict[str, float]:
    """Score an embedding, in fractions: ``recall@K``, ``map@r``, ``r_precision``, and ``nmi``, ``ami``, ``f1``.

    The last three are means over runs of k-means; ``nmi_spread``, ``ami_spread`` and ``f1_spread`` are their standard
    deviations, what another seed would change. Defaults are those of a run, which scores alike.

    Each row is sought among the others, or, with a gallery, in that. Clustering takes the rows (queries) alone, into
    as many clusters as they have classes; with ``normalize`` or ``"cosine"`` it takes them scaled to length 1.

    Args:
        embeddings: rows to evaluate, tensor or array; NaN and infinity are rejected with their row numbers.
        labels: their classes, integers.
        recalls: the K of Recall@K (``vicinal.evaluation.retrieval`` has each data set's published ones).
        top_percent: also ``recall@1%``, Recall@K with K = ⌊g/100⌋ + 1 of a gallery of g rows, as papers on cross-view
            matching count it.
        gallery: rows to find neighbors among; None for leave-one-out.
        gallery_labels: their classes.
        normalize: scale all rows to length 1 first; a zero row stays zero.
        metric: distance by which neighbors are near.
        lone: whether queries that have nothing to find are left out (``"exclude"``) or wrong (``"count"``).
        clustering: whether to run k-means.
        restarts: runs of k-means behind a mean; a single one has no spread.
        seed: of k-means.
        device: where to compute; by default a GPU where there is one, as runs do, so that both score alike.
        chunk_bytes: size of the largest temporary of the search; the default suits the device.
    """
    if (gallery is None) != (gallery_labels is None):
        raise ConfigError("a gallery comes with its labels, got one without the other. Pass both or neither.")
    rows = _tensor(embeddings)
    device = _device(rows) if device is None else device
    rows, own = _checked(rows, labels, "embeddings", device)
    others, theirs = None, None
    if gallery is not None and gallery_labels is not None:
        others, theirs = _checked(_tensor(gallery), gallery_labels, "gallery", device)
    if normalize:
        rows = to_unit_length(rows, dim=1)
        others = None if others is None else to_unit_length(others, dim=1)

    scores = _retrieve(rows, own, others, theirs, recalls, top_percent, metric, lone, chunk_bytes).means()
    if clustering:
        rows = to_unit_length(rows, dim=1) if metric == "cosine" else rows
        means, spread = cluster(rows, own, seed=seed, restarts=restarts)
        scores |= means | {f"{name}_spread": value for name, value in spread.items()}
    return scores


@dataclass(frozen=True)
class Measured:
    """What was measured of some embedded records.

    Attributes:
        scores: those of ``evaluate``, without spreads.
        queries: the scores of each query, Recall@1 among them.
        spread: standard deviation of ``nmi``, ``ami`` and ``f1`` over the seeds of k-means.
    """

    scores: dict[str, float]
    queries: QueryScores
    spread: dict[str, float]


def measure(
    embedded: Embedded, *, recalls: Sequence[int], clustering: bool, seed: int = 0, restarts: int = 3
) -> Measured:
    """Score embedded records as ``evaluate`` does: leave-one-out, or queries in a gallery where they have such roles.

    Queries that are sought in a gallery are clustered only where there are two of a class on average. With one of each,
    as of two views of a place, every query is a cluster of its own: NMI and F1 of 1, whatever the network.
    """
    queries, gallery = embedded.roles()
    vectors, labels = _checked(embedded.vectors, embedded.labels, "embeddings", _device(embedded.vectors))
    rows, own = vectors[queries], labels[queries]
    asked = tuple(dict.fromkeys((*recalls, 1)))
    if gallery is None:
        found = _retrieve(rows, own, None, None, asked)
    else:
        found = _retrieve(rows, own, vectors[gallery], labels[gallery], asked, top_percent=True)
        clustering = clustering and 2 * len(torch.unique(own)) <= len(queries)
    scores = {name: mean for name, mean in found.means().items() if name != "recall@1" or 1 in recalls}
    clustered, spread = cluster(rows, own, seed=seed, restarts=restarts) if clustering else ({}, {})
    return Measured(scores | clustered, found, spread)


def _retrieve(
    rows: Tensor,
    own: Tensor,
    others: Tensor | None,
    theirs: Tensor | None,
    recalls: Sequence[int],
    top_percent: bool = False,
    metric: Metric = "euclidean",
    lone: Lone = "exclude",
    chunk_bytes: int | None = None,
) -> QueryScores:
    percent = len(rows if others is None else others) // 100 + 1  # CVM-Net's code (Hu et al. 2018) and HER's
    asked = tuple(dict.fromkeys((*recalls, percent) if top_percent else recalls))
    relevant = relevant_counts(own, theirs)
    ranks = ranks_needed(relevant, asked)
    chunks: Iterable[Neighbors] | Iterable[Hits]
    if worth_counting(int(relevant.max()), ranks, rows if others is None else others):
        chunks = hit_chunks(rows, own, ranks, others, theirs, metric=metric, chunk_bytes=chunk_bytes)
    else:
        chunks = neighbor_chunks(rows, ranks, gallery=others, metric=metric, chunk_bytes=chunk_bytes)
    found = query_scores(chunks, own, theirs, recalls=asked, lone=lone)
    scores = {f"recall@{k}": found.scores[f"recall@{k}"] for k in recalls}
    if top_percent:
        scores["recall@1%"] = found.scores[f"recall@{percent}"]
    scores |= {name: found.scores[name] for name in ("map@r", "r_precision")}
    return QueryScores(found.labels, scores)


def _device(rows: Tensor) -> torch.device | str:
    return "cuda" if rows.device.type == "cpu" and torch.cuda.is_available() else rows.device


def _tensor(rows: Tensor | np.ndarray) -> Tensor:
    return rows if isinstance(rows, Tensor) else torch.from_numpy(np.require(rows, requirements=["C", "W"]))


def _checked(rows: Tensor, labels: Tensor | np.ndarray, name: str, device: torch.device | str) -> tuple[Tensor, Tensor]:
    if len(rows) == 0 or len(rows) != len(labels):
        raise DataError(f"each row needs a label, got {len(rows)} rows of {name} and {len(labels)} labels.")
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iu":
        labels = torch.from_numpy(labels.astype(np.int64))
    if isinstance(labels, np.ndarray) or labels.is_floating_point() or labels.is_complex():
        raise DataError(
            f"labels must be integers, got {labels.dtype} for those of {name}. Number the classes, with "
            f"numpy.unique(labels, return_inverse=True) for example."
        )
    exact = torch.promote_types(rows.dtype, torch.float32)  # half precision is computed as float32
    return rows.detach().to(device, exact), labels.to(device, torch.long)
