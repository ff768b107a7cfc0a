"""The map of a collection: where its items lie in the plane, computed once per generation and kept
beside it."""

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64

from vicinal.errors import DataError
from vicinal.evaluation.neighbors import neighbors
from vicinal.evaluation.projection import tsne
from vicinal.files import read_arrays, write_arrays
from vicinal.retrieval.collection import Snapshot

NAME = "map-t-sne.npz"
POINTS = 100_000  # that a browser draws smoothly
LANDMARKS = 10_000  # t-SNE takes a minute or two for these on two cores
COMPONENTS = 50  # of PCA before it, as van der Maaten and Hinton 2008 (Section 4.2) use 30


@dataclass(frozen=True)
class CollectionMap:
    """Places of items in the plane; neighbors there are mostly neighbors in the embedding,
    distances mean nothing.

    Attributes:
        ids: of the items shown, ascending: all, or a random part of a larger collection.
        positions: where each lies.
    """

    ids: Int64[np.ndarray, "m"]
    positions: Float32[np.ndarray, "m 2"]


def collection_map(snapshot: Snapshot) -> CollectionMap:
    """Return the map of this generation, computed by t-SNE and stored first where there is none.

    Of a collection with more than ``POINTS`` items a random part is shown, always the same. The
    rows are brought to 50 principal components first, which takes out noise and makes the search
    for neighbors quick. Of more than ``LANDMARKS`` rows a random part is projected, and the others
    are placed among their nearest of these.
    """
    with suppress(FileNotFoundError, DataError):
        return CollectionMap(**read_arrays(snapshot.folder / NAME))
    drawn = np.random.default_rng(0).permutation(len(snapshot))[:POINTS]
    landmarks = np.sort(drawn[:LANDMARKS])
    rows = np.sort(drawn)
    marks = torch.from_numpy(np.array(snapshot.vectors()[landmarks]))
    projected = tsne(torch.from_numpy(principal_components(marks.numpy())), seed=0).numpy()
    if len(rows) > len(landmarks):
        rest = torch.from_numpy(np.array(snapshot.vectors()[rows]))
        near = neighbors(rest, min(3, len(marks)), gallery=marks, metric=snapshot.metric)
        # A landmark, or a copy of one, lies where that does.
        weights = 1 / near.distances.numpy().clip(min=1e-6)
        weights /= weights.sum(axis=1, keepdims=True)
        projected = (weights[:, :, None] * projected[near.ids.numpy()]).sum(axis=1)
    ids = np.array([item.id for item in snapshot.items()], dtype=np.int64)[rows]
    found = CollectionMap(ids, projected.astype(np.float32))
    # Without the folder two newer generations have been written meanwhile, and this one removed; a
    # disk that is full or read-only costs the next start its time, not this one its map.
    if snapshot.folder.is_dir():
        with suppress(OSError):
            write_arrays(snapshot.folder / NAME, vars(found))
    return found


def principal_components(rows: Float[np.ndarray, "n d"]) -> Float32[np.ndarray, "n c"]:
    """Project rows on the directions in which they vary most; distances among these are nearly
    those of the rows."""
    from sklearn.decomposition import PCA

    if len(rows) < 2 or (rows == rows[0]).all():  # nothing varies
        return np.asarray(rows[:, :COMPONENTS], dtype=np.float32)
    # Exact and without chance, also where the rows are many.
    solver = "covariance_eigh" if rows.shape[0] >= rows.shape[1] else "full"
    found = PCA(min(COMPONENTS, *rows.shape), svd_solver=solver).fit_transform(rows.astype(float))
    return np.asarray(found, dtype=np.float32)
