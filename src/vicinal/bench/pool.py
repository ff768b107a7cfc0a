"""Jobs in processes that stay, some at a time: they share cores or a GPU, outlive failures, and stop resumably."""

import fcntl
import math
import os
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from vicinal.bench import job as job_files
from vicinal.bench.job import Job
from vicinal.bench.worker import DONE, PROGRAM, Worker
from vicinal.data.decoded import VARIABLE as DECODED
from vicinal.errors import ConfigError
from vicinal.files import read_json
from vicinal.training.console import Console, Follower

LAST_LINES = 12  # of a failed job's log that are shown
STOP_SECONDS = 120.0  # that a stopped job may take to save its run
POLL_SECONDS = 0.05
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
    worker: Worker


class Pool:
    """Runs jobs below ``runs``, in at most ``slots`` processes, each of which does one after another.

    A job that kills its process fails alone: the next one gets a new process. Processes end with ``run``; those of a
    pool that is entered (``with Pool(...) as pool``) stay from one ``run`` to the next.

    Args:
        runs: where jobs work; a job with the same settings finds its folder again and goes on.
        slots: how many run at a time.
        console: told of each end; failures speak, and the rest goes on.
        fresh: begin anew whatever lies in a job's folder.
        program: what does jobs (``bench.worker``).
    """

    def __init__(
        self, runs: Path, *, slots: int, console: Console, fresh: bool = False, program: Sequence[str] = PROGRAM
    ) -> None:
        if slots < 1:
            raise ConfigError(f"at least 1 job runs at a time, but {slots} came.")
        self.runs, self.slots, self.console, self.fresh = runs, slots, console, fresh
        self.program = program
        self.failures: list[Failure] = []
        self._idle: list[Worker] = []
        self._entered = False

    def __enter__(self) -> "Pool":
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered = False
        self._dismiss()

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
        with alone_in(self.runs), self.console.following(total, 0, title) as follower:
            try:  # Ctrl-C may come anywhere in here: a worker that is not noted yet sees by itself that nobody asks it
                while running or (waiting and time.monotonic() < end):
                    while waiting and len(running) < self.slots and time.monotonic() < end:
                        self._start(waiting.popleft(), running)
                    for one in list(running):
                        code = one.worker.ended()
                        if code is not None:
                            running.remove(one)
                            self._idle.append(one.worker)
                            self._end(one, code, done)
                    _show(follower, total - len(waiting) - len(running), running)
                    time.sleep(POLL_SECONDS)
            finally:
                self._stop(running)
                if not self._entered:
                    self._dismiss()
        return len(waiting)

    def _start(self, job: Job, running: list[_Running]) -> None:
        folder = job.folder(self.runs)
        if self.fresh:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "done.json").unlink(missing_ok=True)  # what it holds was recorded, or is recorded anew
        job_files.write(job, folder)
        (folder / "log.txt").write_bytes(b"")
        running.append(_Running(job, folder, self._worker(folder / "log.txt")))
        running[-1].worker.give(folder)

    def _worker(self, log: Path) -> Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.fit():
                return worker
            worker.leave()
        decoded = {DECODED: str((self.runs.parent / "decoded").resolve())}
        return Worker(self.program, {**os.environ, **threads(self.slots, os.environ), **decoded}, log)

    def _end(self, one: _Running, code: int, done: Callable[[Job, list[dict[str, Any]]], None]) -> None:
        name, found = label(one.job), one.folder / "done.json"
        if code == DONE and found.is_file():  # a job can end its process with any code
            lines = read_json(found)
            done(one.job, lines)
            recall = lines[-1].get("last", lines[-1]["metrics"].get("recall@1"))
            said = (
                "diverged" if "diverged" in lines[-1] else f"R@1 {100 * recall:.1f}" if recall is not None else "done"
            )
            self.console.line(f"{name}: {said}")
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
                one.worker.interrupt()
            for one in running:
                one.worker.process.wait(max(0.1, limit - time.monotonic()))
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            for one in running:
                one.worker.process.kill()
        finally:
            for one in running:
                one.worker.leave()

    def _dismiss(self) -> None:
        for worker in self._idle:
            worker.release()  # all at once, so that they end side by side
        while self._idle:
            self._idle.pop().leave()


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold a folder of jobs; refuse where another bench works in it, for both would train in the same run folders.

    The lock is the process's, so one that was killed leaves none behind.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise ConfigError(
                f"jobs were to run in {folder}, but process {file.read().strip() or 'unknown'} runs its own there. "
                f"Wait for its end, or give this command another folder (bench: --runs, tune: --out)."
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def label(job: Job) -> str:
    """What the console calls a job."""
    part = f" fold {job.fold[0] + 1}/{job.fold[1]}" if job.kind == "fold" else ""
    return f"{job.row} seed {job.seed}{part}"


def threads(slots: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Thread limits of each of ``slots`` jobs, so that pools do not fight over cores; what the user set stays.

    OMP_NUM_THREADS of the user is meant for all: torch would follow a larger MKL_NUM_THREADS that we set beside it.
    """
    each = environment.get("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // slots)))
    return {name: environment.get(name, each) for name in _THREADS}


def slots_here() -> int:
    """How many jobs this machine runs at a time: one per core, at most 16; on a GPU 4, which share it."""
    import torch

    cores = os.cpu_count() or 1
    return min(4, cores) if torch.cuda.is_available() else min(16, cores)


def _show(follower: Follower, done: int, running: list[_Running]) -> None:
    names = ", ".join(label(one.job) for one in running[:3])
    follower.advance(done, f"running: {names}{' ...' if len(running) > 3 else ''}")
