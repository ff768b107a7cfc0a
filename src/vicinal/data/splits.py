"""Splits by class: train and test, a validation part, folds. Test classes are never used to choose anything."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from jaxtyping import Int

from vicinal.data.draws import uniform
from vicinal.data.records import SPLITS, Records
from vicinal.errors import ConfigError, DataError, unknown

Order = Literal["sorted", "random"]
_SPELLINGS: dict[str, str] = {**{split: split for split in SPLITS}, "val": "validation", "valid": "validation"}
_TEXT = "<U10"  # long enough for "validation": NumPy cuts what does not fit without a word


def by_class(labels: Int[np.ndarray, "n"], classes: Sequence[str], share: float, order: Order, seed: int) -> np.ndarray:
    """``"train"`` or ``"test"`` for each row, so that no class is in both.

    Args:
        labels: class of each row.
        classes: the classes' names, sorted.
        share: of the classes to test on; 0 makes all rows train, 1 makes all rows test.
        order: ``"sorted"`` tests on the last classes, as the published zero-shot splits do; ``"random"`` on drawn ones.
        seed: of the draw.

    >>> by_class(np.array([0, 0, 1, 2, 3]), "abcd", 0.5, "sorted", 0).tolist()
    ['train', 'train', 'train', 'test', 'test']
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"the share of test classes lies between 0 and 1, but {share} came.")
    if order not in ("sorted", "random"):
        raise ConfigError(unknown("order", order, ("sorted", "random")))
    count = int(share * len(classes) + 0.5)
    if 0 < share < 1:
        if len(classes) < 2:
            raise DataError(
                f"a split by class needs 2 classes, but there is {len(classes)}. "
                f"Add classes, or set `test` to 0 (train on all) or 1 (test on all)."
            )
        count = min(max(count, 1), len(classes) - 1)
    ranked = np.arange(len(classes)) if order == "sorted" else _shuffled(np.arange(len(classes)), seed)
    tested = ranked[len(classes) - count :]
    return np.where(np.isin(labels, tested), "test", "train").astype(_TEXT)


def hold_out(records: Records, share: float, seed: int) -> Records:
    """The records with a share of the training classes marked ``"validation"``, for model selection.

    A set that brings its own validation rows keeps them and is returned as it is. Where rows have a column ``kin``, it
    takes the place of the class: classes that are alike, such as one drawing turned, are held out together.
    """
    if (records.splits == "validation").any():
        return records
    if not 0 < share < 1:
        raise ConfigError(f"the share of training classes held out lies between 0 and 1, but {share} came.")
    training = records.splits == "train"
    kinds = kin_of(records)
    classes = np.unique(kinds[training])
    count = int(share * len(classes) + 0.5)
    if count < 2 or len(classes) - count < 2:
        raise DataError(
            f"holding {share:g} of the {len(classes)} training classes of {records.name} out for validation leaves "
            f"{len(classes) - count} to train and {count} to validate; both need at least 2. "
            f"Set `validation` to another share, or to 0 to train without."
        )
    held = _shuffled(classes, seed)[:count]
    splits = records.splits.astype(_TEXT)
    splits[training & np.isin(kinds, held)] = "validation"
    return replace(records, splits=splits)


def kin_of(records: Records) -> Int[np.ndarray, "n"]:
    """What a split must not tear apart: the column ``kin`` where there is one, else the class."""
    return np.asarray(records.columns.get("kin", records.labels))


def class_folds(labels: Int[np.ndarray, "n"], k: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """``k`` pairs of (training, validation) positions; each class is in the validation part of exactly one."""
    classes = np.unique(labels)
    if k < 2:
        raise ConfigError(f"folds by class are at least 2, but {k} came.")
    if len(classes) < 2 * k:  # one class alone is always its own nearest neighbour: recall 1, whatever the model
        raise DataError(
            f"{k} folds by class need at least {2 * k} classes, 2 in each fold, but there are {len(classes)}. "
            f"Use fewer folds or add classes."
        )
    shuffled = _shuffled(classes, seed)
    validated = [np.isin(labels, shuffled[fold::k]) for fold in range(k)]
    return [(np.flatnonzero(~held), np.flatnonzero(held)) for held in validated]


def named_splits(values: Sequence[str], place: Callable[[int], str]) -> np.ndarray:
    """Splits as a set spells them; ``place`` names a row in the refusal of an unknown one."""
    splits = [_SPELLINGS.get(value.strip().lower(), "") for value in values]
    if "" in splits:
        row = splits.index("")
        raise DataError(f"{place(row)}: " + unknown("split", values[row], SPLITS))
    return np.array(splits, dtype=_TEXT)


def classes_of(values: Sequence[str]) -> tuple[tuple[str, ...], Int[np.ndarray, "n"]]:
    """The sorted names among ``values``, and each value's place among them; whole numbers sort as numbers.

    >>> classes_of(["10", "9", "10"])[0]
    ('9', '10')
    """
    names = set(values)
    whole = all(re.fullmatch(r"-?\d{1,18}", name) for name in names)
    classes = sorted(names, key=lambda name: (int(name), name)) if whole else sorted(names)
    number = {name: label for label, name in enumerate(classes)}
    return tuple(classes), np.array([number[value] for value in values], dtype=np.int64)


def overlapping_classes(records: Records) -> tuple[str, ...]:
    """Names of the classes that have both training or validation rows and test rows.

    Splits made here never have any; a set that brings its own may, and its numbers are then not zero-shot.
    """
    tested = records.splits == "test"
    both = np.intersect1d(records.labels[tested], records.labels[~tested])
    return tuple(records.classes[label] for label in both)


def _shuffled(values: np.ndarray, seed: int) -> np.ndarray:
    """A permutation that is the same in every version of NumPy."""
    order: np.ndarray = np.argsort(uniform(seed, 0, np.arange(len(values)), 1)[:, 0], kind="stable")
    return np.asarray(values[order])
