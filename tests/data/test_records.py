"""Records and their sources."""

from dataclasses import replace

import numpy as np
import pytest

from vicinal.data.records import FeatureArray, Records, Taken
from vicinal.errors import DataError


def test_taking_parts_of_parts_stays_one_deep():
    source = FeatureArray(np.arange(10.0)[:, None], [str(row) for row in range(10)])
    records = Records(
        "r", source, np.arange(10) % 2, ("even", "odd"), np.array(["train", "test"] * 5)
    )
    part = records.part("test").take(np.array([4, 0]))
    assert isinstance(part.source, Taken) and part.source.source is source
    assert [part.source.name(row) for row in range(2)] == ["9", "1"]
    assert part.source.read(0).tolist() == [9.0]
    origin, positions = part.source.origin(np.array([1]))
    assert origin is source and positions.tolist() == [1]


def test_unequal_columns_and_unknown_labels_are_rejected():
    source = FeatureArray(np.zeros((2, 1)), ["a", "b"])
    with pytest.raises(DataError, match=r"differ in length: .*'labels': 3"):
        Records("r", source, np.zeros(3, int), ("a",), np.array(["train"] * 2))
    with pytest.raises(DataError, match="run from 0 to 1, but there are 1 classes"):
        Records("r", source, np.array([0, 1]), ("a",), np.array(["train"] * 2))
    with pytest.raises(DataError, match="unknown split 'tset'; did you mean 'test'"):
        Records("r", source, np.zeros(2, int), ("a",), np.array(["train"] * 2)).part("tset")


def test_the_fingerprint_sees_names_classes_and_splits():
    source = FeatureArray(np.zeros((2, 1)), ["a", "b"])
    base = Records("r", source, np.array([0, 1]), ("x", "y"), np.array(["train", "test"]))
    others = (
        replace(base, labels=base.labels[::-1]),
        replace(base, splits=base.splits[::-1]),
        replace(base, source=FeatureArray(np.zeros((2, 1)), ["a", "c"])),
    )
    assert len({records.fingerprint() for records in (base, *others)}) == 4
