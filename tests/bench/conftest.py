"""A recipe of a second with a plain twin, results made up by hand, and a console that keeps silent."""

from dataclasses import replace

import numpy as np
import pytest

from vicinal.bench import results
from vicinal.bench.run import jobs, rows_of
from vicinal.bench.tables import Row, Table
from vicinal.training.console import Console

TINY = '''"""A tiny recipe for tests."""

from dataclasses import dataclass
from typing import Literal

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
    epochs: int = 2
    restarts: int = 1
    recalls: tuple[int, ...] = (1,)
    dim: int = 4
    beta: float = 40.0
    variant: Literal["plain", "method"] = "method"

    def build(self, train: Records) -> Plain:
        sampler = PKSampler(train.labels, classes=3, per_class=3, seed=self.seed)
        loss = MultiSimilarityLoss(beta=self.beta if self.variant == "method" else 2.0)
        return Plain.optimised(Embedder(Identity(8), self.dim), loss, sampler, self.optimisation, epochs=self.epochs)
'''


@pytest.fixture
def tiny(tmp_path) -> tuple[str, str]:
    """The recipe's file and the override that gives it data: 20 noisy classes of 6 vectors."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(20), 6)
    features = (rng.normal(size=(20, 8))[labels] + 0.8 * rng.normal(size=(len(labels), 8))).astype(np.float32)
    np.savez(tmp_path / "tiny.npz", features=features, labels=labels)
    recipe = tmp_path / "tiny.py"
    recipe.write_text(TINY)
    return str(recipe), f"data={tmp_path / 'tiny.npz'}"


@pytest.fixture
def table(tiny) -> Table:
    """A method and its plain twin on the tiny recipe, 3 seeds."""
    recipe, data = tiny
    rows = (
        Row("plain", recipe, (data, "variant=plain"), quick=True),
        Row("method", recipe, (data,), twin="plain", trials=20, published={"recall@1": 0.9}),
    )
    return Table("tiny", "A tiny table", rows, network="plain", dim=4, metrics=("recall@1", "map@r"), seeds=3)


@pytest.fixture
def console() -> Console:
    return Console(quiet=True)


@pytest.fixture
def record(tmp_path):
    """``record(table, {"plain": [0.5, 0.6], ...})``: a results file as a bench would have written it."""

    def write(table: Table, values: dict[str, list[float]], **facts) -> None:
        for job in jobs(replace(table, seeds=max(map(len, values.values())))):
            for row in rows_of(job):
                if job.seed < len(values.get(row, [])):
                    results.append(tmp_path / "results" / f"{table.name}.jsonl", made_up(job, row, values[row]) | facts)

    def made_up(job, row, values):
        value = values[job.seed]
        steps = {"steps": [10.0, 20.0], "values": [value / 2, value]}
        return {
            "table": "tiny",
            **job.identity(),
            "row": row,
            "overrides": list(job.overrides),
            "commit": "abc",
            "created": f"2026-01-01T00:00:{job.seed:02d}+00:00",
            "hardware": {"machine": "arm", "cores": 2, "threads": 1, "device": "cpu"},
            "versions": {"torch": "2.0"},
            "seconds": 1.5,
            "wall": 2.0,
            "metrics": {"recall@1": value, "map@r": value / 2},
            "classes": {"queries": [10] * 10, "hits": [round(10 * value)] * 10},
            "curves": {"loss": steps, "validation recall@1": steps} if job.kind == "trained" else {},
        }

    return write
