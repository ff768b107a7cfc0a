"""Run tables: which results are there, which jobs are missing, and what became of them."""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from vicinal.bench import results
from vicinal.bench.job import Job, state_of
from vicinal.bench.pool import Done, Failure, Pool, Task
from vicinal.bench.results import Line, Store, records_of
from vicinal.bench.table import UNTRAINED_ROWS, Table
from vicinal.errors import ConfigError, DataError, unknown
from vicinal.evaluation.statistics import CLAIM_SEEDS
from vicinal.files import write_text
from vicinal.training.console import Console, spell
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


def collect(
    table: Table, store: Store, present: Callable[[Job], str | None] = lambda job: None
) -> Outcome:
    """What a store holds of a table, of one state of its data.

    Args:
        present: the fingerprint of a job's records as they are now; where it is not known, the
            newest result tells which records count.
    """
    found = [
        (row, job, store.find({**job.identity(), "row": row}))
        for job in jobs(table)
        for row in rows_of(job)
    ]
    newest: dict[str, Line] = {}
    for _, job, lines in found:
        for line in lines.values():
            before = newest.setdefault(job.source(), line)
            newest[job.source()] = max(before, line, key=lambda one: str(one["created"]))
    outcome = Outcome(
        table, {name: {} for name in (*UNTRAINED_ROWS, *(r.name for r in table.rows))}
    )
    left_out = 0
    for row, job, lines in found:
        if not lines:
            continue
        wanted = present(job)
        wanted = records_of(newest[job.source()]) if wanted is None else wanted
        left_out += len(lines.keys() - {wanted})
        if wanted in lines:
            outcome.lines[row][job.seed] = lines[wanted]
    outcome.notes = list(store.notes)
    if left_out:
        outcome.notes.append(
            f"{left_out} results of other data than these are left out: names, labels, splits or "
            "content of the records have changed since, or were not recorded (--rehash takes those "
            "for the data of now)."
        )
    return outcome


class Present:
    """The fingerprints of jobs' records as they are now; None where this machine has no such
    data."""

    def __init__(self, data: str) -> None:
        self.data = data
        self._known: dict[str, str | None] = {}

    def __call__(self, job: Job) -> str | None:
        if job.source() not in self._known:
            try:
                found = state_of(replace(job, data=self.data).located().data.load())
            except DataError:
                found = None
            self._known[job.source()] = found
        return self._known[job.source()]


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
    own = [row for row in table.rows if not row.former and (not rows or row.name in rows)]
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
    store = Store(bench.folder, fresh=bench.fresh)
    present = Present(bench.data)
    outcomes = [collect(table, store, present) for table in tables]
    for note in dict.fromkeys(note for outcome in outcomes for note in outcome.notes):
        bench.console.line(note, warning=True)
    wanted: dict[str, list[tuple[Outcome, Job]]] = {}  # by the key of a task
    asked = [
        (outcome, replace(job, data=bench.data))
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
    _announce(outcomes, wanted.values(), store, bench)

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

    title = tables[0].name if len(tables) == 1 else f"{len(tables)} tables"
    left, failures = bench.do(tasks, done, title)
    for failure in failures:
        for outcome, job in wanted[failure.task.key]:
            bench.console.line(
                f"{outcome.table.name}: failed: {failure.task.name}; run the same command to try "
                "again",
                warning=True,
            )
            for row in rows_of(job):
                outcome.failures[row] = outcome.failures.get(row, 0) + 1
    if left:
        bench.console.line(
            f"{title}: time is up, {left} jobs were not started; run the same command to continue"
        )
    return outcomes


def _announce(
    outcomes: Sequence[Outcome],
    wanted: Iterable[list[tuple[Outcome, Job]]],
    store: Store,
    bench: Bench,
) -> None:
    places = list(wanted)
    for outcome in outcomes:
        own = [jobs[0][1] for jobs in places if jobs[0][0] is outcome]
        shared = sum(any(one is outcome for one, _ in place[1:]) for place in places)
        done = len(jobs(outcome.table)) - len(outcome.missing())
        said = f", {shared} shared with tables before it" if shared else ""
        bench.console.line(
            f"{outcome.table.name}: {len(own)} jobs to run, {done} done before{said}"
        )
        for name in dict.fromkeys(job.row.name for job in own if job.kind == "trained"):
            row = [job for job in own if job.row.name == name and job.kind == "trained"]
            seconds = expected_seconds(row[0], store)
            each = "not known before its first seed" if seconds is None else spell(seconds)
            whole = "" if seconds is None else f", {spell(seconds * len(row))} in all"
            bench.console.line(f"  {name}: {len(row)} seeds, each about {each}{whole}")
    old = commits(
        line for outcome in outcomes for seeds in outcome.lines.values() for line in seeds.values()
    )
    if old and old != [commit()]:
        bench.console.line(
            f"results of {', '.join(old)} are used again; --fresh computes them anew"
        )


def expected_seconds(job: Job, store: Store) -> float | None:
    """How long a row trains with one seed: as recorded of other seeds, else as some steps take."""
    found = [
        line["seconds"]
        for seed in range(max(job.table.seeds, CLAIM_SEEDS))
        for line in store.find({**replace(job, seed=seed).identity(), "row": ""}).values()
    ]
    return sum(found) / len(found) if found else job.measured_seconds()


def commits(lines: Iterable[Line]) -> list[str]:
    """The commits behind some results; where there was no repository, the fingerprint of the
    code."""
    return sorted(
        {str(line.get("commit") or f"code {line.get('code', 'unknown')}") for line in lines}
    )


def rehash(tables: Sequence[Table], folder: Path, data: str = "") -> int:
    """Give results their rows' new hashes, where settings were renamed and not changed, and those
    without a fingerprint that of their records as they are now; return how many changed.

    A line is taken for its table's row by the names of both.
    """
    changed = 0
    present = Present(data)
    for table in tables:
        own = {(row, job.seed): job for job in jobs(table) for row in rows_of(job)}
        path = folder / f"{table.name}.jsonl"
        lines, _ = results.read(path)
        for line in lines:
            job = own.get((line["row"], line["seed"]))
            if job and line.get("table") == table.name and line.get("protocol") == table.protocol:
                facts = {"slots": job.identity()["slots"]}
                records = present(job)
                if records and records.startswith(records_of(line)):  # perhaps without the content
                    facts["records"] = records
                changed += not facts.items() <= line.items()
                line |= facts
        if lines:
            write_text(path, "".join(map(results.written, lines)))
    return changed
