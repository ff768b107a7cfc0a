"""What cannot be measured or trained is rejected before anything is trained."""

import numpy as np
import pytest
from tests.pictures import paint
from torch import nn

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


@pytest.mark.parametrize(
    ("labels", "found"), [([2, 2], "2 records of 1 classes"), ([2, 3], "2 records of 2 classes")]
)
def test_a_test_part_of_one_class_or_of_single_records_is_rejected(labels, found, tmp_path):
    config = features(tmp_path, [0, 0, 1, 1, *labels], ["train"] * 4 + ["test"] * 2)
    with pytest.raises(DataError, match=rf"test part of .* has .*{found}"):
        prepare(config)


def test_classes_in_both_parts_are_noted(tmp_path):
    config = features(tmp_path, [0, 0, 1, 1, 0, 0, 1, 1], ["train"] * 4 + ["test"] * 4)
    assert prepare(config).notes == (
        "2 classes are in training and test: the test measures known classes.",
    )


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


@pytest.fixture
def pictures(tmp_path):
    return paint(tmp_path / "pictures", 4, 3)


def test_a_network_that_cannot_take_the_test_size_is_rejected_before_training(pictures):
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4))
    transform = {"size": 32, "resize": 40, "test_size": 40}
    data = str(pictures)
    training = {"validation": 0, "steps": 2, "batch_size": 8}
    with pytest.raises(
        ConfigError,
        match=r"32 pixels, but not of transform.test_size=40: .* transform.test_size=none",
    ):
        prepare(
            compose({"data": data, "model": network, "transform": transform, "training": training})
        )
    ready = prepare(
        compose({"data": data, "model": "small", "transform": transform, "training": training})
    )
    assert next(iter(ready.batches(ready.plan(0), epoch=0, start=0))).inputs.shape[2:] == (32, 32)
    assert ready.preprocessing.size == 40
    assert len(ready.embed(ready.encoder, ready.records).vectors) == 12


@pytest.mark.parametrize("validation", [{}, {"validation": 0.2}])
def test_two_classes_are_told_what_took_them(validation):
    data = np.eye(8), [0, 0, 0, 0, 1, 1, 1, 1]
    message = r"has 1 training classes.*data\.test=0\.5 keeps 1 for testing.*data\.test=0 "
    with pytest.raises(DataError, match=message):
        prepare(compose({"data": data, "training": validation}))
