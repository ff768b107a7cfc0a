"""A table run: which results are there, which jobs are missing, and what became of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vicinal.bench import results
from vicinal.bench.code import fingerprint
from vicinal.bench.job import Job
from vicinal.bench.pool import Failure, Pool
from vicinal.bench.results import Line
from vicinal.bench.tables import BASELINES, Table
from vicinal.errors import ConfigError, RunError
from vicinal.run_directory import RunDirectory
from vicinal.training.console import Console
from vicinal.training.provenance import commit


@dataclass
class Outcome:
    """What a table has so far.

    Attributes:
        lines: results by row and seed.
        failures: jobs of this run that ended without one.
        notes: what a reader of the results files should know.
    """

    table: Table
    lines: dict[str, dict[int, Line]]
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def jobs(table: Table) -> list[Job]:
    """Every job of a table, seed by seed, so that a bench stopped early has all rows with few seeds."""
    network = table.row(table.network)
    found = []
    for seed in range(table.seeds):
        found.append(
            Job("baselines", "baselines", network.recipe, network.overrides, seed, table.protocol, dim=table.dim)
        )
        found += [Job(row.name, "trained", row.recipe, row.overrides, seed, table.protocol) for row in table.rows]
    return found


def rows_of(job: Job) -> tuple[str, ...]:
    """The rows of the table that a job fills."""
    return BASELINES if job.kind == "baselines" else (job.row,)


def collect(table: Table, folder: Path, *, fresh: bool = False) -> Outcome:
    """What the results files of ``folder`` hold of a table; ``fresh`` accepts those of this very code."""
    lines, notes = results.read_folder(folder)
    outcome = Outcome(table, {name: {} for name in (*BASELINES, *(row.name for row in table.rows))}, notes=notes)
    for job in jobs(table):
        identity = job.identity()
        for row in rows_of(job):
            wanted = {**identity, "row": row} if job.kind == "baselines" else identity
            line = results.find(lines, wanted, code=fingerprint(job.recipe) if fresh else None)
            if line is not None:
                outcome.lines[row][job.seed] = line
    return outcome


def missing(table: Table, outcome: Outcome) -> list[Job]:
    """The jobs that have still to be done."""
    return [job for job in jobs(table) if any(job.seed not in outcome.lines[row] for row in rows_of(job))]


def run_table(
    table: Table,
    folder: Path,
    runs: Path,
    *,
    slots: int,
    fresh: bool,
    console: Console,
    minutes: float | None = None,
    data: str = "",
) -> Outcome:
    """Run what is missing of a table; results are appended to ``folder/TABLE.jsonl`` as they come.

    Args:
        minutes: no job starts later than this; those that run then end in peace.
        data: where this machine has the table's data, if not where the rows say.
    """
    outcome = collect(table, folder, fresh=fresh)
    for note in outcome.notes:
        console.line(note, warning=True)
    todo = [replace(job, data=data) for job in missing(table, outcome)]
    _announce(table, todo, outcome, console)
    pool = Pool(runs / table.name, slots=slots, console=console, fresh=fresh)
    outcome.failures = pool.failures

    def record(job: Job, lines: Sequence[dict[str, Any]]) -> None:
        for line in lines:
            line = {"table": table.name, **line}
            results.append(folder / f"{table.name}.jsonl", line)
            outcome.lines[line["row"]][job.seed] = line

    left = pool.run(todo, record, title=table.name, minutes=minutes)
    if left:
        console.line(f"{table.name}: time is up, {left} jobs were not started; the same command goes on with them")
    return outcome


def adopt(table: Table, path: Path, folder: Path) -> str:
    """Record a finished run that ``vicinal train`` made as a result of the table's row that it is; return that row."""
    from vicinal.bench.measuring import finished

    run = RunDirectory.open(path)
    if run.status.get("state") != "finished" or run.results is None:
        raise RunError(
            f"{run.path} is {run.status.get('state')}, but only a finished run is a result. Resume it first."
        )
    saved = run.info["recipe"]
    found = {"recipe": saved["name"], "kind": "trained", "protocol": run.results["protocol"], "dim": 0}
    found |= {"seed": saved["settings"]["seed"], "settings": saved["settings"], "created": run.info["created"]}
    for job in jobs(replace(table, seeds=found["seed"] + 1)):
        if job.kind == "trained" and results.find([found], job.identity()) is not None:
            line = {"table": table.name, "row": job.row, **found, "overrides": list(job.overrides), **finished(run)}
            results.append(folder / f"{table.name}.jsonl", line | {"wall": run.status["seconds"]})
            return job.row
    raise ConfigError(
        f"{run.path} is {saved['name']} with seed {found['seed']} by protocol {found['protocol']}, and no row of table "
        f"{table.name!r} ({', '.join(row.name for row in table.rows)}; protocol {table.protocol}) has its settings."
    )


def _announce(table: Table, todo: Sequence[Job], outcome: Outcome, console: Console) -> None:
    done = len(jobs(table)) - len(todo)
    console.line(f"{table.name}: {len(todo)} jobs to run, {done} done before")
    old = commits(line for seeds in outcome.lines.values() for line in seeds.values())
    if old and old != [commit()]:
        console.line(f"results of {', '.join(old)} are used again; --fresh computes them anew")


def commits(lines: Iterable[Line]) -> list[str]:
    """The commits behind some results; where there was no repository, the code's own fingerprint."""
    return sorted({str(line.get("commit") or f"code {line.get('code', 'unknown')}") for line in lines})
