"""The sets of ANML's Table 2 (Song et al. 2022) as they are read, and their random splits."""

import csv
import gzip
import math
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.errors import DataError

Array = npt.NDArray[Any]

TEST_SHARE = 0.3
DIRECTIONS = 150
LEAST = 3


def file_of(name: str, folder: Path) -> Path:
    """A line of names, then a line for each sample: its features, and its class in the last
    column."""
    return folder / f"{name}.csv.gz"


@cache
def load(name: str, folder: Path) -> tuple[Array, Array]:
    """Samples and classes of a set, without classes of fewer than 3 samples; read once in a
    process."""
    return read(file_of(name, folder))


def read(path: Path) -> tuple[Array, Array]:
    """What ``load`` keeps.

    Raises:
        DataError: with the line, where the file is not one of samples.
    """
    names = list[str]()
    X = list[list[float]]()
    classes = list[str]()
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            lines = csv.reader(file)
            names = next(lines, [])
            for row in lines:
                X.append(_numbers(row, names, path, lines.line_num))
                classes.append(row[-1])
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise _unreadable(path, f"cannot be read ({error})") from error
    y = np.unique(classes, return_inverse=True)[1]
    common = np.bincount(y)[y] >= LEAST if classes else np.zeros(0, bool)
    if len(names) < 2 or len(np.unique(y[common])) < 2:
        found = (
            f"has {len(classes)} samples in {len(names)} columns, and not two classes of "
            f"{LEAST} or more"
        )
        raise _unreadable(path, found)
    return np.array(X)[common], y[common]


def _numbers(row: list[str], names: list[str], path: Path, line: int) -> list[float]:
    """A sample's features."""
    if len(row) != len(names):
        raise _unreadable(
            path, f"has {len(row)} columns in line {line}, and {len(names)} names in the first"
        )
    found = list(map(_number, row[:-1]))
    if wrong := [column for column, number in enumerate(found) if not math.isfinite(number)]:
        value = row[wrong[0]]
        name = names[wrong[0]]
        raise _unreadable(
            path, f"has {value!r} as {name!r} in line {line}, which is no finite number"
        )
    return found


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return math.nan


def _unreadable(path: Path, found: str) -> DataError:
    return DataError(
        f"{path} should hold a set as gzipped CSV: a line of names, then a line for each sample "
        "with its features and, "
        f"last, its class; it {found}. Replace the file."
    )


def split(X: Array, y: Array, number: int) -> tuple[Array, Array, Array, Array]:
    """Training part and its classes, test part and its classes.

    Both are scaled, and reduced by PCA where there are more than 150 features, by what the training
    part alone says.
    """
    from sklearn.decomposition import PCA
    from sklearn.model_selection import train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    train, test, train_y, test_y = train_test_split(X, y, test_size=TEST_SHARE, random_state=number)
    steps = [StandardScaler()] + [PCA(DIRECTIONS, random_state=0)] * (X.shape[1] > DIRECTIONS)
    before = make_pipeline(*steps).fit(train)
    return before.transform(train), train_y, before.transform(test), test_y


def stratified(labels: Array, size: int, seed: int, least: int = 2) -> npt.NDArray[np.intp]:
    """Positions of about ``size`` rows, classes in proportion, ``least`` or more of each."""
    if size >= len(labels):
        return np.arange(len(labels))
    rng = np.random.default_rng(seed)
    members = [rng.permutation(np.flatnonzero(labels == name)) for name in np.unique(labels)]
    return np.sort(
        np.concatenate([own[: max(least, round(size * len(own) / len(labels)))] for own in members])
    )
