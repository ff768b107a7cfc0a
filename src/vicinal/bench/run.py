"""Run tables: which results are there, which jobs are missing, and what became of them."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from vicinal.bench import results
from vicinal.bench.job import Job, state_of
from vicinal.bench.pool import Pool, Task
from vicinal.bench.results import Line, Store, records_of
from vicinal.bench.table import UNTRAINED_ROWS, Table
from vicinal.errors import DataError, check_known
from vicinal.training.console import Console, spell


@dataclass(frozen=True)
class Bench:
    """Where and how jobs are done.

    Attributes:
        folder: of results files and pages.
        runs: where jobs work.
        slots: jobs at a time.
        rows: do these alone, with their baselines and the rows without training; all by default.
        until: when, by ``time.monotonic``, no job starts any more; those that run then finish.
    """

    folder: Path
    runs: Path
    console: Console
    slots: int = 1
    rows: Collection[str] = ()
    until: float = math.inf

    def run(self, asked: Iterable[tuple[Path, Job]], store: Store, title: str) -> set[str]:
        """Run each job once, append its results to the file of the first that asked for it, add
        them to a store, and return the keys of the jobs that failed."""
        files: dict[str, Path] = {}
        tasks = []
        for path, job in asked:
            if job.key not in files:
                job.located()  # raises before anything runs
                files[job.key] = path
                tasks.append(job.task())

        def done(task: Task, lines: list[Line]) -> str:
            path = files[task.key]
            results.append(path, *({"table": path.name.partition(".")[0], **x} for x in lines))
            store.add(*lines)
            recall = lines[-1]["metrics"].get("recall@1")
            return "done" if recall is None else f"R@1 {100 * recall:.1f}"

        with Pool(self.runs / "jobs", slots=self.slots, console=self.console) as pool:
            left = pool.run(tasks, done, title=title, until=self.until)
        if left or pool.failures:
            self.console.line(
                f"{title}: {len(pool.failures)} jobs failed, {left} were not started; run the same "
                "command to continue",
                warning=True,
            )
        return {task.key for task in pool.failures}


@dataclass
class Outcome:
    """What a table has so far.

    Attributes:
        lines: results by row and seed.
        failures: how many jobs of this run failed, by row.
        note: what a reader of the results should know.
    """

    table: Table
    lines: dict[str, dict[int, Line]]
    failures: dict[str, int] = field(default_factory=dict)
    note: str = ""

    def missing(self) -> list[Job]:
        return [
            job
            for job in jobs(self.table)
            if any(job.seed not in self.lines[row] for row in rows_of(job))
        ]


def jobs(table: Table) -> list[Job]:
    """Every job of a table, seed by seed, so that a bench stopped early has all rows with few
    seeds."""
    found = []
    for seed in range(table.seeds):
        found.append(Job(table, table.row(table.network), "untrained", seed))
        found += [Job(table, row, "trained", seed) for row in table.rows]
    return found


def rows_of(job: Job) -> tuple[str, ...]:
    """The rows of the table that a job fills."""
    return UNTRAINED_ROWS if job.kind == "untrained" else (job.row.name,)


def collect(
    table: Table,
    store: Store,
    present: Mapping[str, str] | None = None,
    failed: Collection[str] = (),
) -> Outcome:
    """What a store holds of a table, of one state of its data.

    Args:
        present: the fingerprints of the records as they are now, by ``Job.source``; where one is
            not known, the newest result tells which records count.
        failed: the keys of jobs that failed.
    """
    names = (*UNTRAINED_ROWS, *(row.name for row in table.rows))
    outcome = Outcome(table, {name: {} for name in names})
    found = [
        (row, job, store.find({**job.identity(), "row": row}))
        for job in jobs(table)
        for row in rows_of(job)
    ]
    every = [(line, job.source()) for _, job, lines in found for line in lines.values()]
    every.sort(key=lambda one: str(one[0]["created"]))
    counted = {source: records_of(line) for line, source in every} | dict(present or {})
    left_out = 0
    for row, job, lines in found:
        wanted = counted.get(job.source(), "")
        left_out += len(lines.keys() - {wanted})
        if wanted in lines:
            outcome.lines[row][job.seed] = lines[wanted]
        if job.key in failed:
            outcome.failures[row] = outcome.failures.get(row, 0) + 1
    if left_out:
        outcome.note = (
            f"{left_out} results of other data than these are left out: names, labels, splits or "
            "content of the records have changed since, or were not recorded."
        )
    return outcome


def present(jobs: Iterable[Job]) -> dict[str, str]:
    """The fingerprints of jobs' records as they are now, of data that this machine has."""
    found: dict[str, str] = {}
    for job in jobs:
        if not job.row.former and job.source() not in found:
            with suppress(DataError):
                found[job.source()] = state_of(job.located().data.load())
    return found


