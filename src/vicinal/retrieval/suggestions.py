"""What to label next: items of a pool that stand for most of what no label tells yet."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vicinal.distances import Metric
from vicinal.errors import DataError
from vicinal.evaluation.neighbors import neighbors
from vicinal.retrieval.collection import Snapshot
from vicinal.retrieval.items import Rows, Vector, Vectors
from vicinal.retrieval.pages import TILES, Group, Page, as_csv

_REACH = 60  # neighbors that an item can stand for
_PAIRS = 5  # nearest labeled rows of each, by which distances are calibrated


@dataclass(frozen=True)
class Suggestions:
    """Items of a pool to label next, best first.

    Attributes:
        rows: of the pool.
        gains: how many items of the pool each is expected to add to those whose nearest labeled one
            is of their class.
        known: probability that the nearest labeled item, before any of these, has the item's class.
        expected: mean of ``known`` over the pool, before and after.
    """

    rows: Rows
    gains: Vector
    known: Vector
    expected: tuple[float, float]


def suggest(
    pool: Vectors, vectors: Vectors, labels: Rows, k: int, *, metric: Metric = "euclidean"
) -> Suggestions:
    """Choose the items of a pool whose labels would let most of the pool find its class at the
    nearest labeled item.

        F(S) = Σ_j max_{i ∈ S} p(d_ij)

    p is the probability that two items at a distance are of one class, by logistic regression on
    the labeled rows and their nearest. F, the expected number of hits at rank 1, is monotone and
    submodular, so that taking the largest gain each time reaches 1 - 1/e of the best (Nemhauser,
    Wolsey and Fisher 1978). A gain is large where the nearest label is far (uncertainty), many
    others are near, and nothing chosen before is (diversity).

    Args:
        pool: vectors without labels.
        vectors: the labeled ones.
        labels: their classes.
        k: how many to choose.
        metric: by which vectors are near.

    >>> line = np.array([[0.0], [0.1], [5.0], [5.1], [5.2]], dtype=np.float32)
    >>> known = np.array([[0.0], [0.2], [20.0], [20.2]], dtype=np.float32)
    >>> suggest(line, known, np.array([0, 0, 1, 1]), 1).rows.tolist()
    [3]
    """
    from scipy.sparse import csc_matrix

    count = len(pool)
    if not 1 <= k <= count:
        raise DataError(
            f"of {count:,} items in the pool 1 to {count:,} can be chosen; got --k {k}."
        )
    rows = torch.from_numpy(np.array(pool))
    known = torch.from_numpy(np.array(vectors))
    probability = _calibrated(known, torch.from_numpy(np.asarray(labels, np.int64)), metric)
    covered = probability(neighbors(rows, 1, gallery=known, metric=metric).distances[:, 0].numpy())
    before = covered.copy()
    near = neighbors(rows, min(_REACH, max(1, count - 1)), metric=metric)
    ids = np.column_stack([np.arange(count), near.ids.numpy()])
    shares = probability(np.column_stack([np.zeros(count), near.distances.numpy()]))
    there = ids >= 0
    # By candidate, a column each: the rows that have it among their nearest, which need not be its
    # own nearest.
    rows_of = np.nonzero(there)[0]
    reach = csc_matrix((shares[there], (rows_of, ids[there])), shape=(count, count))
    chosen = list[int]()
    gains = list[float]()
    for _ in range(k):
        more = np.maximum(reach.data - covered[reach.indices], 0)
        gain = np.add.reduceat(more, reach.indptr[:-1])
        gain[chosen] = -1
        best = int(gain.argmax())
        chosen.append(best)
        gains.append(float(gain[best]))
        part = slice(reach.indptr[best], reach.indptr[best + 1])
        stands_for = reach.indices[part]
        covered[stands_for] = np.maximum(covered[stands_for], reach.data[part])
    expected = float(before.mean()), float(covered.mean())
    return Suggestions(np.array(chosen), np.array(gains), before[chosen], expected)


def _calibrated(
    vectors: Tensor, labels: Tensor, metric: Metric
) -> Callable[[np.ndarray], np.ndarray]:
    """Fit the probability that two items at a distance are of one class, on labeled rows and their
    nearest."""
    from scipy.special import expit
    from sklearn.linear_model import LogisticRegression

    if len(labels) < 2:
        raise DataError(
            f"distances are calibrated on labeled items; got {len(labels)}. Index some with a "
            "class."
        )
    found = neighbors(vectors, min(_PAIRS, len(labels) - 1), metric=metric)
    same = (labels[found.ids] == labels.unsqueeze(1)).flatten().numpy()
    far = found.distances.flatten().numpy().astype(np.float64)
    unit = float(far.mean()) or 1.0
    # One pair each of which the answer is known, so that few labels, or all of one class, leave a
    # curve.
    far = np.append(far, [0.0, 2 * far.max() + unit]) / unit
    model = LogisticRegression(C=1e4).fit(far[:, None], np.append(same, [True, False]))
    slope = min(float(model.coef_[0, 0]), -1e-6)
    offset = float(model.intercept_[0])
    return lambda distances: np.asarray(expit(slope * distances / unit + offset))


def suggestions_page(pool: Snapshot, known: Snapshot, k: int) -> Page:
    """Choose what to label next, given the labeled items of a collection of the same model.

    The table is ``path,label,known,gain``, best first; labels are for a person to fill in. Paths
    are those of a corrected table, so that the lines can be added to one.
    """
    rows, _, labels = known.labeled()
    chosen = suggest(pool.vectors, known.vectors[rows], labels, k, metric=pool.metric)
    members = chosen.rows.tolist()
    sure = chosen.known.tolist()
    lines = (
        (pool.file_or_name(pool.items[row]), "", f"{share:.4f}", f"{gain:.3f}")
        for row, share, gain in zip(members, sure, chosen.gains.tolist(), strict=True)
    )
    before, after = (f"{share:.1%}" for share in chosen.expected)
    facts = [
        ("to label", f"{k:,}"),
        ("expected hits before", before),
        ("with these labels", after),
    ]
    lead = [
        "A hit is an item of the pool whose nearest labeled one is of its class; probabilities "
        "are calibrated on distances of labeled items.",
        "What adds most hits comes first. The number below a picture is the probability that its "
        "class is known now.",
    ]
    group = Group(members, sure, f"{k:,} items to label")
    table = as_csv(("path", "label", "known", "gain"), lines)
    return Page("What to label next", facts, lead, [group], TILES, table)
