"""Retrieval scores as pure functions of neighbor ids and labels: Recall@K, R-precision, MAP@R and
others, and those of re-identification.

A query is right at rank i if its i-th neighbor has its label. R is the number of gallery rows with
the query's label (in leave-one-out, of other rows). Scores are fractions in float64, first one per
query, then their mean.

A lone query, with no other row of its class (R = 0), can never be right. Lone queries are left out
of the means, as in pytorch-metric-learning.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from vicinal.distances import Metric
from vicinal.errors import ConfigError, DataError, unknown
from vicinal.evaluation.neighbors import Gallery, Neighbors
from vicinal.tuples import shared

QueryNumbers = Int[Tensor, "q"]
Hits = Bool[Tensor, "q n"]
PerQuery = Float[Tensor, "q"]
QueryLabels = Shaped[Tensor, "q *c"]
GalleryLabels = Shaped[Tensor, "g *c"]
# Whether rows belong together, of their labels as tensors that broadcast; None is equality.
Same = Callable[[Tensor, Tensor], Tensor] | None
WHOLE = ("map", "mrr")  # scores that look at the whole ranking

_ROWS = 1024  # queries at a time where a function compares labels

# The K at which each data set's papers report recall.
CUB_RECALLS = CARS_RECALLS = (1, 2, 4, 8, 16, 32)
SOP_RECALLS = (1, 10, 100, 1000)
INSHOP_RECALLS = (1, 10, 20, 30, 40, 50)


@dataclass(frozen=True)
class QueryScores:
    """Each query's scores, by metric; queries that are left out of the means are not among them.

    Attributes:
        labels: the queries' classes.
        scores: ``recall@K`` for each K, ``map@r`` and ``r_precision``, or others that were asked
            for.
        rows: the queries' positions.
    """

    labels: QueryLabels
    scores: dict[str, PerQuery]
    rows: QueryNumbers

    def means(self) -> dict[str, float]:
        return {name: float(values.sum()) / len(values) for name, values in self.scores.items()}

    def by_class(self) -> dict[str, np.ndarray]:
        """``label`` and ``queries`` of each class, by growing label, and for each metric the sum
        over its queries."""
        if self.labels.dtype == torch.bool:  # a row is a query of each of its classes
            of = self.labels.cpu().numpy()
            label = np.flatnonzero(of.any(axis=0))
            of = of[:, label]
            sums = {name: values.cpu().numpy() @ of for name, values in self.scores.items()}
            return {"label": label, "queries": of.sum(axis=0), **sums}
        classes, place, sizes = torch.unique(
            self.labels.cpu(), return_inverse=True, return_counts=True
        )
        sums = {
            name: torch.bincount(place, weights=values.cpu(), minlength=len(classes)).numpy()
            for name, values in self.scores.items()
        }
        return {"label": classes.numpy(), "queries": sizes.numpy(), **sums}


def query_scores(
    chunks: Iterable[Neighbors],
    labels: QueryLabels,
    gallery_labels: GalleryLabels | None = None,
    *,
    metrics: Sequence[str] = ("recall@1", "map@r", "r_precision"),
    same: Same = None,
    relevant: QueryNumbers | None = None,
) -> QueryScores:
    """Score all queries from their neighbors as these arrive; no chunk is kept.

    Args:
        chunks: the neighbors of all queries in order, at least ``ranks_needed`` of each.
        labels: the queries' labels.
        gallery_labels: the gallery's labels; None for leave-one-out, where ids name queries.
        metrics: names of the scores, as in ``query_score``.
        same: whether a query and a row belong together; None: if their labels are equal.
        relevant: R of each query; None where labels tell it.
    """
    if relevant is None:
        relevant = some_relevant(labels, gallery_labels, same)
    counted = relevant > 0
    names = gallery_labels if gallery_labels is not None else labels
    none = torch.empty(0, dtype=torch.float64, device=labels.device)
    parts = {name: [none] for name in metrics}
    for chunk in chunks:
        part = slice(chunk.start, chunk.start + len(chunk.ids))
        hits = right(chunk.ids, labels[part], names, same)[counted[part]]
        wanted = relevant[part][counted[part]]
        for name, found in parts.items():
            found.append(query_score(name, hits, wanted))
    scores = {name: torch.cat(found) for name, found in parts.items()}
    return QueryScores(labels[counted], scores, counted.nonzero().flatten())


def query_score(name: str, hits: Hits, relevant: QueryNumbers) -> PerQuery:
    """Score rankings by name: ``recall@K`` or ``cmc@K``, ``precision@K``, ``map@r``,
    ``r_precision``, ``map``, ``mrr``.

    >>> query_score("precision@2", torch.tensor([[True, False, True]]), torch.tensor([2])).item()
    0.5
    """
    kind, _, depth = name.partition("@")
    if kind in ("recall", "cmc", "precision") and depth.isdigit():
        first = hits[:, : int(depth)]
        if kind == "precision":
            return first.sum(dim=1).double() / int(depth)
        return first.any(dim=1).double()
    if name not in _SCORES:
        raise ConfigError(
            unknown("retrieval score", name, ("recall@K", "cmc@K", "precision@K", *_SCORES))
        )
    return _SCORES[name](hits, relevant)


def ranks_needed(relevant: QueryNumbers, recalls: Sequence[int]) -> int:
    """How many neighbors of each query the scores look at: the largest K or R."""
    if not all(k >= 1 for k in recalls):
        raise ConfigError(f"Recall@K counts from K = 1, got recalls {list(recalls)}.")
    return max([1, *recalls, int(relevant.max()) if len(relevant) else 0])


def relevant_counts(
    labels: QueryLabels,
    gallery_labels: GalleryLabels | None = None,
    same: Same = None,
) -> QueryNumbers:
    """R of each query: the gallery rows of its class, or, without a gallery, the other rows of its
    class.

    >>> relevant_counts(torch.tensor([7, 7, 7, 9])).tolist()
    [2, 2, 2, 0]
    """
    if same is not None or labels.ndim > 1:
        others = labels if gallery_labels is None else gallery_labels
        parts = torch.split(labels, _ROWS)
        counts = torch.cat([together(part, others, same).sum(dim=1) for part in parts])
        if gallery_labels is None:
            counts -= (labels.any(dim=1) if same is None else same(labels, labels)).long()
        return counts
    names = labels if gallery_labels is None else gallery_labels
    classes, places = torch.unique(torch.cat([labels.long(), names.long()]), return_inverse=True)
    held = places[len(labels) :].bincount(minlength=len(classes))
    return held[places[: len(labels)]] - int(gallery_labels is None)


def some_relevant(
    labels: QueryLabels,
    gallery_labels: GalleryLabels | None = None,
    same: Same = None,
) -> QueryNumbers:
    """Return ``relevant_counts``; raise a DataError where no query has any."""
    relevant = relevant_counts(labels, gallery_labels, same)
    if not relevant.any():
        other = "another" if gallery_labels is None else "a gallery"
        raise DataError(
            f"retrieval needs queries whose class has {other} row, got {len(labels)} queries "
            "without. Evaluate on classes with at least two rows."
        )
    return relevant


def right(
    ids: Int[Tensor, "q k"],
    labels: QueryLabels,
    gallery_labels: GalleryLabels,
    same: Same = None,
) -> Bool[Tensor, "q k"]:
    """Which neighbors have their query's label; an absent neighbor (id -1) has none."""
    if same is None and labels.ndim > 1:
        return together(labels, gallery_labels).gather(1, ids.clamp(min=0)) & (ids >= 0)
    return (same or torch.eq)(gallery_labels[ids], labels.unsqueeze(1)) & (ids >= 0)


