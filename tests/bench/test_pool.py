"""Processes side by side: a failure is told and the rest goes on; Ctrl-C stops each job once, and it can go on."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from vicinal.bench import pool as pools
from vicinal.bench import worker
from vicinal.bench.job import Job
from vicinal.bench.pool import Pool, alone_in, threads
from vicinal.errors import ConfigError

PROGRAM = """
import json, os, signal, sys, time
from vicinal.bench.worker import serve

def do(folder):
    job = json.loads((folder / "job.json").read_text())
    row, began = job["row"], time.monotonic()
    print("this is", row)
    if "slow" in row:
        try:
            (folder / "began").write_text(str(os.getpid()))
            time.sleep(60)
        except KeyboardInterrupt:
            with (folder / "saved").open("a") as file:
                file.write("yes")
            return 130
    if "deaf" in row:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        (folder / "began").write_text(str(os.getpid()))
    time.sleep(1.5 if "long" in row else 0.2)
    if "bad" in row:
        sys.exit("\\n".join(f"line {n}" for n in range(30)) + "\\nerror: diverged")
    if "refused" in row:
        print("error: no such data", file=sys.stderr)
        return 2
    if "unforeseen" in row:
        raise RuntimeError("out of memory")
    if "exit" in row:
        os._exit(int(row.split()[-1]))
    if "killed" in row:
        os.kill(os.getpid(), signal.SIGKILL)
    facts = {"threads": os.environ["OMP_NUM_THREADS"], "began": began, "ended": time.monotonic(), "pid": os.getpid()}
    (folder / "done.json").write_text(json.dumps([{"metrics": {"recall@1": 0.5}, **facts}]))
    leaves_traces.append("traces" in row)
    return 0

leaves_traces = []
if __name__ == "__main__":
    sys.exit(serve(lambda: (do, lambda: not any(leaves_traces))))
