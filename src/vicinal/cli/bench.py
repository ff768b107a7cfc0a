"""``vicinal bench``, ``compare`` and ``best``: tables of rows and seeds, runs against one another,
and the best settings for given data."""

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vicinal.errors import ConfigError

if TYPE_CHECKING:
    from vicinal.bench.run import Bench, Outcome
    from vicinal.bench.summary import Summary
    from vicinal.bench.table import Budget, Table


def bench(
    context: typer.Context,
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE.py | FILE.py::TABLE]...")
    ] = None,
    rows: Annotated[list[str] | None, typer.Option(metavar="NAME")] = None,
    seeds: int | None = None,
    jobs: int | None = None,
    minutes: float | None = None,
    results: Path | None = None,
    runs: Path = Path("runs/bench"),
    protocol: str | None = None,
    trials: int | None = None,
    folds: int = 4,
    list_only: Annotated[bool, typer.Option("--list")] = False,
    page_only: Annotated[bool, typer.Option("--page")] = False,
) -> None:
    """Run tables of experiments (rows x seeds) in parallel and write their results and pages.

    A table is defined in a Python file, see docs/howto/bench.md. Each seed is run for all tables
    before the next, and a row in several tables runs once. Ctrl-C stops all runs; the same command
    continues them. A failed run is reported with its last lines; the others continue. With --trials
    a method and its baseline are tuned alike before anything is tested, as table TABLE-tuned. Exit
    1 if a run failed, trials are missing, or a row is not what its table expects.

    Args:
        tables: Python files that define tables, or single tables.
        rows: Run only this row, its baseline and the untrained rows; repeatable.
        seeds: Number of seeds, from 0 on; default: the table's.
        jobs: Runs at a time; default one per core, 4 on a GPU.
        minutes: Start no run after this time; the rest is reported as incomplete.
        results: Folder for results and pages; default: `results` beside FILE.py.
        runs: Folder for the runs.
        protocol: validation, final or reality_check; default: the table's.
        trials: First tune each row with this many settings on folds of the training classes.
        folds: Number of folds for --trials.
        list_only: List tables and rows; run nothing.
        page_only: Run nothing; write the page from existing results.

    Examples:
        vicinal bench experiments/hdml.py
        vicinal bench experiments/quick.py
    """
    if not tables:
        typer.echo(context.get_help())
        return

    from vicinal.bench.pool import slots_here
    from vicinal.bench.run import Bench, check_rows
    from vicinal.bench.summary import regressions, summarize
    from vicinal.bench.table import Budget, load_tables
    from vicinal.training.console import Console

    until = math.inf if minutes is None else time.monotonic() + 60 * minutes
    loaded = [table for source in dict.fromkeys(tables) for table in load_tables(source)]
    if list_only:
        for table in loaded:
            typer.secho(f"{table.file}::{table.name}", bold=True)
            typer.echo(f"  {table.title}: {'; '.join(row.name for row in table.rows)}")
        return
    folder = results or Path(loaded[0].file).parent / "results"
    wanted = [_adjusted(table, seeds, protocol) for table in loaded]
    if rows and page_only:
        raise ConfigError("--rows limits what is run, and --page runs nothing. Drop one of them.")
    check_rows(wanted, rows or ())
    if trials is not None and protocol not in (None, "final"):
        raise ConfigError(
            f"--trials tests by protocol final, got --protocol {protocol}. Drop one of them."
        )
    slots = slots_here() if jobs is None else jobs
    place = Bench(folder, runs, Console(), slots, rows or (), until)
    if trials is not None:
        wanted = _tuned(wanted, Budget(trials, folds), place, recorded_only=page_only)
    outcomes = _recorded(wanted, place) if page_only else _run(wanted, place)

    summaries = [summarize(outcome) for outcome in outcomes]
    for summary in summaries:
        _show(summary, folder)
    failed = any(outcome.failures for outcome in outcomes)
    for sentence in [] if rows else [text for outcome in outcomes for text in regressions(outcome)]:
        typer.secho(sentence, fg="red", err=True)
        failed = True
    if failed:
        raise typer.Exit(1)


def _adjusted(table: "Table", seeds: int | None, protocol: str | None) -> "Table":
    table = table if protocol is None else table.under(protocol)
    if seeds is None:
        return table
    if seeds < 1:
        raise ConfigError(f"--seeds must be at least 1, got {seeds}.")
    return table.replace(seeds=seeds, expected=table.expected if seeds == table.seeds else {})


