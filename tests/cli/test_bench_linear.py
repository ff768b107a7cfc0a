"""``vicinal bench anml_linear`` from outside: refusals, the list, pages of what is there, and a stop in the middle."""

import csv
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from vicinal.bench import linear_peers, linear_run
from vicinal.bench.linear_contestants import OWN, PEERS
from vicinal.bench.linear_plan import QUICK, Unit
from vicinal.bench.linear_run import Outcome

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.fixture
def run(monkeypatch):
    """What was asked of ``run``, which measures nothing and leaves nothing."""
    asked = {}

    def called(plan, methods, **ways):
        asked.update(ways, plan=plan, methods=methods)
        return asked.get("outcome", Outcome(0))

    monkeypatch.setattr(linear_run, "run", called)
    monkeypatch.setattr(linear_peers, "lacking", lambda: "")
    return asked


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["anml_linaer"], "did you mean 'anml_linear'"),
        (["anml_linear", "glyphs"], "measured by itself"),
        (["anml_linear", "--trials", "2"], "--trials came"),
        (["anml_linear", "--protocol", "final", "--fresh"], "--protocol, --fresh came"),
        (["anml_linear", "--add", "runs/x"], "--add came"),
        (["anml_linear", "--trials", "0", "--folds", "4"], "--trials, --folds came"),
        (["anml_linear", "--seeds", "0"], "so 1 to 30 --seeds, but 0 came"),
        (["anml_linear", "--seeds", "31"], "has splits 0 to 29"),
        (["anml_linear", "--quick", "--seeds", "6"], "so 1 to 5 --seeds, but 6 came"),
        (["anml_linear", "--seeds", "5", "--page"], "--seeds limits what is run, but --page runs nothing"),
        (["anml_linear", "--jobs", "0"], "at least 1 unit"),
        (["anml_linear", "--rows", "lanml"], "did you mean 'lanml-'"),
        (["anml_linear", "--rows", "lda", "--page"], "--page runs nothing"),
        (["anml_linear", "--into", "nowhere.md"], "Make it first"),
        (["anml_linear", "--data", "nowhere"], "nowhere/tabular, but 15 of their files"),
    ],
)
def test_a_refusal_is_one_message_and_nothing_is_written(words, message, vicinal, tmp_path):
    code, _, err = vicinal("bench", *words, "--results", "results")
    assert code == 2 and message in err and "Traceback" not in err and not (tmp_path / "results").exists()


def test_the_table_is_listed(vicinal):
    code, out, _ = vicinal("bench")
    assert (
        code == 0 and "anml_linear\n  ANML's linear methods on 15 tables (Song et al. 2022, Table 2): euclidean" in out
    )


def test_peers_that_are_not_installed_are_left_out_and_refused_by_name(vicinal, run, monkeypatch):
    assert vicinal("bench", "anml_linear").returncode == 0 and set(run["methods"]) == {*OWN, *PEERS}
    monkeypatch.setattr(linear_peers, "lacking", lambda: "they are elsewhere (pip install them)")
    code, _, err = vicinal("bench", "anml_linear")
    assert code == 0 and "lmnn and itml are left out: they are elsewhere" in err and set(run["methods"]) == set(OWN)
    code, _, err = vicinal("bench", "anml_linear", "--rows", "lmnn", "--rows", "lda")
    assert code == 2 and "--rows asks for lmnn, but they are elsewhere" in err
    assert vicinal("bench", "anml_linear", "--rows", "lda").returncode == 0 and run["methods"] == ["lda"]


def test_options_reach_the_run(vicinal, run, tmp_path):
    words = ("--seeds", "3", "--jobs", "7", "--minutes", "2", "--data", "here", "--results", "r", "--runs", "there")
    assert vicinal("bench", "anml_linear", *words).returncode == 0
    assert run["plan"].splits == 3 and (run["slots"], run["minutes"]) == (7, 2)
    assert [str(run[name]) for name in ("data", "folder", "runs")] == ["here/tabular", "r", "there"]
    assert vicinal("bench", "anml_linear", "--quick", "--results", "r").returncode == 0 and run["plan"] == QUICK
    assert run["slots"] == os.cpu_count() and (tmp_path / "r" / "anml_linear-quick.html").is_file()


