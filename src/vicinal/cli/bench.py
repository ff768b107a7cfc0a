"""``vicinal bench``, ``compare`` and ``tune``: tables of rows and seeds, runs against one another,
and settings."""

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
    fresh: Annotated[bool, typer.Option("--fresh")] = False,
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
        fresh: Use only results of the current code.
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
    place = Bench(folder, runs, Console(), slots, rows or (), until, fresh)
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

    store = Store(bench.folder, fresh=bench.fresh)
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


def tune(
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PRESET | FILE.toml] [KEY=LOW..HIGH | KEY=LOW..HIGH:log | KEY=A,B,C | "
            "KEY=VALUE]..."
        ),
    ] = None,
    data: str | None = None,
    fix: Annotated[list[str] | None, typer.Option("--set")] = None,
    trials: int = 20,
    folds: int = 4,
    seed: int = 0,
    searcher: str = "random",
    jobs: int | None = None,
    out: Path | None = None,
) -> None:
    """Choose settings by k-fold cross-validation over training classes; test classes are never
    used.

    KEY=LOW..HIGH searches numbers, whole ones where both ends are; KEY=A,B,C searches any values,
    also classes (loss=triplet,n_pair). No combination of listed values is tried twice. The same
    command continues after a stop; a larger --trials adds trials. Needs the extra vicinal\\[tune].
    `vicinal bench FILE.py --trials N` tunes all rows of a table, a method and its baseline alike.

    Args:
        settings: A preset or TOML file, ranges to search, and fixed settings.
        data: Your data: a folder, a table or an array file.
        fix: A fixed KEY=VALUE, whose value may contain commas.
        trials: Number of settings to try, including the experiment's own.
        folds: Class-disjoint folds of the training classes.
        seed: Seed of folds, settings and runs.
        searcher: random, or tpe, which learns from the trials before it.
        jobs: Runs at a time; default one per core, 4 on a GPU.
        out: Folder to write and to continue in; default runs/tune/NAME.

    Examples:
        vicinal tune cub_features optimizer.learning_rate=1e-5..1e-3:log --trials 10
    """
    from vicinal.bench.page import interval, score
    from vicinal.bench.pool import slots_here
    from vicinal.bench.run import Bench
    from vicinal.bench.table import Budget
    from vicinal.bench.tuning import parse
    from vicinal.bench.tuning import tune as search
    from vicinal.evaluation.statistics import t_interval
    from vicinal.training.console import Console

    words = list(settings or [])
    source = words.pop(0) if words and "=" not in words[0] else ""
    if source.endswith(".py"):
        raise ConfigError(
            f"an experiment is tuned, got {source}. `vicinal bench {source} --trials 20` tunes a "
            "table."
        )
    space, fixed = parse(words)
    searched = [word for word in words if word.partition("=")[0] in space]
    own = [] if data is None else [f"data={data}"]
    folder = out or Path("runs/tune") / (Path(source or data or "glyphs").stem or "data")
    place = Bench(folder, folder, Console(), slots_here() if jobs is None else jobs)
    budget = Budget(trials, folds, seed, searcher)
    journal = folder / "tuning.trials.jsonl"
    try:
        chosen, command = search(source, (*own, *fixed, *(fix or [])), searched, budget, place)
    except KeyboardInterrupt:
        place.console.line(f"stopped. Run the same command to continue; so far: {journal}")
        raise

    typer.secho(f"trial {chosen.trial.number} of {chosen.trials}, {folds} folds", bold=True)
    if not chosen.trial.values:
        typer.echo(
            "  the experiment as it stands: no other trial was above it by more than a standard error"
        )
    for key, value in chosen.trial.values.items():
        typer.echo(f"  {key} = {value}")
    typer.echo(f"  held-out R@1 {score(chosen.trial.score)} (95 % over folds)")
    if chosen.gain:
        gain = interval(t_interval(chosen.gain))
        typer.echo(f"  on the same folds above the experiment as it stands by {gain}")
    epochs = ", ".join(map(str, chosen.epochs))
    typer.echo(f"  the folds were best after so many epochs: {epochs}")
    typer.echo(f"train and test it: {command}")
    typer.echo(f"all trials: {journal}; the choice: {folder / 'tuning.jsonl'}")
