"""Batches of pairs: how gallery images are turned, and what is rejected."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from vicinal.data.records import Batch
from vicinal.errors import ConfigError
from vicinal.methods.her import HER

ROWS = torch.tensor([4, 9, 2, 11, 7, 8])  # records of queries and their matches, in turn


@pytest.fixture
def batch():
    """Three pairs of 16 pixels, the gallery images turned."""
    rng = torch.Generator().manual_seed(0)
    inputs = torch.rand(6, 1, 16, 16, generator=rng)
    angle = 360 * torch.rand(6, generator=rng) * torch.tensor([0.0, 1.0]).repeat(3)
    extras = {"role": torch.tensor([1, 2]).repeat(3), "angle": angle}
    return Batch(inputs, torch.tensor([0, 0, 1, 1, 2, 2]), ROWS, extras, largest_class=2)


def turns(batch, *, seed=7, epoch=0, **settings):
    method = HER(**settings)
    method.seed = seed
    method.sampler = range(3)
    method.schedule = SimpleNamespace(last_epoch=3 * epoch + 2)
    extras = method.prepare(batch).extras
    return extras["by"], extras["angles"]


def added(batch, radians):
    """By how many degrees gallery images were turned beyond what they are."""
    return torch.rad2deg(radians) - (batch.extras["angle"][1::2] - batch.extras["angle"][0::2])


def taken(batch, rows):
    extras = {name: column[rows] for name, column in batch.extras.items()}
    return Batch(
        batch.inputs[rows], batch.labels[rows], batch.indices[rows], extras, largest_class=2
    )


def test_every_gallery_image_has_an_angle_of_its_own_and_the_label_counts_it(batch):
    by, angles = turns(batch)
    assert ((by >= 0) & (by < 360)).all() and len(set(by.tolist())) == len(by)
    assert_close(added(batch, angles), by, rtol=0, atol=1e-3)


def test_the_angle_of_a_record_follows_from_seed_epoch_and_record_alone(batch):
    _, angles = turns(batch, epoch=3)
    _, of_last_and_first = turns(taken(batch, [4, 5, 0, 1]), epoch=3)
    assert_close(of_last_and_first, angles[[2, 0]])
    for seed, epoch in ((7, 4), (8, 3)):
        assert not torch.allclose(turns(batch, seed=seed, epoch=epoch)[1], angles)


def test_quarters_are_quarters_and_none_is_none(batch):
    quarters = added(batch, turns(batch, form="authors")[1]) / 90
    assert (quarters.round() - quarters).abs().max() < 1e-4
    by, angles = turns(batch, turning=False)
    assert by.eq(0).all() and added(batch, angles).abs().max() < 1e-3


def test_without_an_angle_views_are_taken_to_be_aligned(batch):
    bare = replace(batch, extras={"role": batch.extras["role"]})
    assert turns(bare, turning=False)[1].eq(0).all()


def test_rows_without_a_partner_and_vectors_to_be_turned_are_rejected(batch):
    with pytest.raises(ConfigError, match="got 5 rows in this process"):
        turns(taken(batch, [0, 1, 2, 3, 4]))
    with pytest.raises(ConfigError, match=r"got inputs \[6, 256\]"):
        turns(replace(batch, inputs=batch.inputs.flatten(1)))
