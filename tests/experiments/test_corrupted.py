"""Known faults in the training part: as many as asked for, where asked for, and the test part
untouched."""

import sys
from pathlib import Path

import numpy as np
import pytest

from vicinal.arguments import build, describe
from vicinal.data import DATASETS, Glyphs
from vicinal.errors import ConfigError, DataError

FOLDER = str(Path(__file__).parents[2] / "experiments")
sys.path.insert(0, FOLDER)
from corrupted import Corrupted  # noqa: E402

sys.path.remove(FOLDER)
GLYPHS = Glyphs(per_class=4, size=8)


@pytest.fixture(scope="module")
def whole():
    return GLYPHS.load()


def train_labels(records):
    return records.labels[records.splits == "train"]


@pytest.mark.parametrize(
    "fault", [{"classes": 20}, {"clusters": 3}, {"inseparable": 0.5}, {"label_noise": 0.4}]
)
def test_the_test_part_stays_and_no_class_is_in_both(fault, whole):
    records = Corrupted(GLYPHS, **fault).load()
    test = records.part("test")
    before = whole.part("test")
    assert (test.labels == before.labels).all() and test.fingerprint() == before.fingerprint()
    assert not set(train_labels(records)) & set(test.labels)
    assert records.fingerprint() != whole.fingerprint() == Corrupted(GLYPHS).load().fingerprint()


def test_so_many_classes_stay_with_all_their_rows(whole):
    labels, counts = np.unique(
        train_labels(Corrupted(GLYPHS, classes=20).load()), return_counts=True
    )
    assert len(labels) == 20 and (counts == 4).all()


def test_a_merged_class_holds_whole_classes(whole):
    merged = train_labels(Corrupted(GLYPHS, clusters=3).load())
    before = train_labels(whole)
    for label in np.unique(before):
        assert len(np.unique(merged[before == label])) == 1
    held = [len(np.unique(before[merged == label])) for label in np.unique(merged)]
    assert held.count(3) >= len(held) - 1 and sum(held) == len(np.unique(before))


def test_inseparable_classes_share_their_rows_by_halves(whole):
    mixed = train_labels(Corrupted(GLYPHS, inseparable=0.5).load())
    before = train_labels(whole)
    touched = [label for label in np.unique(before) if (mixed[before == label] != label).any()]
    # A coin leaves a class of 4 whole once in 16.
    assert abs(len(touched) / len(np.unique(before)) - 0.5) < 0.1
    assert abs((mixed != before).mean() - 0.25) < 0.05
    for label in touched:
        assert len(set(mixed[before == label]) - {label}) == 1


@pytest.mark.parametrize("share", [0.1, 0.4, 1.0])
def test_the_share_of_wrong_labels_is_the_one_asked_for(share, whole):
    noisy = train_labels(Corrupted(GLYPHS, label_noise=share).load())
    assert abs((noisy != train_labels(whole)).mean() - share) < 0.04
    assert set(noisy) <= set(train_labels(whole))


def test_draws_follow_from_the_seed_and_the_description_from_the_settings():
    one, same, other = (
        Corrupted(GLYPHS, label_noise=0.2, seed=seed).load().labels for seed in (1, 1, 2)
    )
    assert (one == same).all() and (one != other).any()
    faulty = Corrupted(GLYPHS, clusters=2, label_noise=0.1)
    assert build(describe(faulty), DATASETS) == faulty


@pytest.mark.parametrize(
    "fault", [{"label_noise": 1.5}, {"inseparable": -0.1}, {"clusters": 0}, {"classes": 1}]
)
def test_impossible_faults_are_rejected(fault):
    with pytest.raises(ConfigError):
        Corrupted(GLYPHS, **fault)
    with pytest.raises(DataError, match="has 232 training classes"):
        Corrupted(GLYPHS, classes=10_000).load()
