"""Data cut anew: folds share no class and cover all; while tuning test records are gone; authors select on them."""

from dataclasses import replace

import numpy as np
import pytest

from vicinal.bench.recuts import ALLOWED, Fold, SelectOnTest
from vicinal.data.arrays import Arrays
from vicinal.description import build, describe


@pytest.fixture
def data(tiny):
    return Arrays(tiny[1].removeprefix("data="))


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

    for fold in range(2):
        cut = Fold(Kin(), 2, fold, seed=3, test=False).load()
        sides = [set(cut.columns["kin"][cut.splits == split].tolist()) for split in ("train", "validation")]
        assert all(sides) and not sides[0] & sides[1]


def test_a_fold_may_keep_the_test_records(data):
    cut = Fold(data, 4, 0, seed=0, test=True).load()
    np.testing.assert_array_equal(cut.splits == "test", data.load().splits == "test")


def test_the_authors_protocol_selects_on_test(data):
    whole, cut = data.load(), SelectOnTest(data).load()
    assert classes(cut, "validation") == classes(whole, "test") and classes(cut, "train") == classes(whole, "train")


def test_a_recut_can_be_described_and_rebuilt(data):
    for recut in (Fold(data, 4, 1, seed=0, test=False), SelectOnTest(data)):
        assert build(describe(recut), ALLOWED) == recut
