"""What the benchmarks share: times taken alternately, memory in fresh processes, and where a table
came from."""

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Ratio(NamedTuple):
    """Medians of two contestants timed alternately, and their ratio (peer over ours) with its range
    over rounds."""

    ours: float
    theirs: float
    ratio: float
    least: float
    most: float


def alternate(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    rounds: int,
    inner: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> Ratio:
    """Time both in every round; the first round warms up and is thrown away.

    Args:
        inner: our calls per round, where one is too short for the clock; their mean counts.
        clock: ``time.process_time`` for work of one thread, so that other work on the machine does
            not count.
    """
    seconds = [(timed(ours, inner, clock), timed(theirs, clock=clock)) for _ in range(rounds + 1)][
        1:
    ]
    ratios = [peer / mine for mine, peer in seconds]
    mine, peer = (statistics.median(column) for column in zip(*seconds, strict=True))
    return Ratio(mine, peer, statistics.median(ratios), min(ratios), max(ratios))


def timed(
    function: Callable[[], object], inner: int = 1, clock: Callable[[], float] = time.perf_counter
) -> float:
    start = clock()
    for _ in range(inner):
        function()
    return (clock() - start) / inner


def resident(field: str) -> int:
    """Bytes resident now (VmRSS) or at most so far (VmHWM); getrusage would count what the parent
    process held."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def provenance(packages: tuple[str, ...]) -> str:
    """Hardware, versions and commit, for the line under a table."""
    from importlib.metadata import version

    versions = ", ".join(
        [f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in packages)]
    )
    return f"{hardware()}; {versions}; commit {commit()}"


def hardware() -> str:
    model = platform.processor() or platform.machine()
    for line in subprocess.run(["lscpu"], capture_output=True, text=True).stdout.splitlines():
        if line.startswith("Model name:"):
            model = f"{line.split(':')[1].strip()} ({platform.machine()})"
    return f"{model}, {os.cpu_count()} cores"


def commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    return (
        subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout.strip()
        or "unknown"
    )


def verdict(met: bool) -> str:
    return "met" if met else "**missed**"


def write_between(document: Path, name: str, text: str) -> None:
    """Replace what stands between the markers ``<!-- NAME:start -->`` and ``<!-- NAME:end -->``."""
    start = f"<!-- {name}:start -->"
    end = f"<!-- {name}:end -->"
    head, rest = document.read_text(encoding="utf-8").split(start)
    _, tail = rest.split(end)
    document.write_text(f"{head}{start}\n{text}\n{end}{tail}", encoding="utf-8")
