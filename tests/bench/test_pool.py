"""Processes side by side: failures are reported and the rest goes on; Ctrl-C stops each task once,
resumably."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from vicinal.bench import pool as pools
from vicinal.bench.pool import Pool, Task
from vicinal.errors import ConfigError

TASKS = """
import os, signal, sys, time
from vicinal.errors import ConfigError

def wait_for(path):
    while not path.exists():
        time.sleep(0.01)

def do(folder, row):
    print("this is", row)
    if "slow" in row:
        try:
            (folder / "began").write_text(str(os.getpid()))
            wait_for(folder / "never")
        except KeyboardInterrupt:
            with (folder / "saved").open("a") as file:
                file.write("yes")
            raise
    if "deaf" in row:  # its last step: it ends whatever is said to it
        signal.signal(signal.SIGINT, lambda *rest: (folder / "told").touch())
        (folder / "began").write_text(str(os.getpid()))
        wait_for(folder / "told")
    if "bad" in row:
        sys.exit("\\n".join(f"line {n}" for n in range(30)) + "\\nerror: diverged")
    if "rejected" in row:
        raise ConfigError("no such data")
    if "unforeseen" in row:
        raise RuntimeError("out of memory")
    if "exit" in row:
        os._exit(int(row.split()[-1]))
    if "killed" in row:
        os.kill(os.getpid(), signal.SIGKILL)
    return [{"threads": os.environ["OMP_NUM_THREADS"], "pid": os.getpid()}]
"""
BENCH = """
import sys
from pathlib import Path
from vicinal.bench.pool import Pool, Task
from vicinal.training.console import Console
runs, tasks = sys.argv[1:]
todo = [Task(name, f"{tasks}:do", {"row": name}, name) for name in ("a", "slow")]
with Pool(Path(runs), slots=2, console=Console(quiet=True)) as pool:
    pool.run(todo, lambda *rest: "", title="t")
"""


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def wait_until(true):
    """However long that takes: on a busy machine a process needs many seconds to start."""
    while not true():
        time.sleep(0.02)


def when_begun(folders, act):
    """Call ``act`` as soon as the tasks of these folders are at work."""

    def wait():
        wait_until(lambda: all((folder / "began").exists() for folder in folders))
        act()

    threading.Thread(target=wait, daemon=True).start()


@pytest.fixture(autouse=True)
def no_time_limits(monkeypatch):
    """What a process may take to end is for users; on a busy machine any limit would be too
    short."""
    monkeypatch.setattr(pools, "STOP_SECONDS", 1e6)


@pytest.fixture
def make(tmp_path, console):
    tasks = tmp_path / "tasks.py"
    tasks.write_text(TASKS)

    def pool(slots, **options):
        return Pool(tmp_path / "runs", slots=slots, console=console, **options)

    return pool, lambda name: Task(name, f"{tasks}:do", {"row": name}, name)


@pytest.fixture
def told(console, monkeypatch):
    """What the console is told."""
    texts = []
    monkeypatch.setattr(console, "line", lambda text, **_: texts.append(text))
    return texts


def run(pool, tasks, until=math.inf, left=0):
    """Run tasks in a pool of their own; the result of each that has one, by name."""
    found = {}

    def done(task, lines):
        found[task.name] = lines[0]
        return "done"

    with pool:
        assert pool.run(tasks, done, title="t", until=until) == left
    return found


def test_a_process_that_dies_fails_its_task_alone(make, tmp_path, monkeypatch, told):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    pool, task = make
    ends = {
        "bad": (1, "error: diverged"),
        "exit 3": (3, ""),
        "exit 0": (0, ""),
        "killed": (-signal.SIGKILL, ""),
        "unforeseen": (1, "RuntimeError: out of memory"),
        "rejected": (2, "error: no such data"),
        "slow": (130, "this is slow"),
    }
    folder = task("slow").folder(tmp_path / "runs")
    # Not by Ctrl-C at the bench: somebody meant this process.
    when_begun([folder], lambda: os.kill(int((folder / "began").read_text()), signal.SIGINT))
    two = pool(2)
    found = run(two, map(task, ("a", *ends, "c")))
    assert set(found) == {"a", "c"} and found["a"]["threads"] == "2"  # 4 cores for 2 tasks
    assert {failed.name for failed in two.failures} == set(ends)
    for row, (code, last) in ends.items():
        (warned,) = (text for text in told if text.startswith(f"{row} failed (exit {int(code)})"))
        assert str(task(row).folder(tmp_path / "runs")) in warned and warned.endswith(last)
        assert len(warned.splitlines()) <= pools.LAST_LINES + 1


def test_ctrl_c_stops_each_task_once_and_waits_for_it_to_save(make, tmp_path):
    pool, task = make
    folders = [task(name).folder(tmp_path / "runs") for name in ("slow a", "slow b")]
    when_begun(folders, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run(pool(2), [task("slow a"), task("slow b"), task("c")])
    assert all((folder / "saved").read_text() == "yes" for folder in folders)
    assert not any(alive(int((folder / "began").read_text())) for folder in folders)
    assert not task("c").folder(tmp_path / "runs").exists()


def test_ctrl_c_ends_a_process_whose_task_had_done_its_last_step(make, tmp_path):
    pool, task = make
    folder = task("deaf").folder(tmp_path / "runs")
    when_begun([folder], lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run(pool(1), [task("deaf"), task("c")])
    assert (folder / "done.json").exists() and not alive(int((folder / "began").read_text()))


@pytest.mark.slow
def test_when_the_bench_is_killed_tasks_save_and_all_processes_end(make, tmp_path):
    _, task = make
    slow, quick = (task(name).folder(tmp_path / "runs") for name in ("slow", "a"))
    bench = subprocess.Popen(
        [sys.executable, "-c", BENCH, tmp_path / "runs", tmp_path / "tasks.py"]
    )
    wait_until(
        lambda: (
            ((slow / "began").exists() and (quick / "done.json").exists())
            or bench.poll() is not None
        )
    )
    pids = [
        int((slow / "began").read_text()),
        json.loads((quick / "done.json").read_text())[0]["pid"],
    ]
    bench.kill()
    bench.wait()
    wait_until(lambda: not any(map(alive, pids)))
    assert (slow / "saved").read_text() == "yes"


def test_when_time_is_up_no_task_starts(make, tmp_path, monkeypatch):
    pool, task = make

    def clock():  # each task takes 40 seconds: the second is the last to start within a minute
        return 40.0 * len(list(tmp_path.glob("runs/*/done.json")))

    monkeypatch.setattr(pools, "time", SimpleNamespace(monotonic=clock))
    assert set(run(pool(1), map(task, "abcd"), until=60.0, left=2)) == {"a", "b"}
    assert not task("c").folder(tmp_path / "runs").exists()


def test_when_time_is_over_what_runs_is_stopped(make):
    pool, task = make
    with pool(1) as one:
        tasks = [task("slow"), task("b")]
        left = one.run(tasks, lambda *_: "", title="t", stop=time.monotonic() + 2.0)
    assert left == 2 and not one._running and not one.failures


def test_no_slot_is_rejected(make):
    pool, _ = make
    with pytest.raises(ConfigError, match="at least 1"):
        pool(0)


def test_two_benches_do_not_work_in_one_folder(make, tmp_path):
    pool, task = make
    with pool(1), pytest.raises(ConfigError, match="already runs jobs"):
        run(pool(1), [task("a")])
    long = "a" * 300  # more than a folder's name may have
    assert set(run(pool(1), [task(long)])) == {long}
