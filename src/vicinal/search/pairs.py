"""All pairs of rows that lie within a distance, without a table of all pairs."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from vicinal.errors import ConfigError, DataError
from vicinal.index.exact import Metric, require_finite

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
    """The pairs of rows with at most this distance, exactly: a float32 product proposes, float64 differences decide.

    Args:
        rows: may be memory-mapped; some are read at a time.
        distance: 0 or more, in the units of the metric; 0 finds equal rows.
        metric: ``"cosine"`` compares directions: 1 - cosine similarity.
        most: more pairs than that are refused, because then the distance is too large for near rows.
        progress: told how many rows have met all rows after them.
    """
    if not 0 <= distance < np.inf:
        raise ConfigError(f"pairs are sought within a distance of 0 or more, but distance = {distance} came.")
    limit = euclidean(distance, metric)
    found: list[Pairs] = []
    count = 0
    for top in range(0, len(rows), _BLOCK):
        left = _rows(rows, top, _BLOCK, metric)
        for start in range(top, len(rows), _WIDTH):
            pairs = _within(left, _rows(rows, start, _WIDTH, metric), top, start, limit)
            count += len(pairs)
            if count > most:
                raise DataError(
                    f"near rows were sought within a distance of {distance:g}, but more than {most:,} pairs of "
                    f"{len(rows):,} rows lie within it. Ask for a smaller distance."
                )
            found.append(pairs)
        if progress is not None:
            progress(min(top + _BLOCK, len(rows)))
    return _sorted(found, metric)


def euclidean(distance: float, metric: Metric) -> float:
    """The same distance between rows of length 1, as Euclidean: |a - b|² = 2 (1 - cos).

    >>> euclidean(0.5, "cosine"), euclidean(0.5, "euclidean")
    (1.0, 0.5)
    """
    return float(np.sqrt(2 * distance)) if metric == "cosine" else distance


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


def _sorted(found: list[Pairs], metric: Metric) -> Pairs:
    empty = Pairs(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0))
    parts = [empty, *found]
    left, right = (np.concatenate([getattr(part, side) for part in parts]) for side in ("left", "right"))
    distances = np.concatenate([part.distances for part in parts])
    order = np.lexsort((right, left))
    scaled = distances**2 / 2 if metric == "cosine" else distances
    return Pairs(left[order], right[order], scaled[order])
