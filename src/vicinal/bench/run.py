"""Run tables: which results are there, which jobs are missing, and what became of them."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from vicinal.bench import results
from vicinal.bench.job import Job
from vicinal.bench.pool import Done, Failure, Pool, Task
from vicinal.bench.results import Line, Store
from vicinal.bench.table import UNTRAINED_ROWS, Table
from vicinal.errors import ConfigError, unknown
from vicinal.files import write_text
from vicinal.training.console import Console
from vicinal.training.provenance import commit


@dataclass(frozen=True)
class Bench:
    """Where and how jobs are done.

    Attributes:
        folder: of results files and pages.
        runs: where jobs work.
        slots: jobs at a time.
        rows: do these alone, with their baselines and the rows without training; all by default.
        until: when, by ``time.monotonic``, no job starts any more; those that run then finish.
        data: a copy of the tables' data on this machine, if it is not where the rows say.
        fresh: use results of this very code alone.
    """

    folder: Path
    runs: Path
    console: Console
    slots: int = 1
    rows: Collection[str] = ()
    until: float = math.inf
    data: str = ""
    fresh: bool = False
    make_pool: Callable[..., Pool] = Pool

    def do(self, tasks: Iterable[Task], done: Done, title: str) -> tuple[int, list[Failure]]:
        """Run tasks; return how many were not started, and which failed."""
        with self.make_pool(
            self.runs / "jobs", slots=self.slots, console=self.console, fresh=self.fresh
        ) as pool:
            return pool.run(tasks, done, title=title, until=self.until), pool.failures


@dataclass
class Outcome:
    """What a table has so far.

    Attributes:
        lines: results by row and seed.
        failures: how many jobs of this run failed, by row.
        notes: what a reader of the results files should know.
    """

    table: Table
    lines: dict[str, dict[int, Line]]
    failures: dict[str, int] = field(default_factory=dict)
    notes: Sequence[str] = ()

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


def collect(table: Table, store: Store) -> Outcome:
    """What a store holds of a table."""
    outcome = Outcome(
        table, {name: {} for name in (*UNTRAINED_ROWS, *(row.name for row in table.rows))}
    )
    outcome.notes = store.notes
    for job in jobs(table):
        identity = job.identity()
        for row in rows_of(job):
            line = store.find({**identity, "row": row})
            if line is not None:
                outcome.lines[row][job.seed] = line
    return outcome


def check_rows(tables: Sequence[Table], rows: Iterable[str]) -> None:
    """Reject a row that none of the tables has."""
    known = {
        name for table in tables for name in (*UNTRAINED_ROWS, *(row.name for row in table.rows))
    }
    for name in rows:
        if name not in known:
            raise ConfigError(
                f"in {', '.join(table.name for table in tables)}: " + unknown("row", name, known)
            )


def chosen(table: Table, rows: Collection[str]) -> set[str]:
    """The rows that a run limited to ``rows`` fills: those, their baselines, and the ones without
    training."""
    own = [row for row in table.rows if not rows or row.name in rows]
    if not own and not any(name in rows for name in UNTRAINED_ROWS):
        return set()
    return {
        *UNTRAINED_ROWS,
        *(row.name for row in own),
        *(row.against for row in own if row.against is not None),
    }


def run_tables(tables: Sequence[Table], bench: Bench) -> list[Outcome]:
    """Run what is missing of some tables through one pool; results are appended to
    ``folder/TABLE.jsonl`` as they come.

    Seeds go round by round over all tables, so that a stop leaves whole seeds. A job that several
    tables need is done once, and the first of them keeps its result.
    """
    check_rows(tables, bench.rows)
    store, console = Store(bench.folder, fresh=bench.fresh), bench.console
    for note in store.notes:
        console.line(note, warning=True)
    outcomes = [collect(table, store) for table in tables]
    wanted: dict[Task, list[tuple[Outcome, Job]]] = {}
    by_key: dict[str, Task] = {}
    asked = [
        (outcome, replace(job, data=bench.data))
        for outcome in outcomes
        for job in outcome.missing()
        if chosen(outcome.table, bench.rows).intersection(rows_of(job))
    ]
    for outcome, job in sorted(
        asked, key=lambda place: place[1].seed
    ):  # stable: tables keep their order
        task = job.task()
        task = by_key.setdefault(task.key, task)
        wanted.setdefault(task, []).append((outcome, job))
        if len(wanted[task]) == 1:
            job.located()  # raises before anything runs
    _announce(outcomes, wanted.values(), console)

    def done(task: Task, lines: list[Line]) -> str:
        first = wanted[task][0][0].table.name
        results.append(
            bench.folder / f"{first}.jsonl", *({"table": first, **line} for line in lines)
        )
        for line in lines:
            for outcome, job in wanted[task]:
                outcome.lines[line["row"] if job.kind == "untrained" else job.row.name][
                    job.seed
                ] = line
        recall = lines[-1]["metrics"].get("recall@1")
        return "done" if recall is None else f"R@1 {100 * recall:.1f}"

    title = tables[0].name if len(tables) == 1 else f"{len(tables)} tables"
    left, failures = bench.do(wanted, done, title)
    _report(failures, wanted, console)
    if left:
        console.line(
            f"{title}: time is up, {left} jobs were not started; run the same command to continue"
        )
    return outcomes


def _report(
    failures: Iterable[Failure], wanted: Mapping[Task, list[tuple[Outcome, Job]]], console: Console
) -> None:
    names: dict[str, list[str]] = {}
    for failure in failures:
        for outcome, job in wanted[failure.task]:
            names.setdefault(outcome.table.name, []).append(failure.task.name)
            for row in rows_of(job):
                outcome.failures[row] = outcome.failures.get(row, 0) + 1
    for table, failed in names.items():
        console.line(
            f"{table}: failed: {', '.join(failed)}; run the same command to try again", warning=True
        )


def _announce(
    outcomes: Sequence[Outcome], wanted: Iterable[list[tuple[Outcome, Job]]], console: Console
) -> None:
    places = list(wanted)
    for outcome in outcomes:
        own = sum(place[0][0] is outcome for place in places)
        shared = sum(any(one is outcome for one, _ in place[1:]) for place in places)
        done = len(jobs(outcome.table)) - len(outcome.missing())
        said = f", {shared} shared with tables before it" if shared else ""
        console.line(f"{outcome.table.name}: {own} jobs to run, {done} done before{said}")
    old = commits(
        line for outcome in outcomes for seeds in outcome.lines.values() for line in seeds.values()
    )
    if old and old != [commit()]:
        console.line(f"results of {', '.join(old)} are used again; --fresh computes them anew")


def commits(lines: Iterable[Line]) -> list[str]:
    """The commits behind some results; where there was no repository, the fingerprint of the
    code."""
    return sorted(
        {str(line.get("commit") or f"code {line.get('code', 'unknown')}") for line in lines}
    )


def rehash(tables: Sequence[Table], folder: Path) -> int:
    """Give results their rows' new hashes, where settings were renamed and not changed; return how
    many changed.

    A line is taken for its table's row by the names of both.
    """
    changed = 0
    for table in tables:
        new = {
            (row, job.seed): job.identity()["slots"] for job in jobs(table) for row in rows_of(job)
        }
        path = folder / f"{table.name}.jsonl"
        lines, _ = results.read(path)
        for line in lines:
            own = line.get("table") == table.name and line.get("protocol") == table.protocol
            slots = new.get((line["row"], line["seed"])) if own else None
            if slots is not None and slots != line["slots"]:
                line["slots"], changed = slots, changed + 1
        if lines:
            write_text(path, "".join(map(results.written, lines)))
    return changed
