"""Jobs as processes, some at a time: they share cores or a GPU, outlive one another's failures, and stop resumably."""

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from vicinal.bench import job as job_files
from vicinal.bench.job import Job
from vicinal.data.decoded import VARIABLE as DECODED
from vicinal.errors import ConfigError
from vicinal.files import read_json
from vicinal.training.console import Console, Follower

PROGRAM = (sys.executable, "-m", "vicinal.bench.job")
LAST_LINES = 12  # of a failed job's log that are shown
STOP_SECONDS = 120.0  # that a stopped job may take to save its run
POLL_SECONDS = 0.1
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True)
class Failure:
    """A job that ended without a result, and what it said last."""

    job: Job
    code: int
    log: Path
    said: str


@dataclass
class _Running:
    job: Job
    folder: Path
    process: "subprocess.Popen[bytes]"
    log: IO[bytes]


class Pool:
    """Runs jobs below ``runs``.

    Args:
        runs: where jobs work; a job with the same settings finds its folder again and goes on.
        slots: how many run at a time.
        console: told of each end; failures speak, and the rest goes on.
        fresh: begin anew whatever lies in a job's folder.
        program: what does a job, given its folder.
    """

    def __init__(
        self, runs: Path, *, slots: int, console: Console, fresh: bool = False, program: Sequence[str] = PROGRAM
    ) -> None:
        if slots < 1:
            raise ConfigError(f"at least 1 job runs at a time, but {slots} came.")
        self.runs, self.slots, self.console, self.fresh = runs, slots, console, fresh
        self.program = program
        self.failures: list[Failure] = []

    def run(
        self,
        jobs: Iterable[Job],
        done: Callable[[Job, list[dict[str, Any]]], None],
        *,
        title: str,
        minutes: float | None = None,
    ) -> int:
        """Run all jobs; ``done`` gets each one's results as they come. Ctrl-C stops all and leaves them resumable.

        Args:
            minutes: after which no job starts any more; those that run then end in peace.

        Returns:
            how many jobs were not started.
        """
        waiting = deque(jobs)
        total, running = len(waiting), list[_Running]()
        end = math.inf if minutes is None else time.monotonic() + 60 * minutes
        with self.console.following(total, 0, title) as follower:
            try:  # Ctrl-C may come anywhere in here: a job that is not noted yet sees by itself that the bench is gone
                while running or (waiting and time.monotonic() < end):
                    while waiting and len(running) < self.slots and time.monotonic() < end:
                        running.append(self._start(waiting.popleft()))
                    for one in [one for one in running if one.process.poll() is not None]:
                        running.remove(one)
                        self._end(one, done)
                    _show(follower, total - len(waiting) - len(running), running)
                    time.sleep(POLL_SECONDS)
            finally:
                self._stop(running)
        return len(waiting)

    def _start(self, job: Job) -> _Running:
        folder = job.folder(self.runs)
        if self.fresh:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "done.json").unlink(missing_ok=True)  # what it holds was recorded, or is recorded anew
        job_files.write(job, folder)
        log = (folder / "log.txt").open("wb")
        process = subprocess.Popen(
            [*self.program, str(folder)],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={
                **os.environ,
                **threads(self.slots, os.environ),
                DECODED: str((self.runs.parent / "decoded").resolve()),
            },
            start_new_session=True,  # a terminal's Ctrl-C reaches the bench alone, which then stops each job once
        )
        return _Running(job, folder, process, log)

    def _end(self, one: _Running, done: Callable[[Job, list[dict[str, Any]]], None]) -> None:
        one.log.close()
        code, name = one.process.returncode, label(one.job)
        if code == 0:
            lines = read_json(one.folder / "done.json")
            done(one.job, lines)
            recall = lines[-1]["metrics"].get("recall@1")
            self.console.line(f"{name}: " + (f"R@1 {100 * recall:.1f}" if recall is not None else "done"))
            return
        path = one.folder / "log.txt"
        said = "\n".join(path.read_text(errors="replace").strip().splitlines()[-LAST_LINES:])
        self.failures.append(Failure(one.job, code, path, said))
        self.console.line(f"{name} failed (exit {code}); its last lines, from {path}:\n{said}", warning=True)

    def _stop(self, running: list[_Running]) -> None:
        """Ask each to stop as Ctrl-C would, so that it saves its run; end it if it does not."""
        if not running:
            return
        self.console.line(f"stopping {len(running)} jobs; a second Ctrl-C does not wait for them to save")
        limit = time.monotonic() + STOP_SECONDS
        try:
            for one in running:
                one.process.send_signal(signal.SIGINT)
            for one in running:
                one.process.wait(max(0.1, limit - time.monotonic()))
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            for one in running:
                one.process.kill()
        finally:
            for one in running:
                one.process.wait()
                one.log.close()


def label(job: Job) -> str:
    """What the console calls a job."""
    part = f" fold {job.fold[0] + 1}/{job.fold[1]}" if job.kind == "fold" else ""
    return f"{job.row} seed {job.seed}{part}"


def threads(slots: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Thread limits of each of ``slots`` jobs, so that pools do not fight over cores; what the user set stays."""
    each = str(max(1, (os.cpu_count() or 1) // slots))
    return {name: environment.get(name, each) for name in _THREADS}


def slots_here() -> int:
    """How many jobs this machine runs at a time: one per core, at most 16; on a GPU 4, which share it."""
    import torch

    cores = os.cpu_count() or 1
    return min(4, cores) if torch.cuda.is_available() else min(16, cores)


def _show(follower: Follower, done: int, running: list[_Running]) -> None:
    names = ", ".join(label(one.job) for one in running[:3])
    follower.advance(done, f"running: {names}{' ...' if len(running) > 3 else ''}")