def _tuned(
    tables: "Sequence[Table]", budget: "Budget", bench: "Bench", *, recorded_only: bool
) -> "list[Table]":
    """The tables at the settings that their trials chose; ends here while trials are missing."""
    from vicinal.bench.tuning import tune_table

    try:
        found = [tune_table(table, budget, bench, recorded_only=recorded_only) for table in tables]
    except KeyboardInterrupt:
        bench.console.line("stopped in the middle of the trials; run the same command to continue")
        raise
    whole = [table for table in found if table is not None]
    if len(whole) < len(found):
        raise typer.Exit(1)
    return whole


def _recorded(tables: "Sequence[Table]", bench: "Bench") -> "list[Outcome]":
    from vicinal.bench.results import Store
    from vicinal.bench.run import collect

    store = Store(bench.folder)
    return [collect(table, store) for table in tables]


def _run(tables: "Sequence[Table]", bench: "Bench") -> "list[Outcome]":
    """The tables' results after the run; a stop leaves pages of what is there."""
    from vicinal.bench.page import write_page
    from vicinal.bench.run import run_tables
    from vicinal.bench.summary import summarize

    try:
        return run_tables(tables, bench)
    except KeyboardInterrupt:
        pages = [
            write_page(summarize(outcome), bench.folder) for outcome in _recorded(tables, bench)
        ]
        bench.console.line(
            f"stopped. Run the same command to continue; so far: {', '.join(map(str, pages))}"
        )
        raise


def _show(summary: "Summary", folder: Path) -> None:
    """Write a table's page, and print it."""
    from vicinal.bench.page import cells, columns, write_page
    from vicinal.cli.tables import print_fitting

    page = write_page(summary, folder)
    print_fitting(summary.table.title, list(columns(summary)), cells(summary))
    if summary.remark:
        typer.echo(summary.remark)
    typer.echo(f"page: {page}; results: {folder}")


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN...")],
    metric: str = "recall@1",
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Compare runs with a reference, paired by seed and by test class.

    Runs that differ only in their seed form one row. Seeds that both rows have are paired: two give
    an interval and a test, and one an interval over resampled test classes, if the metric is a mean
    over queries (Recall@K, MAP@R, R-precision). Runs tested on different records are rejected.

    Args:
        runs: Folders of finished runs, the reference first.
        metric: The metric to compare.
        as_json: Print JSON instead of a table.

    Examples:
        vicinal compare runs/plain runs/mine
        vicinal compare runs/plain runs/mine --metric map@r
    """
    from dataclasses import asdict

    from vicinal.bench.compare import compare as compare_runs
    from vicinal.bench.page import cells, columns
    from vicinal.cli.tables import print_fitting

    found = compare_runs(runs, metric)
    if as_json:
        rows = [asdict(row) for row in found.rows]
        typer.echo(json.dumps({"metric": metric, "rows": rows}, indent=2))
        return
    print_fitting("differences to the first row, in points", list(columns(found)), cells(found))
    typer.echo(
        "95 % intervals over paired seeds, and over test classes drawn anew; p after Holm's "
        "correction; detectable: the smallest difference that these seeds would show."
    )


def best(
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DATA [KEY=VALUE | KEY=A,B,C | KEY=LOW..HIGH | KEY=LOW..HIGH:log]..."
        ),
    ] = None,
    minutes: float = 30.0,
    out: Path | None = None,
    jobs: int | None = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q")] = False,
) -> None:
    """Find the settings that serve your data best, and train a model with them.

    Losses, heads, rates and methods race on features that the pretrained network gave once, then
    the best of them as whole networks, on class-disjoint folds of the training classes. Of those
    not significantly below the best the simplest is trained on all training classes. Test classes
    are used for its results alone. The same command continues after a stop. KEY=A,B,C and
    KEY=LOW..HIGH search your own settings in place of the built-in ones.

    Args:
        settings: Your data: a folder, a table or an array file; then settings, fixed or searched.
        minutes: Time for all, the last training included.
        out: Folder to write and to continue in; default runs/best-DATA.
        jobs: Networks to train at a time; default one for 4 cores, 4 on a GPU.
        quiet: Print nothing but the result.

    Examples:
        vicinal best pictures/ --minutes 30
        vicinal best vectors.npz loss=triplet loss.margin=0.05..0.4:log --minutes 5
    """
    words = list(settings or [])
    if not words or "=" in words[0]:
        raise ConfigError("name your data first: vicinal best DATA --minutes 30")
    from vicinal.bench.best import search
    from vicinal.cli.train import show
    from vicinal.training.console import Console

    console = Console(quiet=quiet)
    run = search(words[0], words[1:], minutes=minutes, out=out, jobs=jobs, console=console)
    show(run, write=True)
    typer.echo(f"what was tried: {run.path / 'best.md'}; settings: {run.path / 'best.toml'}")
