"""P classes with K samples each."""

import numpy as np
import pytest

from vicinal.errors import ConfigError
from vicinal.samplers import PKSampler

LABELS = np.repeat(np.arange(10), 8)


def test_batches_hold_p_classes_with_k_samples_class_by_class():
    for batch in PKSampler(LABELS, classes=4, per_class=3, seed=1).epoch(0):
        classes = LABELS[batch].reshape(4, 3)
        assert (classes == classes[:, :1]).all() and len(set(classes[:, 0])) == 4


def test_all_classes_and_samples_come_up_before_one_comes_up_again():
    batches = PKSampler(LABELS, classes=5, per_class=4, seed=1).epoch(0)
    assert sorted(row for batch in batches for row in batch) == list(range(80))


def test_more_samples_than_the_largest_class_has_are_rejected():
    with pytest.raises(
        ConfigError, match=r"4 classes with at least 9 samples each, but only 0 of the 10"
    ):
        PKSampler(LABELS, classes=4, per_class=9, seed=1)
    with pytest.raises(ConfigError, match=r"per_class must be at least 1, got 0"):
        PKSampler(LABELS, classes=4, per_class=0, seed=1)


def test_uneven_classes_come_up_equally_often():
    labels = np.repeat(np.arange(6), [4, 40, 5, 9, 4, 100])
    batches = PKSampler(labels, classes=3, per_class=4, seed=0, batches=50).epoch(0)
    classes, counts = np.unique(labels[batches], return_counts=True)
    assert len(classes) == 6 and (counts == 100).all()
