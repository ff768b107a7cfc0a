"""Who is similar to whom: samples sorted by class, so that a class is a slice and everything else is dissimilar."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vicinal.errors import ConfigError, DataError

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.intp]

_BLOCK = 2**19  # distances held at once: 4 MiB of float64, well inside a last-level cache


@dataclass(frozen=True)
class Group:
    """The samples of one class.

    Attributes:
        start: position of its first sample.
        stop: position behind its last one.
        similar: positions of each sample's similar ones, one row per sample; None for the whole class but itself.
    """

    start: int
    stop: int
    similar: Positions | None

    @property
    def similar_count(self) -> int:
        """|S_i|, the same for all samples of a class."""
        return self.stop - self.start - 1 if self.similar is None else self.similar.shape[1]


class Piece(NamedTuple):
    """Queries ``start`` to ``stop`` of one class."""

    group: Group
    start: int
    stop: int


@dataclass(frozen=True)
class Neighbourhoods:
    """The similar set S_i and the dissimilar set D_i of every sample (Song et al., Section 3.1).

    D_i holds all samples of other classes. A sample alone in its class has no similar one: it is a dissimilar sample
    for the others, but asks nothing itself.

    Attributes:
        samples: rows sorted by class, about their mean (no distance depends on it, and rounding is least there).
        groups: the classes with at least two samples.
        queries: number of samples in these.
    """

    samples: Array
    groups: tuple[Group, ...]
    queries: int

    @classmethod
    def among(cls, samples: Array, labels: npt.NDArray[Any], nearest: int | None) -> "Neighbourhoods":
        """Sets by label.

        Args:
            samples: rows, one per sample.
            labels: class of each sample.
            nearest: how many same-class samples, nearest in the samples' own Euclidean metric, are similar; None for
                all. A class with fewer gives all it has.
        """
        names, counts = np.unique(labels, return_counts=True)
        require_classes(names)
        if counts.max() < 2:
            raise DataError(
                f"similar samples are two of one class, but each of the {len(names)} classes in y has 1 sample only. "
                f"If y holds a quantity instead of classes, bin it first."
            )
        if nearest is not None and nearest < 1:
            raise ConfigError(f"a similar set holds at least 1 sample, but n_similar = {nearest} was asked for.")
        ordered = samples[np.argsort(labels, kind="stable")]
        ordered = ordered - ordered.mean(axis=0)
        stops = np.cumsum(counts).tolist()
        groups = tuple(
            Group(stop - count, stop, _nearest(ordered[stop - count : stop], nearest, stop - count))
            for stop, count in zip(stops, counts.tolist(), strict=True)
            if count > 1
        )
        return cls(ordered, groups, sum(group.stop - group.start for group in groups))

    def seen_through(self, map: Array) -> "Neighbourhoods":
        """The same sets with samples x ↦ x · map."""
        return Neighbourhoods(self.samples @ map, self.groups, self.queries)

    def blocks(self) -> Iterator[tuple[int, list[Piece]]]:
        """Runs of samples with few enough distances to hold at once: where each starts, and its queries by class."""
        step = max(1, _BLOCK // len(self.samples))
        for start in range(0, len(self.samples), step):
            stop = min(start + step, len(self.samples))
            pieces = [
                Piece(group, max(start, group.start), min(stop, group.stop))
                for group in self.groups
                if group.start < stop and start < group.stop
            ]
            if pieces:
                yield start, pieces

    def similar_scatter(self) -> Array:
        """C with Ω(M) = tr(M C): the mean over queries of the mean of (x_i - x_j)(x_i - x_j)ᵀ over S_i.

        Ω(M) = 1/(N |S_i|) Σ_i Σ_{j ∈ S_i} d_M(x_i, x_j)                      Song et al., Section 7.1.1
        """
        scatter = np.zeros((self.samples.shape[1], self.samples.shape[1]))
        for group in self.groups:
            own = self.samples[group.start : group.stop]
            if group.similar is None:
                centred = own - own.mean(axis=0)
                scatter += 2 * len(own) / (len(own) - 1) * (centred.T @ centred)  # each unordered pair counts twice
                continue
            for column in group.similar.T:
                offsets = own - self.samples[column]
                scatter += offsets.T @ offsets / group.similar.shape[1]
        return scatter / self.queries


def _nearest(own: Array, nearest: int | None, start: int) -> Positions | None:
    if nearest is None or nearest >= len(own) - 1:
        return None
    from sklearn.neighbors import NearestNeighbors

    found = NearestNeighbors(n_neighbors=nearest).fit(own).kneighbors(return_distance=False)  # leaves out itself
    return np.asarray(found, dtype=np.intp) + start


def require_classes(names: npt.NDArray[Any]) -> None:
    """Refuse labels that name one class only."""
    if len(names) < 2:
        raise DataError(
            f"a metric that tells classes apart needs samples of at least 2 classes, but y holds only 1 class: "
            f"{names.tolist()}. Add samples of another class."
        )
