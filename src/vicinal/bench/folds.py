"""Data split anew for a protocol: folds of the training classes, or the test classes as those that select.

Both wrap another data set, so any experiment trains under any protocol without knowing of it.
"""

from dataclasses import dataclass, replace

import numpy as np

from vicinal.data.records import Dataset, Records
from vicinal.data.splits import class_folds, kin_of

_TEXT = "<U10"  # holds "validation"


@dataclass(frozen=True)
class Fold:
    """A data set whose training classes are cut into folds, one of them held out as validation classes.

    Attributes:
        data: the data set.
        folds: how many.
        fold: which one is held out, from 0.
        seed: of the cut; all folds of one seed belong together.
        test: whether test records stay in; tuning leaves them out, so that nothing can look at them.
    """

    data: Dataset
    folds: int
    fold: int
    seed: int
    test: bool

    def load(self) -> Records:
        records = self.data.load()
        training = np.flatnonzero(records.splits != "test")
        _, held = class_folds(kin_of(records)[training], self.folds, self.seed)[self.fold]
        splits = records.splits.astype(_TEXT)
        splits[training] = "train"
        splits[training[held]] = "validation"
        cut = replace(records, splits=splits)
        return cut if self.test else cut.take(np.flatnonzero(splits != "test"))


@dataclass(frozen=True)
class SelectOnTest:
    """A data set whose test classes select the model, as in many papers; the result is too high."""

    data: Dataset

    def load(self) -> Records:
        records = self.data.load()
        splits = records.splits.astype(_TEXT)
        splits[splits == "validation"] = "train"
        splits[splits == "test"] = "validation"
        return replace(records, splits=splits)
