"""What cannot be measured or trained is rejected before anything is trained."""

import numpy as np
import pytest

from vicinal.config import compose
from vicinal.data import ImageTransform
from vicinal.errors import ConfigError, DataError
from vicinal.parallel import pick_device
from vicinal.training.experiment import prepare


def features(tmp_path, labels, splits):
    path = tmp_path / "x.npz"
    rows = np.random.default_rng(0).normal(size=(len(labels), 4)).astype(np.float32)
    np.savez(path, features=rows, labels=np.array(labels), splits=np.array(splits))
    sampler = {"name": "classes", "classes": 2, "per_class": 2}
    return compose({"data": str(path), "sampler": sampler, "training": {"validation": 0}})


def test_a_test_part_of_one_class_is_rejected(tmp_path):
    config = features(tmp_path, [0, 0, 1, 1, 2, 2], ["train"] * 4 + ["test"] * 2)
    with pytest.raises(DataError, match=r"test part of .* has 1 classes of at most 2 records"):
        prepare(config)


def test_a_test_part_of_single_records_is_rejected(tmp_path):
    config = features(tmp_path, [0, 0, 1, 1, 2, 3], ["train"] * 4 + ["test"] * 2)
    with pytest.raises(DataError, match="at most 1 records"):
        prepare(config)


def test_classes_in_both_parts_are_noted(tmp_path):
    config = features(tmp_path, [0, 0, 1, 1, 0, 0, 1, 1], ["train"] * 4 + ["test"] * 4)
    assert prepare(config).notes == ("2 classes are in training and test: the test measures known classes.",)


def test_a_transform_of_images_rejects_vectors(tmp_path):
    config = features(tmp_path, [0, 0, 1, 1, 2, 2, 3, 3], ["train"] * 4 + ["test"] * 4)
    images = config.replace(transform=ImageTransform(size=8))
    with pytest.raises(ConfigError, match=r"prepares images, got .* with features"):
        prepare(images)


def test_a_gpu_that_is_not_there_is_rejected(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ConfigError, match="torch sees none"):
        pick_device("cuda")
    assert pick_device("auto").type == "cpu"
