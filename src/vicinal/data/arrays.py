"""Feature vectors with labels: ``.npz`` or Parquet. A backbone has already run; a head is left to train."""

from dataclasses import dataclass
from pathlib import Path
from zipfile import is_zipfile

import numpy as np

from vicinal.data.columns import Columns, read_columns, read_vectors
from vicinal.data.location import existing
from vicinal.data.records import FeatureArray, Records
from vicinal.data.splits import Order, SplitByClass
from vicinal.errors import ConfigError, DataError, unknown
from vicinal.files import read_arrays


@dataclass(frozen=True)
class Arrays(SplitByClass):
    """Feature vectors [n d] with a label each and, where the set brings its own, splits.

    An ``.npz`` holds the arrays ``features`` and ``labels``, and may hold ``splits``, ``names`` and further arrays of n
    numbers, which become columns of the records. A Parquet file holds the same as columns, ``features`` as lists.
    ``label``, ``split`` and ``name`` are understood too.

    Args:
        path: the file; ``$VICINAL_DATA`` and ``~`` are expanded.
        test: share of the classes that are for testing, where there are no splits.
        order: whether those are the last ones of the sorted labels, as in the published zero-shot splits, or drawn.
        seed: of the draw.
        features: name of the array or column of vectors.
        labels: name of the array or column of labels, whole numbers or text.
    """

    order: Order = "sorted"
    features: str = "features"
    labels: str = "labels"

    def load(self, *, strict: bool = True) -> Records:
        """Read the file. With ``strict=False`` NaN and infinite features stay in, for a check that names each row."""
        path = existing(self.path)
        if path.suffix.lower() == ".npz":
            features, columns = _read_npz(path, self.features, self.labels)
        elif path.suffix.lower() == ".parquet":
            features, columns = read_vectors(path, self.features), read_columns(path, without=self.features)
        else:
            raise ConfigError(f"feature vectors come as .npz or .parquet, got {path}. Convert or rename it.")
        if not features.size:
            raise DataError(f"{path} holds no features: their shape is {list(features.shape)}.")
        if features.dtype not in (np.float16, np.float32):
            with np.errstate(over="ignore"):  # what does not fit becomes infinite, which is checked next
                features = features.astype(np.float32)
        infinite = np.flatnonzero(~np.isfinite(features).all(axis=1))
        if strict and len(infinite):
            named = ", ".join(str(columns.lines[row]) for row in infinite[:5]) + (", ..." if len(infinite) > 5 else "")
            raise DataError(
                f"{path}: {len(infinite)} of {len(features)} feature vectors hold NaN or infinite numbers "
                f"(rows {named}). Fix or remove them."
            )
        label, split, name = (_spelling(columns, name) for name in (self.labels, "splits", "names"))
        if not label:
            raise DataError(f"{path}: " + unknown("array of labels", self.labels, columns.cells))
        return self._records(
            path.stem,
            FeatureArray(features, columns.texts(name) if name else [f"row {row}" for row in columns.lines]),
            columns.texts(label),
            columns.texts(split) if split else None,
            columns.place,
            columns.numbers(without=(label, split, name)),
        )


def _read_npz(path: Path, name: str, labels: str) -> tuple[np.ndarray, Columns]:
    """Read the array of vectors, and the arrays that have one entry for each of them."""
    if not is_zipfile(path):
        raise DataError(f"{path} is not an .npz: it is no zip file, or was cut off. Write it again with numpy.savez.")
    arrays = read_arrays(path)
    if name not in arrays:
        raise DataError(f"{path}: " + unknown("array", name, arrays))
    features = arrays.pop(name)
    if features.ndim != 2 or features.dtype.kind not in "fiu":
        raise DataError(f"{path}: `{name}` must be numbers [n d], got {features.dtype} {list(features.shape)}.")
    cells = {}
    for key, array in arrays.items():
        if array.shape == features.shape[:1]:
            cells[key] = (array.astype(str) if array.dtype.kind == "S" else array).tolist()
        elif key in (labels, "label", "splits", "split", "names", "name"):
            raise DataError(
                f"{path}: `{name}` has {len(features)} rows, but `{key}` has the shape {list(array.shape)}. "
                f"Give every row one entry."
            )
    return features, Columns(path, cells, range(len(features)), "row")


def _spelling(columns: Columns, name: str) -> str:
    """Return the name under which a column is there, the one asked for or its singular; "" if there is none."""
    return next((known for known in (name, name.removesuffix("s")) if known in columns.cells), "")
