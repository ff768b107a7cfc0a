"""Every loss and every method as a run: three steps, resume and export."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.pictures import paint

from vicinal.config import compose
from vicinal.data import Glyphs
from vicinal.losses import LOSSES, ProxyLoss
from vicinal.methods import METHODS, combination
from vicinal.retrieval.export import export_run
from vicinal.training.checkpoint import latest_checkpoint
from vicinal.training.console import Console
from vicinal.training.experiment import prepare
from vicinal.training.run import resume, start

FOLDER = str(Path(__file__).parents[2] / "experiments")
sys.path.insert(0, FOLDER)
from corrupted import Corrupted  # noqa: E402

sys.path.remove(FOLDER)

MATRIX_METHODS = ("plain", "hdml", "loop", "ala", "htl", "cross_batch_memory", "momentum_queue")
PAIRS = [(method, loss) for method in MATRIX_METHODS for loss in LOSSES]
WORKING = [pair for pair in PAIRS if combination(METHODS[pair[0]](), pair[1]) is None]
# Every loss, and every method over pairs and over proxies; tests/methods/test_combinations.py
# trains and resumes them all.
ONE_EACH = {
    (method, issubclass(LOSSES[loss], ProxyLoss)): (method, loss) for method, loss in WORKING
}
WORKING = [pair for pair in WORKING if pair[0] == "plain" or pair in ONE_EACH.values()]
# A loss changes nothing in the graph.
GRAPHS = list({method: (method, loss) for method, loss in WORKING}.values())
# Most of the time would go into evaluation.
FEW = Corrupted(Glyphs(per_class=8, size=16, test=0.02), classes=40)


def experiment(method, loss, **training):
    return compose(
        {
            "data": FEW,
            "model": {"name": "small", "widths": [4, 8], "dim": 8},
            "transform": {"size": 16, "resize": 16, "channels": 1},
            "loss": loss,
            "method": method,
            "training": {
                "steps": 3,
                "batch_size": 24,
                "checkpoint_seconds": 0,
                "validation": 0.0,
                **training,
            },
            "evaluation": {"restarts": 1, "artifacts": False},
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize(("method", "loss"), WORKING)
def test_a_combination_trains_resumes_and_exports(method, loss, tmp_path):
    console = Console(quiet=True)
    run = start(experiment(method, loss), tmp_path / "run", command="test", console=console)
    steps = [*run.metrics("step")]
    assert len(steps) == 3 and all(torch.tensor(line["loss"]).isfinite() for line in steps)
    whole = run.metrics_path.read_bytes()
    weights = run.weights_path.read_bytes()
    latest_checkpoint(run.checkpoints_path).unlink()  # go on from the one before
    run.write_status("interrupted")
    resume(run.path, console=console)
    assert run.metrics_path.read_bytes() == whole and run.weights_path.read_bytes() == weights
    difference = export_run(run, onnx=(method, loss) in GRAPHS).difference
    assert difference is None or difference < 1e-5


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """70 classes of 8 pictures, half of which train: what a person may have of their own."""
    return paint(tmp_path_factory.mktemp("pictures"), 70, 8, side=16)


# Which takes pairs of two views.
@pytest.mark.parametrize("method", [name for name in METHODS if name != "her"])
def test_35_classes_of_8_pictures_are_enough_for_every_method(method, folder):
    config = compose(
        {
            "data": str(folder),
            "model": {"name": "small", "widths": [4, 8], "dim": 16},
            "transform": {"size": 16, "resize": 16},
            "method": method,
            "training": {"steps": 2, "validation": 0.0, "workers": 0},
        }
    )
    experiment = prepare(config)
    assert len(np.unique(experiment.train.labels)) == 35 and len(experiment.train) == 280
    batches = experiment.batches(experiment.plan(0)[:2], epoch=0, start=0)
    losses = [experiment.method(batch).scalars["loss"] for batch in batches]
    assert losses and all(loss.isfinite() for loss in losses)
