"""The map of a collection: where its items lie in the plane, computed once per generation and kept
beside it."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64

from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.projection import tsne
from vicinal.files import read_arrays, write_arrays, write_atomically
from vicinal.retrieval.collection import Snapshot
from vicinal.retrieval.store import FlatStore

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


def stored_map(snapshot: Snapshot) -> CollectionMap | None:
    """Return the map that was computed for this generation, or None; quick enough for a request."""
    try:
        arrays = read_arrays(_path(snapshot))
        ids, positions = arrays["ids"], arrays["positions"]
    except (FileNotFoundError, DataError, KeyError):
        return None  # a damaged one is as good as none: it is computed again and replaced
    known = {item.id for item in snapshot.items()}
    shaped = ids.dtype == np.int64 and ids.ndim == 1 and positions.shape == (len(ids), 2)
    if (
        not shaped
        or positions.dtype.kind != "f"
        or not np.isfinite(positions).all()
        or not known >= set(ids.tolist())
    ):
        return None
    return CollectionMap(ids, positions)


def collection_map(snapshot: Snapshot) -> CollectionMap:
    """Return the stored map of this generation, computed by t-SNE and stored first where there is
    none.

    Of a collection with more than ``POINTS`` items a random part is shown, always the same. The
    rows are brought to 50 principal components first, which takes out noise and makes the search
    for neighbors quick. Of more than ``LANDMARKS`` rows a random part is projected, and the others
    are placed among their nearest of these.
    """
    found = stored_map(snapshot)
    if found is not None:
        return found
    drawn = np.random.default_rng(0).permutation(len(snapshot))[:POINTS]
    landmarks, others, chosen = (
        np.sort(drawn[:LANDMARKS]),
        np.sort(drawn[LANDMARKS:]),
        np.sort(drawn),
    )
    ids = np.array([snapshot.items()[row].id for row in chosen.tolist()], dtype=np.int64)
    projected = tsne(
        torch.from_numpy(principal_components(np.asarray(snapshot.vectors()[landmarks]))), seed=0
    ).numpy()
    positions = np.empty((len(chosen), 2), np.float32)
    positions[np.searchsorted(chosen, landmarks)] = projected
    positions[np.searchsorted(chosen, others)] = _placed(snapshot, others, landmarks, projected)
    # Without the folder two newer generations have been written meanwhile, and this one removed; a
    # disk that is full or read-only costs the next start its time, not this one its map.
    if snapshot.folder.is_dir():
        with suppress(OSError):
            write_arrays(_path(snapshot), {"ids": ids, "positions": positions})
    return CollectionMap(ids, positions)


def _placed(
    snapshot: Snapshot,
    rows: Int64[np.ndarray, "m"],
    landmarks: Int64[np.ndarray, "l"],
    at: Float[np.ndarray, "l 2"],
) -> Float32[np.ndarray, "m 2"]:
    """Place rows at the mean of their three nearest landmarks, the nearer the heavier."""
    vectors = snapshot.vectors()
    store, found = (
        FlatStore(np.asarray(vectors[landmarks]), metric=snapshot.metric),
        [np.empty((0, 2), np.float32)],
    )
    for start in range(0, len(rows), LANDMARKS):
        near = store.search(
            np.asarray(vectors[rows[start : start + LANDMARKS]]), min(3, len(landmarks))
        )
        weights = 1 / np.maximum(near.distances, 1e-6)  # a copy of a landmark lies where that does
        weights /= weights.sum(axis=1, keepdims=True)
        found.append((weights[:, :, None] * at[near.ids]).sum(axis=1).astype(np.float32))
    return np.concatenate(found)


def write_parquet(snapshot: Snapshot, path: Path, groups: Mapping[int, int], *, k: int = 10) -> int:
    """Write the map as Parquet that embedding-atlas opens; return the number of rows.

    Columns: ``id``, ``path``, ``label``, ``text`` (label and path), ``x``, ``y``, ``neighbors``
    (``{"ids": [...], "distances": [...]}``, ids counting the rows of this file, as embedding-atlas
    documents them) and, where given, ``group``.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(
            "writing Parquet needs pyarrow: `pip install 'vicinal[parquet]'`."
        ) from error
    found = collection_map(snapshot)
    items = [snapshot.item(id) for id in found.ids.tolist()]
    rows = np.searchsorted([item.id for item in snapshot.items()], found.ids)
    vectors = np.asarray(snapshot.vectors()[rows])
    store, neighbors = FlatStore(vectors, metric=snapshot.metric), list[dict[str, list[Any]]]()
    for start in range(0, len(rows), LANDMARKS):
        near = store.search(vectors[start : start + LANDMARKS], min(k + 1, len(rows)))
        for row, (ids, distances) in enumerate(zip(near.ids, near.distances, strict=True), start):
            others = np.flatnonzero(ids != row)[:k]  # without itself
            neighbors.append({"ids": ids[others].tolist(), "distances": distances[others].tolist()})

    def readable(words: Iterable[str | None]) -> list[str | None]:
        return [None if word is None else word.encode(errors="replace").decode() for word in words]

    columns: dict[str, Any] = {
        "id": found.ids,
        "path": readable(item.path for item in items),
        "label": pa.array(readable(item.label for item in items), pa.string()),
        "text": readable(f"{item.label or ''} {item.path}".strip() for item in items),
        "x": found.positions[:, 0],
        "y": found.positions[:, 1],
        "neighbors": pa.array(
            neighbors, pa.struct({"ids": pa.list_(pa.int64()), "distances": pa.list_(pa.float32())})
        ),
        "group": pa.array([groups.get(item.id) for item in items], pa.int64()),
    }
    write_atomically(path, lambda file: parquet.write_table(pa.table(columns), file))
    return len(rows)


def principal_components(rows: Float[np.ndarray, "n d"]) -> Float32[np.ndarray, "n c"]:
    """Project rows on the directions in which they vary most; distances among these are nearly
    those of the rows."""
    if min(rows.shape) <= 1 or bool(
        (rows == rows[0]).all()
    ):  # nothing varies, or there is one direction only
        return np.asarray(rows[:, :COMPONENTS], dtype=np.float32)
    from sklearn.decomposition import PCA

    components = min(COMPONENTS, *rows.shape)
    # Exact and without chance, also where the rows are many: from the covariance, which is only d x
    # d.
    solver = "covariance_eigh" if rows.shape[0] >= rows.shape[1] else "full"
    found = PCA(components, svd_solver=solver).fit_transform(np.asarray(rows, dtype=np.float64))
    return np.asarray(found, dtype=np.float32)


def _path(snapshot: Snapshot) -> Path:
    return snapshot.folder / "map-t-sne.npz"
