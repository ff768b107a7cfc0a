"""``vicinal bench``: a table of rows and seeds, run by one command."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from vicinal.bench.run import Outcome
    from vicinal.bench.tables import Table
    from vicinal.training.console import Console


def bench(
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE]...", help="Their names; without one, they are listed.")
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
    fresh: Annotated[bool, typer.Option("--fresh", help="Use results of this very code only.")] = False,
    add: Annotated[
        list[Path] | None, typer.Option(help="Record this finished run as a result of its row first; may come often.")
    ] = None,
    page_only: Annotated[bool, typer.Option("--page", help="Run nothing; write the page of what is there.")] = False,
) -> None:
    """Run tables (rows x seeds) one after another, go on where they stopped, and write their results and pages.

    Ctrl-C stops all runs so that the same command goes on with them. A run that fails is reported with its last
    lines, and the rest goes on. Exit 1 if a run failed or a row of --quick left its recorded value.
    """
    from vicinal.bench.catalogue import TABLES, find_table

    if not tables and not quick:
        for one in TABLES:
            typer.secho(one.name, bold=True)
            names = [row.name for row in one.rows[:20]] + ["..."] * (len(one.rows) > 20)
            typer.echo(f"  {one.title}: {'; '.join(names)}")
        return

    from vicinal.bench.quick import departures, quick_tables
    from vicinal.bench.run import adopt
    from vicinal.training.console import Console

    found = [find_table(name) for name in tables] if tables else []
    wanted = [table.reduced() for table in found] or quick_tables() if quick else found
    if quick and results == Path("benchmarks/results"):
        results = runs / "quick"  # values of a reduced run do not belong among the real ones
    console, failed = Console(), False
    end = None if minutes is None else time.monotonic() + 60 * minutes
    for one in [_adjusted(one, seeds, protocol) for one in wanted]:  # all are refused before the first is run
        for run in add or []:
            typer.echo(f"{run}: recorded as {adopt(one, run, results)}")
        outcome = _run(
            *(one, results, runs),
            jobs=jobs,
            minutes=None if end is None else (end - time.monotonic()) / 60,
            data=data,
            fresh=fresh,
            page_only=page_only,
            console=console,
        )
        left = departures(outcome) if quick and seeds is None and protocol is None else []
        for sentence in left:
            typer.secho(sentence, fg="red", err=True)
        failed |= bool(left or outcome.failures)
    if failed:
        raise typer.Exit(1)


def _adjusted(table: "Table", seeds: int | None, protocol: str | None) -> "Table":
    from dataclasses import replace

    table = table if seeds is None else replace(table, seeds=seeds)
    return (table if protocol is None else table.under(protocol)).check()


def _run(
    table: "Table",
    results: Path,
    runs: Path,
    *,
    jobs: int | None,
    minutes: float | None,
    data: str,
    fresh: bool,
    page_only: bool,
    console: "Console",
) -> "Outcome":
    from vicinal.bench.page import write_pages
    from vicinal.bench.pool import slots_here
    from vicinal.bench.run import collect, run_table
    from vicinal.bench.summary import summarise
    from vicinal.bench.wording import cells, columns

    if page_only:
        outcome = collect(table, results)
    else:
        try:
            slots = slots_here() if jobs is None else jobs
            outcome = run_table(
                table, results, runs, slots=slots, minutes=minutes, data=data, fresh=fresh, console=console
            )
        except KeyboardInterrupt:
            write_pages(summarise(collect(table, results)), results)
            console.line(f"stopped. The same command goes on; what is there: {results / table.name}.md")
            raise
    summary = summarise(outcome)
    text, page = write_pages(summary, results)
    print_grid(table.title, columns(summary), [cells(summary, row) for row in summary.rows])
    typer.echo(f"page: {page} and {text.name}; results: {results / table.name}.jsonl")
    return outcome


def print_grid(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table in the terminal; nothing in it is taken for markup."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    grid = Table(box=box.SIMPLE_HEAD, title=escape(title), title_justify="left", padding=(0, 1, 0, 0))
    for place, head in enumerate(heads):
        grid.add_column(
            escape(head),
            justify="left" if place in (0, len(heads) - 1) else "right",
            no_wrap=place == 0,
            overflow="fold",
        )
    for row in rows:
        grid.add_row(*map(escape, row))
    Console().print(grid)
