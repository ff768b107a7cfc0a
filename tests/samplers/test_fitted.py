"""Batches for data that may be smaller than what was asked for."""

import numpy as np
import pytest
import torch

from vicinal.errors import ConfigError, DataError
from vicinal.samplers import SAMPLERS, ClassTree, PKSampler

# What samplers make of batch_size=64, and of 35 classes of 8 rows, 4 classes of 3, 2 of 2.
SIZES = {
    "classes": (64, 64, 12, 4),
    "pairs": (64, 64, 8, 4),
    "triplets": (63, 51, 6, 3),
    "category_balanced": (64, 64, 12, 4),
    "hierarchical": (64, 64, 12, 4),
    "episodes": (64, 64, 8, None),
    "anchor_neighbors": (64, 64, 12, 4),
    "cross_view": (64, 64, 8, 4),
}
LAYOUTS = {
    "category_balanced": "classes",
    "hierarchical": "classes",
}  # others': the name


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
    sampler = PKSampler(labels, batch_size=64, seed=0)
    assert (sampler.classes, sampler.per_class) == batch
    assert (
        f"{batch[0]} classes x {batch[1]} samples instead of 16 classes x 4 samples" in sampler.note
    )
    for rows in sampler.epoch(0):
        _, counts = np.unique(labels[rows], return_counts=True)
        assert counts.tolist() == [batch[1]] * batch[0]


def epoch_of(sampler, labels):
    if sampler.layout != "anchor_neighbors":
        return sampler.epoch(0)
    vectors = torch.randn(len(labels), 4, generator=torch.Generator().manual_seed(0))
    sampler.tree = ClassTree.build(vectors, torch.from_numpy(labels))
    return sampler.epoch(0)


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_fits_its_batches_to_the_data(name):
    for (classes, size), rows in zip([(100, 9), (35, 8), (4, 3), (2, 2)], SIZES[name], strict=True):
        labels = np.repeat(np.arange(classes) * 3 + 1, size)
        if rows is None:
            with pytest.raises(DataError, match=r"at least 4 pairs .* hold fewer classes out"):
                SAMPLERS[name](labels, batch_size=64, seed=0)
            continue
        sampler = SAMPLERS[name](labels, batch_size=64, seed=0)
        assert sampler.layout == LAYOUTS.get(name, name)
        assert {len(batch) for batch in epoch_of(sampler, labels)} == {rows}
        assert (sampler.note is None) == (classes == 100 or (classes, rows) == (35, 64)), (
            sampler.note
        )


@pytest.mark.parametrize("name", SAMPLERS)
def test_batches_below_the_least_name_the_setting_to_change(name):
    labels = np.repeat(np.arange(10), 6)
    with pytest.raises(ConfigError, match=r"Set training\.batch_size="):
        SAMPLERS[name](labels, batch_size=2, seed=0)
    with pytest.raises(DataError, match="Add data, or hold fewer classes out"):
        SAMPLERS[name]([0, 0, 0, 1], batch_size=64, seed=0)


@pytest.mark.parametrize(
    ("name", "given", "batch"),
    [
        ("anchor_neighbors", {"anchors": 2, "neighborhood": 5, "per_class": 3}, (10, 3, 30)),
        ("episodes", {"training_classes": 8, "validation_classes": 4}, (12, 2, 24)),
        ("classes", {"per_class": 2}, (30, 2, 60)),
        ("pairs", {"classes": 5}, (5, 2, 10)),
    ],
)
def test_given_sizes_take_the_place_of_the_batch_size(name, given, batch):
    sampler = SAMPLERS[name](np.repeat(np.arange(30), 6), batch_size=64, seed=0, **given)
    assert sampler.shape() == batch


def test_the_paper_s_episode_and_a_class_that_forms_no_pair():
    paper = SAMPLERS["episodes"](np.repeat(np.arange(100), 2), batch_size=120, seed=0)
    assert (paper.training_classes, paper.validation_classes) == (50, 10)
    with pytest.raises(ConfigError, match=r"sampler\.per_class is at least 2, got 1"):
        SAMPLERS["classes"](np.arange(60) // 6, batch_size=64, seed=0, per_class=1)


def test_views_are_counted_by_roles():
    labels = np.repeat(np.arange(6), 2)
    roles = np.array([1, 2] * 4 + [1, 1] * 2)
    sampler = SAMPLERS["cross_view"](labels, batch_size=64, seed=0, roles=roles)
    assert sampler.classes == 4
    assert "2 of 6 classes lack" in sampler.note and "4 pairs instead of 32" in sampler.note
    with pytest.raises(DataError, match="a query and a gallery image"):
        SAMPLERS["cross_view"](labels, batch_size=64, seed=0, roles=np.ones(12, dtype=int))
