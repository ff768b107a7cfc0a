"""Verification scores: is this pair the same? TAR at a given FAR, and the equal error rate.

A pair is accepted if its distance is at most a threshold t. FAR(t) is the share of different pairs
accepted, TAR(t) that of same pairs, FRR = 1 - TAR. TAR at FAR f is the largest TAR of all
thresholds with FAR(t) <= f. The equal error rate is where the line through the points (FAR, FRR) of
all thresholds meets FAR = FRR.

Everything follows from the sorted float32 distances of same and of different pairs.
"""

from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from operator import ge
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.neighbors import require_finite
from vicinal.evaluation.retrieval import Same, together

_BINS = 2**16  # of distance
_TILE = 2048  # rows and columns of pairs at a time: float64 tiles of 32 MiB


def verification_scores(
    distances: Float[Tensor, "p"], same: Bool[Tensor, "p"], *, fars: Sequence[float] = (1e-3,)
) -> dict[str, float]:
    """``tar@far=f`` for each f, and ``eer``, of explicit pairs by their distances in float32.

    >>> distances = torch.tensor([0.1, 0.2, 0.9, 0.5, 1.0, 1.1, 1.2])
    >>> verification_scores(distances, torch.tensor([True] * 3 + [False] * 4), fars=[0.25])
    {'tar@far=0.25': 1.0, 'eer': 0.25}
    """
    if not bool((distances >= 0).all()) or not bool(distances.isfinite().all()):
        raise DataError(
            f"distances of pairs must be finite and not negative, got {float(distances.min())} to "
            f"{float(distances.max())}. Of a similarity up to 1, pass 1 - similarity."
        )
    distances = distances.float()
    return _scores([distances[same].cpu()], [distances[~same].cpu()], fars)


def verify(
    embeddings: Float[Tensor, "q d"],
    labels: Shaped[Tensor, "q *c"],
    *,
    gallery: Float[Tensor, "g d"] | None = None,
    gallery_labels: Shaped[Tensor, "g *c"] | None = None,
    fars: Sequence[float] = (1e-3,),
    same: Same = None,
) -> dict[str, float]:
    """``tar@far=f`` for each f, and ``eer``, over all pairs of rows (or of query and gallery) by
    Euclidean distance.

    Scale the rows to length 1 beforehand for cosine. Distances are taken in float64 about the mean,
    tile by tile, and kept as float32, four bytes a pair. ``same`` compares labels in place of
    equality.
    """
    if (gallery is None) != (gallery_labels is None):
        raise ConfigError(
            "a gallery comes with its labels, got one without the other. Pass both or neither."
        )
    require_finite(embeddings, "embeddings")
    columns, column_labels = embeddings, labels
    if gallery is not None and gallery_labels is not None:
        require_finite(gallery, "gallery")
        columns, column_labels = gallery, gallery_labels
    center = columns.mean(dim=0, dtype=torch.float64)
    near = list[Tensor]()
    apart = list[Tensor]()
    for top in range(0, len(embeddings), _TILE):
        left = embeddings[top : top + _TILE].detach().double() - center
        classes = labels[top : top + _TILE]
        for start in range(top if gallery is None else 0, len(columns), _TILE):
            right = columns[start : start + _TILE].detach().double() - center
            distances = torch.cdist(left, right, compute_mode="use_mm_for_euclid_dist").float()
            alike = together(classes, column_labels[start : start + _TILE], same)
            once = torch.ones_like(alike)
            if gallery is None and start == top:
                once = once.triu(1)
            near.append(distances[once & alike].cpu())
            apart.append(distances[once & ~alike].cpu())
    return _scores(near, apart, fars)


def _scores(
    near: Sequence[Tensor], apart: Sequence[Tensor], fars: Sequence[float]
) -> dict[str, float]:
    same, different = (np.sort(torch.cat([*part]).numpy()) for part in (near, apart))
    if not len(different) or not len(same):
        raise DataError(
            f"verification needs pairs of both kinds, got {len(same)} same and {len(different)} "
            "different pairs. Pass at least two classes, one of them with two rows."
        )
    scores = {}
    for far in fars:
        if not 1 / len(different) <= far < 1:
            raise ConfigError(
                f"with {len(different)} different pairs a FAR is at least 1/{len(different)} = "
                f"{1 / len(different):.2g} and below 1, "
                f"got {far:g}. Ask for a FAR in between, or pass more pairs."
            )
        # The first threshold that accepts too many is one too far. As printed: 0.29 of 100 is 29.
        beyond = different[int(Fraction(str(far)) * len(different))]
        scores[f"tar@far={far:g}"] = float(np.searchsorted(same, beyond) / len(same))

    def rates(threshold: np.float32, side: Literal["left", "right"]) -> tuple[float, float]:
        """FAR and FRR where distances below the threshold are accepted, or with it."""
        far, tar = (
            np.searchsorted(part, threshold, side) / len(part) for part in (different, same)
        )
        return float(far), float(1 - tar)

    # FAR rises and FRR falls: the least distance of either kind at which they have met.
    first = [
        part[bisect_left(part, True, key=lambda at: ge(*rates(at, "right"))) :][:1]
        for part in (different, same)
    ]
    threshold = np.concatenate(first).min()
    far0, frr0 = rates(threshold, "left")
    far1, frr1 = rates(threshold, "right")
    before = frr0 - far0
    scores["eer"] = far0 + (far1 - far0) * before / (before + far1 - frr1)
    return scores


def pairs_by_distance(
    queries: Float[Tensor, "n d"],
    labels: Shaped[Tensor, "n *c"],
    gallery: Float[Tensor, "g d"] | None = None,
    gallery_labels: Shaped[Tensor, "g *c"] | None = None,
) -> tuple[float, Int[np.ndarray, "bins"], Int[np.ndarray, "bins"]]:
    """Count pairs of different and of equal labels in fine bins of Euclidean distance, each once;
    with a gallery those of a query and a row of it.

    Returns:
        the width of a bin; different and equal pairs in each.
    """
    held = queries if gallery is None else gallery
    distances = torch.cdist(
        queries.double(), held.double(), compute_mode="donot_use_mm_for_euclid_dist"
    )
    same = together(labels, labels if gallery_labels is None else gallery_labels)
    once = torch.ones_like(same)
    if gallery is None:
        once = once.triu(1)
    width = float(distances.max()) * (1 + 1e-9) / _BINS or 1.0
    different, equal = (
        torch.bincount((distances[once & kind] / width).long(), minlength=_BINS).numpy()
        for kind in (~same, same)
    )
    return width, different, equal
