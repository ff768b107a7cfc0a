"""Near duplicates: things so near one another that they may be the same; nothing is ever removed here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.neighbors import Metric, require_finite
from vicinal.retrieval.calibration import Threshold
from vicinal.retrieval.collection import Snapshot
from vicinal.retrieval.contact_sheets import Contents, Group

_SHOWN = 24  # pictures of a group
MOST_PAIRS = 20_000_000  # found; beyond, the distance is no longer one between near rows
_BLOCK, _WIDTH = 1024, 8192  # rows by rows in one float32 product: 32 MiB
_EXACT = 8192  # pairs at a time whose distance is taken in float64


@dataclass(frozen=True)
class Pairs:
    """Pairs of rows, each once, ``left < right``, by growing ``left``, then ``right``.

    Attributes:
        left: first row of each pair.
        right: second row.
        distances: between the two, in the metric that was asked for.
    """

    left: Int64[np.ndarray, "p"]
    right: Int64[np.ndarray, "p"]
    distances: Float64[np.ndarray, "p"]

    def __len__(self) -> int:
        return len(self.left)


def close_pairs(
    rows: Float[np.ndarray, "n d"],
    distance: float,
    *,
    metric: Metric = "euclidean",
    most: int = MOST_PAIRS,
    progress: Callable[[int], None] | None = None,
) -> Pairs:
    """Find the pairs of rows with at most this distance, exactly: float32 proposes, float64 decides.

    Args:
        rows: may be memory-mapped; some are read at a time.
        distance: 0 or more, in the units of the metric; 0 finds equal rows.
        metric: ``"cosine"`` compares directions: 1 - cosine similarity.
        most: more pairs than that raise a DataError, because then the distance is too large for near rows.
        progress: told how many rows have met all rows after them.
    """
    if not 0 <= distance < np.inf:
        raise ConfigError(f"pairs are sought within a distance of 0 or more; got distance = {distance}.")
    limit = float(np.sqrt(2 * distance)) if metric == "cosine" else distance  # |a - b|² = 2 (1 - cos) at length 1
    found = [Pairs(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0))]
    count = 0
    for top in range(0, len(rows), _BLOCK):
        block = _rows(rows, top, _BLOCK, metric)
        for start in range(top, len(rows), _WIDTH):
            pairs = _within(block, _rows(rows, start, _WIDTH, metric), top, start, limit)
            count += len(pairs)
            if count > most:
                raise DataError(
                    f"within a distance of {distance:g} lie more than {most:,} pairs of {len(rows):,} rows. "
                    f"Ask for a smaller distance."
                )
            found.append(pairs)
        if progress is not None:
            progress(min(top + _BLOCK, len(rows)))
    left, right = (np.concatenate([getattr(part, side) for part in found]) for side in ("left", "right"))
    distances = np.concatenate([part.distances for part in found])
    order = np.lexsort((right, left))
    scaled = distances**2 / 2 if metric == "cosine" else distances
    return Pairs(left[order], right[order], scaled[order])


def _rows(rows: np.ndarray, start: int, count: int, metric: Metric) -> Float[Tensor, "b d"]:
    block = torch.from_numpy(np.array(rows[start : start + count], dtype=np.float32))  # a copy, out of the memory map
    require_finite(block, f"vectors from row {start}")
    return torch.nn.functional.normalize(block, dim=1) if metric == "cosine" else block


def _within(left: Tensor, right: Tensor, top: int, start: int, limit: float) -> Pairs:
    """Pairs of one block, as row numbers; of a block on the diagonal only those above it."""
    squares = [part.square().sum(dim=1) for part in (left, right)]
    values = torch.addmm(squares[1], left, right.T, alpha=-2).add_(squares[0].unsqueeze(1))
    # Higham 2002, Section 3.1: a sum of d products is wrong by at most d u times the sum of their sizes; four such
    # sums at most, and the largest length stands for all.
    longest = max(float(part.max()) for part in squares)
    reach = 4 * (left.shape[1] + 4) * torch.finfo(torch.float32).eps * longest
    first, second = (values <= limit**2 + reach).nonzero(as_tuple=True)
    keep = first + top < second + start
    first, second = first[keep], second[keep]
    exact = [
        (left[a].double() - right[b].double()).norm(dim=1)
        for a, b in zip(torch.split(first, _EXACT), torch.split(second, _EXACT), strict=True)
    ]
    distances = torch.cat(exact) if exact else torch.empty(0, dtype=torch.float64)
    near = distances <= limit
    return Pairs((first[near] + top).numpy(), (second[near] + start).numpy(), distances[near].numpy())


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
    """Find groups of rows that are linked by distances of at most ``distance``.

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


def duplicate_contents(snapshot: Snapshot, found: Duplicates, near: Threshold) -> Contents:
    """The page of near duplicates: surest group first; groups whose labels differ are marked."""
    labels = [item.label for item in snapshot.items()]
    disagreeing = set(found.disagreeing(labels))
    facts = [
        ("groups", f"{len(found.groups):,}"),
        ("things in them", f"{found.rows:,}"),
        ("distance", f"{found.distance:.4g}"),
    ]
    facts += [("groups with different labels", f"{len(disagreeing):,}")] if disagreeing else []
    lead = [near.words]
    if near.false_match is not None:
        lead.append(
            f"{found.compared:,} pairs were compared and {found.pairs:,} lie within the distance; at that rate up to "
            f"about {near.false_match * found.compared:,.0f} of these only look alike."
        )
    lead.append("Nothing was removed. The number below a picture is its distance to the nearest other of its group.")
    groups = []
    for place, group in enumerate(found.groups):
        title = f"Group {place + 1}: {len(group.rows):,} things"
        named = sorted({label for row in group.rows if (label := labels[row]) is not None})
        warning = (
            f"labels differ: {', '.join(named[:4])}{', ...' if len(named) > 4 else ''}" if place in disagreeing else ""
        )
        groups.append(Group(place + 1, group.rows, group.nearest, title, warning))
    return Contents("Near duplicates", facts, lead, groups, _SHOWN, "No two things lie within the distance.")
