"""Feature vectors with labels: ``.npz`` or Parquet. A backbone has already run; a head is left to train."""

import zlib
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile, is_zipfile

import numpy as np

from vicinal.data.columns import Columns, read_columns, read_vectors
from vicinal.data.location import existing
from vicinal.data.records import FeatureArray, Records
from vicinal.data.splits import Order, by_class, classes_of, named_splits
from vicinal.errors import ConfigError, DataError, unknown
from vicinal.files import read_arrays


@dataclass(frozen=True)
class Arrays:
    """Feature vectors [n d] with a label each and, where the set brings its own, splits.

    An ``.npz`` holds the arrays ``features`` and ``labels``, and may hold ``splits``, ``names`` and further arrays of n
    numbers, which become columns of the records. A Parquet file holds the same as columns, ``features`` as lists.
    ``label``, ``split`` and ``name`` are understood too.

    Args:
        path: the file; ``$VICINAL_DATA`` and ``~`` are expanded.
        features: name of the array or column of vectors.
        labels: name of the array or column of labels, whole numbers or text.
        test: share of the classes that are for testing, where there are no splits.
        order: whether those are the last ones of the sorted labels, as in the published zero-shot splits, or drawn.
        seed: of the draw.
    """

    path: str
    features: str = "features"
    labels: str = "labels"
    test: float = 0.5
    order: Order = "sorted"
    seed: int = 0

    def load(self, *, strict: bool = True) -> Records:
        """Read the file. With ``strict=False`` NaN and infinite features stay in, for a check that names each row."""
        path = existing(self.path)
        if path.suffix.lower() == ".npz":
            features, columns = _read_npz(path, self.features, self.labels)
        elif path.suffix.lower() == ".parquet":
            features = read_vectors(path, self.features)
            columns = read_columns(path, without=self.features)
        else:
            raise ConfigError(f"feature vectors come as .npz or .parquet, but {path} came. Convert or rename it.")
        features = _as_floats(path, features)
        if strict:
            _refuse_non_finite(columns, features)
        label = _spelling(columns, self.labels)
        if label is None:
            raise DataError(f"{path}: " + unknown("array of labels", self.labels, columns.cells))
        split, name = _spelling(columns, "splits"), _spelling(columns, "names")
        classes, labels = classes_of(columns.texts(label))
        if split is not None:
            splits = named_splits(columns.texts(split), columns.place)
        else:
            splits = by_class(labels, classes, self.test, self.order, self.seed)
        return Records(
            name=path.stem,
            source=FeatureArray(features, columns.texts(name) if name else [f"row {row}" for row in columns.lines]),
            labels=labels,
            classes=classes,
            splits=splits,
            columns=columns.numbers(without=[label, split or "", name or ""]),
        )


def _read_npz(path: Path, name: str, labels: str) -> tuple[np.ndarray, Columns]:
    """The array of vectors, and the arrays that have one entry for each of them."""
    if not is_zipfile(path):
        raise DataError(f"{path} is not an .npz: it is no zip file, or was cut off. Write it again with numpy.savez.")
    try:
        arrays = read_arrays(path)
    except (BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is not readable as an .npz of plain arrays: {error}") from error
    if name not in arrays:
        raise DataError(f"{path}: " + unknown("array", name, arrays))
    features = arrays.pop(name)
    if features.ndim != 2 or features.dtype.kind not in "fiu":
        raise DataError(f"{path}: `{name}` should be numbers [n d], but {features.dtype} {list(features.shape)} came.")
    for known in (labels, "label", "splits", "split", "names", "name"):
        if known in arrays and arrays[known].shape != features.shape[:1]:
            raise DataError(
                f"{path}: `{name}` has {len(features)} rows, but `{known}` has the shape {list(arrays[known].shape)}. "
                f"Give every row one entry."
            )
    alongside = {key: array for key, array in arrays.items() if array.shape == features.shape[:1]}
    cells = {
        key: (array.astype(str) if array.dtype.kind == "S" else array).tolist() for key, array in alongside.items()
    }
    return features, Columns(path, cells, range(len(features)), "row")


def _as_floats(path: Path, features: np.ndarray) -> np.ndarray:
    """float16 and float32 stay as they are; wider and whole numbers become float32."""
    if not features.size:
        raise DataError(f"{path} holds no features: their shape is {list(features.shape)}.")
    if features.dtype in (np.float16, np.float32):
        return features
    with np.errstate(over="ignore"):  # what does not fit becomes infinite and is refused as such
        return features.astype(np.float32)


def _refuse_non_finite(columns: Columns, features: np.ndarray) -> None:
    rows = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(rows):
        named = ", ".join(str(columns.lines[row]) for row in rows[:5]) + (", ..." if len(rows) > 5 else "")
        raise DataError(
            f"{columns.path}: {len(rows)} of {len(features)} feature vectors hold NaN or infinite numbers "
            f"(rows {named}). Mend or remove them."
        )


def _spelling(columns: Columns, name: str) -> str | None:
    """The name under which a column is there: the one asked for, or its singular."""
    return next((known for known in (name, name.removesuffix("s")) if known in columns.cells), None)
