"""``vicinal train --data``: a user's own data with one command and no recipe."""

import json

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def pictures(tmp_path):
    """Five classes of eight pictures of different sizes: too few for most settings of a recipe."""
    rng = np.random.default_rng(0)
    for label in range(5):
        (tmp_path / "pictures" / f"c{label}").mkdir(parents=True)
        slope, colour = rng.normal(size=2), rng.normal(size=3)
        for number in range(8):
            down, across = (np.linspace(-1, 1, side) for side in rng.integers(34, 50, 2))
            grey = 128 + 60 * np.add.outer(slope[0] * down, slope[1] * across)[..., None] + 40 * colour
            pixels = (grey + 10 * rng.normal(size=grey.shape)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / f"c{label}" / f"{number}.jpg")
    return tmp_path / "pictures"


SMALL = ["transform.size=32", "transform.canvas=32", "transform.resize=32", "epochs=1", "workers=0"]


def test_five_classes_of_eight_pictures_are_trained_without_a_recipe(pictures, vicinal, tmp_path):
    done = vicinal("train", "--data", "pictures", *SMALL, "--run", "run", "--no-report")
    assert done.returncode == 0, done.stderr
    assert "pictures: 40 images of 5 classes, 2 to train on" in done.stderr
    assert "recipe images: EfficientNet-Lite0" in done.stderr and "too few to hold some out" in done.stderr
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert [row["name"] for row in results["rows"]][-2:] == ["untrained", "trained"]
    assert "2 classes x 4 samples instead of 16 x 4" in results["notes"][0]
    saved = json.loads((tmp_path / "run" / "run.json").read_text())["recipe"]
    assert saved["name"] == "images" and saved["settings"]["validation"] == 0


def test_vectors_are_trained_without_a_recipe(vicinal, tmp_path):
    features = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
    np.savez(tmp_path / "x.npz", features=features, labels=np.repeat(np.arange(20), 3))
    done = vicinal("train", "--data", "x.npz", "epochs=1", "--run", "run", "--no-report")
    assert done.returncode == 0 and "recipe features" in done.stderr
    assert "8 classes x 3 samples" in json.loads((tmp_path / "run" / "results.json").read_text())["notes"][0]


def test_data_beside_a_recipe_is_its_data(pictures, vicinal, tmp_path):
    settings = ["widths=4,8", "transform.size=16", "transform.resize=16", "validation=0", "epochs=1", "workers=0"]
    done = vicinal("train", "images_from_scratch", "--data", "pictures", *settings, "--run", "run", "--no-report")
    assert done.returncode == 0, done.stderr
    saved = json.loads((tmp_path / "run" / "run.json").read_text())
    assert saved["recipe"]["name"] == "images_from_scratch" and saved["data"]["name"] == "pictures"
    assert "recipe" not in done.stderr  # nothing was chosen, so nothing is explained


def test_a_folder_named_as_a_recipe_is_sent_to_the_right_door(pictures, vicinal):
    done = vicinal("train", "pictures")
    assert done.returncode == 2 and "`vicinal train --data pictures`" in done.stderr
