"""A run's own data, with the classes that it held out."""

import numpy as np

from vicinal.data.splits import hold_out
from vicinal.search.own_data import own_data, own_description


def test_the_same_classes_are_held_out_again(image_run):
    data, records = own_data(image_run)
    expected = hold_out(data.load(), 0.5, 0)
    assert np.array_equal(records.splits, expected.splits) and (records.splits == "validation").sum() == 6


def test_without_validation_the_splits_are_the_datas_own(feature_run):
    data, records = own_data(feature_run)
    assert data == own_description(feature_run) and set(records.splits) == {"train", "test"}
