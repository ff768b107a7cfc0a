"""Records and their sources."""

from dataclasses import replace

import numpy as np
import pytest

from vicinal.data.records import FeatureArray, Records, Taken
from vicinal.errors import DataError


@pytest.fixture
def records():
    source = FeatureArray(np.arange(6.0)[:, None], list("abcdef"))
    return Records("r", source, np.arange(6) % 2, ("x", "y"), np.array(["train", "test"] * 3))


def test_taking_parts_of_parts_stays_one_deep(records):
    part = records.part("test").take(np.array([2, 0]))
    assert isinstance(part.source, Taken) and part.source.source is records.source
    assert part.names() == ["f", "b"] and part.source.read(0).tolist() == [5.0]
    origin, positions = part.source.origin(np.array([1]))
    assert origin is records.source and positions.tolist() == [1]


def test_unequal_columns_and_unknown_labels_are_rejected(records):
    with pytest.raises(DataError, match=r"differ in length: .*'labels': 3"):
        replace(records, labels=np.zeros(3, int))
    with pytest.raises(DataError, match="run from 0 to 1, but there are 1 classes"):
        replace(records, classes=("x",))
    with pytest.raises(DataError, match="unknown split 'tset'; did you mean 'test'"):
        records.part("tset")


def test_the_fingerprint_sees_names_classes_and_splits(records):
    others = (
        replace(records, labels=records.labels[::-1]),
        replace(records, splits=records.splits[::-1]),
        replace(records, source=FeatureArray(np.zeros((6, 1)), list("abcdeg"))),
    )
    assert len({each.fingerprint() for each in (records, *others)}) == 4
