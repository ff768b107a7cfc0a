"""A table of a second with a baseline, results made up by hand, and a console that prints
nothing."""

import numpy as np
import pytest

from vicinal.bench import results
from vicinal.bench.run import jobs, rows_of
from vicinal.bench.table import Table, load_tables
from vicinal.training.console import Console

TINY = '''"""A tiny table for tests."""

from vicinal.bench import Table, baseline, row

TABLE = Table(
    "A tiny table",
    baseline("plain", loss=("multi_similarity", {"beta": 2.0})),
    row("method", "loss.beta=40", against="plain", trials=20, published={"recall@1": 0.9}),
    name="tiny",
    preset="features",
    data=("arrays", {"path": DATA}),
    model={"name": "identity", "dim": 4, "start": "random"},
    sampler={"name": "classes", "classes": 3, "per_class": 3},
    optimizer={"learning_rate": 1e-2},
    training={"epochs": 2},
    evaluation={"recalls": [1], "restarts": 1},
    metrics=("recall@1", "map@r"),
    seeds=3,
    search=("optimizer.learning_rate=1e-3..1e-1:log",),
)
'''


@pytest.fixture
def tiny(tmp_path) -> str:
    """A file that defines a table over 20 noisy classes of 6 vectors."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(20), 6)
    features = (rng.normal(size=(20, 8))[labels] + 0.8 * rng.normal(size=(len(labels), 8))).astype(
        np.float32
    )
    np.savez(tmp_path / "tiny.npz", features=features, labels=labels)
    path = tmp_path / "tiny.py"
    path.write_text(TINY.replace("DATA", repr(str(tmp_path / "tiny.npz"))))
    return str(path)


@pytest.fixture
def table(tiny) -> Table:
    """A method and its baseline, 3 seeds."""
    (found,) = load_tables(tiny)
    return found


@pytest.fixture
def console() -> Console:
    return Console(quiet=True)


@pytest.fixture
def record(tmp_path):
    """``record(table, {"plain": [0.5, 0.6], ...})``: a results file as a bench would have written
    it."""

    def write(table: Table, values: dict[str, list[float]], **facts) -> None:
        for job in jobs(table.replace(seeds=max(map(len, values.values())))):
            for row in rows_of(job):
                if job.seed < len(values.get(row, [])):
                    line = made_up(job, row, values[row][job.seed]) | facts
                    results.append(tmp_path / "results" / f"{table.name}.jsonl", line)

    def made_up(job, row, value):
        return {
            "table": job.table.name,
            **job.identity(),
            "row": row,
            "commit": "abc",
            "created": f"2026-01-01T00:00:{job.seed:02d}+00:00",
            "hardware": "2 arm cores, 1 thread a run, torch 2.0",
            "seconds": 1.5,
            "metrics": {"recall@1": value, "map@r": value / 2},
            "held_out": value / 2,
            "queries": 10,
            "hits": [round(10 * value)] * 10,
            "scalars": {"hardness/lambda": 1 - value},
        }

    return write
