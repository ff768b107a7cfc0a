"""Run tasks, each in a process of its own, some at a time: they share cores or a GPU, survive
failures, and stop resumably.

Processes are forked by a server that has loaded what tasks need and done nothing else
(``multiprocessing``'s ``forkserver``), so each begins in the same state, and at once. An executor
of ``concurrent.futures`` would lose all tasks where one kills its process.
"""

import importlib
import math
import multiprocessing
import os
import runpy
import shutil
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from vicinal.data.resident import CACHE
from vicinal.errors import ConfigError, VicinalError
from vicinal.files import read_json, write_json
from vicinal.training.console import Console

DONE = 0  # how tasks end
REJECTED = 2
INTERRUPTED = 130
LAST_LINES = 12  # of a failed task's log that are shown
STOP_SECONDS = 120.0  # that a stopped task may take to save its run
POLL_SECONDS = 0.5  # between looks at the clock
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_SERVER = multiprocessing.get_context("forkserver")


@dataclass(frozen=True, eq=False)
class Task:
    """A function to call in a process.

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


class Pool:
    """Runs tasks below ``runs``, at most ``slots`` at a time.

    It holds its folder meanwhile: two benches would train in the same run folders.

    Args:
        fresh: begin anew whatever a task's folder holds.
        clock: seconds; what ``until`` is measured by.
    """

    def __init__(
        self,
        runs: Path,
        *,
        slots: int,
        console: Console,
        fresh: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if slots < 1:
            raise ConfigError(f"--jobs must be at least 1, got {slots}.")
        self.runs = runs
        self.slots = slots
        self.console = console
        self.fresh = fresh
        self.clock = clock
        self.failures: list[Failure] = []
        # The process's: one that was killed leaves none behind.
        self._lock = FileLock(runs / "lock", timeout=0)

    def __enter__(self) -> "Pool":
        self.runs.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except Timeout:
            raise ConfigError(
                f"another process already runs jobs in {self.runs}. Wait for it to finish, or "
                "give this command another folder (bench: --runs, tune: --out)."
            ) from None
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def run(self, tasks: Iterable[Task], done: Done, *, title: str, until: float = math.inf) -> int:
        """Run all tasks and return how many were not started. Ctrl-C stops all and leaves them
        resumable.

        Args:
            done: gets each task's results as it ends; what it returns is printed behind the task's
                name.
            until: when, by the pool's clock, no task starts any more; those that run then finish.
        """
        waiting = deque(tasks)
        running: dict[int, tuple[Task, BaseProcess]] = {}  # by what tells that a process has ended
        total = len(waiting)
        with self.console.following(total, 0, title) as follower:
            # Ctrl-C may come anywhere in here: a process that is not noted yet sees that its parent
            # is gone
            try:
                while running or (waiting and self.clock() < until):
                    while waiting and len(running) < self.slots and self.clock() < until:
                        task = waiting.popleft()
                        process = self._start(task)
                        running[process.sentinel] = task, process
                    names = ", ".join(task.name for task, _ in list(running.values())[:3])
                    more = " ..." if len(running) > 3 else ""
                    follower.advance(total - len(waiting) - len(running), f"running: {names}{more}")
                    for sentinel in wait(list(running), POLL_SECONDS):
                        task, process = running[sentinel]  # type: ignore[index]
                        process.join()
                        del running[sentinel]  # type: ignore[arg-type]
                        self.end(task, int(process.exitcode or 0), done)
            finally:
                self._stop([process for _, process in running.values()])
        return len(waiting)

    def prepare(self, task: Task) -> Path:
        """Make the task's folder, as ``do`` wants it."""
        folder = task.folder(self.runs)
        if self.fresh:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        # Its content was recorded, or is recorded anew.
        (folder / "done.json").unlink(missing_ok=True)
        write_json(folder / "task.json", {"call": task.call, "arguments": dict(task.arguments)})
        (folder / "log.txt").write_bytes(b"")
        return folder

    def _start(self, task: Task) -> BaseProcess:
        _SERVER.set_forkserver_preload(["vicinal.bench.job"])
        limits = threads(self.slots, os.environ)
        environment = limits | {CACHE: str((self.runs.parent / "cache").resolve())}
        process = _SERVER.Process(target=work, args=(str(self.prepare(task)), environment))
        before = {name: os.environ.get(name) for name in limits}
        os.environ.update(limits)  # the server counts threads when it imports numpy
        try:
            process.start()
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
        return process

    def end(self, task: Task, code: int, done: Done) -> None:
        """Hand on what a task found, or note that it failed."""
        folder = task.folder(self.runs)
        log = folder / "log.txt"
        found = folder / "done.json"
        if code == DONE and found.is_file():  # a task can end its process with any code
            self.console.line(f"{task.name}: {done(task, read_json(found))}")
            return
        last = "\n".join(log.read_text(errors="replace").strip().splitlines()[-LAST_LINES:])
        self.failures.append(Failure(task, code, log, last))
        self.console.line(
            f"{task.name} failed (exit {code}); its last lines, from {log}:\n{last}", warning=True
        )

    def _stop(self, processes: list[BaseProcess]) -> None:
        """Interrupt each task as Ctrl-C would, so that it saves its run; kill it if it does not
        end."""
        if not processes:
            return
        self.console.line(
            f"stopping {len(processes)} jobs; a second Ctrl-C does not wait for them to save"
        )
        limit = time.monotonic() + STOP_SECONDS
        try:
            for process in processes:
                if process.pid and process.is_alive():
                    with suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGINT)
            for process in processes:
                process.join(max(0.1, limit - time.monotonic()))
        finally:
            for process in processes:
                process.kill()
                process.join()


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


# -- in the process --------------------------------------------------------------------------------


def work(folder: str, environment: Mapping[str, str]) -> None:
    """Do a task, with its output in its log; how it ended is the exit code of this process."""
    os.setsid()  # a terminal's Ctrl-C reaches the bench alone, which stops each task once
    log = os.open(Path(folder) / "log.txt", os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    os.environ.update(environment)
    import torch

    torch.set_num_threads(int(environment[_THREADS[0]]))  # the server may serve two pools
    sys.exit(do(Path(folder)))


def do(folder: Path) -> int:
    """Do the task of a folder and return how it ended; an unforeseen error is raised."""
    try:
        task = read_json(folder / "task.json")
        write_json(folder / "done.json", _function(task["call"])(folder, **task["arguments"]))
    except KeyboardInterrupt:
        return INTERRUPTED
    except VicinalError as error:
        sys.stderr.write(f"error: {error}\n")
        return REJECTED
    return DONE


def _function(call: str) -> Callable[..., Any]:
    """``module:name`` or ``FILE.py:name``, where the file may import those beside it."""
    place, _, name = call.rpartition(":")
    if not place.endswith(".py"):
        return getattr(importlib.import_module(place), name)  # type: ignore[no-any-return]
    sys.path.insert(0, str(Path(place).resolve().parent))
    return runpy.run_path(place)[name]  # type: ignore[no-any-return]


def _stop_with_parent() -> None:
    """End as by Ctrl-C, which saves a run, when the bench is gone, even if it was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGINT)
