"""Data split anew: folds share no class and cover all; tuning has no test records; authors select on them."""

from dataclasses import replace

import numpy as np
import pytest

from vicinal.bench.folds import Fold, SelectOnTest
from vicinal.data.arrays import Arrays


@pytest.fixture
def data(tiny):
    return Arrays(tiny.removesuffix(".py") + ".npz")


def classes(records, split):
    return set(records.labels[records.splits == split].tolist())


def test_folds_cover_the_training_classes_and_share_none(data):
    whole = data.load()
    cuts = [Fold(data, 4, fold, seed=3, test=False).load() for fold in range(4)]
    for cut in cuts:
        assert not classes(cut, "train") & classes(cut, "validation")
        assert classes(cut, "train") | classes(cut, "validation") == classes(whole, "train")
        assert not (cut.splits == "test").any() and len(cut) == (whole.splits == "train").sum()
    held = [label for cut in cuts for label in classes(cut, "validation")]
    assert sorted(held) == sorted(classes(whole, "train"))


def test_kin_stay_in_one_fold(data):
    class Kin:
        """Two classes each are one kin."""

        def load(self):
            records = data.load()
            return replace(records, columns={"kin": records.labels // 2})

    cut = Fold(Kin(), 2, 0, seed=3, test=False).load()
    sides = [set(cut.columns["kin"][cut.splits == split].tolist()) for split in ("train", "validation")]
    assert all(sides) and not sides[0] & sides[1]


def test_test_records_may_stay_or_select(data):
    whole = data.load()
    np.testing.assert_array_equal(Fold(data, 4, 0, seed=0, test=True).load().splits == "test", whole.splits == "test")
    cut = SelectOnTest(data).load()
    assert classes(cut, "validation") == classes(whole, "test") and classes(cut, "train") == classes(whole, "train")
