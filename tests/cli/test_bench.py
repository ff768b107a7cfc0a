"""bench, compare and tune from outside: refusals, lists, and a whole small bench with a stop in the middle."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from vicinal.bench import catalogue
from vicinal.bench.code import fingerprint
from vicinal.bench.quick import RECORDED, TABLES, departures, quick_tables
from vicinal.bench.results import append
from vicinal.bench.run import Outcome, jobs, rows_of
from vicinal.bench.tables import BASELINES, Row, Table


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bench", "glyfs"], "did you mean 'glyphs'"),
        (["bench", "glyphs", "--protocol", "author"], "did you mean 'authors'"),
        (["bench", "glyphs", "--seeds", "0"], "needs a seed"),
        (["bench", "glyphs", "cub_features", "--rows", "triplets", "--minutes", "0"], "did you mean 'triplet'"),
        (["bench", "glyphs", "--rows", "triplet", "--page"], "--page runs nothing"),
        (["bench", "glyphs", "--trials", "2", "--protocol", "authors"], "tests once"),
        (["bench", "glyphs", "--trials", "2", "--folds", "1"], "2 folds"),
        (["bench", "glyphs", "--into", "nowhere.md", "--page"], "Make it first"),
        (["compare", "nowhere", "elsewhere"], "not a run"),
        (["tune", "glyphs_triplet"], "nothing to search"),
        (["tune", "hdml-glyphs"], "vicinal bench hdml-glyphs --trials 20"),
        (["tune", "glyphs_triplet", "margn=0.1..0.5"], "did you mean 'margin'"),
        (["tune", "glyphs_triplet", "margin=0.5..0.1"], "low < high"),
    ],
)
def test_a_refusal_is_one_message_not_a_traceback(words, message, vicinal):
    code, _, err = vicinal(*words)
    assert code == 2 and message in err and "Traceback" not in err


def test_tables_are_listed(vicinal):
    code, out, _ = vicinal("bench")
    assert code == 0 and "glyphs" in out and "multi-similarity" in out


def test_the_page_of_what_is_there_runs_nothing(vicinal, tmp_path):
    code, out, _ = vicinal("bench", "glyphs", "--page", "--results", "results")
    assert code == 0 and "0 of" in out
    assert "incomplete: 0 of 5 seeds" in (tmp_path / "results" / "glyphs.md").read_text()


@pytest.fixture
def recorded(tmp_path):
    """``recorded(code)``: a result of the table ``glyphs`` as that code would have left it."""
    job = next(job for job in jobs(catalogue.find_table("glyphs")) if job.row == "triplet")
    line = {"row": job.row, **job.identity(), "created": "2026", "seconds": 1.0, "metrics": {"recall@1": 0.5}}

    def write(code=None):
        append(tmp_path / "results" / "glyphs.jsonl", line | {"code": code or fingerprint(job.recipe)})

    return write


def seeds_on_page(tmp_path):
    """How many seeds the row has, of which ``recorded`` wrote some."""
    (row,) = re.findall(r"^\| triplet \|.* (\d)/5 \|", (tmp_path / "results" / "glyphs.md").read_text(), re.MULTILINE)
    return int(row)


def test_a_fresh_page_shows_results_of_this_very_code_alone(vicinal, recorded, tmp_path):
    words = ("bench", "glyphs", "--page", "--results", "results")
    recorded("of another day")
    for more, seeds in (((), 1), (("--fresh",), 0)):
        assert vicinal(*words, *more).returncode == 0 and seeds_on_page(tmp_path) == seeds
    recorded()
    assert vicinal(*words, "--fresh").returncode == 0 and seeds_on_page(tmp_path) == 1


@pytest.mark.parametrize(("more", "seeds"), [((), 1), (("--fresh",), 0)], ids=["all", "fresh"])
def test_a_stop_leaves_the_page_that_the_command_would_have_shown(
    more, seeds, vicinal, recorded, tmp_path, monkeypatch
):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    recorded("of another day")
    monkeypatch.setattr("vicinal.bench.run.run_tables", stopped)
    code, _, err = vicinal("bench", "glyphs", "--results", "results", *more)
    assert code == 130 and "what is there: results/glyphs.md" in err and seeds_on_page(tmp_path) == seeds


def test_several_tables_are_written_into_a_document(vicinal, tmp_path):
    document, words = tmp_path / "results.md", ("bench", "glyphs", "hdml-glyphs", "--page", "--results", "results")
    document.write_text("<!-- bench:glyphs:start -->\n<!-- bench:glyphs:end -->\n")
    code, _, err = vicinal(*words, "--into", "results.md")
    assert code == 2 and "<!-- bench:hdml-glyphs:start -->" in err and not (tmp_path / "results").exists()
    document.write_text(document.read_text() + "<!-- bench:hdml-glyphs:start -->\n<!-- bench:hdml-glyphs:end -->\n")
    code, out, _ = vicinal(*words, "--into", "results.md")
    assert code == 0 and "written into results.md: glyphs, hdml-glyphs" in out
    assert "`vicinal bench hdml-glyphs --seeds 5`: nothing has run yet." in document.read_text()
    assert "[its page](results/glyphs.md)" in document.read_text()


def test_a_reduced_table_without_recorded_values_has_none_to_leave(vicinal):
    code, _, err = vicinal("bench", "hdml-glyphs", "--quick", "--page", "--results", "results")
    assert code == 0, err


def test_a_row_that_leaves_its_recorded_value_is_named():
    table = next(table for table in quick_tables() if table.name == "glyphs-quick")
    recorded = RECORDED["glyphs-quick"]
    assert {*recorded} == {*BASELINES, *(row.name for row in table.rows)}
    lines = {name: {seed: {"metrics": {"recall@1": r.value}} for seed in (0, 1)} for name, r in recorded.items()}
    assert departures(Outcome(table, lines)) == []
    lines["triplet"][0] = {"metrics": {"recall@1": recorded["triplet"].value - 2.2 * recorded["triplet"].tolerance}}
    lines["PCA"] = {0: lines["PCA"][0]}
    found = departures(Outcome(table, lines))
    assert len(found) == 2 and "PCA: 1 of 2 seeds" in found[0] and "triplet: R@1" in found[1]


def test_the_reduced_suite_asks_this_very_code(vicinal, tmp_path):
    table = catalogue.find_table("glyphs").reduced()
    for code, expected in (("of before the change", 1), (None, 0)):
        for job in jobs(table):
            for row in rows_of(job):
                line = {**job.identity(), "row": row, "code": code or fingerprint(job.recipe), "created": "2026"}
                line |= {"seconds": 1.0, "metrics": {"recall@1": RECORDED[table.name][row].value}}
                append(tmp_path / "results" / "glyphs-quick.jsonl", line)
        done = vicinal("bench", "glyphs", "--quick", "--page", "--results", "results")
        assert done.returncode == expected and ("triplet: 0 of 2 seeds" in done.stderr) == bool(expected)


@pytest.fixture
def small(tmp_path, monkeypatch):
    """The table ``small`` in place of the packaged ones: a head on vectors, with a row that fails."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(40), 6)
    features = rng.normal(size=(40, 16))[labels] + 0.7 * rng.normal(size=(len(labels), 16))
    np.savez(tmp_path / "vectors.npz", features=features.astype(np.float32), labels=labels)
    settings = (f"data={tmp_path / 'vectors.npz'}", "epochs=2", "classes=4", "per_class=3", "dim=8", "restarts=1")
    rows = (
        Row("plain", "features", settings),
        Row("method", "features", (*settings, "optimisation.learning_rate=1e-2"), twin="plain"),
        Row("diverges", "features", (*settings, "optimisation.learning_rate=1e30")),
    )
    table = Table("small", "A small table", rows, network="plain", dim=8, seeds=1)
    monkeypatch.setattr(catalogue, "TABLES", (table,))
    monkeypatch.setattr(catalogue.find_table, "__defaults__", ((table,),))
    return table


