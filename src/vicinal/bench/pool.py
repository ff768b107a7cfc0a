"""Run tasks in processes that stay, some at a time: they share cores or a GPU, survive failures,
stop resumably."""

import math
import multiprocessing
import os
import shutil
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from vicinal.bench.worker import DONE, serve
from vicinal.data.resident import CACHE
from vicinal.errors import ConfigError
from vicinal.files import read_json, write_json
from vicinal.training.console import Console

LAST_LINES = 12  # of a failed task's log that are shown
STOP_SECONDS = 120.0  # that a stopped task may take to save its run
LEAVE_SECONDS = 20.0  # that a process without a task may take to end
POLL_SECONDS = 0.5  # between looks at processes that ended without an answer
_SPAWN = multiprocessing.get_context(
    "spawn"
)  # a forked process would share this one's threads and GPU context
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True, eq=False)
class Task:
    """A function to call in a worker.

    Attributes:
        name: for the console.
        call: ``module:function`` or ``FILE.py:function``; it gets the task's folder and the
            arguments, and returns a list of dictionaries that JSON can hold.
        arguments: by name, as JSON can hold them.
        key: another task has another one; the same one finds its folder again.
    """

    name: str
    call: str
    arguments: Mapping[str, Any]
    key: str

    def folder(self, runs: Path) -> Path:
        name = "".join(c if c.isalnum() else "-" for c in self.name.lower())
        return runs / f"{name}-{sha256(self.key.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Failure:
    """A task that ended without a result, and the end of its log."""

    task: Task
    code: int
    log: Path
    last_lines: str


Done = Callable[
    [Task, list[dict[str, Any]]], str
]  # gets the results of a task; returns what is printed of them


class Worker:
    """A process that does one task after another.

    Imports and a GPU's context take longer than a small task; a process that stays pays for them
    once.

    Args:
        task: the one that it has.
        folder: of that task; what the process prints before its first task is logged there, too.
    """

    def __init__(
        self, task: Task, folder: Path, environment: Mapping[str, str], prepare: str
    ) -> None:
        self.task, self.folder = task, folder
        self.pipe, theirs = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=serve, args=(theirs, str(folder / "log.txt"), prepare))
        with _environment(environment):  # threads are counted when numpy is imported
            self.process.start()
        theirs.close()

    def give(self) -> None:
        """Let it begin its task."""
        with suppress(BrokenPipeError):  # it has just ended, which `ended` reports
            self.pipe.send(str(self.folder))

    def ended(self) -> int | None:
        """How its task ended; None while that runs."""
        code = self.process.exitcode  # before the answer: a process may end right after it
        with suppress(EOFError, ConnectionResetError):
            if self.pipe.poll():
                return int(self.pipe.recv())
        return code

    def leave(self, seconds: float = LEAVE_SECONDS) -> None:
        """Let it end after the task that it has; kill it if it has not after ``seconds``."""
        self.pipe.close()
        try:
            self.process.join(seconds)
        finally:
            self.process.kill()
            self.process.join()


