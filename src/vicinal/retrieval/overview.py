"""A collection as a whole: its map, where items lie in the plane, and groups by k-means."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import torch

from vicinal.errors import DataError
from vicinal.evaluation.artifacts import tsne
from vicinal.evaluation.clustering import kmeans
from vicinal.evaluation.neighbors import neighbors
from vicinal.files import read_arrays, write_arrays
from vicinal.retrieval.collection import Snapshot, drawn
from vicinal.retrieval.items import Rows, Vectors
from vicinal.retrieval.pages import Group, Page

NAME = "map-t-sne.npz"
POINTS = 100_000  # that a browser draws smoothly
LANDMARKS = 10_000  # t-SNE takes a minute or two for these on two cores
COMPONENTS = 50  # of PCA before it, as van der Maaten and Hinton 2008 (Section 4.2) use 30
SAMPLE = 2000  # rows on which numbers of groups are compared: silhouettes need all their distances
_SHOWN = 18  # pictures of a group, the nearest its mean
_NEARLY = 0.75  # of the best silhouette; see `chosen_count`
_MOST_TRIED = 512  # groups; a sample has too few rows for each of more


# -- map ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CollectionMap:
    """Places of items in the plane; neighbors there are mostly neighbors in the embedding,
    distances mean nothing.

    Attributes:
        ids: of the items shown, ascending: all, or a random part of a larger collection.
        positions: where each lies.
    """

    ids: Rows
    positions: Vectors


def collection_map(snapshot: Snapshot) -> CollectionMap:
    """Return the map of this generation, computed by t-SNE and stored first where there is none.

    Of a collection with more than ``POINTS`` items a random part is shown, always the same. The
    rows are brought to 50 principal components first, which takes out noise and makes the search
    for neighbors quick. Of more than ``LANDMARKS`` rows a random part is projected, and the others
    are placed among their nearest of these.
    """
    file = snapshot.folder / NAME
    with suppress(FileNotFoundError, DataError):
        return CollectionMap(**read_arrays(file))
    shown = drawn(len(snapshot), POINTS)
    landmarks = np.sort(shown[:LANDMARKS])
    rows = np.sort(shown)
    marks = snapshot.vectors[landmarks]
    projected = tsne(torch.from_numpy(principal_components(marks)), seed=0).numpy()
    if len(rows) > len(landmarks):
        rest = torch.from_numpy(snapshot.vectors[rows])
        gallery = torch.from_numpy(marks)
        near = neighbors(rest, min(3, len(marks)), gallery=gallery, metric=snapshot.metric)
        # A landmark, or a copy of one, lies where that does.
        weights = 1 / near.distances.numpy().clip(min=1e-6)
        weights /= weights.sum(axis=1, keepdims=True)
        projected = (weights[:, :, None] * projected[near.ids.numpy()]).sum(axis=1)
    ids = np.array([item.id for item in snapshot.items], dtype=np.int64)[rows]
    found = CollectionMap(ids, projected.astype(np.float32))
    # Without the folder two newer generations have been written meanwhile, and this one removed; a
    # disk that is full or read-only costs the next start its time, not this one its map.
    if snapshot.folder.is_dir():
        with suppress(OSError):
            write_arrays(file, vars(found))
    return found


def principal_components(rows: Vectors) -> Vectors:
    """Project rows on the directions in which they vary most; distances among these are nearly
    those of the rows."""
    from sklearn.decomposition import PCA

    if len(rows) < 2 or (rows == rows[0]).all():  # nothing varies
        return np.asarray(rows[:, :COMPONENTS], dtype=np.float32)
    # Exact and without chance, also where the rows are many.
    solver = "covariance_eigh" if rows.shape[0] >= rows.shape[1] else "full"
    found = PCA(min(COMPONENTS, *rows.shape), svd_solver=solver).fit_transform(rows.astype(float))
    return np.asarray(found, dtype=np.float32)


# -- groups ---------------------------------------------------------------------------------------


def cluster(
    vectors: Vectors, groups: int | None = None
) -> tuple[list[tuple[list[int], list[float]]], str]:
    """Group rows that lie near one another by k-means.

    Args:
        vectors: rows to group; may be memory-mapped.
        groups: how many; None chooses the number by silhouette.

    Returns:
        rows of each group, those nearest its mean first, with their distances from it, the largest
        group first; and how they were found, in a sentence.
    """
    count = len(vectors)
    if count < 4:
        raise DataError(f"grouping needs at least 4 items; the collection has {count}. Index more.")
    rows = np.array(vectors, dtype=np.float32)
    groups, reason = chosen_count(rows) if groups is None else (groups, "")
    assigned = kmeans(torch.from_numpy(rows), groups, seed=0).numpy()
    found = list[tuple[list[int], list[float]]]()
    for group in np.unique(assigned):
        members = np.flatnonzero(assigned == group)
        spread = np.linalg.norm(rows[members] - rows[members].mean(axis=0), axis=1)
        order = np.argsort(spread, kind="stable")
        found.append((members[order].tolist(), spread[order].tolist()))
    found.sort(key=lambda each: (-len(each[0]), min(each[0])))
    return found, f"k-means with {groups} groups{reason}."


def chosen_count(rows: Vectors) -> tuple[int, str]:
    """Choose a number of groups by silhouette (Rousseeuw 1987); return also the values compared, in
    words.

    k-means is run on a sample of at most 2,000 rows, on 50 principal components, with 2, 4, 8, ...
    groups, then with numbers around the best. More than 512 groups are not tried: such a number has
    to be named.

    Differs: embeddings of classes that are alike in families often fall apart best in two, which
    says nothing about the classes. So where the silhouette falls from 2 on and rises again to three
    quarters of its largest value or more, the largest after the rise counts.
    ``docs/howto/export.md`` has what this was judged by.
    """
    from sklearn.metrics import silhouette_score

    sample = principal_components(rows[np.sort(drawn(len(rows), SAMPLE))])
    most = min(_MOST_TRIED, len(sample) // 2)

    @cache
    def score(count: int) -> float:
        found = kmeans(torch.from_numpy(sample), count, seed=0, restarts=2).numpy()
        several = 1 < len(np.unique(found)) < len(sample)
        return float(silhouette_score(sample, found)) if several else -1.0

    doubled = {2**power for power in range(1, most.bit_length())} | {most}
    peak = _peak({count: score(count) for count in doubled})
    around = {round(peak * factor) for factor in (0.6, 0.7, 0.85, 1, 1.2, 1.4, 1.7)}
    near = [count for count in sorted(around) if 2 <= count <= most]
    best = max(near, key=score)
    tried = ", ".join(f"{count}: {score(count):.3f}" for count in sorted(doubled.union(near)))
    return best, f", a number chosen by silhouette on {len(sample):,} rows (tried {tried})"


def _peak(scores: Mapping[int, float]) -> int:
    """Return the number with the largest score; where scores fall and rise again nearly as high,
    that after the rise.

    >>> _peak({2: 0.10, 4: 0.08, 8: 0.09, 16: 0.07}), _peak({2: 0.9, 4: 0.5, 8: 0.51})
    (8, 2)
    """
    counts = sorted(scores)
    rises = [high for low, high in pairwise(counts) if scores[high] > scores[low]]
    risen = [count for count in counts if count >= min(rises, default=0)]
    best, later = (max(some, key=scores.__getitem__) for some in (counts, risen))
    return later if scores[later] >= _NEARLY * scores[best] else best


def cluster_page(snapshot: Snapshot, groups: int | None = None) -> Page:
    """Group a collection: largest group first, what is nearest its mean first."""
    found, words = cluster(snapshot.euclidean_vectors(), groups)
    facts = [("groups", f"{len(found):,}"), ("items", f"{len(snapshot):,}")]
    pages = list[Group]()
    for number, (rows, spread) in enumerate(found, 1):
        mostly = _mostly([snapshot.items[row].label for row in rows])
        pages.append(Group(rows, spread, f"Group {number}: {len(rows):,} items{mostly}"))
    caption = (
        "The number below a picture is its distance from the mean of its group; what is "
        "nearest comes first."
    )
    return Page("Groups in the collection", facts, [words, caption], pages, _SHOWN)


def _mostly(labels: Sequence[str | None]) -> str:
    """Return what most of a group are, as words for its title.

    >>> _mostly(["wren", "wren", "robin", None]), _mostly([None])
    (', mostly wren (2 of 3)', '')
    """
    counts = Counter(label for label in labels if label is not None)
    for name, count in counts.most_common(1):
        return f", mostly {name} ({count} of {counts.total()})"
    return ""
