"""Near duplicates: things so near one another that they may be the same; nothing is ever removed here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from vicinal.index.exact import Metric
from vicinal.search.pairs import close_pairs


@dataclass(frozen=True)
class DuplicateGroup:
    """Rows that are linked by distances within the threshold, directly or through others of the group.

    Attributes:
        rows: ascending.
        nearest: distance of each to the nearest other of the group.
    """

    rows: tuple[int, ...]
    nearest: tuple[float, ...]


@dataclass(frozen=True)
class Duplicates:
    """What was found within a distance.

    Attributes:
        distance: up to which things are taken for the same.
        groups: surest first: by the distance of their nearest two.
        compared: pairs of rows that were compared.
        pairs: of these within the distance.
    """

    distance: float
    groups: tuple[DuplicateGroup, ...]
    compared: int
    pairs: int

    @property
    def rows(self) -> int:
        """Rows that have a near duplicate."""
        return sum(len(group.rows) for group in self.groups)

    def disagreeing(self, labels: Sequence[str | None]) -> list[int]:
        """Positions of the groups whose members bear different labels: a label may be wrong there."""
        known = [{labels[row] for row in group.rows} - {None} for group in self.groups]
        return [place for place, names in enumerate(known) if len(names) > 1]


def near_duplicates(
    vectors: Float[np.ndarray, "n d"],
    distance: float,
    *,
    metric: Metric = "euclidean",
    progress: Callable[[int], None] | None = None,
) -> Duplicates:
    """Groups of rows that are linked by distances of at most ``distance``.

    Rows are compared a block at a time, so memory holds what is near and not a table of all pairs.

    Args:
        vectors: may be memory-mapped.
        distance: in the units of the metric; 0 finds equal rows.
        metric: as in ``close_pairs``.
        progress: told how many rows have met all rows after them.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    count = len(vectors)
    pairs = close_pairs(vectors, distance, metric=metric, progress=progress)
    nearest = np.full(count, np.inf)
    for side in (pairs.left, pairs.right):
        np.minimum.at(nearest, side, pairs.distances)
    links = coo_matrix((np.ones(len(pairs)), (pairs.left, pairs.right)), shape=(count, count))
    _, component = connected_components(links, directed=False)
    rows = np.flatnonzero(np.isfinite(nearest))
    rows = rows[np.argsort(component[rows], kind="stable")]
    borders = np.flatnonzero(np.diff(component[rows])) + 1
    groups = [
        DuplicateGroup(tuple(part.tolist()), tuple(nearest[part].tolist()))
        for part in np.split(rows, borders)
        if part.size
    ]
    groups.sort(key=lambda group: (min(group.nearest), group.rows))
    return Duplicates(distance, tuple(groups), count * (count - 1) // 2, len(pairs))
