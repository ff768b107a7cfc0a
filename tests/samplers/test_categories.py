"""Batches of a few categories: who meets whom, how often, and what does not fit."""

import itertools
from collections import Counter

import numpy as np
import pytest

from vicinal.config import compose
from vicinal.data import Glyphs
from vicinal.data.records import FeatureArray, Records
from vicinal.errors import ConfigError
from vicinal.samplers import CategoryBalancedSampler, HierarchicalSampler
from vicinal.training.experiment import _build_sampler

# 4 categories of 6, 4, 4 and 2 classes; 5 rows of each class.
OF_CLASS = np.repeat(np.arange(4), [6, 4, 4, 2])
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(16), 5))
STRATA = OF_CLASS[LABELS] * 10


def make(kind=CategoryBalancedSampler, **given):
    return kind(LABELS, **{"strata": STRATA, "classes": 4, "per_class": 3, "seed": 1, **given})


@pytest.mark.parametrize("kind", [CategoryBalancedSampler, HierarchicalSampler])
@pytest.mark.parametrize("categories", [1, 2, 4])
def test_a_batch_has_as_many_classes_of_each_category(kind, categories):
    strata = np.arange(16) % 4 * 7
    sampler = make(kind, strata=strata[LABELS], categories=categories)
    for batch in sampler.epoch(0):
        classes, counts = np.unique(LABELS[batch], return_counts=True)
        assert len(classes) == 4 and set(counts) == {3}
        assert list(Counter(strata[classes].tolist()).values()) == [4 // categories] * categories


def test_categories_come_up_equally_often_however_large_they_are():
    sampler = make(batches=4)
    for epoch in range(5):
        shown = Counter(int(c) for batch in sampler.epoch(epoch) for c in np.unique(STRATA[batch]))
        assert shown == {0: 2, 10: 2, 20: 2, 30: 2}


def test_every_combination_of_categories_comes_up_before_one_comes_up_again():
    sampler = make(HierarchicalSampler, batches=12)
    met = Counter(tuple(np.unique(STRATA[batch]).tolist()) for batch in sampler.epoch(3))
    assert met == dict.fromkeys(itertools.combinations((0, 10, 20, 30), 2), 2)


def test_small_categories_are_left_out_and_too_many_rejected():
    sampler = make(classes=8, batches=30)
    assert {int(c) for batch in sampler.epoch(0) for c in STRATA[batch]} == {0, 10, 20}
    with pytest.raises(
        ConfigError, match="2 categories with 5 classes of 3 samples each, but only 1 of the 4"
    ):
        make(classes=10)
    with pytest.raises(ConfigError, match="classes have rows in several"):
        make(strata=np.arange(80) % 2)
    with pytest.raises(ConfigError, match="4 classes for 3 categories"):
        make(categories=3)


def test_batches_fit_the_categories_and_say_so():
    sampler = CategoryBalancedSampler(LABELS, batch_size=64, seed=0, strata=STRATA)
    assert (sampler.classes, sampler.categories, sampler.per_class) == (8, 2, 4)
    assert "8 classes of 2 categories x 4 samples instead of 16 classes of 2" in sampler.note
    assert CategoryBalancedSampler(LABELS, batch_size=32, seed=0, strata=STRATA).note is None
    everyone = CategoryBalancedSampler(LABELS, batch_size=24, seed=0, strata=STRATA, categories=9)
    assert (everyone.categories, everyone.classes) == (4, 4) and "of 9 categories" in everyone.note


@pytest.mark.parametrize("name", ["category_balanced", "hierarchical"])
def test_the_slot_names_a_column_of_the_data(name):
    source = FeatureArray(np.zeros((80, 2), dtype=np.float32), [str(row) for row in range(80)])
    splits = np.array(["train"] * 80)
    records = Records(
        "r", source, LABELS, tuple(map(str, range(16))), splits, columns={"kind": STRATA}
    )
    given = {"data": Glyphs(), "training": {"batch_size": 16}}
    config = compose({**given, "sampler": {"name": name, "strata": "kind", "per_class": 2}})
    sampler = _build_sampler(config, records)
    assert np.array_equal(sampler.strata, STRATA) and config.sampler.arguments["strata"] == "kind"
    assert all(len(np.unique(STRATA[batch])) == 2 for batch in sampler.epoch(0))
    with pytest.raises(ConfigError, match=r"got 'alphabet'. Columns here: kind"):
        _build_sampler(compose({**given, "sampler": {"name": name, "strata": "alphabet"}}), records)
