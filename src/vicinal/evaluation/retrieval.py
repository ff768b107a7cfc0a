"""Retrieval scores as pure functions of neighbor ids and labels: Recall@K, R-precision, MAP@R.

A query is right at rank i if its i-th neighbor has its label. R is the number of gallery rows with the query's label
(in leave-one-out, of other rows). Scores are fractions in float64, first one per query, then their mean.

A lone query, with no other row of its class (R = 0), can never be right and scores 0. By default lone queries are
left out of the means, as in pytorch-metric-learning; ``lone="count"`` keeps them, as codes that merely count do.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vicinal.errors import ConfigError, DataError, unknown
from vicinal.evaluation.neighbors import Hits, Neighbors

Lone = Literal["exclude", "count"]

# The K at which each data set's papers report recall.
CUB_RECALLS = CARS_RECALLS = (1, 2, 4, 8, 16, 32)
SOP_RECALLS = (1, 10, 100, 1000)
INSHOP_RECALLS = (1, 10, 20, 30, 40, 50)


@dataclass(frozen=True)
class QueryScores:
    """Each query's scores, by metric; queries that are left out of the means are not among them.

    Attributes:
        labels: the queries' classes.
        scores: ``recall@K`` for each K, ``map@r`` and ``r_precision``.
    """

    labels: Int[Tensor, "q"]
    scores: dict[str, Float[Tensor, "q"]]

    def means(self) -> dict[str, float]:
        return {name: float(values.sum()) / len(values) for name, values in self.scores.items()}

    def by_class(self) -> dict[str, np.ndarray]:
        """``label`` and ``queries`` of each class, by growing label, and for each metric the sum over its queries."""
        classes, place, sizes = torch.unique(self.labels.cpu(), return_inverse=True, return_counts=True)
        sums = {
            name: torch.bincount(place, weights=values.cpu(), minlength=len(classes)).numpy()
            for name, values in self.scores.items()
        }
        return {"label": classes.numpy(), "queries": sizes.numpy(), **sums}


def query_scores(
    chunks: Iterable[Neighbors] | Iterable[Hits],
    labels: Int[Tensor, "q"],
    gallery_labels: Int[Tensor, "g"] | None = None,
    *,
    recalls: Sequence[int] = (1, 2, 4, 8),
    lone: Lone = "exclude",
) -> QueryScores:
    """Score all queries from their neighbors as these arrive; no chunk is kept.

    Args:
        chunks: the neighbors of all queries in order, or which of them are right, at least ``ranks_needed`` of each.
        labels: the queries' labels.
        gallery_labels: the gallery's labels; None for leave-one-out, where ids name queries.
        recalls: the K of Recall@K; Recall@1 is precision at 1.
        lone: what becomes of queries whose class has no other row.
    """
    if lone not in ("exclude", "count"):
        raise ConfigError(unknown("treatment of lone queries", lone, ("exclude", "count")))
    relevant = relevant_counts(labels, gallery_labels)
    counted = relevant > 0 if lone == "exclude" else torch.ones_like(relevant, dtype=torch.bool)
    if not counted.any():
        raise DataError(
            f"retrieval needs queries whose class has {'another' if gallery_labels is None else 'a gallery'} row, got "
            f"{len(labels)} queries without. Evaluate on classes with at least two rows."
        )
    names = gallery_labels if gallery_labels is not None else labels
    parts: dict[str, list[Tensor]] = {name: [] for name in (*(f"recall@{k}" for k in recalls), "map@r", "r_precision")}
    seen = 0
    for chunk in chunks:
        size = len(chunk.hits if isinstance(chunk, Hits) else chunk.ids)
        part = slice(chunk.start, chunk.start + size)
        hits = (chunk.hits if isinstance(chunk, Hits) else right(chunk.ids, labels[part], names))[counted[part]]
        wanted = relevant[part][counted[part]]
        for k in recalls:
            parts[f"recall@{k}"].append(recall_at(hits, k))
        parts["map@r"].append(map_at_r(hits, wanted))
        parts["r_precision"].append(r_precision(hits, wanted))
        seen += size
    if seen != len(labels):
        raise DataError(
            f"each query needs its neighbors, got those of {seen} for {len(labels)} labels. Pass those of all."
        )
    return QueryScores(labels[counted], {name: torch.cat(found) for name, found in parts.items()})


def retrieval_scores(
    chunks: Iterable[Neighbors] | Iterable[Hits],
    labels: Int[Tensor, "q"],
    gallery_labels: Int[Tensor, "g"] | None = None,
    *,
    recalls: Sequence[int] = (1, 2, 4, 8),
    lone: Lone = "exclude",
) -> dict[str, float]:
    """Compute the mean scores over all queries; arguments as in ``query_scores``."""
    return query_scores(chunks, labels, gallery_labels, recalls=recalls, lone=lone).means()


def ranks_needed(relevant: Int[Tensor, "q"], recalls: Sequence[int]) -> int:
    """How many neighbors of each query the scores look at: the largest K or R."""
    if not all(k >= 1 for k in recalls):
        raise ConfigError(f"Recall@K counts from K = 1, got recalls {list(recalls)}.")
    return max([1, *recalls, int(relevant.max()) if len(relevant) else 0])


def relevant_counts(labels: Int[Tensor, "q"], gallery_labels: Int[Tensor, "g"] | None = None) -> Int[Tensor, "q"]:
    """R of each query: the gallery rows of its class, or, without a gallery, the other rows of its class.

    >>> relevant_counts(torch.tensor([7, 7, 7, 9])).tolist()
    [2, 2, 2, 0]
    """
    names = (labels if gallery_labels is None else gallery_labels).long()
    classes, counts = torch.unique(names, return_counts=True)
    place = torch.searchsorted(classes, labels.long().contiguous()).clamp(max=len(classes) - 1)
    own = 1 if gallery_labels is None else 0
    return torch.where(classes[place] == labels, counts[place] - own, 0)


def right(ids: Int[Tensor, "q k"], labels: Int[Tensor, "q"], gallery_labels: Int[Tensor, "g"]) -> Bool[Tensor, "q k"]:
    """Which neighbors have their query's label; an absent neighbor (id -1) has none."""
    return (gallery_labels[ids] == labels.unsqueeze(1)) & (ids >= 0)


