"""Verification scores: is this pair the same? TAR at a given FAR, and the equal error rate.

A pair is accepted if its distance is at most a threshold t. FAR(t) is the share of different pairs
accepted, TAR(t) that of same pairs, FRR = 1 - TAR. TAR at FAR f is the largest TAR of all
thresholds with FAR(t) <= f. The equal error rate is where the line through the points (FAR, FRR) of
all thresholds meets FAR = FRR.

Everything follows from counts of same and different pairs by distance. Distances are float32, whose
bits, read as an integer, have the order of the numbers as long as these are not negative. So two
passes that count in 65,536 bins, first by the upper 16 bits, then by the lower 16 bits within the
few bins that matter, give the exact answer for any number of pairs in constant memory.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.neighbors import require_finite
from vicinal.evaluation.retrieval import Same

_BINS = 2**16
_TILE = 2048  # rows and columns of pairs at a time: float64 tiles of 32 MiB

Passes = Callable[
    [], Iterable[tuple[Tensor, Tensor]]
]  # each call gives all pairs anew: distances, and whether same
Reached = Callable[
    [Tensor], Tensor
]  # of accepted (different, same) pairs by threshold: which thresholds suffice


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
    return _scores(lambda: [(distances, same)], fars)


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
    tile by tile and once for each of the two passes, and rounded to float32. ``same`` compares
    labels in place of equality.
    """
    if (gallery is None) != (gallery_labels is None):
        raise ConfigError(
            "a gallery comes with its labels, got one without the other. Pass both or neither."
        )
    require_finite(embeddings, "embeddings")
    if gallery is not None:
        require_finite(gallery, "gallery")
    return _scores(
        lambda: _all_pairs(embeddings.detach(), labels, gallery, gallery_labels, same), fars
    )


def _all_pairs(
    rows: Tensor, labels: Tensor, gallery: Tensor | None, gallery_labels: Tensor | None, alike: Same
) -> Iterator[tuple[Tensor, Tensor]]:
    columns, column_labels = (
        (rows, labels) if gallery is None or gallery_labels is None else (gallery, gallery_labels)
    )
    columns, labels, column_labels = (
        part.to(rows.device) for part in (columns.detach(), labels, column_labels)
    )
    center = columns.mean(dim=0, dtype=torch.float64)
    for top in range(0, len(rows), _TILE):
        left = rows[top : top + _TILE].double() - center
        for start in range(top if gallery is None else 0, len(columns), _TILE):
            right = columns[start : start + _TILE].double() - center
            distances = torch.cdist(left, right, compute_mode="use_mm_for_euclid_dist")
            pairs = (
                labels[top : top + _TILE].unsqueeze(1),
                column_labels[start : start + _TILE].unsqueeze(0),
            )
            same = (alike or torch.eq)(*pairs)
            if gallery is None and start == top:
                once = torch.ones_like(same).triu(1)
                yield distances[once], same[once]
            else:
                yield distances.flatten(), same.flatten()


def _scores(passes: Passes, fars: Sequence[float]) -> dict[str, float]:
    none = torch.zeros(2, _BINS, dtype=torch.long)
    upper = sum(
        (_histogram(_bits(distances) >> 16, same) for distances, same in passes()), start=none
    )
    different, same = upper.sum(dim=1).tolist()
    if not different or not same:
        got = (
            f"{same} same and {different} different pairs. Pass at least two classes, one of "
            "them with two rows."
        )
        raise DataError(f"verification needs pairs of both kinds, got {got}")
    for far in fars:
        if not 1 / different <= far < 1:
            raise ConfigError(
                f"with {different} different pairs a FAR is at least 1/{different} = "
                f"{1 / different:.2g} and below 1, "
                f"got {far:g}. Ask for a FAR in between, or pass more pairs."
            )
    criteria = [
        _beyond(int(Fraction(str(far)) * different)) for far in fars
    ]  # as printed: 0.29 of 100 is 29
    criteria.append(_errors_meet(different, same))
    places = [_first(upper, torch.zeros_like(upper[:, 0]), reached) for reached in criteria]
    lower = _lower_counts(passes(), sorted({place for place, _ in places}))
    points = []
    for reached, (place, before) in zip(criteria, places, strict=True):
        value, below = _first(lower[place], before, reached)
        points.append((below.tolist(), (below + lower[place][:, value]).tolist()))

    # The threshold that first accepts too many different pairs is one too far: what lies below it
    # is accepted.
    scores = {
        f"tar@far={far:g}": below[1] / same
        for far, (below, _) in zip(fars, points[:-1], strict=True)
    }
    (far0, tar0), (far1, tar1) = [(point[0] / different, point[1] / same) for point in points[-1]]
    gap0 = (1 - tar0) - far0
    gap1 = far1 - (1 - tar1)
    scores["eer"] = far0 + (far1 - far0) * gap0 / (gap0 + gap1)
    return scores


def _beyond(most: int) -> Reached:
    return lambda accepted: accepted[0] > most


def _errors_meet(different: int, same: int) -> Reached:
    return lambda accepted: accepted[0].double() / different >= 1 - accepted[1].double() / same


def _first(
    counts: Int[Tensor, "2 bins"], before: Int[Tensor, "2"], reached: Reached
) -> tuple[int, Int[Tensor, "2"]]:
    """The first bin at whose end enough is accepted, and what was accepted before it."""
    accepted = before.unsqueeze(1) + counts.cumsum(dim=1)
    place = int(reached(accepted).int().argmax())
    return place, accepted[:, place] - counts[:, place]


def _lower_counts(
    pairs: Iterable[tuple[Tensor, Tensor]], places: Sequence[int]
) -> dict[int, Tensor]:
    """Different and same pairs by the lower 16 bits of their distance, for each of these upper
    ones."""
    totals = {place: torch.zeros(2, _BINS, dtype=torch.long) for place in places}
    for distances, same in pairs:
        bits = _bits(distances)
        for place, total in totals.items():
            here = bits >> 16 == place
            total += _histogram(bits[here] & (_BINS - 1), same[here])
    return totals


def _bits(distances: Float[Tensor, "p"]) -> Int[Tensor, "p"]:
    return distances.float().abs().view(torch.int32)  # abs: the bits of -0.0 are negative


def _histogram(keys: Int[Tensor, "p"], same: Bool[Tensor, "p"]) -> Int[Tensor, "2 bins"]:
    """Count different and same pairs by 16 bits of their distance."""
    return torch.bincount(keys + _BINS * same.int(), minlength=2 * _BINS).view(2, _BINS).cpu()