def together(
    labels: QueryLabels, gallery_labels: GalleryLabels, same: Same = None
) -> Bool[Tensor, "q g"]:
    """Which rows belong to each query."""
    return same(labels[:, None], gallery_labels[None]) if same else shared(labels, gallery_labels)


def mean_precision(hits: Hits, relevant: QueryNumbers) -> PerQuery:
    """Average precision of a whole ranking, 1/R Σ of the precision at each right neighbor; 0 where
    R = 0.

    >>> hits = torch.tensor([[True, False, True]])
    >>> mean_precision(hits, torch.tensor([2])).item()  # (1/1 + 2/3) / 2
    0.8333333333333333
    """
    rank = torch.arange(1, hits.shape[1] + 1, dtype=torch.float64, device=hits.device)
    return (hits.cumsum(dim=1) / rank * hits).sum(dim=1) / relevant.clamp(min=1)


def reciprocal_rank(hits: Hits, relevant: QueryNumbers) -> PerQuery:
    """1 over the rank of the first right neighbor; 0 where there is none."""
    rank = torch.arange(1, hits.shape[1] + 1, dtype=torch.float64, device=hits.device)
    return (hits / rank).amax(dim=1)


def r_precision(hits: Hits, relevant: QueryNumbers) -> PerQuery:
    """Share of the first R neighbors that are right, r/R (Musgrave et al. 2020); 0 where R = 0."""
    return _within(hits, relevant).sum(dim=1) / relevant.clamp(min=1).double()


