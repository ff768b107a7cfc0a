"""Batches for data that may be smaller than what was asked for."""

import numpy as np
import pytest

from vicinal.errors import ConfigError
from vicinal.sampling import FittedSampler, PKSampler


def test_data_that_suffice_give_the_batches_of_the_plain_sampler():
    labels = np.repeat(np.arange(10), 8)
    fitted, plain = (kind(labels, classes=4, per_class=3, seed=1) for kind in (FittedSampler, PKSampler))
    assert fitted.epoch(2) == plain.epoch(2) and fitted.note is None


@pytest.mark.parametrize(
    ("sizes", "batch"),
    [
        ([8] * 5, (5, 4)),  # fewer classes
        ([3] * 20, (16, 3)),  # fewer samples of each
        ([2] * 100 + [20] * 10, (16, 2)),  # rather all classes than full ones alone
        ([8, 8, 8, 1], (3, 4)),  # one sample forms no pair
        ([8, 8, 2], (3, 2)),
    ],
)
def test_a_batch_shrinks_to_what_there_is_and_says_so(sizes, batch):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    sampler = FittedSampler(labels, classes=16, per_class=4, seed=0)
    assert (sampler.classes, sampler.per_class) == batch
    assert f"{batch[0]} classes x {batch[1]} samples instead of 16 x 4" in sampler.note
    for rows in sampler.epoch(0):
        _, counts = np.unique(labels[rows], return_counts=True)
        assert counts.tolist() == [batch[1]] * batch[0]


@pytest.mark.parametrize("sizes", [[9], [9, 1], [1] * 30])
def test_data_without_two_pairs_are_refused(sizes):
    with pytest.raises(ConfigError, match="needs 2 classes with at least 2 samples each, but only"):
        FittedSampler(np.repeat(np.arange(len(sizes)), sizes), classes=16, per_class=4, seed=0)


def test_a_batch_that_could_never_teach_is_refused():
    for asked in ({"classes": 1, "per_class": 4}, {"classes": 4, "per_class": 1}):
        with pytest.raises(ConfigError, match="a batch needs 2 classes with 2 samples each"):
            FittedSampler([0, 0, 1, 1], seed=0, **asked)