@pytest.mark.slow
def test_a_bench_runs_reports_a_failure_and_skips_what_is_done(small, vicinal, tmp_path):
    code, out, err = vicinal("bench", "small", "--results", "results", "--jobs", "2")
    assert code == 1 and "diverges seed 0 failed" in err and "training diverged" in err  # and the rest goes on
    text = (tmp_path / "results" / "small.md").read_text()
    assert "| method |" in text and "incomplete: 0 of 1 seeds; 1 failed" in text
    lines = [json.loads(line) for line in (tmp_path / "results" / "small.jsonl").read_text().splitlines()]
    recall = {line["row"]: line["metrics"]["recall@1"] for line in lines}
    assert len(lines) == len(recall) == 3 + 2
    code, out, err = vicinal("bench", "small", "--results", "results", "--jobs", "2")
    assert "1 jobs to run, 3 done before" in err and code == 1

    runs = tmp_path / "runs" / "bench" / "jobs"
    (plain,), (method,) = runs.glob("plain-*/run"), runs.glob("method-*/run")
    code, out, _ = vicinal("compare", str(plain), str(method), "--json")
    rows = json.loads(out)["rows"]
    assert rows[1]["over_seeds"]["mean"] == pytest.approx(recall["method"] - recall["plain"])
    assert rows[1]["over_classes"]["mean"] == pytest.approx(recall["method"] - recall["plain"])


