"""Run tasks, each in a process of its own, some at a time: they share cores or a GPU, survive
failures, and stop resumably.

A thread waits for each process. The workers of ``ProcessPoolExecutor`` would not do: one that is
killed ends all tasks.
"""

import _thread
import math
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from filelock import FileLock, Timeout

from vicinal.errors import ConfigError, VicinalError, few
from vicinal.files import read_json, write_json
from vicinal.training.console import Console

REJECTED = 2  # how tasks end that are not done
INTERRUPTED = 130
LAST_LINES = 12  # of a failed task's log that are shown
STOP_SECONDS = 120.0  # that a stopped task may take to save its run


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
        return runs / f"{name[:100]}-{sha256(self.key.encode()).hexdigest()[:8]}"


Done = Callable[
    [Task, list[dict[str, Any]]], str
]  # gets the results of a task; returns what is printed of them


class Pool:
    """Runs tasks below ``runs``, at most ``slots`` at a time.

    It holds its folder meanwhile: two benches would train in the same run folders.
    """

    def __init__(self, runs: Path, *, slots: int, console: Console) -> None:
        if slots < 1:
            raise ConfigError(f"--jobs must be at least 1, got {slots}.")
        self.runs = runs
        self.slots = slots
        self.console = console
        self.failures: list[Task] = []  # that ended without a result
        self._running: dict[Task, subprocess.Popen[bytes]] = {}
        self._starting = threading.Lock()
        self._stopped = False
        # The process's: one that was killed leaves none behind.
        self._lock = FileLock(runs / "lock", timeout=0)

    def __enter__(self) -> "Pool":
        self.runs.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except Timeout:
            raise ConfigError(
                f"another process already runs jobs in {self.runs}. Wait for it to finish, or "
                "give this command another folder."
            ) from None
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def run(
        self,
        tasks: Iterable[Task],
        done: Done,
        *,
        title: str,
        until: float = math.inf,
        stop: float = math.inf,
    ) -> int:
        """Run all tasks and return how many were not started or not ended. Ctrl-C stops all and
        leaves them resumable.

        Args:
            done: gets each task's results as it ends; what it returns is printed behind the task's
                name.
            until: when, by ``time.monotonic``, no task starts any more; those that run then finish.
            stop: when those that run are stopped.
        """
        ended = 0
        with ThreadPoolExecutor(self.slots) as threads:
            futures = {threads.submit(self._process, task, until): task for task in tasks}
            rest = max(0.0, min(stop - time.monotonic(), threading.TIMEOUT_MAX))
            try:
                with self.console.following(len(futures), 0, title) as follower:
                    for future in as_completed(futures, rest):
                        if (code := future.result()) is not None:
                            ended += 1
                            self.end(futures[future], code, done)
                        names = few([task.name for task in list(self._running)])
                        follower.advance(ended, f"running: {names}")
            except TimeoutError:
                self._stop()
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                self._stop()
                raise
        return len(futures) - ended

    def prepare(self, task: Task) -> Path:
        """Make the task's folder, as ``do`` wants it."""
        folder = task.folder(self.runs)
        folder.mkdir(parents=True, exist_ok=True)
        # Its content was recorded, or is recorded anew.
        (folder / "done.json").unlink(missing_ok=True)
        write_json(folder / "task.json", {"call": task.call, "arguments": dict(task.arguments)})
        return folder

    def _process(self, task: Task, until: float) -> int | None:
        """Do a task in a process and return its exit code; None where it was too late to start."""
        from vicinal.data.loader import CACHE  # loads torch, which a task's process may not need

        with self._starting:
            if self._stopped or time.monotonic() >= until:
                return None
            folder = self.prepare(task)
            each = max(1, (os.cpu_count() or 1) // self.slots)
            environment = {"OMP_NUM_THREADS": str(each), **os.environ}
            environment[CACHE] = str((self.runs.parent / "cache").resolve())
            with (folder / "log.txt").open("wb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "vicinal.bench.pool", str(folder)],
                    stdin=subprocess.PIPE,  # closed when this process is gone
                    stdout=log,
                    stderr=log,
                    env=environment,
                    start_new_session=True,  # a terminal's Ctrl-C reaches this process alone
                )
            self._running[task] = process
        with process:
            code = process.wait()
        del self._running[task]
        return code

    def end(self, task: Task, code: int, done: Done) -> None:
        """Hand on what a task found, or note that it failed."""
        folder = task.folder(self.runs)
        found = folder / "done.json"
        if code == 0 and found.is_file():  # a task can end its process with any code
            self.console.line(f"{task.name}: {done(task, read_json(found))}")
            return
        log = folder / "log.txt"
        last = "\n".join(log.read_text(errors="replace").strip().splitlines()[-LAST_LINES:])
        self.failures.append(task)
        self.console.line(
            f"{task.name} failed (exit {code}); its last lines, from {log}:\n{last}", warning=True
        )

    def _stop(self) -> None:
        """Interrupt each task as Ctrl-C would, so that it saves its run; kill it if it does not
        end."""
        with self._starting:
            self._stopped = True
            processes = list(self._running.values())
        self.console.line(
            f"stopping {len(processes)} jobs; a second Ctrl-C does not wait for them to save"
        )
        limit = time.monotonic() + STOP_SECONDS
        try:
            for process in processes:
                process.stdin.close()  # type: ignore[union-attr]
            for process in processes:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, limit - time.monotonic()))
        finally:
            for process in processes:
                process.kill()


def slots_here() -> int:
    """How many tasks this machine runs at a time: one per core, at most 16; on a GPU 4, which share
    it."""
    import torch

    return min(4 if torch.cuda.is_available() else 16, os.cpu_count() or 1)


# -- in the process --------------------------------------------------------------------------------


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
    return 0


def _function(call: str) -> Callable[..., Any]:
    """``module:name`` or ``FILE.py:name``, where the file may import those beside it."""
    place, _, name = call.rpartition(":")
    if not place.endswith(".py"):
        return resolve_name(call)
    sys.path.insert(0, str(Path(place).resolve().parent))
    return runpy.run_path(place)[name]


def _stop_with_parent() -> None:
    """End as by Ctrl-C, which saves a run, when the bench is gone, even if it was killed."""
    os.read(0, 1)
    if os.name == "nt":  # where `os.kill` ends a process at once
        _thread.interrupt_main()
    else:
        os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    sys.exit(do(Path(sys.argv[1])))