class Pool:
    """Runs tasks below ``runs`` in at most ``slots`` processes, each of which does one after
    another.

    A task that kills its process fails alone. Processes stay from one ``run`` to the next and end
    with the pool, which
    holds its folder meanwhile: two benches would train in the same run folders.

    Args:
        fresh: begin anew whatever a task's folder holds.
        prepare: what loads what tasks need and gives the state that they begin in
            (``worker.ProcessState``).
        clock: seconds; what ``until`` is measured by.
    """

    def __init__(
        self,
        runs: Path,
        *,
        slots: int,
        console: Console,
        fresh: bool = False,
        prepare: str = "vicinal.bench.worker:ProcessState",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if slots < 1:
            raise ConfigError(f"--jobs must be at least 1, got {slots}.")
        self.runs, self.slots, self.console, self.fresh = runs, slots, console, fresh
        self.prepare, self.clock = prepare, clock
        self.failures: list[Failure] = []
        self._idle: list[Worker] = []
        self._lock = FileLock(
            runs / "lock", timeout=0
        )  # the process's: one that was killed leaves none behind

    def __enter__(self) -> "Pool":
        self.runs.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except Timeout:
            raise ConfigError(
                f"another process already runs jobs in {self.runs}. Wait for it to finish, or "
                "give this command "
                f"another folder (bench: --runs, tune: --out)."
            ) from None
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._idle:
            worker.pipe.close()  # all at once, so that they end side by side
        while self._idle:
            self._idle.pop().leave()
        self._lock.release()

    def run(self, tasks: Iterable[Task], done: Done, *, title: str, until: float = math.inf) -> int:
        """Run all tasks and return how many were not started. Ctrl-C stops all and leaves them
        resumable.

        Args:
            done: gets each task's results as it ends; what it returns is printed behind the task's
                name.
            until: when, by the pool's clock, no task starts any more; those that run then finish.
        """
        waiting, running = deque(tasks), list[Worker]()
        total = len(waiting)
        with self.console.following(total, 0, title) as follower:
            # Ctrl-C may come anywhere in here: a worker that is not noted yet sees that its parent
            # is gone
            try:
                while running or (waiting and self.clock() < until):
                    while waiting and len(running) < self.slots and self.clock() < until:
                        self._start(waiting.popleft(), running)
                    for worker in list(running):
                        code = worker.ended()
                        if code is not None:
                            running.remove(worker)
                            self._idle.append(worker)
                            self._end(worker, code, done)
                    names = ", ".join(worker.task.name for worker in running[:3])
                    more = " ..." if len(running) > 3 else ""
                    follower.advance(total - len(waiting) - len(running), f"running: {names}{more}")
                    wait([worker.pipe for worker in running], POLL_SECONDS)
            finally:
                self._stop(running)
        return len(waiting)

    def _start(self, task: Task, running: list[Worker]) -> None:
        folder = task.folder(self.runs)
        if self.fresh:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "done.json").unlink(
            missing_ok=True
        )  # its content was recorded, or is recorded anew
        write_json(folder / "task.json", {"call": task.call, "arguments": dict(task.arguments)})
        (folder / "log.txt").write_bytes(b"")
        running.append(self._worker(task, folder))
        running[-1].give()

    def _worker(self, task: Task, folder: Path) -> Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.process.is_alive():
                worker.task, worker.folder = task, folder
                return worker
            worker.leave()
        cache = {CACHE: str((self.runs.parent / "cache").resolve())}
        return Worker(task, folder, threads(self.slots, os.environ) | cache, self.prepare)

    def _end(self, worker: Worker, code: int, done: Done) -> None:
        task, found, log = worker.task, worker.folder / "done.json", worker.folder / "log.txt"
        if code == DONE and found.is_file():  # a task can end its process with any code
            self.console.line(f"{task.name}: {done(task, read_json(found))}")
            return
        last = "\n".join(log.read_text(errors="replace").strip().splitlines()[-LAST_LINES:])
        self.failures.append(Failure(task, code, log, last))
        self.console.line(
            f"{task.name} failed (exit {code}); its last lines, from {log}:\n{last}", warning=True
        )

    def _stop(self, running: list[Worker]) -> None:
        """Interrupt each task as Ctrl-C would, so that it saves its run; kill it if it does not
        end."""
        if not running:
            return
        self.console.line(
            f"stopping {len(running)} jobs; a second Ctrl-C does not wait for them to save"
        )
        limit = time.monotonic() + STOP_SECONDS
        try:
            for worker in running:
                if worker.process.pid:
                    with suppress(ProcessLookupError):
                        os.kill(worker.process.pid, signal.SIGINT)
                worker.pipe.close()  # the task may have ended just before
            for worker in running:
                worker.process.join(max(0.1, limit - time.monotonic()))
        except KeyboardInterrupt:
            for worker in running:
                worker.process.kill()
        finally:
            for worker in running:
                worker.leave(0.0)


@contextmanager
def _environment(extra: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(extra)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def threads(slots: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Thread limits of each of ``slots`` tasks, so that they do not compete for cores; the user's
    settings stay.

    A user's OMP_NUM_THREADS is meant for all: torch would follow a larger MKL_NUM_THREADS beside
    it.
    """
    each = environment.get("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // slots)))
    return {name: environment.get(name, each) for name in _THREADS}


def slots_here() -> int:
    """How many tasks this machine runs at a time: one per core, at most 16; on a GPU 4, which share
    it."""
    import torch

    cores = os.cpu_count() or 1
    return min(4, cores) if torch.cuda.is_available() else min(16, cores)