@pytest.mark.slow
def test_ctrl_c_leaves_a_bench_that_goes_on(tmp_path):
    """A real process, interrupted while its jobs train; the same command then ends with all results."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(40), 6)
    np.savez(tmp_path / "v.npz", features=rng.normal(size=(240, 16)).astype(np.float32), labels=labels)
    script = (
        "import sys\nfrom vicinal.bench import catalogue\nfrom vicinal.bench.tables import Row, Table\n"
        "from vicinal.cli.main import run\n"
        f"settings = ('data={tmp_path / 'v.npz'}', 'epochs=300', 'classes=4', 'per_class=3', 'dim=8', 'restarts=1',"
        " 'evaluate_every=300', 'checkpoint_seconds=0.2')\n"
        "table = Table('small', 'Small', (Row('plain', 'features', settings),), network='plain', dim=8, seeds=1)\n"
        "catalogue.find_table.__defaults__ = ((table,),)\n"
        "sys.argv = ['vicinal', 'bench', 'small', '--results', 'results', '--jobs', '1']\nrun()\n"
    )
    command = [sys.executable, "-c", script]
    bench = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    limit = time.monotonic() + 120
    while not list(tmp_path.glob("runs/bench/jobs/plain*/run/checkpoints/step-*")) and time.monotonic() < limit:
        time.sleep(0.1)
    os.kill(bench.pid, signal.SIGINT)
    _, err = bench.communicate(timeout=150)
    assert bench.returncode == 130 and "The same command goes on" in err
    (status,) = tmp_path.glob("runs/bench/jobs/plain*/run/status.json")
    before = json.loads(status.read_text())
    assert before["state"] == "interrupted" and before["step"] > 0
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    log = next(tmp_path.glob("runs/bench/jobs/plain*/log.txt")).read_text()
    assert f"resuming {status.parent.relative_to(tmp_path)} at step {before['step']}" in " ".join(log.split())
    lines = [json.loads(line) for line in (tmp_path / "results" / "small.jsonl").read_text().splitlines()]
    assert [line["row"] for line in lines] == [*BASELINES, "plain"]


@pytest.mark.slow
def test_tuning_walks_through_its_folds(small, vicinal, tmp_path):
    settings = small.rows[0].overrides
    words = [
        "tune",
        "features",
        *settings,
        "optimisation.learning_rate=1e-4..1e-2:log",
        "--trials",
        "2",
        "--folds",
        "2",
    ]
    code, out, err = vicinal(*words, "--jobs", "2")
    assert code == 0, err
    document = json.loads((tmp_path / "runs" / "tune" / "features" / "tuning.json").read_text())
    assert document["trials_done"] == 2 and "train and test it: vicinal train features validation=0" in out


def test_a_table_whose_trials_are_missing_is_not_tested(vicinal, tmp_path):
    code, _, err = vicinal("bench", "glyphs", "--trials", "2", "--minutes", "0", "--results", "results")
    assert code == 1 and "trials 2, rows 4, on 4 folds" in err
    assert "32 were not started" in err and "Nothing is tested" in err
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
def test_all_rows_of_a_table_are_tuned_alike_then_tested(small, vicinal, tmp_path):
    words = ("bench", "small", "--rows", "method", "--trials", "2", "--folds", "2", "--jobs", "2")
    code, _, err = vicinal(*words, "--results", "results")
    assert code == 0, err
    chosen = [json.loads(line) for line in (tmp_path / "results" / "tuning" / "small.jsonl").read_text().splitlines()]
    assert [line["row"] for line in chosen] == ["plain", "method"] and all(line["trials"] == 2 for line in chosen)
    lines = [json.loads(line) for line in (tmp_path / "results" / "small-tuned.jsonl").read_text().splitlines()]
    tested = next(line for line in lines if line["row"] == "method")
    assert tested["protocol"] == "final" and tested["settings"]["validation"] == 0
    assert {f"{key}={value}" for key, value in chosen[1]["chosen"].items()} <= set(tested["overrides"])
    text = (tmp_path / "results" / "small-tuned.md").read_text()
    assert "`vicinal bench small --trials 2 --folds 2 --seeds 1`" in text and "| held out |" in text
    code, _, err = vicinal(*words, "--results", "results")
    assert code == 0 and "0 runs to do" in err and "0 jobs to run, 3 done before" in err


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", TABLES)
def test_the_reduced_suite_keeps_its_recorded_values(name, vicinal, data_root, monkeypatch):
    monkeypatch.setenv("VICINAL_DATA", str(data_root))
    code, out, err = vicinal("bench", name, "--quick", "--jobs", "1")
    assert code == 0, out + err
