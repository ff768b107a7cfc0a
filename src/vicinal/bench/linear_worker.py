"""A process that measures unit after unit: ``python -m vicinal.bench.linear_worker``, and the bench's end of it.

It reads a unit a line and answers with its result, both JSON. Unlike a job (``worker.py``) a unit keeps nothing on the
way: a process that is to stop is ended at once, with all that its search has started.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, cast

from vicinal.bench.linear_plan import Unit
from vicinal.bench.linear_units import result
from vicinal.bench.parent import stop_with_parent
from vicinal.bench.results import Line

PROGRAM = (sys.executable, "-m", "vicinal.bench.linear_worker")
LAST_LINES = 12  # of what a dead process said that are shown
END_SECONDS = 5.0  # that a process may take to end
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class Worker:
    """The bench's end. ``select`` tells which of some workers has something to say."""

    def __init__(self) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  (until `stop`; such as why it died)
        self._process = subprocess.Popen(
            PROGRAM,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={**os.environ, **dict.fromkeys(_THREADS, "1")},  # as many threads as cores in each would fight
            start_new_session=True,  # a terminal's Ctrl-C reaches the bench alone; what a search starts is in its group
        )
        self._requests, self._answers = cast(IO[bytes], self._process.stdin), cast(IO[bytes], self._process.stdout)

    def fileno(self) -> int:
        return self._answers.fileno()

    def give(self, unit: Unit, folder: Path, *, cores: int, versions: str) -> None:
        """One unit, whose answer comes before the next; ``folder`` holds the sets' files."""
        request = {"unit": asdict(unit), "folder": str(folder), "cores": cores, "versions": versions}
        with suppress(BrokenPipeError):  # it has just died, and says so when it is asked for the answer
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()

    def answer(self) -> Line | None:
        """The unit's result, waited for; None from a process that died over it."""
        text = self._answers.readline()
        if not text.endswith(b"\n"):
            return None
        found: Line = json.loads(text)
        return found

    def last_words(self) -> str:
        self._said.seek(0)
        return "\n".join(self._said.read().decode(errors="replace").strip().splitlines()[-LAST_LINES:])

    def stop(self) -> None:
        """End it and all that it started, whatever they do; joblib's own watcher stays to remove what they shared."""
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()
        for file in (self._requests, self._answers, self._said):
            with suppress(BrokenPipeError):
                file.close()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):  # macOS has the second for a group of the dead
            os.killpg(self._process.pid, number)


def serve() -> None:
    """The process's end: unit after unit until no more come."""
    stop_with_parent(lambda: os.killpg(0, signal.SIGTERM))  # not SIGINT, which a bench in the background may ignore
    answers = os.fdopen(os.dup(1), "w", buffering=1)  # open to the end: an error is told before it closes
    os.dup2(2, 1)  # what a library prints is no answer
    for text in sys.stdin:
        request = json.loads(text)
        unit, folder = Unit(**request["unit"]), Path(request["folder"])
        found = result(unit, folder, cores=request["cores"], versions=request["versions"])
        answers.write(json.dumps(found, allow_nan=False) + "\n")


if __name__ == "__main__":
    serve()
