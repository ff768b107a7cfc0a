"""An experiment of a few seconds on feature vectors, with a loss of the user's own."""

import importlib.util
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from vicinal.config import Config, compose, from_words, read
from vicinal.training.console import Console
from vicinal.training.run import resume, start

TINY = """
preset = "features"
model = { name = "identity", dim = 4, start = "random" }
sampler = { name = "classes", classes = 3, per_class = 4 }
loss = "breakable:Breakable"
optimizer = { learning_rate = 1e-2 }
training = { epochs = 3, checkpoint_seconds = 0.0, validation = 0.2 }
evaluation = { restarts = 1 }
"""

LOSS = '''
import time
from dataclasses import dataclass

import torch

from vicinal.losses import MultiSimilarityLoss, ProxyAnchorLoss


class Breakable(MultiSimilarityLoss):
    """Multi-similarity that can be slow, or NaN from a given call on, or noisy: then it draws from
    torch's global generator, so that a resume which forgot its state would show."""

    def __init__(self, explode_at: int = -1, slow: float = 0.0, noisy: bool = False):
        super().__init__()
        self.explode_at, self.slow, self.noisy, self.calls = explode_at, slow, noisy, 0

    def forward(self, embeddings, labels, *rest):
        time.sleep(self.slow)
        self.calls += 1
        if self.noisy:
            embeddings = torch.nn.functional.dropout(embeddings, 0.1)
        value = super().forward(embeddings, labels, *rest)
        return value * float("nan") if 0 <= self.explode_at < self.calls else value


@dataclass(eq=False, repr=False)
class Proxies(ProxyAnchorLoss):
    """Proxies that processes divide, as slow and as noisy."""

    slow: float = 0.0
    noisy: bool = False

    def forward(self, embeddings, *rest):
        time.sleep(self.slow)
        if self.noisy:
            embeddings = torch.nn.functional.dropout(embeddings, 0.1)
        return super().forward(embeddings, *rest)
'''


@dataclass(frozen=True)
class Tiny:
    """The experiment's file, its data, and the words with which a shell would train it."""

    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "tiny.toml"

    @property
    def trust(self) -> dict[str, type]:
        spec = importlib.util.spec_from_file_location("breakable", self.folder / "breakable.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return {"breakable:Breakable": module.Breakable}

    def config(self, *words: str) -> Config:
        title, layer = read(self.file)
        data = {"data": str(self.folder / "tiny.npz")}
        return compose(layer, data, from_words(words), preset_name=title, trust=self.trust)

    def words(self, *more: str) -> list[str]:
        return [
            str(self.file),
            "--data",
            str(self.folder / "tiny.npz"),
            "--trust",
            "breakable:Breakable",
            *more,
        ]


@pytest.fixture
def tiny(tmp_path, monkeypatch) -> Tiny:
    """16 noisy classes of 12 vectors, half of them to train on."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(16), 12)
    centers = rng.normal(size=(16, 8))
    features = (centers[labels] + 0.8 * rng.normal(size=(len(labels), 8))).astype(np.float32)
    folder = tmp_path / "tiny"
    folder.mkdir()
    np.savez(folder / "tiny.npz", features=features, labels=labels)
    (folder / "tiny.toml").write_text(TINY)
    (folder / "breakable.py").write_text(LOSS)
    # Of other processes.
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return Tiny(folder)


@pytest.fixture(scope="session")
def once(tmp_path_factory) -> Path:
    """Where this worker keeps the one run that several tests look at."""
    return tmp_path_factory.mktemp("once") / "run"


@pytest.fixture
def console() -> Console:
    return Console(quiet=True)


@pytest.fixture
def begin(tiny, tmp_path, console):
    """``begin(name, word, ...)``: train the tiny experiment in a folder of that name."""

    def call(name, *words):
        return start(tiny.config(*words), tmp_path / name, command="test", console=console)

    return call


@pytest.fixture
def again(tiny, console):
    """``again(path)``: resume a run of the tiny experiment."""
    return partial(resume, trust=tiny.trust, console=console)


def embedder_state(checkpoint):
    """The network's tensors of a checkpoint."""
    modules = checkpoint["method"]["modules"]
    return {
        name.removeprefix("embedder."): value
        for name, value in modules.items()
        if name.startswith("embedder.")
    }


def steps_of(path):
    file = path / "metrics.jsonl"
    return file.read_text().count('"kind": "step"') if file.exists() else 0
