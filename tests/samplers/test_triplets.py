"""Disjoint triplets in three blocks."""

import numpy as np
import pytest

from vicinal.errors import ConfigError
from vicinal.samplers import FixedTripletSampler, TripletSampler


def test_triplets_are_disjoint_in_their_classes():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(12), 5))
    for batch in TripletSampler(labels, triplets=6, seed=3).epoch(0):
        anchors, positives, negatives = labels[batch].reshape(3, 6)
        assert (anchors == positives).all() and len({*anchors, *negatives}) == 12


def test_two_classes_are_needed_for_each_triplet():
    with pytest.raises(ConfigError, match=r"needs 8 classes .* only 6 of the 6"):
        TripletSampler(np.repeat(np.arange(6), 2), triplets=4, seed=0)


def test_a_fixed_set_is_the_same_in_every_epoch_and_fits_the_labels():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(6), [1, 2, 3, 4, 5, 6]))
    sampler = FixedTripletSampler(labels, triplets=3, total=12, seed=3)
    epochs = [
        np.array(sampler.epoch(number)).reshape(-1, 3, 3).swapaxes(1, 2).reshape(-1, 3)
        for number in range(3)
    ]
    assert len(sampler) == 4 and not np.array_equal(epochs[0], epochs[1])
    for triplets in epochs:
        assert sorted(map(tuple, triplets.tolist())) == sorted(map(tuple, sampler.set.tolist()))
    anchors, positives, negatives = sampler.set.T
    assert (labels[anchors] == labels[positives]).all() and (anchors != positives).all()
    assert (labels[anchors] != labels[negatives]).all() and 0 not in labels[sampler.set]
    assert not np.array_equal(
        sampler.set, FixedTripletSampler(labels, triplets=3, total=12, seed=4).set
    )


def test_a_fixed_set_has_a_batch_at_least_and_is_repeated_for_more():
    labels = np.repeat(np.arange(6), 2)
    assert len(FixedTripletSampler(labels, triplets=3, total=7, seed=0, batches=5).epoch(0)) == 5
    with pytest.raises(ConfigError, match="Set total=3 or more"):
        FixedTripletSampler(labels, triplets=3, total=2, seed=0)
