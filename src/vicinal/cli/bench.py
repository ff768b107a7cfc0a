"""``vicinal bench``: a table of rows and seeds, run by one command."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

if TYPE_CHECKING:
    from vicinal.bench.run import Outcome
    from vicinal.bench.summary import Summary
    from vicinal.bench.tables import Budget, Table
    from vicinal.training.console import Console


def bench(
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE]...", help="Their names; without one, they are listed.")
    ] = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Run this row alone, with its twin and the untrained ones; may come often."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds, from 0 on; default as the table says.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Runs at a time; default one per core, 4 on a GPU.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="No run starts later than this; what was not reached is shown as incomplete.")
    ] = None,
    data: Annotated[
        str,
        typer.Option(help="Where this machine has the table's data, such as a packed copy; its rows stay the same."),
    ] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="Glyphs and CUB features, reduced, against recorded values.")
    ] = False,
    results: Annotated[Path, typer.Option(help="Folder of the results files and pages.")] = Path("benchmarks/results"),
    runs: Annotated[Path, typer.Option(help="Folder of the runs themselves.")] = Path("runs/bench"),
    protocol: Annotated[
        str | None, typer.Option(help="validation, final, reality_check or authors; default as the table says.")
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(help="Tune each row first, with so many settings on folds of the training classes."),
    ] = None,
    folds: Annotated[int | None, typer.Option(help="Of --trials; default 4.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Use results of this very code only.")] = False,
    add: Annotated[
        list[Path] | None, typer.Option(help="Record this finished run as a result of its row first; may come often.")
    ] = None,
    page_only: Annotated[bool, typer.Option("--page", help="Run nothing; write the page of what is there.")] = False,
    into: Annotated[
        Path | None, typer.Option(metavar="FILE.md", help="Also write each table, in short, between its markers there.")
    ] = None,
) -> None:
    """Run tables (rows x seeds) side by side, go on where they stopped, and write their results and pages.

    Each seed is run for all tables before the next one, and a row of several tables once. Ctrl-C stops all runs so that
    the same command goes on with them. A run that fails is reported with its last lines, and the rest goes on. With
    --trials a method and its twin are tuned alike before anything is tested, as table TABLE-tuned. Exit 1 if a run
    failed, trials are missing, or a row of --quick left its recorded value.

    anml_linear is measured by itself: --seeds are its splits, --rows its methods, and --minutes and Ctrl-C end its
    running units at once.
    """
    if not tables and not quick:
        _list_tables()
        return

    from vicinal.bench.linear_plan import NAME as ANML_LINEAR

    if ANML_LINEAR in (tables or ()):
        from vicinal.cli.bench_linear import bench_linear

        asked = {
            "--protocol": protocol,
            "--trials": trials,
            "--folds": folds,
            "--fresh": fresh or None,
            "--add": add or None,
        }
        bench_linear(
            [name for name in tables or () if name != ANML_LINEAR],
            [option for option, value in asked.items() if value is not None],
            rows=rows or (),
            seeds=seeds,
            jobs=jobs,
            minutes=minutes,
            data=data,
            quick=quick,
            results=results,
            runs=runs,
            page_only=page_only,
            into=into,
        )
        return

    from vicinal.bench.excerpt import check_markers, write_into
    from vicinal.bench.pool import slots_here
    from vicinal.bench.quick import RECORDED, departures
    from vicinal.bench.run import adopt, check_rows, collect
    from vicinal.bench.summary import summarise
    from vicinal.bench.tables import Budget
    from vicinal.errors import ConfigError
    from vicinal.training.console import Console

    end = None if minutes is None else time.monotonic() + 60 * minutes
    if quick and results == Path("benchmarks/results"):
        results = runs / "quick"  # values of a reduced run do not belong among the real ones
    fresh = fresh or quick  # a guard against regressions asks this very code
    wanted = [_adjusted(table, seeds, protocol) for table in _named(tables or (), quick=quick)]
    if rows and page_only:
        raise ConfigError("--rows limits what is run, but --page runs nothing. Leave one of them out.")
    check_rows(wanted, rows or ())
    if into is not None:
        check_markers(into, (table.name if trials is None else f"{table.name}-tuned" for table in wanted))
    if trials is not None and protocol not in (None, "final"):
        raise ConfigError(
            f"--trials chooses settings and steps on folds, then trains on all training classes and tests once "
            f"(protocol final), but --protocol {protocol} came. Leave one of them out."
        )

    slots = slots_here() if jobs is None else jobs
    terms = _Terms(folder=results, runs=runs, rows=rows or (), slots=slots, data=data, fresh=fresh, console=Console())
    if trials is not None:
        budget = Budget(trials) if folds is None else Budget(trials, folds)
        wanted = _tuned(wanted, budget, time.monotonic() if page_only else end, terms)
    for table in wanted:
        for run in add or ():
            typer.echo(f"{run}: recorded as {adopt(table, run, results)}")
    outcomes = [collect(table, results, fresh=fresh) for table in wanted] if page_only else _run(wanted, end, terms)

    summaries = [summarise(outcome) for outcome in outcomes]
    for summary in summaries:
        _show(summary, results)
    if into is not None:
        write_into(into, summaries, results)
        typer.echo(f"written into {into}: {', '.join(table.name for table in wanted)}")
    failed = any(outcome.failures for outcome in outcomes)
    if quick and seeds is None and protocol is None and not rows:
        for sentence in (text for one in outcomes if one.table.name in RECORDED for text in departures(one)):
            typer.secho(sentence, fg="red", err=True)
            failed = True
    if failed:
        raise typer.Exit(1)


def _list_tables() -> None:
    from vicinal.bench.catalogue import TABLES
    from vicinal.bench.linear_contestants import METHODS
    from vicinal.bench.linear_plan import NAME, TITLE

    listed = [(table.name, table.title, [row.name for row in table.rows]) for table in TABLES]
    for name, title, rows in (*listed, (NAME, TITLE, METHODS)):
        typer.secho(name, bold=True)
        typer.echo(f"  {title}: {'; '.join([*rows[:20], *['...'] * (len(rows) > 20)])}")


def _named(names: Iterable[str], *, quick: bool) -> "list[Table]":
    """The tables of these names; those of --quick are reduced, and without a name they are its own."""
    from vicinal.bench.catalogue import find_table
    from vicinal.bench.quick import quick_tables

    found = [find_table(name) for name in dict.fromkeys(names)]
    return ([table.reduced() for table in found] or quick_tables()) if quick else found


def _adjusted(table: "Table", seeds: int | None, protocol: str | None) -> "Table":
    table = table if seeds is None else replace(table, seeds=seeds)
    return (table if protocol is None else table.under(protocol)).check()


class _Terms(TypedDict):
    """Where and how runs are done, of trials and of tests alike: what ``tune_table`` and ``run_tables`` both take."""

    folder: Path
    runs: Path
    rows: Sequence[str]
    slots: int
    data: str
    fresh: bool
    console: "Console"


def _tuned(tables: "Sequence[Table]", budget: "Budget", end: float | None, terms: _Terms) -> "list[Table]":
    """The tables at the settings that their trials chose; ends here while trials are missing."""
    from vicinal.bench.table_tuning import tune_table

    try:
        found = [tune_table(table, budget, minutes=_minutes_until(end), **terms) for table in tables]
    except KeyboardInterrupt:
        terms["console"].line("stopped in the middle of the trials; the same command goes on")
        raise
    whole = [table for table in found if table is not None]
    if len(whole) < len(found):
        raise typer.Exit(1)
    return whole


def _run(tables: "Sequence[Table]", end: float | None, terms: _Terms) -> "list[Outcome]":
    """What the tables have after the run; a stop leaves pages of what is there."""
    from vicinal.bench.page import write_pages
    from vicinal.bench.run import collect, run_tables
    from vicinal.bench.summary import summarise

    results = terms["folder"]
    try:
        found = run_tables(tables, minutes=_minutes_until(end), **terms)
    except KeyboardInterrupt:
        there = [summarise(collect(table, results, fresh=terms["fresh"])) for table in tables]
        pages = [write_pages(summary, results)[0] for summary in there]
        terms["console"].line(f"stopped. The same command goes on; what is there: {', '.join(map(str, pages))}")
        raise
    return list(found.values())


def _minutes_until(end: float | None) -> float | None:
    return None if end is None else (end - time.monotonic()) / 60


def _show(summary: "Summary", results: Path) -> None:
    """Write a table's pages, and print it in short."""
    from vicinal.bench.page import write_pages
    from vicinal.bench.short_table import short_cells, short_columns
    from vicinal.bench.wording import best
    from vicinal.cli.tables import print_fitting

    text, page = write_pages(summary, results)
    print_fitting(summary.table.title, short_columns(summary), [short_cells(summary, row) for row in summary.rows])
    if said := best(summary):
        typer.echo(said)
    file = results / f"{summary.table.name}.jsonl"
    typer.echo(f"page: {page} and {text.name}; results: {file if file.is_file() else results}")
