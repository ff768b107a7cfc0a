"""A recipe of a few seconds on feature vectors, written as a user would write one."""

from pathlib import Path

import numpy as np
import pytest

from vicinal.training.console import Console

TINY = '''"""A tiny recipe for tests.

Cost: seconds.
Expected: nothing.
"""

import time
from dataclasses import dataclass

import torch

from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import FeatureTransform, Transform
from vicinal.losses import MultiSimilarityLoss
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.plain import Plain
from vicinal.models import Embedder, Identity
from vicinal.sampling import PKSampler
from vicinal.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Tiny(Recipe):
    data: Dataset
    transform: Transform = FeatureTransform()
    optimisation: Optimisation = Optimisation(learning_rate=1e-2)
    epochs: int = 3
    restarts: int = 1
    checkpoint_seconds: float = 0.0
    noisy: bool = False
    slow: float = 0.0
    explode_at: int = -1
    flat: bool = False

    def build(self, train: Records) -> Plain:
        embedder = Embedder(Identity(8), 4)
        if self.flat:
            torch.nn.init.zeros_(embedder.head.weight)
        sampler = PKSampler(train.labels, classes=3, per_class=4, seed=self.seed)
        loss = Breakable(self.explode_at, self.slow, self.noisy)
        return Plain.optimised(embedder, loss, sampler, self.optimisation, epochs=self.epochs)


class Breakable(MultiSimilarityLoss):
    """Multi-similarity that can be slow, or NaN from a given call on, or noisy: then it draws from torch's global
    generator, so that a resume which forgot its state would show."""

    def __init__(self, explode_at, slow, noisy):
        super().__init__()
        self.explode_at, self.slow, self.noisy, self.calls = explode_at, slow, noisy, 0

    def forward(self, embeddings, labels, *rest):
        time.sleep(self.slow)
        self.calls += 1
        if self.noisy:
            embeddings = torch.nn.functional.dropout(embeddings, 0.1)
        value = super().forward(embeddings, labels, *rest)
        return value * float("nan") if 0 <= self.explode_at < self.calls else value
'''


@pytest.fixture
def tiny(tmp_path) -> tuple[str, str]:
    """The recipe's file and the override that gives it data: 16 noisy classes of 12 vectors."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(16), 12)
    centres = rng.normal(size=(16, 8))
    features = (centres[labels] + 0.8 * rng.normal(size=(len(labels), 8))).astype(np.float32)
    np.savez(tmp_path / "tiny.npz", features=features, labels=labels)
    recipe = tmp_path / "tiny.py"
    recipe.write_text(TINY)
    return str(recipe), f"data={Path(tmp_path / 'tiny.npz')}"


@pytest.fixture(scope="session")
def once(tmp_path_factory) -> Path:
    """Where this worker keeps the one run that several tests look at."""
    return tmp_path_factory.mktemp("once") / "run"


@pytest.fixture
def console() -> Console:
    return Console(quiet=True)
