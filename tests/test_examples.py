"""The loops of other libraries in examples/ take the steps of vicinal's own, to the last digits of
each loss."""

import copy
from runpy import run_path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.test_readme import ROOT
from torch.testing import assert_close

import vicinal
from vicinal.data.records import Batch, FeatureArray, Records
from vicinal.losses import ProxyAnchorLoss
from vicinal.methods import Plain
from vicinal.methods.method import Parts
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import Embedder, Identity
from vicinal.samplers import PKSampler

pytestmark = pytest.mark.slow


@pytest.fixture
def experiment(rng):
    labels = torch.arange(96) // 8
    inputs = torch.randn(12, 10, generator=rng)[labels] + torch.randn(96, 10, generator=rng)
    torch.manual_seed(0)
    embedder = Embedder(Identity(10), 6)  # a loss that learns, too
    loss = ProxyAnchorLoss(12, 6)
    batches = [
        list(batch) for batch in PKSampler(labels.numpy(), classes=6, per_class=4, seed=0).epoch(0)
    ]
    return (
        inputs,
        labels,
        embedder,
        loss,
        batches,
        OptimizerConfig(learning_rate=0.05, weight_decay=0.01),
    )


@pytest.fixture
def ours(experiment):
    """The losses of vicinal's own steps."""
    inputs, labels, embedder, loss, batches, optimizer = copy.deepcopy(experiment)
    records = Records(
        "rows",
        FeatureArray(inputs.numpy(), [str(row) for row in range(96)]),
        labels.numpy(),
        tuple("abcdefghijkl"),
        labels.numpy().astype(str),
    )
    parts = Parts(embedder, loss, None, optimizer, records, steps=len(batches), seed=0)
    method = Plain().build(parts)
    method.train()
    found = [
        method(Batch(inputs[rows], labels[rows], torch.tensor(rows))).scalars["loss"]
        for rows in batches
    ]
    assert len(found) >= 4 and found[-1] != found[0]
    return torch.stack(found)


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # its own
@pytest.mark.filterwarnings("ignore:The `srun` command is available")
def test_lightning(experiment, ours):
    pytest.importorskip("lightning")
    example = run_path(str(ROOT / "examples" / "lightning_module.py"))
    inputs, labels, embedder, loss, batches, optimizer = experiment
    module = example["MetricLearning"](embedder, loss, optimizer, len(batches))
    seen = []
    step = module.training_step
    module.training_step = lambda *batch: seen.append(step(*batch)) or seen[-1]
    rows = torch.utils.data.TensorDataset(inputs, labels)
    example["fit"](module, torch.utils.data.DataLoader(rows, batch_sampler=batches), epochs=1)
    assert_close(torch.stack(seen).detach(), ours)


def test_trainer_of_hugging_face(experiment, ours):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    example = run_path(str(ROOT / "examples" / "huggingface_trainer.py"))
    inputs, labels, embedder, loss, batches, optimizer = experiment
    model = example["MetricLearning"](embedder, loss)
    rows = example["Rows"](inputs, labels)
    seen = []
    model.register_forward_hook(lambda *call: seen.append(call[-1]["loss"].detach()))
    example["fit"](model, rows, batches, optimizer, len(batches))
    assert_close(torch.stack(seen), ours)


@pytest.mark.slow(60)
@pytest.mark.filterwarnings("default")  # Ray's own
def test_ray_train(tmp_path, rng):
    ray = pytest.importorskip("ray")
    pytest.importorskip("ray.train.torch")
    labels = np.arange(96) // 8
    centers = torch.randn(12, 10, generator=rng).numpy()
    np.savez(tmp_path / "rows.npz", features=centers[labels], labels=labels)
    settings = {
        "data": str(tmp_path / "rows.npz"),
        "model": {"name": "identity", "dim": 4, "start": "random"},
        "loss": "proxy_anchor",
        "training": {"epochs": 2},
        "quiet": True,
    }
    one, two = tmp_path / "one", tmp_path / "two"
    vicinal.train(**settings, run=one)
    example = run_path(str(ROOT / "examples" / "ray_train.py"))
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    try:
        example["fit"]({**settings, "run": str(two)}, workers=2)
    finally:
        ray.shutdown()
    found, expected = (load_file(path / "model.safetensors") for path in (two, one))
    assert_close(found, expected, atol=1e-6, rtol=1e-5)
