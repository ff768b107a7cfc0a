"""Run tables: which results are there, which jobs are missing, and what became of them."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from vicinal.bench import results
from vicinal.bench.job import Job, state_of
from vicinal.bench.pool import Done, Pool, Task
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
    make_pool: Callable[..., Pool] = Pool

    def do(self, tasks: Iterable[Task], done: Done, title: str) -> tuple[int, list[Task]]:
        """Run tasks; return how many were not started, and which failed."""
        with self.make_pool(self.runs / "jobs", slots=self.slots, console=self.console) as pool:
            return pool.run(tasks, done, title=title, until=self.until), pool.failures


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


def collect(table: Table, store: Store, present: Mapping[str, str] | None = None) -> Outcome:
    """What a store holds of a table, of one state of its data.

    Args:
        present: the fingerprints of the records as they are now, by ``Job.source``; where one is
            not known, the newest result tells which records count.
    """
    outcome = Outcome(
        table, {name: {} for name in (*UNTRAINED_ROWS, *(r.name for r in table.rows))}
    )
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
    known = {
        name for table in tables for name in (*UNTRAINED_ROWS, *(row.name for row in table.rows))
    }
    for name in rows:
        check_known("row", name, known, f"in {', '.join(table.name for table in tables)}: ")


def chosen(table: Table, rows: Collection[str]) -> set[str]:
    """The rows that a run limited to ``rows`` fills: those, their baselines, and the ones without
    training."""
    own = [row for row in table.rows if not row.former and (not rows or row.name in rows)]
    if not own and not any(name in rows for name in UNTRAINED_ROWS):
        return set()
    return {
        *UNTRAINED_ROWS,
        *(row.name for row in own),
        *(row.against for row in own if row.against is not None),
    }


def costs(places: Iterable[tuple[Outcome, Job]]) -> Iterator[str]:
    """Say how long each row takes: as earlier seeds of it, or as some of its steps on features."""
    rows: dict[tuple[str, str], list[tuple[Outcome, Job]]] = {}
    for outcome, job in places:
        if job.kind == "trained":
            rows.setdefault((outcome.table.name, job.row.name), []).append((outcome, job))
    for (_, name), seeds in rows.items():
        outcome, job = seeds[0]
        known = [line["seconds"] for line in outcome.lines[name].values()]
        seconds = sum(known) / len(known) if known else job.measured_seconds()
        each = "not known before its first seed" if seconds is None else spell(seconds)
        whole = "" if seconds is None else f", {spell(seconds * len(seeds))} in all"
        yield f"  {name}: {len(seeds)} seeds, each about {each}{whole}"


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
    wanted: dict[str, list[tuple[Outcome, Job]]] = {}  # by the key of a task
    asked = [
        (outcome, job)
        for outcome in outcomes
        for job in outcome.missing()
        if chosen(outcome.table, bench.rows).intersection(rows_of(job))
    ]
    # Stable: tables keep their order.
    for outcome, job in sorted(asked, key=lambda place: place[1].seed):
        wanted.setdefault(job.task().key, []).append((outcome, job))
    tasks = [places[0][1].task() for places in wanted.values()]
    for places in wanted.values():
        places[0][1].located()  # raises before anything runs
    title = tables[0].name if len(tables) == 1 else f"{len(tables)} tables"
    whole = sum(len(jobs(outcome.table)) - len(outcome.missing()) for outcome in outcomes)
    bench.console.line(f"{title}: {len(tasks)} jobs to run, {whole} done before")
    for cost in costs(places[0] for places in wanted.values()):
        bench.console.line(cost)

    def done(task: Task, lines: list[Line]) -> str:
        first = wanted[task.key][0][0].table.name
        results.append(
            bench.folder / f"{first}.jsonl", *({"table": first, **line} for line in lines)
        )
        for line in lines:
            for outcome, job in wanted[task.key]:
                row = line["row"] if job.kind == "untrained" else job.row.name
                outcome.lines[row][job.seed] = line
        recall = lines[-1]["metrics"].get("recall@1")
        return "done" if recall is None else f"R@1 {100 * recall:.1f}"

    left, failures = bench.do(tasks, done, title)
    for task in failures:
        for outcome, job in wanted[task.key]:
            bench.console.line(
                f"{outcome.table.name}: failed: {task.name}; run the same command to try again",
                warning=True,
            )
            for row in rows_of(job):
                outcome.failures[row] = outcome.failures.get(row, 0) + 1
    if left:
        bench.console.line(
            f"{title}: time is up, {left} jobs were not started; run the same command to continue"
        )
    return outcomes
