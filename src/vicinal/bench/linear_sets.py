"""The sets of ANML's Table 2 (Song et al. 2022) as they are read, and their random splits."""

import csv
import gzip
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

TEST_SHARE, DIRECTIONS, LEAST = 0.3, 150, 3


def file_of(name: str, folder: Path) -> Path:
    """A line of names, then a line for each sample: its features, and its class in the last column."""
    return folder / f"{name}.csv.gz"


@cache
def load(name: str, folder: Path) -> tuple[Array, Array]:
    """Samples and classes of a set, without classes of fewer than 3 samples."""
    with gzip.open(file_of(name, folder), "rt") as file:
        rows = list(csv.reader(file))[1:]
    X = np.array([[float(value) for value in row[:-1]] for row in rows])
    y = np.unique([row[-1] for row in rows], return_inverse=True)[1]
    common = np.bincount(y)[y] >= LEAST
    return X[common], y[common]


def split(X: Array, y: Array, number: int) -> tuple[Array, Array, Array, Array]:
    """Training part and its classes, test part and its classes.

    Both are scaled, and reduced by PCA where there are more than 150 features, by what the training part alone says.
    """
    from sklearn.decomposition import PCA
    from sklearn.model_selection import train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    train, test, train_y, test_y = train_test_split(X, y, test_size=TEST_SHARE, random_state=number)
    steps = [StandardScaler()] + [PCA(DIRECTIONS, random_state=0)] * (X.shape[1] > DIRECTIONS)
    before = make_pipeline(*steps).fit(train)
    return before.transform(train), train_y, before.transform(test), test_y


def stratified(labels: Array, size: int, seed: int) -> npt.NDArray[np.intp]:
    """Positions of at most about ``size`` rows, classes in proportion and none without."""
    if size >= len(labels):
        return np.arange(len(labels))
    rng = np.random.default_rng(seed)
    members = [rng.permutation(np.flatnonzero(labels == name)) for name in np.unique(labels)]
    return np.sort(np.concatenate([own[: max(2, round(size * len(own) / len(labels)))] for own in members]))
