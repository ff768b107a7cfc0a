"""A process that does one job after another: ``python -m vicinal.bench.worker``, and the bench's end of it.

Imports and a GPU's context take longer than a small job; a process that stays pays for them once. It reads a folder a
line, and answers a line, how that job ended, when it is ready for the next. A process that is not (killed, interrupted,
an error that nobody foresaw, a job that left traces) ends instead, and its exit code is the answer.
"""

import json
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

from vicinal.bench.parent import stop_with_parent

PROGRAM = (sys.executable, "-m", "vicinal.bench.worker")
DONE, REFUSED, INTERRUPTED = 0, 2, 130  # how jobs end; after the first two a process may stay
LEAVE_SECONDS = 20.0  # that a process without a job may take to end
_ANSWER = re.compile(rb"^ended (\d+)$", re.MULTILINE)  # some library may greet whoever imports it
_PACKAGE = Path(__file__).parents[1]


class Worker:
    """The bench's end.

    Args:
        program: the process; its standard input and output are the conversation.
        log: where it speaks until its first job has begun, so that an import that fails is told too.
    """

    def __init__(self, program: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._code = _newest()
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                program,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                bufsize=0,
                env=environment,
                start_new_session=True,  # a terminal's Ctrl-C reaches the bench alone, which then stops each job once
            )
        self._requests, self._answers = cast(IO[bytes], self.process.stdin), cast(IO[bytes], self.process.stdout)
        os.set_blocking(self._answers.fileno(), False)

    def fit(self) -> bool:
        """Whether it can do another job, by the code as it lies on the disk now: what it imported may be older."""
        return self.process.poll() is None and self._code == _newest()

    def give(self, folder: Path) -> None:
        with suppress(BrokenPipeError):  # it has just ended, and says so when it is asked for the job
            self._requests.write(json.dumps(str(folder)).encode() + b"\n")

    def ended(self) -> int | None:
        """How its job ended; None while that runs."""
        code = self.process.poll()  # before what it said: who has answered may end right after
        answer = _ANSWER.search(self._answers.read() or b"")
        return code if answer is None else int(answer[1])

    def interrupt(self) -> None:
        """Stop its job as Ctrl-C would, so that it saves its run."""
        self.process.send_signal(signal.SIGINT)
        self.release()  # the job may have ended just before

    def release(self) -> None:
        """No job follows: it ends after the one that it has."""
        self._requests.close()

    def leave(self, seconds: float = LEAVE_SECONDS) -> None:
        """Wait for its end; after ``seconds``, end it."""
        self.release()
        try:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
        finally:
            self.process.kill()
            self.process.wait()
            self._answers.close()


def _newest() -> int:
    """When the newest file of the package was written; results name the code that made them."""
    times = []
    for path in _PACKAGE.rglob("*.py"):
        with suppress(FileNotFoundError):  # being replaced at this moment
            times.append(path.stat().st_mtime_ns)
    return max(times)


def serve(prepare: Callable[[], tuple[Callable[[Path], int], Callable[[], bool]]]) -> int:
    """The process's end: job after job until no more come; the exit code.

    Standard output and error are each job's own log; the conversation moves out of the way of all that a job starts.

    Args:
        prepare: loads and gives two functions. One does the job of a folder and returns its exit code; the other makes
            the process as good as new, and says whether it could.
    """
    stop_with_parent()
    with os.fdopen(os.dup(0), "rb") as requests, os.fdopen(os.dup(1), "wb", buffering=0) as answers:
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        try:
            do, restore = prepare()
            for line in requests:
                folder = Path(json.loads(line))
                _speak_into(folder / "log.txt")
                with warnings.catch_warnings():  # and each job is told what one before it was warned of
                    code = do(folder)
                sys.stdout.flush()
                if code not in (DONE, REFUSED) or not restore():
                    return code
                answers.write(f"ended {code}\n".encode())
        except KeyboardInterrupt:  # without a job, which would have caught it
            return INTERRUPTED
    return DONE


def _speak_into(path: Path) -> None:
    """From here on; what outlives a job, such as the server that forks readers of images, keeps the log it began in."""
    sys.stdout.flush()
    sys.stderr.flush()
    with path.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)


def prepare() -> tuple[Callable[[Path], int], Callable[[], bool]]:
    from vicinal.bench import job, measuring  # noqa: F401  (what jobs load is part of the state that they begin in)
    from vicinal.bench.isolation import ProcessState

    return job.do, ProcessState().restore


if __name__ == "__main__":
    sys.exit(serve(prepare))