"""
BENCH = """
import sys
from pathlib import Path
from vicinal.bench.job import Job
from vicinal.bench.pool import Pool
from vicinal.training.console import Console
runs, script, recipe, data = sys.argv[1:]
jobs = [Job(name, "trained", recipe, (data,), 0) for name in ("a", "slow")]
program = (sys.executable, script)
Pool(Path(runs), slots=2, console=Console(quiet=True), program=program).run(jobs, lambda *rest: None, title="t")
"""


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def interrupt_when_begun(folders):
    """Ctrl-C at this process, as soon as the jobs of these folders are at work."""

    def interrupt():
        limit = time.monotonic() + 50
        while not all((folder / "began").exists() for folder in folders) and time.monotonic() < limit:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()


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
    interrupt_when_begun(folders)
    with pytest.raises(KeyboardInterrupt):
        pool(2).run([job("slow a"), job("slow b"), job("c")], lambda *rest: None, title="t")
    assert all((folder / "saved").read_text() == "yes" for folder in folders)
    assert not any(alive(int((folder / "began").read_text())) for folder in folders)
    assert not job("c").folder(tmp_path / "runs").exists()


def test_ctrl_c_ends_a_process_whose_job_had_done_its_last_step(make, tmp_path):
    pool, job = make
    folder, began = job("deaf").folder(tmp_path / "runs"), time.monotonic()
    interrupt_when_begun([folder])
    with pytest.raises(KeyboardInterrupt):
        pool(1).run([job("deaf"), job("c")], lambda *rest: None, title="t")
    assert time.monotonic() - began < pools.STOP_SECONDS / 4
    assert (folder / "done.json").exists() and not alive(int((folder / "began").read_text()))


def test_a_process_does_one_job_after_another_and_each_speaks_into_its_own_log(make, tmp_path):
    pool, job = make
    names, pids = ["a", "b", "c", "d", "e"], {}
    pool(2).run([job(name) for name in names], lambda job, lines: pids.update({job.row: lines[0]["pid"]}), title="t")
    assert list(pids.values()) and len(set(pids.values())) == 2
    for name in names:
        assert (job(name).folder(tmp_path / "runs") / "log.txt").read_text() == f"this is {name}\n"
    assert not any(alive(pid) for pid in pids.values()), "they end with the run"


@pytest.mark.parametrize(
    ("row", "code", "said"),
    [
        ("exit 3", 3, ""),
        ("exit 0", 0, ""),
        ("killed", -signal.SIGKILL, ""),
        ("unforeseen", 1, "RuntimeError: out of memory"),
        ("bad", 1, "error: diverged"),
        ("slow", 130, "this is slow"),
    ],
)
def test_a_process_that_dies_fails_its_job_alone_and_another_takes_its_place(row, code, said, make, tmp_path):
    pool, job = make
    one, pids = pool(1), []

    def interrupt_it():  # not by Ctrl-C at the bench: somebody meant this process
        began = job("slow").folder(tmp_path / "runs") / "began"
        while not (began.exists() and began.read_text()):
            time.sleep(0.02)
        os.kill(int(began.read_text()), signal.SIGINT)

    if row == "slow":
        threading.Thread(target=interrupt_it).start()
    one.run([job("a"), job(row), job("c")], lambda job, lines: pids.append(lines[0]["pid"]), title="t")
    (failure,) = one.failures
    assert failure.job.row == row and failure.code == code and failure.said.endswith(said)
    assert failure.log.parent == job(row).folder(tmp_path / "runs")
    assert len(set(pids)) == 2


def test_a_refused_job_fails_and_its_process_goes_on(make):
    pool, job = make
    one, pids = pool(1), []
    one.run([job("a"), job("refused"), job("c")], lambda job, lines: pids.append(lines[0]["pid"]), title="t")
    (failure,) = one.failures
    assert failure.code == 2 and failure.said == "this is refused\nerror: no such data"
    assert len(pids) == 2 and len(set(pids)) == 1


def test_a_job_that_leaves_traces_is_done_and_the_next_gets_another_process(make):
    pool, job = make
    one, pids = pool(1), []
    one.run([job("a"), job("traces"), job("c")], lambda job, lines: pids.append(lines[0]["pid"]), title="t")
    assert not one.failures and pids[0] == pids[1] != pids[2]


def test_code_that_changed_is_run_by_a_new_process(make, monkeypatch):
    pool, job = make
    pids = []

    def done(job, lines):
        pids.append(lines[0]["pid"])
        monkeypatch.setattr(worker, "_newest", lambda: len(pids) // 2)

    pool(1).run([job(name) for name in "abcd"], done, title="t")
    assert pids[0] != pids[1] != pids[2] == pids[3]  # the first began by the files' true times


def test_processes_of_an_entered_pool_stay_from_run_to_run(make):
    pool, job = make
    pids = []
    with pool(1) as one:
        for name in "ab":
            one.run([job(name)], lambda job, lines: pids.append(lines[0]["pid"]), title="t")
        assert alive(pids[0])
    assert len(set(pids)) == 1 and not alive(pids[0])


def test_a_process_that_died_without_a_job_fails_none(make):
    pool, job = make
    pids = []
    with pool(1) as one:
        one.run([job("a")], lambda job, lines: pids.append(lines[0]["pid"]), title="t")
        os.kill(pids[0], signal.SIGKILL)
        time.sleep(0.1)
        one.run([job("b")], lambda job, lines: pids.append(lines[0]["pid"]), title="t")
    assert not one.failures and len(set(pids)) == 2


def test_what_a_process_says_before_its_first_job_is_told_with_it(make, tmp_path, console):
    _, job = make
    program = (sys.executable, "-c", "print('for nobody', flush=True)\nimport no_such_package")
    one = Pool(tmp_path / "runs", slots=1, console=console, program=program)
    one.run([job("a")], lambda *rest: None, title="t")
    assert one.failures[0].code == 1 and "No module named 'no_such_package'" in one.failures[0].said


def test_when_the_bench_is_killed_jobs_save_and_all_processes_end(make, tmp_path, tiny):
    _, job = make
    slow, quick = (job(name).folder(tmp_path / "runs") for name in ("slow", "a"))
    command = [sys.executable, "-c", BENCH, tmp_path / "runs", tmp_path / "program.py", *tiny]
    bench, limit = subprocess.Popen(command), time.monotonic() + 60
    while not ((slow / "began").exists() and (quick / "done.json").exists()) and time.monotonic() < limit:
        time.sleep(0.02)
    pids = [int((slow / "began").read_text()), json.loads((quick / "done.json").read_text())[0]["pid"]]
    bench.kill()
    bench.wait()
    while any(map(alive, pids)) and time.monotonic() < limit:
        time.sleep(0.02)
    assert (slow / "saved").read_text() == "yes" and not any(map(alive, pids))


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
    assert set(threads(2, {"OMP_NUM_THREADS": "7"}).values()) == {"7"}
    assert threads(2, {"OMP_NUM_THREADS": "7", "MKL_NUM_THREADS": "3"})["MKL_NUM_THREADS"] == "3"


def test_two_benches_do_not_work_in_one_folder(make, tmp_path):
    pool, job = make
    with alone_in(tmp_path / "runs"), pytest.raises(ConfigError, match=f"process {os.getpid()} runs its own there"):
        pool(1).run([job("a")], lambda *rest: None, title="t")
    assert pool(1).run([job("a")], lambda *rest: None, title="t") == 0
