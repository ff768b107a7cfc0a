"""The recipe that is chosen for a user's data."""

import numpy as np
import pytest
from PIL import Image

from vicinal.errors import ConfigError
from vicinal.models import EfficientNetLite
from vicinal.recipes.cross_view import CrossViewPairs
from vicinal.recipes.features import Features
from vicinal.recipes.images import Images
from vicinal.recipes.images_from_scratch import ImagesFromScratch
from vicinal.training.choice import choose


@pytest.fixture
def weights(monkeypatch):
    """``weights(False)`` takes the package of the weights away, ``weights(True)`` puts one there."""

    def find(installed):
        def found(self, name):
            if not installed:
                raise ConfigError("not installed")
            return "weights.pth"

        monkeypatch.setattr(EfficientNetLite, "find_weights", found)

    return find


@pytest.fixture
def folder(tmp_path):
    """``folder(classes, images)`` writes so many of each."""

    def write(classes, images):
        for label in range(classes):
            (tmp_path / "set" / f"c{label}").mkdir(parents=True)
            for number in range(images):
                Image.new("RGB", (9, 9), (label, number, 0)).save(tmp_path / "set" / f"c{label}" / f"{number}.png")
        return str(tmp_path / "set")

    return write


def test_images_start_from_imagenet_where_the_weights_are_installed(folder, weights):
    weights(True)
    choice = choose(folder(16, 2))
    assert choice.name == "images" and isinstance(choice.recipe, Images) and choice.recipe.validation == 0.2
    assert choice.reasons[0] == "set: 32 images of 16 classes, 8 to train on" and "ImageNet" in choice.reasons[1]


def test_images_start_from_scratch_where_they_are_not_and_it_is_said(folder, weights):
    weights(False)
    choice = choose(folder(16, 2))
    assert choice.name == "images_from_scratch" and isinstance(choice.recipe, ImagesFromScratch)
    assert "from scratch" in choice.reasons[1] and "pip install" in choice.reasons[1]


def test_vectors_get_a_head(tmp_path):
    features = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    np.savez(tmp_path / "x.npz", features=features, labels=np.repeat(np.arange(20), 2))
    choice = choose(str(tmp_path / "x.npz"), ["epochs=3"])
    assert choice.name == "features" and isinstance(choice.recipe, Features) and choice.recipe.epochs == 3


def test_pairs_of_views_get_a_network_for_each(folder, tmp_path):
    root = folder(16, 2)
    rows = [f"{root}/c{place}/0.png,{root}/c{place}/1.png" for place in range(16)]
    (tmp_path / "pairs.csv").write_text("\n".join(["query_path,gallery_path", *rows]))
    choice = choose(str(tmp_path / "pairs.csv"))
    assert choice.name == "cross_view" and isinstance(choice.recipe, CrossViewPairs)
    assert "each of the two views" in choice.reasons[1]


def test_all_classes_are_trained_on_where_they_are_too_few_to_hold_some_out(folder, weights):
    weights(True)
    path = folder(5, 2)
    choice = choose(path)
    assert choice.recipe.validation == 0 and "2 training classes are too few" in choice.reasons[-1]
    assert choose(path, ["validation=0.4"]).recipe.validation == 0.4  # asked for: refused later, with numbers


def test_settings_of_the_data_are_heeded(folder, weights):
    weights(True)
    path = folder(10, 2)
    assert choose(path).recipe.validation == 0  # 5 of 10 classes train
    choice = choose(path, ["data.test=0.2"])
    assert choice.recipe.validation == 0.2 and choice.recipe.data.test == 0.2
