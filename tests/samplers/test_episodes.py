"""Episodes: two subsets, disjoint in their classes unless asked otherwise."""

import numpy as np
import pytest

from vicinal.errors import ConfigError
from vicinal.samplers import EpisodeSampler, episode_triplets

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(80), 5))


def subsets(sampler, batch):
    labels = LABELS[batch]
    return labels[: sampler.training_rows], labels[sampler.training_rows :]


def test_an_episode_is_a_hundred_and_twenty_samples_of_disjoint_labels():
    sampler = EpisodeSampler(LABELS, seed=3)
    for batch in sampler.epoch(0):
        training, validation = subsets(sampler, batch)
        assert (len(training), len(validation)) == (100, 20)
        assert not set(training) & set(validation)
        assert len(set(training)) == 50 and len(set(validation)) == 10


@pytest.mark.parametrize("disjoint", [True, False])
def test_every_tuple_has_a_positive_of_its_class_and_a_negative_of_another(disjoint):
    sampler = EpisodeSampler(LABELS, seed=1, disjoint=disjoint, batches=30)
    for batch in sampler.epoch(2):
        for subset in np.split(np.array(batch), [sampler.training_rows]):
            anchors, positives, negatives = (subset[rows] for rows in episode_triplets(len(subset)))
            assert (LABELS[anchors] == LABELS[positives]).all() and (anchors != positives).all()
            assert (LABELS[anchors] != LABELS[negatives]).all()


def test_an_episode_is_scaled_where_there_are_fewer_classes_and_says_so():
    sampler = EpisodeSampler(np.repeat(np.arange(24), 3), seed=0)
    assert (sampler.training_classes, sampler.validation_classes) == (20, 4)
    assert "20 classes for training and 4 for validation instead of 50 " in sampler.note
    assert EpisodeSampler(LABELS, seed=0).note is None


def test_the_smallest_episode_has_two_classes_in_each_subset():
    smallest = EpisodeSampler(np.repeat(np.arange(4), 2), seed=0)
    assert (smallest.training_classes, smallest.validation_classes) == (2, 2)
    with pytest.raises(ConfigError, match=r"needs 4 classes .* only 3 of the 3"):
        EpisodeSampler(np.repeat(np.arange(3), 2), seed=0)


def test_a_subset_without_a_negative_is_rejected():
    with pytest.raises(ConfigError, match=r"validation_classes are at least 2, got \(59, 1\)"):
        EpisodeSampler(LABELS, validation_classes=1, seed=0)
