"""Pairs with roles: who meets whom."""

import numpy as np
import pytest

from vicinal.errors import ConfigError
from vicinal.samplers import CrossViewSampler

LABELS = np.repeat(np.arange(8), 5)
ROLES = np.tile([1, 1, 2, 2, 2], 8)


def test_a_batch_is_a_query_and_a_gallery_image_of_different_classes_side_by_side():
    sampler = CrossViewSampler(LABELS, classes=4, seed=0, roles=ROLES)
    assert len(sampler) == 5 and sampler.note is None
    for batch in map(np.array, sampler.epoch(0)):
        assert ROLES[batch].tolist() == [1, 2] * 4
        assert (LABELS[batch[0::2]] == LABELS[batch[1::2]]).all() and len(set(LABELS[batch])) == 4


def test_every_row_comes_up_and_partners_change():
    sampler = CrossViewSampler(LABELS, classes=4, seed=0, roles=ROLES)
    batches = [batch for epoch in range(30) for batch in sampler.epoch(epoch)]
    met = {tuple(pair) for pair in np.reshape(batches, (-1, 2)).tolist()}
    assert len(met) == 8 * 2 * 3
    assert {row for pair in met for row in pair} == set(range(len(LABELS)))


def test_classes_without_a_query_or_a_gallery_image_are_left_out_and_said():
    labels = np.append(LABELS, [8, 8, 9])
    roles = np.append(ROLES, [2, 2, 1])
    sampler = CrossViewSampler(labels, classes=4, seed=0, roles=roles)
    assert (
        sampler.note
        == "2 of 10 classes lack a query or a gallery image and are left out of training batches."
    )
    assert max(row for epoch in range(9) for batch in sampler.epoch(epoch) for row in batch) < len(
        LABELS
    )


def test_too_few_classes_with_both_are_rejected():
    with pytest.raises(
        ConfigError, match=r"2 pairs .* only 1 of the 2 classes here have both. Ask for fewer pairs"
    ):
        CrossViewSampler([0, 0, 1, 1], classes=2, seed=0, roles=[1, 2, 1, 1])
    with pytest.raises(ConfigError, match="4 rows has a role, got 3 roles"):
        CrossViewSampler([0, 0, 1, 1], classes=2, seed=0, roles=[1, 2, 1])