def check_rows(tables: Sequence[Table], rows: Iterable[str]) -> None:
    """Reject a row that none of the tables has."""
    known = {*UNTRAINED_ROWS, *(row.name for table in tables for row in table.rows)}
    for name in rows:
        check_known("row", name, known, f"in {', '.join(table.name for table in tables)}: ")


def chosen(table: Table, rows: Collection[str]) -> set[str]:
    """The rows that a run limited to ``rows`` fills: those, their baselines, and the ones without
    training."""
    own = [row for row in table.rows if not row.former and (not rows or row.name in rows)]
    if not own and {*UNTRAINED_ROWS}.isdisjoint(rows):
        return set()
    return {*UNTRAINED_ROWS, *(name for row in own for name in (row.name, row.against) if name)}


def costs(asked: Iterable[tuple[Outcome, Job]]) -> Iterator[str]:
    """Say how long each row takes: as earlier seeds of it, or as some of its steps on features."""
    rows: dict[str, list[tuple[Outcome, Job]]] = {}
    for outcome, job in asked:
        if job.kind == "trained":
            rows.setdefault(job.identity()["slots"], []).append((outcome, job))
    for places in rows.values():
        outcome, job = places[0]
        count = len({job.seed for _, job in places})
        known = [line["seconds"] for line in outcome.lines[job.row.name].values()]
        seconds = sum(known) / len(known) if known else job.measured_seconds()
        each = "not known before its first seed" if seconds is None else spell(seconds)
        whole = "" if seconds is None else f", {spell(seconds * count)} in all"
        yield f"  {job.row.name}: {count} seeds, each about {each}{whole}"


def run_tables(tables: Sequence[Table], bench: Bench) -> list[Outcome]:
    """Run what is missing of some tables through one pool; results are appended to
    ``folder/TABLE.jsonl`` as they come.

    Seeds go round by round over all tables, so that a stop leaves whole seeds. A job that several
    tables need is done once, and the first of them keeps its result.
    """
    check_rows(tables, bench.rows)
    store = Store(bench.folder)
    now = present(job for table in tables for job in jobs(table))
    outcomes = [collect(table, store, now) for table in tables]
    for note in sorted({outcome.note for outcome in outcomes} - {""}):
        bench.console.line(note, warning=True)
    asked = [
        (outcome, job)
        for outcome in outcomes
        for job in outcome.missing()
        if not chosen(outcome.table, bench.rows).isdisjoint(rows_of(job))
    ]
    asked.sort(key=lambda one: one[1].seed)  # stable: tables keep their order
    title = tables[0].name if len(tables) == 1 else f"{len(tables)} tables"
    whole = sum(len(jobs(outcome.table)) - len(outcome.missing()) for outcome in outcomes)
    count = len({job.key for _, job in asked})
    bench.console.line(f"{title}: {count} jobs to run, {whole} done before")
    for cost in costs(asked):
        bench.console.line(cost)
    places = [(bench.folder / f"{outcome.table.name}.jsonl", job) for outcome, job in asked]
    failed = bench.run(places, store, title)
    return [collect(table, store, now, failed) for table in tables]
