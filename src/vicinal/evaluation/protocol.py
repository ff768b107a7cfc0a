"""The evaluation of an embedding: neighbours searched once, retrieval scored as they arrive, clusters beside."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn.functional import normalize as to_unit_length

from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.clustering import clustering_scores
from vicinal.evaluation.k_means import Engine, kmeans
from vicinal.evaluation.neighbors import Metric, neighbor_chunks
from vicinal.evaluation.retrieval import Lone, ranks_needed, relevant_counts, retrieval_scores


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
    restarts: int = 5,
    engine: Engine = "auto",
    seed: int = 0,
    device: torch.device | str | None = None,
    chunk_bytes: int | None = None,
) -> dict[str, float]:
    """Scores of an embedding as fractions: ``recall@K``, ``map@r``, ``r_precision``, and ``nmi``, ``ami``, ``f1``.

    Each row is sought among the others, or, with a gallery, in that. Clustering takes the rows (queries) alone, into
    as many clusters as they have classes; with ``normalize`` or ``"cosine"`` it takes them scaled to length 1.

    Args:
        embeddings: rows to evaluate, tensor or array; NaN and infinity are refused with their row numbers.
        labels: their classes, integers.
        recalls: the K of Recall@K (``vicinal.evaluation.retrieval`` has each data set's published ones).
        top_percent: also ``recall@1%``, Recall@K with K = ⌊g/100⌋ + 1 of a gallery of g rows, as papers on cross-view
            matching count it.
        gallery: rows to find neighbours among; None for leave-one-out.
        gallery_labels: their classes.
        normalize: scale all rows to length 1 first; a zero row stays zero.
        metric: distance by which neighbours are near.
        lone: whether queries that have nothing to find are left out (``"exclude"``) or wrong (``"count"``).
        clustering: whether to run k-means.
        restarts: of k-means.
        engine: of k-means.
        seed: of k-means.
        device: where to compute; by default where the embeddings lie.
        chunk_bytes: size of the largest temporary of the search; the default suits the device.
    """
    rows = _tensor(embeddings)
    device = torch.device(rows.device if device is None else device)
    if (gallery is None) != (gallery_labels is None):
        raise ConfigError("a gallery comes with its labels, but only one of the two was passed. Pass both or neither.")
    rows, own = _checked(rows, labels, "embeddings", device)
    others, theirs = None, None
    if gallery is not None and gallery_labels is not None:
        others, theirs = _checked(_tensor(gallery), gallery_labels, "gallery", device)
    if normalize:
        rows = to_unit_length(rows, dim=1)
        others = None if others is None else to_unit_length(others, dim=1)

    percent = len(rows if others is None else others) // 100 + 1  # CVM-Net's code (Hu et al. 2018) and HER's
    asked = tuple(dict.fromkeys((*recalls, percent) if top_percent else recalls))
    ranks = ranks_needed(relevant_counts(own, theirs), asked)
    chunks = neighbor_chunks(rows, ranks, gallery=others, metric=metric, chunk_bytes=chunk_bytes)
    found = retrieval_scores(chunks, own, theirs, recalls=asked, lone=lone)
    scores = {f"recall@{k}": found[f"recall@{k}"] for k in recalls}
    if top_percent:
        scores["recall@1%"] = found[f"recall@{percent}"]
    scores |= {name: value for name, value in found.items() if not name.startswith("recall@")}
    if clustering:
        if metric == "cosine":
            rows = to_unit_length(rows, dim=1)
        classes = len(torch.unique(own))
        scores |= clustering_scores(own, kmeans(rows, classes, seed=seed, restarts=restarts, engine=engine))
    return scores


def _tensor(rows: Tensor | np.ndarray) -> Tensor:
    return rows if isinstance(rows, Tensor) else torch.from_numpy(np.require(rows, requirements=["C", "W"]))


def _checked(rows: Tensor, labels: Tensor | np.ndarray, name: str, device: torch.device) -> tuple[Tensor, Tensor]:
    if len(rows) == 0 or len(rows) != len(labels):
        raise DataError(f"each row has a label, but {len(rows)} rows of {name} and {len(labels)} labels came.")
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iu":
        labels = torch.from_numpy(labels.astype(np.int64))
    if isinstance(labels, np.ndarray) or labels.is_floating_point() or labels.is_complex():
        raise DataError(
            f"labels are integers, but those of {name} are {labels.dtype}. Number the classes, with "
            f"numpy.unique(labels, return_inverse=True) for example."
        )
    exact = torch.promote_types(rows.dtype, torch.float32)  # half precision is computed as float32
    return rows.detach().to(device, exact), labels.to(device, torch.long)
