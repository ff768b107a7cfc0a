"""Processes side by side: a failure is told and the rest goes on; Ctrl-C stops each job once, and it can go on."""

import json
import os
import signal
import sys
import threading
import time
from dataclasses import replace

import pytest

from vicinal.bench import pool as pools
from vicinal.bench.job import Job
from vicinal.bench.pool import Pool, threads
from vicinal.errors import ConfigError

PROGRAM = """
import json, os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
job = json.loads((folder / "job.json").read_text())
began = time.monotonic()
if "slow" in job["row"]:
    try:
        (folder / "began").write_text(str(os.getpid()))
        time.sleep(60)
    except KeyboardInterrupt:
        (folder / "saved").write_text("yes")
        sys.exit(130)
time.sleep(1.5 if "long" in job["row"] else 0.2)
if "bad" in job["row"]:
    sys.exit("\\n".join(f"line {n}" for n in range(30)) + "\\nerror: diverged")
facts = {"threads": os.environ["OMP_NUM_THREADS"], "began": began, "ended": time.monotonic()}
(folder / "done.json").write_text(json.dumps([{"metrics": {"recall@1": 0.5}, **facts}]))
"""


@pytest.fixture
def make(tmp_path, console, tiny):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    recipe, data = tiny

    def pool(slots, **options):
        return Pool(tmp_path / "runs", slots=slots, console=console, program=(sys.executable, str(script)), **options)

    return pool, lambda name, seed=0: Job(name, "trained", recipe, (data,), seed)


def test_a_failure_is_told_with_its_last_lines_and_the_rest_goes_on(make, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    pool, job = make
    two, found = pool(2), {}
    two.run([job("a"), job("bad"), job("c"), job("d")], lambda job, lines: found.update({job.row: lines}), title="t")
    assert set(found) == {"a", "c", "d"}
    (failure,) = two.failures
    assert failure.job.row == "bad" and failure.code == 1
    assert failure.said.endswith("error: diverged") and len(failure.said.splitlines()) == pools.LAST_LINES
    assert found["a"][0]["threads"] == "2"  # 4 cores for 2 jobs
    assert found["c"][0]["began"] >= found["a"][0]["began"]


def test_ctrl_c_stops_each_job_once_and_waits_for_it_to_save(make, tmp_path):
    pool, job = make
    folders = [one.folder(tmp_path / "runs") for one in (job("slow a"), job("slow b"))]

    def interrupt():
        limit = time.monotonic() + 50
        while not all((folder / "began").exists() for folder in folders) and time.monotonic() < limit:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        pool(2).run([job("slow a"), job("slow b"), job("c")], lambda *rest: None, title="t")
    assert all((folder / "saved").exists() for folder in folders)
    assert not job("c").folder(tmp_path / "runs").exists()


def test_when_time_is_up_no_job_starts_and_those_that_run_end_in_peace(make, tmp_path):
    pool, job = make
    found = []
    left = pool(1).run(
        [job("a"), job("b"), job("c")], lambda job, _: found.append(job.row), title="t", minutes=0.1 / 60
    )
    assert found == ["a"] and left == 2  # a job takes twice that time
    assert not job("b").folder(tmp_path / "runs").exists()
    left = pool(2).run([job("long"), job("d"), job("e")], lambda *rest: None, title="t", minutes=0.1 / 60)
    assert left == 1, "nor beside one that still runs"
    assert pool(1).run([job("b")], lambda *rest: None, title="t", minutes=1) == 0
    assert pool(1).run([job("c")], lambda *rest: None, title="t", minutes=0) == 1


def test_fresh_begins_anew_and_otherwise_the_folder_stays(make, tmp_path):
    pool, job = make
    kept = job("a").folder(tmp_path / "runs") / "run" / "kept"
    kept.parent.mkdir(parents=True)
    kept.write_text("")
    pool(1).run([job("a")], lambda *rest: None, title="t")
    assert kept.exists()
    pool(1, fresh=True).run([job("a")], lambda *rest: None, title="t")
    assert not kept.exists()


def test_no_slot_is_refused_and_the_users_threads_stay(make):
    pool, _ = make
    with pytest.raises(ConfigError, match="at least 1 job"):
        pool(0)
    assert threads(2, {"OMP_NUM_THREADS": "7"})["OMP_NUM_THREADS"] == "7"


def test_results_are_recorded_as_they_come(make, table, tmp_path, console, monkeypatch):
    from vicinal.bench import run

    def perform(pool, todo, done, *, title, minutes):
        assert minutes is None and all(job.data == "packed" for job in todo)
        for job in todo:
            lines = [{"row": row, "metrics": {"recall@1": 0.5}, "created": "2026"} for row in run.rows_of(job)]
            done(job, [{**job.identity(), **line} for line in lines])
        return 0

    monkeypatch.setattr(Pool, "run", perform)
    small = replace(table, seeds=1)
    options = {"slots": 1, "fresh": False, "console": console, "data": "packed"}
    outcome = run.run_table(small, tmp_path / "results", tmp_path / "runs", **options)
    assert {name: list(seeds) for name, seeds in outcome.lines.items()} == {
        name: [0] for name in ("untrained", "PCA", "whitened PCA", "plain", "method")
    }
    written = [json.loads(line) for line in (tmp_path / "results" / "tiny.jsonl").read_text().splitlines()]
    assert len(written) == 5 and all(line["table"] == "tiny" for line in written)
    run.run_table(small, tmp_path / "results", tmp_path / "runs", **options)
    assert len((tmp_path / "results" / "tiny.jsonl").read_text().splitlines()) == 5  # nothing was left to run
