"""``vicinal.train`` from Python, with our objects and with the user's own."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from tests.pictures import paint
from torch import nn

import vicinal
from vicinal.api import Run
from vicinal.data import FeatureArray, Records, own_data
from vicinal.errors import ConfigError, DataError, RunError
from vicinal.evaluation import evaluate
from vicinal.losses import MultiSimilarityLoss
from vicinal.methods import HDML

SHORT = {"steps": 2, "workers": 0, "batch_size": 12}
QUICK = {"restarts": 1}


@pytest.fixture
def pictures(tmp_path):
    return paint(tmp_path / "pictures", 6, 6)


class Net(nn.Module):
    """A network of the user's own, which knows nothing of vicinal."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.width = width
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.layers(pictures)


class OwnLoss(nn.Module):
    def forward(self, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        apart = torch.cdist(embeddings, embeddings)
        return apart[labels[:, None] == labels].mean()


def train(pictures, tmp_path, **slots):
    small = {
        "model": {"name": "small", "widths": [4, 8]},
        "transform": {"size": 16, "resize": 16},
        "training": SHORT,
        "evaluation": QUICK,
    }
    return vicinal.train(pictures, run=tmp_path / "run", quiet=True, **(small | slots))


def test_a_run_embeds_searches_and_reports(pictures, tmp_path):
    run = train(pictures, tmp_path, loss=MultiSimilarityLoss(alpha=2.0), method=HDML(alpha=0.5))
    assert run.path == tmp_path / "run"
    assert set(run.results) == {"raw pixels", "untrained", "trained"}
    assert run.config["method"]["alpha"] == 0.5 and run.config["loss"]["alpha"] == 2
    picture = pictures / "class_5" / "0.png"
    vectors = run.embed([picture])
    assert vectors.shape == (1, 128) and np.linalg.norm(vectors[0]) == pytest.approx(1, abs=1e-5)
    [[(name, label, distance), *others]] = run.search([picture], k=3)
    assert name.endswith("class_5/0.png") and label == "class_5" and len(others) == 2
    assert distance == pytest.approx(0, abs=1e-5)
    assert run.report().is_file()
    assert "Recall@1" in repr(run)


def test_objects_of_ones_own_fill_slots(pictures, tmp_path):
    def batches(labels):
        return [list(range(0, len(labels), 2)), list(range(1, len(labels), 2))]

    def augment(image):
        return torch.from_numpy(np.array(image.resize((16, 16)))).permute(2, 0, 1) / 255

    own = {"loss": OwnLoss(), "sampler": batches, "transform": augment}
    run = train(pictures, tmp_path, **own)
    assert run.directory.config["own"] == ["transform", "sampler", "loss"]
    with pytest.raises(RunError, match="code of your own"):
        vicinal.train(resume=run.path, quiet=True)
    again = vicinal.train(resume=run.path, **own, quiet=True)
    assert again.results["trained"] == run.results["trained"]


def test_a_network_without_its_arguments_is_opened_by_giving_one(pictures, tmp_path):
    def network():
        return nn.Sequential(nn.Conv2d(3, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    run = train(pictures, tmp_path, model=network(), optimizer={"learning_rate": 1.0})
    tested = own_data(run.directory)[1].part("test")
    found = evaluate(run.model.embed_records(tested), tested.labels)
    assert found["map@r"] == pytest.approx(run.results["trained"]["map@r"]), "the steps count"
    with pytest.raises(ConfigError, match=r"module=network\)\.$"):
        vicinal.load(run.path)
    with pytest.raises(ConfigError, match=r"got torch\.nn\.modules\.flatten:Flatten\. Give"):
        vicinal.load(run.path, module=nn.Flatten())
    one = [pictures / "class_0" / "0.png"]
    assert_allclose(vicinal.load(run.path, module=network()).embed(one), run.embed(one))
    with pytest.raises(RunError, match=r"model=\.\.\.\)\.$"):
        vicinal.train(resume=run.path, quiet=True)


def test_a_network_of_ones_own_is_rebuilt_only_when_it_is_named(pictures, tmp_path):
    run = train(pictures, tmp_path, model=Net(8))
    with pytest.raises(ConfigError, match="trust"):
        vicinal.load(run.path)
    one = [pictures / "class_0" / "0.png"]
    assert_allclose(vicinal.load(run.path, trust=Net).embed(one), run.embed(one))


@dataclass(frozen=True)
class Vectors:
    """A data set of the user's own."""

    kind: ClassVar[str] = "features"

    def load(self) -> Records:
        labels = np.repeat(np.arange(8), 6)
        features = np.random.default_rng(0).normal(size=(48, 10)).astype(np.float32)
        splits = np.where(labels < 4, "train", "test")
        return Records(
            "vectors",
            FeatureArray(features, list(map(str, range(48)))),
            labels,
            tuple("abcdefgh"),
            splits,
        )


def test_vectors_of_ones_own_go_through_a_network_of_ones_own(tmp_path):
    network = nn.Sequential(nn.Linear(10, 16), nn.ReLU())
    run = vicinal.train(
        Vectors(),
        model=network,
        training={"epochs": 1, "validation": 0.0},
        evaluation=QUICK,
        run=tmp_path / "run",
        quiet=True,
    )
    assert len(run.embed(np.zeros((3, 10), np.float32))) == 3
    with pytest.raises(DataError, match="should be 10 numbers"):
        run.embed(np.zeros((3, 16), np.float32))


def test_an_unknown_slot_is_named():
    with pytest.raises(ConfigError, match="did you mean 'loss'"):
        vicinal.train("glyphs", los="triplet")


def test_arrays_train_and_are_searched_and_resumed(tmp_path):
    rng = np.random.default_rng(0)
    data = rng.normal(size=(48, 5)), np.repeat(list("abcdefgh"), 6)
    run = vicinal.train(data, training=SHORT, evaluation=QUICK, run=tmp_path / "run", quiet=True)
    [found] = run.search(data[0][:1], k=2)
    assert len(found) == 2 and run.directory.config["own"] == ["data"]
    with pytest.raises(RunError, match=r"data=\.\.\."):
        vicinal.train(resume=run.path, quiet=True)
    assert vicinal.train(data, resume=run.path, quiet=True).results == run.results
    with pytest.raises(DataError, match="does not hold"):
        Run(run.path).search(data[0][:1])
