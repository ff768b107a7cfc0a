"""N pairs in two blocks."""

import numpy as np

from vicinal.samplers import NPairSampler


def test_rows_i_and_n_plus_i_are_two_samples_of_a_class_and_classes_differ():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(12), 5))
    for batch in NPairSampler(labels, classes=8, seed=3).epoch(0):
        anchors, positives = labels[batch].reshape(2, 8)
        assert (anchors == positives).all() and len(set(anchors)) == 8
