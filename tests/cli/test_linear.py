"""``vicinal train model=lanml``: an estimator fits the head, and the run is one like any other."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.preprocessing import StandardScaler

from vicinal.data import open_path
from vicinal.evaluation.encoder import Encoder
from vicinal.linear import ESTIMATORS
from vicinal.models.config import LINEAR
from vicinal.run_directory import RunDirectory


@pytest.fixture
def table(tmp_path):
    """A table of 12 classes, half of its columns noise in other units."""
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 8)
    signal = 2 * draw.normal(size=(12, 3))[labels] + draw.normal(size=(96, 3))
    columns = np.hstack([signal, 100 + 50 * draw.normal(size=(96, 3))])
    lines = [",".join([*(f"x{n}" for n in range(6)), "label"])]
    for row, label in zip(columns, labels, strict=True):
        lines.append(",".join([*(f"{value:.4f}" for value in row), f"class {label}"]))
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    return "table.csv"


@pytest.mark.parametrize("name", LINEAR)
def test_a_run_maps_as_its_estimator_does(name, table, tmp_path, works):
    words = (f"model={name}", "evaluation.restarts=1", "--run", "run")
    _, _, err = works("train --data", table, *words)
    assert "no step is trained" in err
    training = open_path(str(tmp_path / table)).load().part("train")
    rows = np.stack([training.source.read(n) for n in range(len(training))]).astype(float)
    scaled = StandardScaler().fit_transform(rows)
    mapped = torch.from_numpy(ESTIMATORS[name]().fit(scaled, training.labels).transform(scaled))
    encoder = Encoder.load(RunDirectory.open(tmp_path / "run"), torch.device("cpu"))
    found = encoder.embed(training).vectors.double()
    torch.testing.assert_close(
        torch.cdist(found, found), torch.cdist(mapped, mapped), atol=2e-3, rtol=2e-3
    )


def test_what_is_saved_is_a_matrix_and_a_shift_and_all_commands_take_it(table, tmp_path, works):
    words = ("model=lanml", "model.gamma1=-2", "model.dim=2", "--run", "run")
    works("train --data", table, *words)
    tensors = load_file(tmp_path / "run/model.safetensors")
    shapes = {name: tuple(one.shape) for name, one in tensors.items()}
    assert shapes == {"head.weight": (2, 6), "head.bias": (2,)}
    model = json.loads((tmp_path / "run/run.json").read_text())["config"]["slots"]["model"]
    assert model["name"] == "lanml" and model["gamma1"] == -2
    for command in (
        ("evaluate", "run"),
        ("index", "run", "--split", "test"),
        ("search", "run", "--id", "0"),
    ):
        works(*command)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("model=lanml", "model.gama1=1"), "did you mean 'gamma1'"),
        (("model=lanml", "model.n_components=2"), "n_components"),
        (("model.start=fitted",), "model.start=fitted goes with lanml"),
        (("model=lanmll",), "did you mean 'lanml'"),
    ],
)
def test_what_an_estimator_does_not_take_is_rejected(words, message, table, rejected):
    assert message in rejected("train --data", table, *words)
