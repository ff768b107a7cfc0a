"""Disjoint triplets in three blocks."""

import numpy as np
import pytest

from vicinal.errors import ConfigError
from vicinal.samplers import TripletSampler


def test_triplets_are_disjoint_in_their_classes():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(12), 5))
    for batch in TripletSampler(labels, triplets=6, seed=3).epoch(0):
        anchors, positives, negatives = labels[batch].reshape(3, 6)
        assert (anchors == positives).all() and len({*anchors, *negatives}) == 12


def test_two_classes_are_needed_for_each_triplet():
    with pytest.raises(ConfigError, match=r"needs 8 classes .* only 6 of the 6"):
        TripletSampler(np.repeat(np.arange(6), 2), triplets=4, seed=0)
