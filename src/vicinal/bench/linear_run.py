"""ANML's Table 2, run: units that are missing are measured side by side, and each is kept as it ends."""

import math
import select
import time
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from vicinal.bench import results
from vicinal.bench.linear_plan import Plan, Unit
from vicinal.bench.linear_sets import file_of, read
from vicinal.bench.linear_worker import Worker
from vicinal.bench.pool import alone_in
from vicinal.bench.results import Line
from vicinal.errors import ConfigError, DataError
from vicinal.training.console import Console
from vicinal.training.provenance import commit

LOOK_SECONDS = 1.0  # between two looks at the clock


@dataclass
class Outcome:
    """How a run ended: how many units are missing still, and over which of them a process died."""

    left: int
    failed: list[Unit] = field(default_factory=list)


def results_file(plan: Plan, folder: Path) -> Path:
    return folder / f"{plan.kept}.jsonl"


def missing(plan: Plan, methods: Sequence[str], lines: Iterable[Line]) -> list[Unit]:
    """Units without a line; one that says why a method cannot serve a split is not asked for again."""
    done = {(line["set"], line["split"], line["method"]) for line in lines}
    return [unit for unit in plan.units(methods) if unit.key not in done]


def check_data(sets: Collection[str], data: Path) -> None:
    """Refuse a folder that lacks sets or has one that cannot be read, before any process starts."""
    if lacking := [file_of(name, data).name for name in sets if not file_of(name, data).is_file()]:
        raise DataError(
            f"{len(sets)} sets of this table were to be read from {data}, but {len(lacking)} of their files are not "
            f"there ({', '.join(lacking[:3])}{', ...' * (len(lacking) > 3)}). Name the folder that holds "
            f"`{data.name}` by --data, or by VICINAL_DATA."
        )
    for name in sets:
        read(file_of(name, data))


def run(
    plan: Plan,
    methods: Sequence[str],
    *,
    data: Path,
    folder: Path,
    runs: Path,
    slots: int,
    console: Console,
    minutes: float | None = None,
) -> Outcome:
    """Measure what is missing. Ctrl-C, a deadline and a failure leave all units that have ended; another run goes on.

    Args:
        data: the folder of the sets' files.
        folder: of the results file.
        runs: where this bench says that it runs, so that no other does the same.
        slots: cores in use, one for each unit; where fewer units are left, the searches share all.
        minutes: after which what runs is stopped.
    """
    if slots < 1:
        raise ConfigError(f"at least 1 unit is measured at a time, but --jobs {slots} came.")
    end = math.inf if minutes is None else time.monotonic() + 60 * minutes
    path, asked = results_file(plan, folder), len(list(plan.units(methods)))
    with alone_in(runs / plan.name):
        waiting = deque(missing(plan, methods, results.read(path)[0]))
        wanted = {unit.set for unit in waiting}
        check_data([name for name in plan.sets if name in wanted], data)
        before = asked - len(waiting)
        console.line(f"{len(waiting)} units to measure, {before} done before")
        crew, outcome = _Crew(data, slots), Outcome(len(waiting))
        with console.following(asked, before, plan.name) as follower:
            try:
                while (waiting or crew.running) and time.monotonic() < end:
                    crew.begin(waiting)
                    follower.advance(asked - outcome.left, f"running: {crew}")
                    for unit, line, said in crew.ended(min(LOOK_SECONDS, max(0.0, end - time.monotonic()))):
                        if line is None:
                            outcome.failed.append(unit)
                            console.line(f"{unit}: its process died; its last lines:\n{said}", warning=True)
                            continue
                        results.append(path, line)
                        outcome.left -= 1
                        if "error" in line:
                            console.line(f"{unit}: not possible: {line['error']}", warning=True)
                follower.advance(asked - outcome.left)
            finally:
                crew.dismiss()
    return outcome


class _Crew:
    """Processes that stay, each with a unit and the cores that it has, or without one."""

    def __init__(self, data: Path, slots: int) -> None:
        self.running: dict[Worker, tuple[Unit, int]] = {}
        self._idle: list[Worker] = []
        self._data, self._slots, self._versions = data, slots, versions()

    def begin(self, waiting: deque[Unit]) -> None:
        """Give out units while there are cores; the last ones share those that are left."""
        while waiting and (free := self._slots - sum(cores for _, cores in self.running.values())) > 0:
            cores = max(1, free // len(waiting))
            worker = self._idle.pop() if self._idle else Worker()
            self.running[worker] = waiting.popleft(), cores
            worker.give(self.running[worker][0], self._data, cores=cores, versions=self._versions)

    def ended(self, seconds: float) -> list[tuple[Unit, Line | None, str]]:
        """Wait for units to end, so long at most: each with its line, or with what its process said before it died."""
        found = []
        for worker in select.select(list(self.running), (), (), seconds)[0]:
            line, said = worker.answer(), ""
            unit, _ = self.running.pop(worker)
            if line is None:
                said = worker.last_words()
                worker.stop()
            else:
                self._idle.append(worker)
            found.append((unit, line, said))
        return found

    def dismiss(self) -> None:
        for worker in (*self.running, *self._idle):
            worker.stop()

    def __str__(self) -> str:
        names = [str(unit) for unit, _ in self.running.values()]
        return ", ".join(names[:3]) + " ..." * (len(names) > 3)


def versions() -> str:
    """What lines are measured with."""
    packages = ", ".join(f"{package} {version(package)}" for package in ("numpy", "scipy", "scikit-learn"))
    return f"commit {commit() or 'unknown'}, {packages}"
