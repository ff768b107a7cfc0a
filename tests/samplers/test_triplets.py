"""Pairs in two blocks, disjoint triplets in three."""

import numpy as np

from vicinal.samplers import NPairSampler, TripletSampler

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(12), 5))


def test_rows_i_and_n_plus_i_are_two_samples_of_a_class_and_classes_differ():
    for batch in NPairSampler(LABELS, classes=8, seed=3).epoch(0):
        anchors, positives = LABELS[batch].reshape(2, 8)
        assert (anchors == positives).all() and len(set(anchors)) == 8


def test_triplets_are_disjoint_in_their_classes():
    for batch in TripletSampler(LABELS, triplets=6, seed=3).epoch(0):
        anchors, positives, negatives = LABELS[batch].reshape(3, 6)
        assert (anchors == positives).all() and len({*anchors, *negatives}) == 12
