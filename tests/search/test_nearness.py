"""How near is near enough: named, or calibrated at a rate that the validation pairs can tell."""

import numpy as np
import pytest
import torch

from vicinal.data import FeatureTransform
from vicinal.errors import ConfigError
from vicinal.evaluation.encoder import Encoder
from vicinal.models import Embedder, Identity
from vicinal.run_directory import RunDirectory
from vicinal.search.fingerprint import model_fingerprint
from vicinal.search.nearness import nearness


@pytest.fixture
def run(tmp_path):
    """A run that has counted 1,000 pairs of different classes, ten in each of the bins from the fifth on."""
    run = RunDirectory.create(tmp_path / "run")
    run.write_info({"vicinal": "0", "name": "run", "recipe": {}, "data": {}})
    encoder = Encoder(Embedder(Identity(4), 4).eval(), FeatureTransform(), torch.device("cpu"))
    encoder.save_description(run)
    encoder.save_weights(run)
    different = np.concatenate([np.zeros(5), np.full(100, 10)]).astype(np.int64)
    same = np.concatenate([np.full(5, 4), np.zeros(100)]).astype(np.int64)
    run.write_arrays(
        "calibration",
        width=np.array(0.01),
        different=different,
        same=same,
        classes=np.array(7),
        model=np.array(model_fingerprint(run)),
    )
    return run


def test_a_named_distance_needs_no_calibration(tmp_path):
    near = nearness(RunDirectory(tmp_path / "none"), distance=0.3)
    assert near.distance == 0.3 and near.false_match is None and "named" in near.words


def test_a_rate_gives_its_distance_and_says_what_it_costs(run):
    near = nearness(run, rate=0.02)
    assert near.distance == pytest.approx(0.07) and near.false_match == 0.02
    assert "0.02 of 1,000 pairs of different classes among the 7 validation classes" in near.words
    assert "100% of the pairs of one class" in near.words


def test_without_a_rate_it_is_the_usual_or_the_least_that_can_be_told(run):
    assert nearness(run).distance == pytest.approx(0.05)  # 1e-5 of 1,000 pairs cannot be told: 1/1000
    assert nearness(run, usual=0.5).false_match == 0.5
    with pytest.raises(ConfigError, match="1/1000"):
        nearness(run, rate=1e-5)


def test_cosine_collections_get_the_same_nearness_in_their_units(run):
    assert nearness(run, rate=0.02, metric="cosine").distance == pytest.approx(0.07**2 / 2)


def test_two_answers_and_nonsense_are_refused(run):
    with pytest.raises(ConfigError, match="Give one of them"):
        nearness(run, distance=0.1, rate=0.1)
    with pytest.raises(ConfigError, match="--distance -1"):
        nearness(run, distance=-1)
