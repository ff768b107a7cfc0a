"""P classes with K samples each."""

import numpy as np

from vicinal.samplers import PKSampler

LABELS = np.repeat(np.arange(10), 8)


def test_batches_hold_p_classes_with_k_samples_class_by_class():
    for batch in PKSampler(LABELS, classes=4, per_class=3, seed=1).epoch(0):
        classes = LABELS[batch].reshape(4, 3)
        assert (classes == classes[:, :1]).all() and len(set(classes[:, 0])) == 4


def test_all_classes_and_samples_come_up_before_one_comes_up_again():
    batches = PKSampler(LABELS, classes=5, per_class=4, seed=1).epoch(0)
    assert sorted(row for batch in batches for row in batch) == list(range(80))


def test_uneven_classes_come_up_equally_often():
    labels = np.repeat(np.arange(6), [4, 40, 5, 9, 4, 100])
    batches = PKSampler(labels, classes=3, per_class=4, seed=0, batches=50).epoch(0)
    classes, counts = np.unique(labels[batches], return_counts=True)
    assert len(classes) == 6 and (counts == 100).all()
