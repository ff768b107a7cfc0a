"""Re-identification scores, mAP and CMC, with same-camera exclusion (Zheng et al. 2015,
Market-1501)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vicinal.distances import Metric
from vicinal.errors import DataError
from vicinal.evaluation.neighbors import neighbor_chunks
from vicinal.evaluation.retrieval import mean_precision, recall_at, right


def reidentify(
    embeddings: Float[Tensor, "q d"],
    labels: Int[Tensor, "q"],
    cameras: Int[Tensor, "q"],
    *,
    gallery: Float[Tensor, "g d"],
    gallery_labels: Int[Tensor, "g"],
    gallery_cameras: Int[Tensor, "g"],
    ranks: Sequence[int] = (1, 5, 10),
    metric: Metric = "euclidean",
) -> dict[str, float]:
    """``map`` and ``cmc@rank`` of queries in a gallery, from the whole ranking of each query, chunk
    by chunk.

    A gallery row of the query's identity seen by the query's own camera is junk: it is taken out of
    the query's ranking, neither right nor wrong. Rows that no query may meet at all (Market-1501's
    identity -1) are to be left out of the gallery beforehand. Queries whose identity no other
    camera saw have nothing to find and are left out of the means, as in the Market-1501 protocol.

    Differs: the Market-1501 MATLAB code averages the precisions just before and at each hit (a
        trapezoid), which gives slightly other values; later evaluation codes do as this one.
    """
    rankings = neighbor_chunks(embeddings, len(gallery), gallery=gallery, metric=metric)
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
        totals["map"] += float(mean_precision(hits, hits.sum(dim=1)).sum())
        for rank in ranks:
            totals[f"cmc@{rank}"] += float(recall_at(hits, rank).sum())
        answerable += len(hits)
    if not answerable:
        raise DataError(
            f"re-identification needs queries that another camera saw, got {len(labels)} queries "
            "without a "
            f"gallery row of their identity from another camera. Check the labels and cameras."
        )
    return {name: total / answerable for name, total in totals.items()}
