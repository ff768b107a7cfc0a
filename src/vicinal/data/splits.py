"""Splits by class: train and test, a validation part, folds. Test classes are never used to choose
anything."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Int

from vicinal.arguments import Settings, Share
from vicinal.data.draws import uniform
from vicinal.data.records import SPLITS, Records, Source, as_text
from vicinal.errors import ConfigError, DataError, unknown

Order = Literal["sorted", "random"]
_SHORT = {"val": "validation", "valid": "validation"}
_TEXT = "<U10"  # long enough for "validation": NumPy silently cuts what does not fit


class SplitByClass(Settings):
    """Settings of a data set that may bring no splits of its own: its classes are then split
    here."""

    slot: ClassVar[str] = "data"
    path: str
    test: Share = 0.5
    order: Order = "random"
    seed: int = 0

    def _records(
        self,
        name: str,
        source: Source,
        names: Sequence[str | Sequence[str]],
        given: Sequence[str] | None,
        place: Callable[[int], str],
        columns: Mapping[str, np.ndarray] | None = None,
    ) -> Records:
        """Label rows by the names of their classes, one text or several each; ``given`` are the
        splits they bring, ``place`` locates a row."""
        lists = [[one] if isinstance(one, str) else sorted(set(one)) for one in names]
        counts = np.array([*map(len, lists)])
        if not counts.all():
            raise DataError(f"{place(int(counts.argmin()))}: no label. Give one or remove the row.")
        classes, labels = classes_of([name for several in lists for name in several])
        every = None
        if counts.max() > 1:
            every = np.zeros((len(lists), len(classes)), dtype=bool)
            every[np.repeat(np.arange(len(lists)), counts), labels] = True
            # The rarest says most of a row, and has the fewest rows to train on.
            labels = np.where(every, every.sum(axis=0), len(lists) + 1).argmin(axis=1)
        if given is None:
            splits = by_class(labels, classes, self.test, self.order, self.seed)
        else:
            splits = named_splits(given, place)
        return Records(name, source, labels, classes, splits, columns or {}, every)


class Labeled(SplitByClass, kw_only=True):
    """Settings of a data set whose rows name their classes.

    Args:
        separator: what stands between the labels of a row that has several, such as ``;``.
        hierarchy: what groups the classes, from the widest group to the narrowest: columns of a
            table, or names of the levels of folders above the classes, such as family,genus.
    """

    separator: str = ""
    hierarchy: tuple[str, ...] = ()


def labels_in(cell: Any, separator: str = "") -> list[str]:
    """Return the labels that a cell holds: a list of several, or a text of one, or of several with
    a separator between."""
    if isinstance(cell, list | tuple | set | np.ndarray):
        return [*map(str, cell)]
    if not separator:
        return [str(cell)]
    return [name.strip() for name in str(cell).split(separator) if name.strip()]


def grouped(records: Records, levels: Mapping[str, Sequence[str]]) -> Records:
    """Add a given hierarchy to records: for each level, from the widest, the group of each row.

    A class lies in one group of each level, and a group in one of the next wider level.
    """
    if levels and records.every is not None:
        raise DataError(
            f"a hierarchy groups classes, but rows of {records.name} have several each. Leave "
            "data.hierarchy or data.separator out."
        )
    found = {level: classes_of(groups) for level, groups in levels.items()}
    every = [*found.items(), ("class", (records.classes, records.labels))]
    for (level, (groups, group)), (inner, (names, of)) in pairwise(every):
        first = np.unique(of, return_index=True)[1]
        for row in np.flatnonzero(group != group[first][of]).tolist():
            raise DataError(
                f"the {inner} {names[of[row]]} lies in one {level}, got "
                f"{groups[group[first[of[row]]]]} and {groups[group[row]]} "
                f"({records.source.name(row)}). Correct the rows."
            )
    columns = {level: group for level, (_, group) in found.items()}
    groups_of = {level: groups for level, (groups, _) in found.items()}
    return replace(records, columns={**records.columns, **columns}, levels=groups_of)


def by_class(
    labels: Int[np.ndarray, "n"], classes: Sequence[str], share: float, order: Order, seed: int
) -> np.ndarray:
    """Return ``"train"`` or ``"test"`` for each row, so that no class is in both.

    Args:
        labels: class of each row.
        classes: the classes' names, sorted.
        share: of the classes to test on; 0 makes all rows train, 1 makes all rows test.
        order: ``"sorted"`` tests on the last classes, as the published zero-shot splits do;
            ``"random"`` on drawn ones.
        seed: of the draw.

    >>> by_class(np.array([0, 0, 1, 2, 3]), "abcd", 0.5, "sorted", 0).tolist()
    ['train', 'train', 'train', 'test', 'test']
    """
    count = int(share * len(classes) + 0.5)
    if 0 < share < 1:
        if len(classes) < 2:
            raise DataError(
                f"a split by class needs 2 classes, got {len(classes)}. Add classes, or set "
                "`data.test` to 0 (train on all) or 1 (test on all)."
            )
        count = min(max(count, 1), len(classes) - 1)
    ranked = np.arange(len(classes))
    if order == "random":
        ranked = shuffled(ranked, seed)
    tested = ranked[len(classes) - count :]
    return np.where(np.isin(labels, tested), "test", "train").astype(_TEXT)


def hold_out(records: Records, share: float, seed: int) -> Records:
    """Mark a share of the training classes ``"validation"``, for model selection.

    A set that brings its own validation rows keeps them and is returned as it is. Where rows have a
    column ``kin``, it takes the place of the class: classes that are alike, such as one drawing
    rotated, are held out together.
    """
    if (records.splits == "validation").any():
        return records
    training = records.splits == "train"
    kinds = kin_of(records)
    classes = np.unique(kinds[training])
    count = int(share * len(classes) + 0.5)
    if count < 2 or len(classes) - count < 2:
        raise DataError(
            f"holding {share:g} of the {len(classes)} training classes of {records.name} out for "
            f"validation leaves {len(classes) - count} to train and {count} to validate; both need "
            "at least 2. Set `training.validation` to another share, or to 0 to train without."
        )
    splits = records.splits.astype(_TEXT)
    splits[training & np.isin(kinds, shuffled(classes, seed)[:count])] = "validation"
    return replace(records, splits=splits)


def kin_of(records: Records) -> Int[np.ndarray, "n"]:
    """Return what a split must keep together: the column ``kin`` where there is one, else the
    class."""
    return records.columns.get("kin", records.labels)


def most_folds(records: Records) -> int:
    """Return into how many folds of two classes each, or of two records of two or three classes,
    ``vicinal best`` could cut what is not for testing; it needs two."""
    _, sizes = np.unique(kin_of(records)[records.splits != "test"], return_counts=True)
    if len(sizes) < 2:
        return 0
    return int(len(sizes) if len(sizes) >= 4 else sizes.min()) // 2


def class_folds(
    labels: Int[np.ndarray, "n"], k: int, seed: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return ``k`` pairs of (training, validation) positions; each class is in exactly one
    validation part."""
    classes = np.unique(labels)
    if k < 2:
        raise ConfigError(f"folds by class must be at least 2, got {k}.")
    # One class alone is always its own nearest neighbor: recall 1, by any model.
    if len(classes) < 2 * k:
        raise DataError(
            f"{k} folds by class need at least {2 * k} classes, got {len(classes)}. Use fewer "
            "folds."
        )
    order = shuffled(classes, seed)
    validated = [np.isin(labels, order[fold::k]) for fold in range(k)]
    return [(np.flatnonzero(~held), np.flatnonzero(held)) for held in validated]