def test_seeds_limit_what_is_run_and_not_what_the_pages_show(vicinal, run, tmp_path):
    pages = []
    for place, seeds in (("all", ()), ("five", ("--seeds", "5", "--rows", "lda"))):
        (tmp_path / place).mkdir()
        shutil.copy(RESULTS / "tabular.jsonl", tmp_path / place)
        document = tmp_path / place / "document.md"
        document.write_text("<!-- bench:anml_linear:start -->\n<!-- bench:anml_linear:end -->\n")
        code, out, _ = vicinal("bench", "anml_linear", *seeds, "--results", place, "--into", str(document))
        files = [document, *(tmp_path / place / f"anml_linear.{kind}" for kind in ("md", "html"))]
        pages.append([out.split("page:")[0], *(file.read_text() for file in files)])
        assert code == 0
    assert run["plan"].splits == 5 and run["methods"] == ["lda"]
    assert pages[0] == pages[1] and "Of 30 splits" in pages[0][0] and "| iris | 30 |" in pages[0][1]


def test_a_file_of_a_set_that_is_none_is_one_message_before_anything_runs(vicinal, tmp_path, monkeypatch):
    monkeypatch.setattr(linear_run, "Worker", None)
    (tmp_path / "tabular").mkdir()
    for name in QUICK.sets:
        (tmp_path / "tabular" / f"{name}.csv.gz").write_text("a,class\n1,x\n")
    words = ("--quick", "--rows", "lda", "--data", ".", "--results", "r")
    code, _, err = vicinal("bench", "anml_linear", *words)
    assert code == 2 and "tabular/iris.csv.gz is to hold a set" in err and "Not a gzipped file" in err
    assert "Traceback" not in err and not (tmp_path / "r").exists()


def test_what_is_missing_is_said_and_a_failure_is_exit_1(vicinal, run):
    run["outcome"] = Outcome(2)
    code, _, err = vicinal("bench", "anml_linear", "--results", "r")
    assert code == 0 and "2 units are missing still; the same command goes on" in err
    run["outcome"] = Outcome(2, [Unit("iris", 0, "lda", 1, 1)])
    assert vicinal("bench", "anml_linear", "--results", "r").returncode == 1


@pytest.mark.parametrize(("more", "name", "kept"), [((), "anml_linear", "tabular"),
                         (("--quick",), "anml_linear-quick", "tabular_reduced")])  # fmt: skip
def test_the_page_of_what_was_recorded_goes_into_a_document(more, name, kept, vicinal, tmp_path):
    shutil.copy(RESULTS / f"{kept}.jsonl", tmp_path)
    document = tmp_path / "document.md"
    document.write_text(f"<!-- bench:{name}:start -->\n<!-- bench:{name}:end -->\n")
    code, out, _ = vicinal("bench", "anml_linear", "--page", *more, "--results", ".", "--into", "document.md")
    assert code == 0 and f"written into document.md: {name}" in out and "*: the best of its row" in out
    assert "| vehicle | " in document.read_text() and "best or not significantly below the best" in document.read_text()
    assert (tmp_path / f"{name}.md").is_file() and (tmp_path / f"{name}.html").is_file()


def test_a_stop_leaves_the_page_of_what_is_there(vicinal, run, monkeypatch, tmp_path):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(linear_run, "run", stopped)
    code, _, err = vicinal("bench", "anml_linear", "--results", "results")
    assert code == 130 and "The same command goes on; what is there: results/anml_linear.md" in err
    assert "| iris (incomplete) | 0 of 30 |" in (tmp_path / "results" / "anml_linear.md").read_text()


@pytest.mark.slow
def test_ctrl_c_leaves_units_that_the_same_command_goes_on_with(tmp_path):
    """A real bench on sets of random numbers, interrupted after its first units; then it ends with all of them."""
    draw = np.random.default_rng(0)
    (tmp_path / "tabular").mkdir()
    for name in QUICK.sets:
        rows = [[*draw.standard_normal(4) + number % 3, f"class {number % 3}"] for number in range(120)]
        with gzip.open(tmp_path / "tabular" / f"{name}.csv.gz", "wt") as file:
            csv.writer(file).writerows([["a", "b", "c", "d", "class"], *rows])
    words = ["anml_linear", "--quick", "--seeds", "1", "--rows", "euclidean", "--rows", "gmml", "--jobs", "1"]
    command = [sys.executable, "-m", "vicinal", "bench", *words, "--data", ".", "--results", "results"]
    bench = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    path, limit = tmp_path / "results" / "tabular_reduced.jsonl", time.monotonic() + 120
    while not path.exists() and time.monotonic() < limit:
        time.sleep(0.02)
    os.kill(bench.pid, signal.SIGINT)
    _, err = bench.communicate(timeout=60)
    assert bench.returncode == 130 and "The same command goes on" in err
    before = path.read_text()
    assert 1 <= len(before.splitlines()) < 18
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{18 - len(before.splitlines())} units to measure, {len(before.splitlines())} done before" in done.stderr
    assert path.read_text().startswith(before)
    keys = {(line["set"], line["method"]) for line in map(json.loads, path.read_text().splitlines())}
    assert len(keys) == 18 and len(path.read_text().splitlines()) == 18
