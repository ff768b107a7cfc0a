"""A process of units: its answers, its death, and its end with all that it started."""

import csv
import gzip
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from vicinal.bench import linear_worker
from vicinal.bench.linear_plan import Unit
from vicinal.bench.linear_worker import Worker


@pytest.fixture
def data(tmp_path):
    """A small set, and a file that is none."""
    draw = np.random.default_rng(0)
    rows = [[*draw.standard_normal(3) + 2 * (number % 3), f"class {number % 3}"] for number in range(90)]
    with gzip.open(tmp_path / "iris.csv.gz", "wt") as file:
        csv.writer(file).writerows([["a", "b", "c", "class"], *rows])
    (tmp_path / "wine.csv.gz").write_bytes(b"no gzip")
    return tmp_path


@pytest.fixture
def worker():
    found = Worker()
    yield found
    found.stop()


def unit(name="iris", method="gmml"):
    return Unit(name, 0, method, budget=3, raced=3)


@pytest.mark.slow
def test_it_answers_unit_after_unit_and_a_file_that_is_none_kills_it(worker, data):
    for method in ("euclidean", "gmml"):
        worker.give(unit(method=method), data, cores=1, versions="commit 0")
        line = worker.answer()
        assert line["method"] == method and line["accuracy"] > 0.8 and line["versions"] == "commit 0"
    worker.give(unit("wine"), data, cores=1, versions="")
    assert worker.answer() is None and "DataError: " in worker.last_words()
    worker.give(unit(), data, cores=1, versions="")  # is not heard any more
    assert worker.answer() is None


def alive(pid):
    """Whether a process runs; one that has ended and that nobody waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


PROGRAM = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(os.getpid(), child.pid, file=sys.stderr, flush=True)
{}
time.sleep(600)
"""


def gone(pids, seconds=20):
    limit = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < limit:
        time.sleep(0.02)
    return not any(map(alive, pids))


def pids_of(worker):
    limit = time.monotonic() + 20
    while not worker.last_words() and time.monotonic() < limit:
        time.sleep(0.02)
    return [int(word) for word in worker.last_words().split()]


@pytest.mark.parametrize("line", ["", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"])
def test_a_stop_ends_it_with_all_that_it_started(line, monkeypatch):
    monkeypatch.setattr(linear_worker, "PROGRAM", (sys.executable, "-c", PROGRAM.format(line)))
    monkeypatch.setattr(linear_worker, "END_SECONDS", 0.3)
    found = Worker()
    pids = pids_of(found)
    assert len(pids) == 2 and all(map(alive, pids))
    time.sleep(0.2 * bool(line))  # until it ignores the request
    start = time.monotonic()
    found.stop()
    assert gone(pids) and time.monotonic() - start < 5


BENCH = """
import signal, sys, time
from pathlib import Path
from vicinal.bench import linear_worker
from vicinal.bench.linear_plan import Unit
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as of what a shell runs in the background
linear_worker.PROGRAM = (sys.executable, "-c", sys.argv[1])
worker = linear_worker.Worker()
worker.give(Unit("iris", 0, "lda", 1, 1), Path(), cores=1, versions="")
while not worker.last_words():
    time.sleep(0.02)
print(worker.last_words(), flush=True)
time.sleep(600)
"""
BUSY = """
from vicinal.bench import linear_worker
def busy(*_, **__):
    import os, subprocess, sys, time
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(os.getpid(), child.pid, flush=True)
    time.sleep(600)
linear_worker.result = busy
linear_worker.serve()
"""


def test_a_bench_that_was_killed_takes_all_with_it():
    with subprocess.Popen([sys.executable, "-c", BENCH, BUSY], stdout=subprocess.PIPE, text=True) as bench:
        pids = [int(word) for word in bench.stdout.readline().split()]
        assert len(pids) == 2 and all(map(alive, pids))
        bench.kill()
    assert gone(pids)


def test_what_a_user_set_for_threads_does_not_reach_it(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    show = "import os, sys; print(os.environ['OMP_NUM_THREADS'], os.getpgid(0) == os.getpid(), file=sys.stderr)"
    monkeypatch.setattr(linear_worker, "PROGRAM", (sys.executable, "-c", show))
    found = Worker()
    assert found.answer() is None and found.last_words() == "1 True" and os.getpgid(0) != found._process.pid
    found.stop()
