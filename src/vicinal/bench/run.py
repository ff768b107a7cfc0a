"""Tables run: which results are there, which jobs are missing, and what became of them."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from vicinal.bench import results
from vicinal.bench.code import fingerprint
from vicinal.bench.job import Job
from vicinal.bench.pool import Failure, Pool, label
from vicinal.bench.results import Line
from vicinal.bench.tables import BASELINES, Table
from vicinal.errors import ConfigError, RunError, unknown
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


def check_rows(tables: Sequence[Table], rows: Iterable[str]) -> None:
    """Refuse a row that none of the tables has."""
    known = {name for table in tables for name in (*BASELINES, *(row.name for row in table.rows))}
    for name in rows:
        if name not in known:
            raise ConfigError(f"in {', '.join(table.name for table in tables)}: " + unknown("row", name, known))


def check_data(jobs: Iterable[Job]) -> None:
    """Refuse jobs whose data are not there, before each of them fails by itself."""
    for job in jobs:
        job.located()


def chosen(table: Table, rows: Collection[str]) -> set[str]:
    """The rows that a run limited to ``rows`` fills: those with their twins, and the ones without training."""
    own = [row for row in table.rows if not rows or row.name in rows]
    if not own and not any(name in rows for name in BASELINES):
        return set()
    return {*BASELINES, *(row.name for row in own), *(row.twin for row in own if row.twin is not None)}


@dataclass
class Wanted:
    """A job that is missing, and every table that waits for it.

    Attributes:
        identity: by which the others ask for the same.
        places: the tables' outcomes, each with the job as its table calls it; the first one's file keeps the result.
    """

    job: Job
    identity: Line
    places: list[tuple[Outcome, Job]]

    def record(self, lines: Iterable[Line], folder: Path) -> None:
        """Append the results to the first table's file, and show them in all."""
        owner = self.places[0][0].table.name
        for line in lines:
            line = {"table": owner, **line}
            results.append(folder / f"{owner}.jsonl", line)
            for outcome, job in self.places:
                outcome.lines[line["row"] if job.kind == "baselines" else job.row][job.seed] = line


def schedule(outcomes: Sequence[Outcome], rows: Collection[str] = ()) -> list[Wanted]:
    """The missing jobs of all tables, each once: seed by seed, and within a seed table by table.

    So a stop leaves every table with whole seeds. Two jobs are one if the result of either would be found for both.
    """
    found: list[Wanted] = []
    for outcome, job in sorted(_asked(outcomes, rows), key=lambda place: place[1].seed):  # stable: tables keep order
        identity = job.identity()
        alike = (one for one in found if one.job.seed == job.seed and results.find([one.identity], identity))
        same = next(alike, None)
        if same is None:
            found.append(Wanted(job, identity, [(outcome, job)]))
        else:
            same.places.append((outcome, job))
    return found


def _asked(outcomes: Sequence[Outcome], rows: Collection[str]) -> Iterator[tuple[Outcome, Job]]:
    for outcome in outcomes:
        names = chosen(outcome.table, rows)
        for job in missing(outcome.table, outcome):
            if names.intersection(rows_of(job)):
                yield outcome, job


def run_tables(
    tables: Sequence[Table],
    folder: Path,
    runs: Path,
    *,
    slots: int,
    fresh: bool,
    console: Console,
    rows: Collection[str] = (),
    minutes: float | None = None,
    data: str = "",
) -> dict[str, Outcome]:
    """Run what is missing of some tables through one pool; results are appended to ``folder/TABLE.jsonl`` as they come.

    Args:
        runs: where the jobs work, below ``jobs``: those of all tables, so that each finds what another has begun.
        rows: run these alone, with their twins and the rows without training; without any, all.
        minutes: no job starts later than this; those that run then end in peace.
        data: where this machine has the tables' data, if not where the rows say.

    Returns:
        what each table has now, by its name.
    """
    check_rows(tables, rows)
    outcomes = [collect(table, folder, fresh=fresh) for table in tables]
    for note in dict.fromkeys(note for outcome in outcomes for note in outcome.notes):
        console.line(note, warning=True)
    todo = {replace(wanted.job, data=data): wanted for wanted in schedule(outcomes, rows)}
    check_data(todo)
    _announce(outcomes, list(todo.values()), console)
    pool = Pool(runs / "jobs", slots=slots, console=console, fresh=fresh)
    title = tables[0].name if len(tables) == 1 else f"{len(tables)} tables"
    left = pool.run(todo, lambda job, lines: todo[job].record(lines, folder), title=title, minutes=minutes)
    for failure in pool.failures:
        for outcome, job in todo[failure.job].places:
            outcome.failures.append(replace(failure, job=job))
    for outcome in outcomes:
        if outcome.failures:
            names = ", ".join(label(failure.job) for failure in outcome.failures)
            console.line(f"{outcome.table.name}: failed: {names}; the same command tries again", warning=True)
    if left:
        console.line(f"{title}: time is up, {left} jobs were not started; the same command goes on with them")
    return {outcome.table.name: outcome for outcome in outcomes}


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


def _announce(outcomes: Sequence[Outcome], todo: Sequence[Wanted], console: Console) -> None:
    for outcome in outcomes:
        ours = [wanted for wanted in todo if any(place is outcome for place, _ in wanted.places)]
        own = sum(wanted.places[0][0] is outcome for wanted in ours)
        done = len(jobs(outcome.table)) - len(missing(outcome.table, outcome))
        shared = f", {len(ours) - own} shared with tables before it" if len(ours) > own else ""
        console.line(f"{outcome.table.name}: {own} jobs to run, {done} done before{shared}")
    old = commits(line for outcome in outcomes for seeds in outcome.lines.values() for line in seeds.values())
    if old and old != [commit()]:
        console.line(f"results of {', '.join(old)} are used again; --fresh computes them anew")


def commits(lines: Iterable[Line]) -> list[str]:
    """The commits behind some results; where there was no repository, the code's own fingerprint."""
    return sorted({str(line.get("commit") or f"code {line.get('code', 'unknown')}") for line in lines})