def map_at_r(hits: Hits, relevant: QueryNumbers) -> PerQuery:
    """Mean average precision at R: R-precision that rewards order as well; 0 where R = 0.

        MAP@R = 1/R Σ_{i=1}^{R} P(i),   P(i) = precision at i if the i-th neighbor is right, else 0

    defined in Musgrave et al. 2020, "A Metric Learning Reality Check".

    >>> map_at_r(torch.tensor([[True, False, True]]), torch.tensor([3])).item()  # (1/1 + 2/3) / 3
    0.5555555555555555
    """
    return mean_precision(_within(hits, relevant), relevant)


def _within(hits: Tensor, relevant: Tensor) -> Tensor:
    """The hits at ranks 1 .. R of each query; ranks beyond the largest R are cut off."""
    most = int(relevant.max()) if len(relevant) else 0
    return hits[:, :most] & (torch.arange(most, device=hits.device) < relevant.unsqueeze(1))


_SCORES = {
    "map@r": map_at_r,
    "r_precision": r_precision,
    "map": mean_precision,
    "mrr": reciprocal_rank,
}


def reidentify(
    embeddings: Float[Tensor, "q d"],
    labels: QueryNumbers,
    cameras: QueryNumbers,
    *,
    gallery: Float[Tensor, "g d"],
    gallery_labels: Int[Tensor, "g"],
    gallery_cameras: Int[Tensor, "g"],
    ranks: Sequence[int] = (1, 5, 10),
    metric: Metric = "euclidean",
) -> dict[str, float]:
    """``map`` and ``cmc@rank`` of queries in a gallery, from the whole ranking of each query, chunk
    by chunk (Zheng et al. 2015, Market-1501).

    A gallery row of the query's identity seen by the query's own camera is junk: it is taken out of
    the query's ranking, neither right nor wrong. Rows that no query may meet at all (Market-1501's
    identity -1) are to be left out of the gallery beforehand. Queries whose identity no other
    camera saw have nothing to find and are left out of the means, as in the Market-1501 protocol.

    Differs: the Market-1501 MATLAB code averages the precisions just before and at each hit (a
        trapezoid), which gives slightly other values; later evaluation codes do as this one.
    """
    rankings = Gallery.of(embeddings, gallery, metric).search(embeddings, len(gallery))
    labels, cameras, gallery_labels, gallery_cameras = (
        column.to(embeddings.device)
        for column in (labels, cameras, gallery_labels, gallery_cameras)
    )
    totals = dict.fromkeys(("map", *(f"cmc@{rank}" for rank in ranks)), 0.0)
    answerable = 0
    for chunk in rankings:
        part = slice(chunk.start, chunk.start + len(chunk.ids))
        same = right(chunk.ids, labels[part], gallery_labels)
        junk = same & (gallery_cameras[chunk.ids] == cameras[part].unsqueeze(1))
        hits = same & ~junk
        hits = hits.gather(1, junk.to(torch.uint8).argsort(dim=1, stable=True))  # junk comes last
        hits = hits[hits.any(dim=1)]
        for name in totals:
            totals[name] += float(query_score(name, hits, hits.sum(dim=1)).sum())
        answerable += len(hits)
    if not answerable:
        raise DataError(
            f"re-identification needs queries that another camera saw, got {len(labels)} queries "
            "without a gallery row of their identity from another camera. Check the labels and "
            "cameras."
        )
    return {name: total / answerable for name, total in totals.items()}
