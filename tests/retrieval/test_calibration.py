"""The threshold for `no match`: counted pairs, on the safe side, from classes that training never
saw."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from vicinal.data import own_data
from vicinal.errors import ConfigError
from vicinal.evaluation.encoder import Encoder
from vicinal.evaluation.verification import pairs_by_distance
from vicinal.retrieval.calibration import Calibration, calibration


def count_pairs(*sides):
    return Calibration(*pairs_by_distance(*sides), 6, "classes")


@pytest.fixture
def points(rng):
    labels = torch.arange(60) % 6
    rows = torch.randn(60, 4, generator=rng) + 0.5 * labels[:, None]
    return torch.nn.functional.normalize(rows, dim=1), labels


def pairs(vectors, labels):
    """Distances of all pairs of different and of equal classes."""
    one, other = torch.combinations(torch.arange(len(labels))).T
    far = (vectors[one].double() - vectors[other].double()).norm(dim=1).numpy()
    same = (labels[one] == labels[other]).numpy()
    return far[~same], far[same]


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.1, 0.5])
def test_the_threshold_is_the_largest_that_keeps_to_the_rate(points, rate):
    vectors, labels = points
    different, same = pairs(vectors, labels)
    found = count_pairs(vectors, labels).threshold(rate)
    width = 2 * 2 / 2**16  # of a bin, at most: the points lie on the unit sphere
    assert (different <= found.distance).mean() <= rate
    assert (different <= found.distance + 2 * width).mean() >= rate - 1 / len(different)
    assert found.false_match == pytest.approx((different <= found.distance).mean())
    assert f"{(same <= found.distance).mean():.0%} of the pairs of one class" in found.words
    assert f"{len(different):,} pairs of different classes among the 6" in found.words


def test_with_a_gallery_a_pair_is_a_query_and_a_row_of_it(points):
    vectors, labels = points
    one = count_pairs(vectors, labels)
    both = count_pairs(vectors, labels, vectors, labels)
    assert both.different.sum() == 2 * one.different.sum()
    assert both.same.sum() == 2 * one.same.sum() + 60
    assert both.threshold(0.1).distance == pytest.approx(one.threshold(0.1).distance, abs=1e-3)


def test_a_run_is_calibrated_on_its_held_out_classes_once(image_run, monkeypatch):
    made = calibration(image_run)
    assert made.classes == 2 and made.different.sum() == 9 and made.same.sum() == 6
    monkeypatch.setattr(Encoder, "load", None)  # now it has to come from the run
    kept = calibration(image_run)
    assert np.array_equal(kept.different, made.different) and kept.width == made.width


def test_a_run_that_held_out_nothing_is_calibrated_on_its_test_classes(feature_run):
    made = calibration(feature_run)
    assert made.source == "test classes" and "test classes would be" in made.threshold(0.5).words


def test_without_any_class_to_spare_the_collection_is_named(feature_run, monkeypatch):
    _, records = own_data(feature_run)
    alone = replace(records, splits=np.full(len(records), "train"))
    monkeypatch.setattr("vicinal.retrieval.calibration.own_data", lambda run: (None, alone))
    with pytest.raises(ConfigError, match=r"held out none\. .*vicinal calibrate"):
        calibration(feature_run)


def test_a_rate_below_one_pair_becomes_the_strictest_that_the_pairs_support(points):
    counts = count_pairs(*points)
    found = counts.threshold(1e-9)
    strictest = counts.threshold(1 / 1500)
    assert found.distance == strictest.distance and found.false_match == strictest.false_match
    words = "1,500 pairs support no rate below 1/1500 = 0.00067, which was used instead of 1e-09"
    assert words in found.words
    assert "support" not in strictest.words
