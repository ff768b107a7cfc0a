"""What the slot `training` offers besides the length: moving averages, chunks and trackers."""

import pytest
import torch
from safetensors.torch import load_file
from tests.training.conftest import embedder_state
from torch import nn

import vicinal
from vicinal.errors import ConfigError
from vicinal.training.checkpoint import latest_checkpoint, load_checkpoint
from vicinal.training.run import resume


class Grouped(nn.Module):
    """A network without batch norm, whose rows do not see each other."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(8, 16), nn.GroupNorm(4, 16), nn.GELU(), nn.Linear(16, 6)
        )

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.layers(rows)


def test_the_moving_average_is_what_is_saved_and_it_resumes(console, begin):
    settings = ["loss=multi_similarity", "training.ema=0.9", "training.validation=0"]
    run = begin("run", *settings)
    last = embedder_state(load_checkpoint(latest_checkpoint(run.checkpoints_path)))
    averaged = load_file(run.weights_path)
    assert any(not torch.equal(averaged[name], last[name]) for name in averaged)
    latest_checkpoint(run.checkpoints_path).unlink()
    resume(run.path, console=console)
    again = load_file(run.weights_path)
    assert all(torch.equal(averaged[name], again[name]) for name in averaged)


@pytest.mark.parametrize("method", ["plain", "hdml"])
def test_chunks_train_the_network_of_the_whole_batch(tiny, tmp_path, method):
    data = str(tiny.folder / "tiny.npz")
    weights = []
    network = Grouped()
    for chunk in (None, 5):
        run = vicinal.train(
            data,
            model=network,
            method=method,
            training={"steps": 3, "chunk": chunk, "validation": 0.0},
            optimizer={"name": "sgd", "learning_rate": 0.1},
            run=tmp_path / f"{method}{chunk}",
            quiet=True,
        )
        weights.append(load_file(run.directory.weights_path))
    for name in weights[0]:
        torch.testing.assert_close(weights[0][name], weights[1][name], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("slots", [{}, {"model": Grouped(), "method": "ala"}])
def test_chunks_of_moving_batch_norms_or_under_ala_are_rejected(slots, tmp_path):
    training = {"steps": 1, "chunk": 8}
    with pytest.raises(ConfigError, match=r"training\.chunk"):
        vicinal.train("glyphs", training=training, run=tmp_path / "run", quiet=True, **slots)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_tracker_logs_what_the_journal_has(begin):
    settings = ["loss=multi_similarity", "training.trackers=mlflow"]
    run = begin("run", *settings)
    written = [line["loss"] for line in run.metrics("step")]
    [file] = run.path.rglob("metrics/loss")  # of MLflow's file store: time, value, step
    assert [float(line.split()[1]) for line in file.read_text().splitlines()] == written


def test_a_loss_over_other_embeddings_than_the_models_is_rejected(tmp_path, begin):
    with pytest.raises(
        ConfigError, match=r"loss\.dim=1000000000000, but the embeddings have \d+ numbers"
    ):
        begin("run", "loss=normalized_softmax", "loss.dim=1000000000000")
    assert not (tmp_path / "run").exists()