def sample_folds(
    labels: Int[np.ndarray, "n"], k: int, seed: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return ``k`` pairs of (training, validation) positions; each class is in all parts, its rows
    dealt out evenly.

    For data of too few classes to hold some of them out.

    >>> [len(held) for _, held in sample_folds(np.array([0, 0, 0, 0, 1, 1, 1, 1]), 4, seed=0)]
    [2, 2, 2, 2]
    """
    from sklearn.model_selection import StratifiedKFold

    return [*StratifiedKFold(k, shuffle=True, random_state=seed % 2**32).split(labels, labels)]


def named_splits(values: Sequence[str], place: Callable[[int], str]) -> np.ndarray:
    """Return splits as a set spells them; ``place`` locates a row for the error."""
    splits = [value.strip().lower() for value in values]
    splits = [_SHORT.get(split, split) for split in splits]
    for row, split in enumerate(splits):
        if split not in SPLITS:
            raise DataError(f"{place(row)}: " + unknown("split", values[row], SPLITS))
    return np.array(splits, dtype=_TEXT)


def classes_of(values: Sequence[str]) -> tuple[tuple[str, ...], Int[np.ndarray, "n"]]:
    """Return the sorted names among ``values``, and each value's label; whole numbers sort as
    numbers.

    >>> classes_of(["10", "9", "10"])[0]
    ('9', '10')
    """
    texts = {value: as_text(value) for value in set(values)}
    names = set(texts.values())
    whole = all(re.fullmatch(r"-?\d{1,18}", name) for name in names)
    classes = sorted(names, key=lambda name: (int(name), name)) if whole else sorted(names)
    number = {name: label for label, name in enumerate(classes)}
    labels = {value: number[text] for value, text in texts.items()}
    return tuple(classes), np.array([labels[value] for value in values], dtype=np.int64)


def overlapping_classes(records: Records) -> tuple[str, ...]:
    """Return the names of classes that have both training or validation rows and test rows.

    Splits made here never have any; a set that brings its own may, and its numbers are then not
    zero-shot.
    """
    tested = records.splits == "test"
    both = [records.take(np.flatnonzero(part)).sizes() > 0 for part in (tested, ~tested)]
    return tuple(records.classes[label] for label in np.flatnonzero(both[0] & both[1]))


def shuffled(values: np.ndarray, seed: int) -> np.ndarray:
    """Return a permutation that is the same in every version of NumPy."""
    draws = uniform(seed, 0, np.arange(len(values)), 1)[:, 0]
    return values[np.argsort(draws, kind="stable")]
