"""``vicinal train --processes N``: the same command N times on this machine, started and waited for.

What ``torchrun`` does for one machine, with Ctrl-C and errors as with one process. This module needs no torch, so the
process that only waits is small and starts the others at once.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from vicinal.errors import ConfigError

MEETING = "VICINAL_MEETING"  # environment: the file through which processes of one machine find each other
LOOK_SECONDS = 0.05
GRACE_SECONDS = 15.0  # the others notice an end within a second; who has not left by now never will
INTERRUPTED = 130


def wanted(count: int) -> bool:
    """Whether processes are still to be started: more than one, and this is not one of them already."""
    if count < 1:
        raise ConfigError(f"--processes counts processes, got {count}.")
    started = os.environ.get("WORLD_SIZE", "1")
    if "RANK" in os.environ and started != str(count):
        raise ConfigError(f"a launcher has already started {started} processes, got --processes {count}. Leave it out.")
    return count > 1 and "RANK" not in os.environ


def launch(count: int) -> None:
    """Run this very command in ``count`` processes; raise KeyboardInterrupt or SystemExit where it failed in them."""
    with tempfile.TemporaryDirectory(prefix="vicinal-") as folder:
        command = [sys.executable, "-m", "vicinal", *sys.argv[1:]]
        # In process groups of their own: a terminal's Ctrl-C reaches this process alone, which passes it on once.
        children = [
            subprocess.Popen(command, env=_environment(rank, count, f"{folder}/meeting"), process_group=0)
            for rank in range(count)
        ]
        try:
            with _passing_on(children):
                codes = _wait(children)
        finally:
            for child in children:
                child.kill()
                child.wait()
    if INTERRUPTED in codes:
        raise KeyboardInterrupt
    if any(codes):
        sys.exit(max(code if code > 0 else 1 for code in codes if code))


def _environment(rank: int, count: int, meeting: str) -> dict[str, str]:
    """As ``torchrun`` sets it; the processes share the processors, and talk through the machine's own loop."""
    shares = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // count))}
    if sys.platform == "linux":
        shares["GLOO_SOCKET_IFNAME"] = "lo"  # a host name that resolves to nowhere would end it here
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    return shares | os.environ | {name: str(value) for name, value in numbers.items()} | {MEETING: meeting}


def _wait(children: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    """The exit codes; once one has failed, the others have a while to end by themselves and are then killed."""
    deadline: float | None = None
    while None in (codes := [child.poll() for child in children]):  # each is asked, or it would stay as a zombie
        if deadline is None and any(codes):
            deadline = time.monotonic() + GRACE_SECONDS
        if deadline is not None and time.monotonic() > deadline:
            for child in children:
                child.kill()
        time.sleep(LOOK_SECONDS)
    return [child.returncode for child in children]


@contextmanager
def _passing_on(children: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Whoever asks this process to stop asks all of them."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        for child in children:
            child.send_signal(number)

    if threading.current_thread() is not threading.main_thread():  # Python delivers signals nowhere else
        yield
        return
    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
