"""Records and their sources."""

import numpy as np
import pytest
import torch

from vicinal.data.records import Batch, FeatureArray, Records, Taken
from vicinal.errors import DataError


def test_taking_parts_of_parts_stays_one_deep():
    source = FeatureArray(np.arange(10.0)[:, None], [str(row) for row in range(10)])
    records = Records(
        "r", source, np.arange(10) % 2, ("even", "odd"), np.array(["train", "test"] * 5)
    )
    part = records.part("test").take(np.array([4, 0]))
    assert isinstance(part.source, Taken) and part.source.source is source
    assert [part.source.name(row) for row in range(2)] == ["9", "1"]
    assert part.source.read(0).tolist() == [9.0] and part.labels.tolist() == [1, 1]
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
    others = [
        Records("r", source, np.array([1, 0]), ("x", "y"), np.array(["train", "test"])),
        Records("r", source, np.array([0, 1]), ("x", "y"), np.array(["test", "train"])),
        Records(
            "r",
            FeatureArray(np.zeros((2, 1)), ["a", "c"]),
            np.array([0, 1]),
            ("x", "y"),
            base.splits,
        ),
    ]
    assert len({records.fingerprint() for records in [base, *others]}) == 4


def test_a_batch_moves_to_a_device_with_its_extras():
    batch = Batch(
        torch.zeros(2, 3),
        torch.zeros(2, dtype=torch.int64),
        torch.arange(2),
        {"angle": torch.ones(2)},
        (7,),
    )
    moved = batch.to(torch.device("meta"))
    assert moved.inputs.is_meta and moved.extras["angle"].is_meta and moved.skipped == (7,)