def recall_at(hits: Bool[Tensor, "q n"], k: int) -> Float[Tensor, "q"]:
    """1 where any of the first ``k`` neighbors is right, else 0.

    >>> recall_at(torch.tensor([[False, True], [False, False]]), 2).tolist()
    [1.0, 0.0]
    """
    return hits[:, :k].any(dim=1).double()


def r_precision(hits: Bool[Tensor, "q n"], relevant: Int[Tensor, "q"]) -> Float[Tensor, "q"]:
    """Share of the first R neighbors that are right, r/R (Musgrave et al. 2020); 0 where R = 0."""
    return _within(hits, relevant).sum(dim=1) / relevant.clamp(min=1).double()


def map_at_r(hits: Bool[Tensor, "q n"], relevant: Int[Tensor, "q"]) -> Float[Tensor, "q"]:
    """Mean average precision at R: R-precision that rewards order as well; 0 where R = 0.

        MAP@R = 1/R Σ_{i=1}^{R} P(i),   P(i) = precision at i if the i-th neighbor is right, else 0

    defined in Musgrave et al. 2020, "A Metric Learning Reality Check".

    >>> map_at_r(torch.tensor([[True, False, True]]), torch.tensor([3])).item()  # (1/1 + 2/3) / 3
    0.5555555555555555
    """
    counted = _within(hits, relevant)
    rank = torch.arange(1, counted.shape[1] + 1, dtype=torch.float64, device=hits.device)
    precision = counted.cumsum(dim=1) / rank
    return (precision * counted).sum(dim=1) / relevant.clamp(min=1)


def _within(hits: Tensor, relevant: Tensor) -> Tensor:
    """The hits at ranks 1 .. R of each query; ranks beyond the largest R are cut off."""
    most = int(relevant.max()) if len(relevant) else 0
    if most > hits.shape[1]:
        raise ConfigError(
            f"scores at R need as many neighbors as the largest class has other rows ({most}), got {hits.shape[1]}. "
            f"Search for `ranks_needed` neighbors."
        )
    return hits[:, :most] & (torch.arange(most, device=hits.device) < relevant.unsqueeze(1))
