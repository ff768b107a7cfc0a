"""A collection as a whole: its map, where items lie in the plane, and groups by k-means."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch

from vicinal.errors import ConfigError, DataError
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
_SHOWN = 18  # pictures of a group, the nearest its mean


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
    ids = np.array([snapshot.items[row].id for row in rows], np.int64)
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


def cluster(vectors: Vectors, groups: int) -> list[tuple[list[int], list[float]]]:
    """Group rows, which may be memory-mapped, that lie near one another by k-means.

    Returns:
        rows of each group, those nearest its mean first, with their distances from it; the largest
        group first.
    """
    rows = np.array(vectors, dtype=np.float32)
    assigned = kmeans(torch.from_numpy(rows), groups, seed=0).numpy()
    found = list[tuple[list[int], list[float]]]()
    for group in np.unique(assigned):
        members = np.flatnonzero(assigned == group)
        spread = np.linalg.norm(rows[members] - rows[members].mean(axis=0), axis=1)
        order = np.argsort(spread, kind="stable")
        found.append((members[order].tolist(), spread[order].tolist()))
    return sorted(found, key=lambda each: (-len(each[0]), min(each[0])))


def cluster_page(snapshot: Snapshot, groups: int | None = None) -> Page:
    """Group a collection: largest group first, what is nearest its mean first.

    Args:
        snapshot: the collection.
        groups: how many; None makes as many as there are labels.
    """
    count = len(snapshot.labels()) if groups is None else groups
    if groups is None and not count:
        raise ConfigError(
            "groups are as many as labels, but no item has one. Name a number with --groups."
        )
    found = cluster(snapshot.euclidean_vectors(), count)
    facts = [("groups", f"{len(found):,}"), ("items", f"{len(snapshot):,}")]
    pages = list[Group]()
    for number, (rows, spread) in enumerate(found, 1):
        mostly = _mostly([snapshot.items[row].label for row in rows])
        pages.append(Group(rows, spread, f"Group {number}: {len(rows):,} items{mostly}"))
    caption = (
        f"k-means with {count} groups. The number below a picture is its distance from the mean of "
        "its group; what is nearest comes first."
    )
    return Page("Groups in the collection", facts, [caption], pages, _SHOWN)


def _mostly(labels: Sequence[str | None]) -> str:
    """Return what most of a group are, as words for its title.

    >>> _mostly(["wren", "wren", "robin", None]), _mostly([None])
    (', mostly wren (2 of 3)', '')
    """
    counts = Counter(label for label in labels if label is not None)
    for name, count in counts.most_common(1):
        return f", mostly {name} ({count} of {counts.total()})"
    return ""
