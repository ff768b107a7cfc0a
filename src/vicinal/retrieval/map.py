"""The map of a collection: where its items lie in the plane, computed once per generation and kept beside it."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64

from vicinal.errors import ConfigError, DataError, unknown
from vicinal.evaluation.projection import tsne
from vicinal.files import read_arrays, write_arrays
from vicinal.retrieval.collection import Snapshot

Projection = Literal["t-sne", "umap"]
POINTS = 10_000  # t-SNE takes a minute or two for these on two cores
COMPONENTS = 50  # of PCA before it, as van der Maaten and Hinton 2008 (Section 4.2) use 30


@dataclass(frozen=True)
class CollectionMap:
    """Places of items in the plane; neighbors there are mostly neighbors in the embedding, distances mean nothing.

    Attributes:
        ids: of the items shown, ascending: all, or a random part of a larger collection.
        positions: where each lies.
        projection: how the places were found.
        generation: of the collection they belong to.
    """

    ids: Int64[np.ndarray, "m"]
    positions: Float32[np.ndarray, "m 2"]
    projection: Projection
    generation: int


def stored_map(snapshot: Snapshot, *, projection: Projection = "t-sne") -> CollectionMap | None:
    """Return the map that was computed for this generation, or None; quick enough for a request."""
    try:
        arrays = read_arrays(_path(snapshot, projection))
        ids, positions = arrays["ids"], arrays["positions"]
    except (FileNotFoundError, DataError, KeyError):
        return None  # a damaged one is as good as none: it is computed again and replaced
    known = {item.id for item in snapshot.items()}
    shaped = ids.dtype == np.int64 and ids.ndim == 1 and positions.shape == (len(ids), 2)
    if not shaped or positions.dtype.kind != "f" or not np.isfinite(positions).all() or not known >= set(ids.tolist()):
        return None
    return CollectionMap(ids, positions, projection, snapshot.generation)


def collection_map(
    snapshot: Snapshot, *, projection: Projection = "t-sne", points: int = POINTS, seed: int = 0
) -> CollectionMap:
    """Return the stored map of this generation, computed and stored first where there is none.

    Of a collection with more than ``points`` items a random part is shown, the same for the same seed. The rows are
    brought to 50 principal components first, which takes out noise and makes the search for neighbors quick.

    Args:
        snapshot: the generation to show.
        projection: ``"t-sne"``, or ``"umap"`` where the package umap-learn is installed.
        points: at most so many.
        seed: of the part that is shown and of the projection; a stored map is taken whatever its seed was.
    """
    found = stored_map(snapshot, projection=projection)
    if found is not None:
        return found
    if points < 1:
        raise ConfigError(f"a map shows at least 1 item; got points = {points}.")
    project = _projection(projection)
    chosen = np.sort(np.random.default_rng(seed).permutation(len(snapshot))[:points])
    items = snapshot.items()
    ids = np.array([items[row].id for row in chosen.tolist()], dtype=np.int64)
    positions = project(principal_components(np.asarray(snapshot.vectors()[chosen])), seed)
    if snapshot.folder.is_dir():  # else two newer generations have been written meanwhile, and this one removed
        write_arrays(_path(snapshot, projection), {"ids": ids, "positions": positions})
    return CollectionMap(ids, positions, projection, snapshot.generation)


def principal_components(rows: Float[np.ndarray, "n d"], most: int = COMPONENTS) -> Float32[np.ndarray, "n c"]:
    """Project rows on the directions in which they vary most; distances among these are nearly those of the rows."""
    if min(rows.shape) <= 1 or bool((rows == rows[0]).all()):  # nothing varies, or there is one direction only
        return np.asarray(rows[:, :most], dtype=np.float32)
    from sklearn.decomposition import PCA

    components = min(most, *rows.shape)
    # Exact and without chance, also where the rows are many: from the covariance, which is only d x d.
    solver = "covariance_eigh" if rows.shape[0] >= rows.shape[1] else "full"
    found = PCA(components, svd_solver=solver).fit_transform(np.asarray(rows, dtype=np.float64))
    return np.asarray(found, dtype=np.float32)


def _projection(name: str) -> Callable[[Float32[np.ndarray, "n c"], int], Float32[np.ndarray, "n 2"]]:
    if name == "t-sne":
        return lambda rows, seed: tsne(torch.from_numpy(rows), seed=seed).numpy()
    if name != "umap":
        raise ConfigError(unknown("projection", name, ("t-sne", "umap")))
    try:
        umap: Any = importlib.import_module("umap")
    except ImportError as error:
        raise ConfigError(
            f"a UMAP needs umap-learn, which cannot be imported: {error}. Run `pip install umap-learn`, or use 't-sne'."
        ) from error
    return lambda rows, seed: np.asarray(umap.UMAP(random_state=seed).fit_transform(rows), dtype=np.float32)


def _path(snapshot: Snapshot, projection: str) -> Path:
    return snapshot.folder / f"map-{projection}.npz"
