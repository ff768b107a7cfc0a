"""Splits never divide a class, and never use a test class to choose anything."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from vicinal.data.memory import InMemory
from vicinal.data.records import FeatureArray, Records
from vicinal.data.splits import (
    by_class,
    class_folds,
    classes_of,
    hold_out,
    named_splits,
    overlapping_classes,
)
from vicinal.errors import DataError

LABELS = np.repeat(np.arange(10), 3)
CLASSES = tuple("abcdefghij")


def records(splits):
    source = FeatureArray(np.zeros((30, 2), np.float32), [*map(str, range(30))])
    return Records("letters", source, LABELS, CLASSES, np.asarray(splits))


def test_drawn_classes_depend_on_the_seed_alone_and_stay_whole():
    drawn = [by_class(LABELS, CLASSES, 0.5, "random", seed) for seed in (0, 0, 1, 2)]
    assert_array_equal(drawn[0], drawn[1])
    assert len({tuple(splits) for splits in drawn}) == 3
    for splits in drawn:
        tested = set(LABELS[splits == "test"])
        assert len(tested) == 5 and not tested & set(LABELS[splits == "train"])


@pytest.mark.parametrize(
    ("share", "tested"), [(0.0, 0), (0.01, 1), (0.25, 3), (0.99, 9), (1.0, 10)]
)
def test_the_share_is_of_classes_and_leaves_neither_side_empty_unless_asked(share, tested):
    assert len(np.unique(LABELS[by_class(LABELS, CLASSES, share, "random", 0) == "test"])) == tested


def test_validation_classes_come_from_the_training_classes_alone():
    before = records(by_class(LABELS, CLASSES, 0.5, "sorted", 0))
    after = hold_out(before, 0.4, seed=0)
    assert_array_equal(after.splits == "test", before.splits == "test")
    validated, trained = (set(LABELS[after.splits == split]) for split in ("validation", "train"))
    assert len(validated) == 2 and len(trained) == 3 and not validated & trained
    assert_array_equal(after.splits, hold_out(before, 0.4, seed=0).splits)


def test_a_class_that_the_data_trains_and_tests_on_keeps_its_test_rows():
    before = records(["train", "train", "test"] * 10)
    after = hold_out(before, 0.5, seed=0)
    assert_array_equal(after.splits == "test", before.splits == "test")
    assert overlapping_classes(after) == CLASSES


def test_a_validation_part_of_the_data_is_kept():
    own = records(["train"] * 15 + ["validation"] * 6 + ["test"] * 9)
    assert hold_out(own, 0.2, seed=0) is own


@pytest.mark.parametrize(
    ("share", "left"),
    [(0.1, "4 to train and 1 to validate"), (0.9, "0 to train and 5"), (1.0, "0 to train and 5")],
)
def test_a_validation_part_that_leaves_too_little_is_rejected_with_both_counts(share, left):
    with pytest.raises(DataError, match=left):
        hold_out(records(by_class(LABELS, CLASSES, 0.5, "sorted", 0)), share, seed=0)


def test_each_class_is_validated_in_exactly_one_fold():
    labels = LABELS[np.random.default_rng(0).permutation(30)]
    folds = class_folds(labels, 4, seed=0)
    assert len(folds) == 4
    assert sorted(np.concatenate([validated for _, validated in folds])) == list(range(30))
    for (trained, validated), again in zip(folds, class_folds(labels, 4, seed=0), strict=True):
        assert sorted([*trained, *validated]) == list(range(30))
        assert not set(labels[trained]) & set(labels[validated])
        assert len(set(labels[validated])) in (2, 3)
        assert_array_equal(validated, again[1])


def test_whole_numbers_sort_as_numbers_and_other_names_as_text():
    assert classes_of(["10", "9", "-1", "010"])[0] == ("-1", "9", "010", "10")
    assert classes_of(["10", "9", "a"])[0] == ("10", "9", "a")
    classes, labels = classes_of(["b", "a", "b"])
    assert classes == ("a", "b") and labels.tolist() == [1, 0, 1]


def test_a_row_of_several_labels_stands_for_its_rarest():
    def load(labels):
        return InMemory(inputs=np.eye(5)[: len(labels)], labels=labels).load()

    records = load([[7, 6], [6], [6, 7], [8, 6], [8]])
    assert records.classes == ("6", "7", "8")
    assert records.labels.tolist() == [1, 0, 1, 2, 2]
    assert records.sizes().tolist() == [4, 2, 2] and records.members(0).tolist() == [0, 1, 2, 3]
    assert records.title(3) == "6;8"
    split = np.array(["train", "test", "train", "train", "train"])
    assert overlapping_classes(replace(records, splits=split)) == ("6",)
    assert np.array_equal(load(records.every.astype(int)).every, records.every)
    with pytest.raises(DataError, match="row 2: no label"):
        load([[1], [2], []])


def test_splits_have_the_usual_spellings_and_no_others():
    names = ["train", " Test", "val", "validation"]
    assert named_splits(names, str).tolist() == ["train", "test", "validation", "validation"]
    with pytest.raises(
        DataError, match=r"x\.csv, line 3: unknown split 'tset'; did you mean 'test'"
    ):
        named_splits(["train", "tset"], lambda row: f"x.csv, line {row + 2}")
