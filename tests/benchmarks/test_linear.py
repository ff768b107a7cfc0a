"""The benchmark beside LMNN: fits together, kept as they end and gone on with; a table that says
what is not known."""

import csv
import gzip
import importlib
import json
import subprocess
import sys
import threading
import time
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def linear(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    module = importlib.import_module("linear")
    monkeypatch.setattr(module, "machine", lambda: "a machine")
    monkeypatch.setattr(module, "versions", lambda: "commit 0")
    return module


@pytest.fixture
def options(linear, tmp_path):
    return Namespace(
        results=tmp_path / "linear.jsonl",
        sets=list(linear.SETS),
        rounds=1,
        neighbors=[4, 5, 6, 7],
        also=["full sets", "tuned"],
        metric_learn="peers",
        together=16,
        threads=1,
        cap=480,
    )


def test_together_the_long_fits_begin_first_and_none_is_left_out(linear, options):
    found = linear.units(options)
    assert all(kind.startswith("lmnn") for _, _, kind in found[:12]) and found[0][0] == "usps"
    options.together = 1
    in_turns = linear.units(options)
    assert sorted(in_turns) == sorted(found) and len(set(found)) == 3 * (3 + 4) + 2
    assert [kind for _, _, kind in in_turns[:4]] == [
        "lanml",
        "lanml full sets",
        "lanml tuned",
        "lmnn-4",
    ]


def test_no_more_run_at_a_time_than_asked_for_and_each_is_kept_as_it_ends(
    linear, options, monkeypatch
):
    running = 0
    most = 0
    kept = []
    lock = threading.Lock()

    def fit(name, number, contestant, options):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1
            kept.append(len(options.results.read_text().splitlines()))
        return {"seconds": 1.0, "cpu": 1.0}

    monkeypatch.setattr(linear, "in_own_process", fit)
    options.together = 3
    options.results.touch()
    linear.work(options)
    assert most == 3 and kept[-1] > 10
    lines = [json.loads(line) for line in options.results.read_text().splitlines()]
    assert (
        len(lines) == 23
        and {line["cap"] for line in lines} == {480}
        and {line["together"] for line in lines} == {3}
    )


def test_a_later_call_does_what_is_missing_failed_was_cut_off_or_was_stopped_too_soon(
    linear, options, monkeypatch
):
    answers = {one: {"seconds": 1.0, "cpu": 1.0} for one in linear.units(options)}
    stopped = ("usps", 0, "lmnn-7")
    failed = ("usps", 0, "lmnn-6")
    answers |= {stopped: {"seconds": 480.0, "cpu": 400.0, "stopped": True}, failed: None}
    done = []
    monkeypatch.setattr(
        linear,
        "in_own_process",
        lambda name, number, kind, _: done.append((name, number, kind)) or answers[done[-1]],
    )
    options.together = 1
    linear.work(options)
    assert len(done) == 23
    text = options.results.read_text().splitlines(keepends=True)
    options.results.write_text("".join(text)[:-5])  # the last line, of memory, lost its end
    done.clear()
    linear.work(options)
    assert set(done) == {failed, ("letter-20000", 0, "memory")}
    done.clear()
    options.cap = 600
    linear.work(options)
    assert set(done) == {failed, stopped}
    assert linear.kept(options.results)[stopped]["cap"] == 600


def test_times_of_another_machine_are_not_added_to(linear, options, monkeypatch):
    monkeypatch.setattr(linear, "in_own_process", lambda *_: {"seconds": 1.0, "cpu": 1.0})
    linear.work(options)
    monkeypatch.setattr(linear, "machine", lambda: "another")
    with pytest.raises(SystemExit, match=r"measured on a machine, but this is another.*--results"):
        linear.work(options)


def test_another_machine_may_measure_another_set(linear, options, monkeypatch):
    monkeypatch.setattr(linear, "in_own_process", lambda *_: {"seconds": 1.0, "cpu": 1.0})
    options.sets = ["isolet1"]
    linear.work(options)
    monkeypatch.setattr(linear, "machine", lambda: "another")
    options.sets = ["usps"]
    linear.work(options)
    found = {line["set"]: line["where"] for line in linear.kept(options.results).values()}
    assert found["isolet1"] == "a machine" and found["usps"] == "another"


def test_the_table_names_the_cap_and_takes_a_stopped_fit_for_a_bound(linear):
    ways = {
        "split": 0,
        "together": 16,
        "threads": 1,
        "cap": 480,
        "where": "here",
        "versions": "numpy 2",
        "load": 9.0,
    }
    ended = {"accuracy": 0.95, "steps": 9}
    stopped = {"stopped": True}
    lines = [
        {"set": "usps", "contestant": "lanml", "seconds": 90.0, "cpu": 90.0, **ended, **ways},
        {"set": "usps", "contestant": "lmnn-4", "seconds": 480.0, "cpu": 480.0, **stopped, **ways},
        {"set": "pendigits", "contestant": "lanml", "seconds": 9.0, "cpu": 9.0, **ended, **ways},
        {
            "set": "pendigits",
            "contestant": "lmnn-4",
            "seconds": 480.0,
            "cpu": 480.0,
            **stopped,
            **ways,
        },
        {"set": "isolet1", "contestant": "lanml", "seconds": 9.0, "cpu": 9.0, **ended, **ways},
        {
            "set": "isolet1",
            "contestant": "lmnn-4",
            "seconds": 40.0,
            "cpu": 40.0,
            **ended,
            **ways,
            "steps": 999,
        },
        {"set": "letter-9000", "contestant": "memory", "bytes": 2**28, "seconds": 1.0, **ways},
    ]
    text = linear.table(lines)
    assert "| over 5.3x | speed unknown, LMNN's accuracy unknown |" in text
    assert "| over 53.3x | speed met, LMNN's accuracy unknown |" in text
    assert (
        "| 4.4x | speed **missed**, accuracy met |" in text
        and "| 40.0 s | 999, its limit |" in text
    )
    assert "| letter, 9,000 x 16 | LANML⁻ peak memory | 256 MiB of 1,024 MiB" in text
    assert "7 fits, 16 at a time, 1 thread each, stopped after 480 s on the clock (2 were)" in text


PEER = """
import time
import numpy as np

class LMNN:
    def __init__(self, n_neighbors, random_state):
        self.n_neighbors, self.n_iter_ = n_neighbors, 7

    def fit(self, X, y):
        if self.n_neighbors == 5:
            time.sleep(600)
        if self.n_neighbors == 6:
            raise ValueError("no")
        return self

    def transform(self, X):
        return X
"""


@pytest.mark.slow(35)
def test_fits_run_in_processes_of_their_own_and_are_stopped_at_the_cap(tmp_path):
    data = tmp_path / "tabular"
    peers = tmp_path / "peers" / "metric_learn"
    results = tmp_path / "linear.jsonl"
    data.mkdir()
    peers.mkdir(parents=True)
    (peers / "__init__.py").write_text(PEER)
    (peers / "_util.py").write_text("from sklearn.utils import check_array, check_X_y\n")
    draw = np.random.default_rng(0)
    for name in ("isolet1", "letter"):
        rows = [
            [*draw.standard_normal(3) + 3 * (number % 3), f"class {number % 3}"]
            for number in range(60)
        ]
        with gzip.open(data / f"{name}.csv.gz", "wt") as file:
            csv.writer(file).writerows([["a", "b", "c", "class"], *rows])
    command = [
        sys.executable,
        str(BENCHMARKS / "linear.py"),
        "--data",
        str(tmp_path),
        "--results",
        str(results),
    ]
    command += [
        "--metric-learn",
        str(peers.parent),
        "--sets",
        "isolet1",
        "--also",
        "--rounds",
        "1",
        "--together",
        "3",
    ]

    def said(*words):
        return subprocess.run(
            [*command, *words], capture_output=True, text=True, check=True, timeout=900
        ).stdout

    # Nothing that ends is stopped, however busy the machine is.
    first = said("--neighbors", "4", "6", "--cap", "280")
    second = said("--neighbors", "5", "--cap", "1")
    lines = {line["contestant"]: line for line in map(json.loads, results.read_text().splitlines())}
    assert (
        set(lines) == {"lanml", "lmnn-4", "lmnn-5", "memory"} and "isolet1 0 lmnn-6 failed" in first
    )
    assert (
        lines["lanml"]["accuracy"] > 0.9
        and lines["lmnn-4"]["steps"] == 7
        and lines["lanml"]["threads"] == 1
    )
    assert (
        lines["lmnn-5"]["stopped"]
        and lines["lmnn-5"]["seconds"] == 1
        and lines["memory"]["bytes"] > 2**24
    )
    assert (
        "stopped after 280 s on the clock (0 were)" in first
        and "stopped after 1 s on the clock (1 were)" in second
    )
