"""Near duplicates: things so near one another that they may be the same; nothing is ever removed here."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.neighbors import require_finite
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
        distances: between the two.
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
    most: int = MOST_PAIRS,
    progress: Callable[[int], None] = lambda done: None,
) -> Pairs:
    """Find the pairs of rows with at most this distance, exactly: float32 proposes, float64 decides.

    Args:
        rows: may be memory-mapped; some are read at a time.
        distance: 0 or more; 0 finds equal rows.
        most: more pairs than that raise a DataError, because then the distance is too large for near rows.
        progress: told how many rows have met all rows after them.
    """
    if not 0 <= distance < np.inf:
        raise ConfigError(f"pairs are sought within a distance of 0 or more; got distance = {distance}.")
    found, count = [Pairs(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0))], 0
    for top in range(0, len(rows), _BLOCK):
        block = _rows(rows, top, _BLOCK)
        for start in range(top, len(rows), _WIDTH):
            found.append(_within(block, _rows(rows, start, _WIDTH), top, start, distance))
            count += len(found[-1])
            if count > most:
                raise DataError(
                    f"within a distance of {distance:g} lie more than {most:,} pairs of {len(rows):,} rows. "
                    f"Ask for a smaller distance."
                )
        progress(min(top + _BLOCK, len(rows)))
    left, right = (np.concatenate([getattr(part, side) for part in found]) for side in ("left", "right"))
    order = np.lexsort((right, left))
    return Pairs(left[order], right[order], np.concatenate([part.distances for part in found])[order])


def _rows(rows: np.ndarray, start: int, count: int) -> Float[Tensor, "b d"]:
    block = torch.from_numpy(np.array(rows[start : start + count], dtype=np.float32))  # a copy, out of the memory map
    require_finite(block, f"vectors from row {start}")
    return block


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


def connected(count: int, left: np.ndarray, right: np.ndarray) -> Int64[np.ndarray, "n"]:
    """Number the connected components of ``count`` rows that these pairs link."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    links = coo_matrix((np.ones(len(left)), (left, right)), shape=(count, count))
    return np.asarray(connected_components(links, directed=False)[1], dtype=np.int64)


@dataclass(frozen=True)
class Duplicates:
    """What was found within a distance.

    Attributes:
        groups: rows that are linked by distances within it, directly or through others, ascending, and the distance of
            each to the nearest other of its group; surest group first: by the distance of its nearest two.
        pairs: of rows within the distance.
    """

    groups: list[tuple[list[int], list[float]]]
    pairs: int


def near_duplicates(
    vectors: Float[np.ndarray, "n d"], distance: float, *, progress: Callable[[int], None] = lambda done: None
) -> Duplicates:
    """Find groups of rows that are linked by distances of at most ``distance``; 0 finds equal rows.

    Rows are compared a block at a time, so memory holds what is near and not a table of all pairs.
    """
    pairs = close_pairs(vectors, distance, progress=progress)
    nearest = np.full(len(vectors), np.inf)
    for side in (pairs.left, pairs.right):
        np.minimum.at(nearest, side, pairs.distances)
    component = connected(len(vectors), pairs.left, pairs.right)
    rows = np.flatnonzero(np.isfinite(nearest))
    rows = rows[np.argsort(component[rows], kind="stable")]
    parts = np.split(rows, np.flatnonzero(np.diff(component[rows])) + 1) if len(rows) else []
    groups = [(part.tolist(), nearest[part].tolist()) for part in parts]
    return Duplicates(sorted(groups, key=lambda group: (min(group[1]), group[0])), len(pairs))


def duplicate_contents(snapshot: Snapshot, found: Duplicates, near: Threshold) -> Contents:
    """The page of near duplicates: surest group first; groups whose labels differ are marked."""
    groups = []
    for number, (rows, nearest) in enumerate(found.groups, 1):
        labels = sorted({label for row in rows if (label := snapshot.items()[row].label) is not None})
        more = ", ..." if len(labels) > 4 else ""
        warning = f"labels differ: {', '.join(labels[:4])}{more}" if len(labels) > 1 else ""
        groups.append(Group(number, rows, nearest, f"Group {number}: {len(rows):,} things", warning))
    facts = [
        ("groups", f"{len(groups):,}"),
        ("things in them", f"{sum(len(group.rows) for group in groups):,}"),
        ("distance", f"{near.distance:.4g}"),
    ]
    if disagreeing := sum(bool(group.warning) for group in groups):
        facts.append(("groups with different labels", f"{disagreeing:,}"))
    lead = [near.words]
    if near.false_match is not None:
        compared = len(snapshot) * (len(snapshot) - 1) // 2
        lead.append(
            f"{compared:,} pairs were compared and {found.pairs:,} lie within the distance; at that rate up to "
            f"about {near.false_match * compared:,.0f} of these only look alike."
        )
    lead.append("Nothing was removed. The number below a picture is its distance to the nearest other of its group.")
    return Contents("Near duplicates", facts, lead, groups, _SHOWN, "No two things lie within the distance.")
