"""bench, compare and tune from outside: errors, usage, and a whole small bench with a stop in the
middle."""

import json
import re

import numpy as np
import pytest
from PIL import Image
from tests.runs import run_here

from vicinal.bench.pool import Pool
from vicinal.bench.results import append
from vicinal.bench.run import jobs, rows_of
from vicinal.bench.table import load_tables

SMALL = """
from vicinal.bench import Table, baseline, row

TABLE = Table(
    "A small table",
    baseline("plain", loss="multi_similarity"),
    row("method", "optimizer.learning_rate=1e-2", against="plain"),
    row("diverges", "optimizer.learning_rate=1e25"),
    name="small",
    preset="features",
    data=("arrays", {"path": "vectors.npz"}),
    model={"name": "identity", "dim": 8},
    sampler={"name": "classes", "classes": 4, "per_class": 3},
    training={"epochs": 2, "checkpoint_seconds": 0.2},
    evaluation={"restarts": 1},
    seeds=1,
    search=("optimizer.learning_rate=1e-4..1e-2:log",),
)
"""


@pytest.fixture
def here(monkeypatch):
    """No job has a process of its own."""
    monkeypatch.setattr(Pool, "run", run_here)


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A table over a head on vectors, with a row that fails."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(40), 6)
    features = rng.normal(size=(40, 16))[labels] + 0.7 * rng.normal(size=(len(labels), 16))
    np.savez(tmp_path / "vectors.npz", features=features.astype(np.float32), labels=labels)
    (tmp_path / "small.py").write_text(SMALL)
    return "small.py"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("bench smal.py", "which is none"),
        ("bench headline-cub", "which is none"),
        ("bench small.py::smal", "did you mean 'small'"),
        ("bench small.py --protocol finale", "did you mean 'final'"),
        ("bench small.py --seeds 0", "at least 1"),
        ("bench small.py --rows methods --minutes 0", "did you mean 'method'"),
        ("bench small.py --rows method --page", "--page runs nothing"),
        ("bench small.py --trials 2 --protocol validation", "protocol final"),
        ("compare nowhere elsewhere", "not a run"),
        ("best loss=triplet", "name your data first"),
        ("best vectors.npz loss.bta=1", "did you mean 'beta'"),
        ("best vectors.npz loss.beta=0.5..0.1", "low < high"),
    ],
)
def test_an_error_is_one_message_not_a_traceback(words, message, small, rejected):
    assert message in rejected(words)


def test_usage_and_tables_are_listed(small, works):
    _, out, _ = works("bench")
    assert "FILE.py" in out and "--page" in out
    _, out, _ = works("bench", small, "--list")
    assert "small.py::small" in out and "plain; method; diverges" in out


def record(tmp_path, row="method", value=0.5, metric="recall@1"):
    (table,) = load_tables("small.py")
    for job in jobs(table):
        if row in rows_of(job):
            line = {
                "row": row,
                **job.identity(),
                "created": "2026",
                "seconds": 1.0,
                "hardware": "here",
            }
            line |= {"metrics": {metric: value}}
            append(tmp_path / "results" / "small.jsonl", line)


def seeds_on_page(tmp_path):
    text = (tmp_path / "results" / "small.md").read_text()
    (row,) = re.findall(r"^\| method.* \|$", text, re.MULTILINE)
    return int("incomplete" not in row)


def test_a_page_runs_nothing(small, vicinal, tmp_path):
    assert vicinal("bench", small, "--page").returncode == 0 and seeds_on_page(tmp_path) == 0
    record(tmp_path)
    assert vicinal("bench", small, "--page").returncode == 0 and seeds_on_page(tmp_path) == 1
    assert not (tmp_path / "runs").exists()


def test_a_stop_leaves_the_page_of_what_is_there(small, vicinal, tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    record(tmp_path)
    monkeypatch.setattr("vicinal.bench.run.run_tables", stopped)
    code, _, err = vicinal("bench", small)
    assert code == 130 and "so far: results/small.md" in err and seeds_on_page(tmp_path) == 1


def test_a_row_that_is_not_what_its_table_expects_is_an_error(small, vicinal, tmp_path):
    text = (tmp_path / small).read_text()
    (tmp_path / small).write_text(
        text.replace("seeds=1", "seeds=1, expected={'method': (0.6, 0.01)}")
    )
    record(tmp_path, value=0.7)
    code, _, err = vicinal("bench", small, "--page")
    assert code == 1 and "method: Recall@1 70.0, expected 60.0 ± 1.0" in err
    assert vicinal("bench", small, "--page", "--seeds", "2").returncode == 0, (
        "of as many seeds alone"
    )


def kept(file):
    """The results in a file of a line each."""
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.slow(30)
def test_a_bench_runs_reports_a_failure_and_skips_what_is_done(
    small, vicinal, tmp_path, monkeypatch
):
    code, out, err = vicinal("bench", small, "--jobs", "2")
    # And the rest goes on.
    assert code == 1 and "diverges seed 0 failed" in err and "diverged" in err
    text = (tmp_path / "results" / "small.md").read_text()
    assert "| method" in text and "diverges; incomplete: 0 of 1 seeds; 1 failed" in text
    lines = kept(tmp_path / "results" / "small.jsonl")
    recall = {line["row"]: line["metrics"]["recall@1"] for line in lines}
    assert len(lines) == len(recall) == 3 + 2
    monkeypatch.setattr(Pool, "run", run_here)
    code, out, err = vicinal("bench", small)
    assert "1 jobs to run, 3 done before" in err and code == 1

    runs = tmp_path / "runs" / "bench" / "jobs"
    (plain,), (method,) = runs.glob("plain-*/run"), runs.glob("method-*/run")
    for metric in ("recall@1", "map@r"):
        code, out, _ = vicinal("compare", str(plain), str(method), "--json", "--metric", metric)
        first, second = json.loads(out)["rows"]
        assert second["difference"]["over_classes"]["mean"] == pytest.approx(
            second["scores"][metric]["mean"] - first["scores"][metric]["mean"], abs=1e-6
        )


@pytest.mark.slow
def test_the_best_for_a_folder_of_pictures(here, tmp_path, works):
    """Heads race on features, the best of them as networks, and a killed search goes on."""
    for number in range(96):
        folder = tmp_path / "my pictures" / f"class {number % 16}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 24), (15 * (number % 16), number, 99)).save(folder / f"{number}.png")
    words = ["best", "my pictures", "model=small", "model.dim=4", "model.widths=4,8"]
    words += ["transform.size=16", "transform.resize=16", "training.workers=0", "training.steps=2"]
    words += ["loss=triplet,n_pair", "--minutes", "1.5", "--out", "best", "--jobs", "1"]
    _, out, _ = works(*words)
    page = (tmp_path / "best" / "run" / "best.md").read_text()
    assert "| training.head_only=true model.head=none model.start=random | whole |" in page
    assert "| default | whole |" in page and "'my pictures'" in page and "best.toml" in out
    works(*words)


def test_a_table_whose_trials_are_missing_is_not_tested(small, vicinal, tmp_path):
    code, _, err = vicinal("bench", small, "--trials", "2", "--minutes", "0")
    assert code == 1 and "of plain, method, diverges on 4 folds" in err
    # Two rows that differ in what is searched alone have the same second trial.
    assert "20 were not started" in err and "Nothing is tested" in err
    assert not (tmp_path / "results").exists()
