"""``vicinal bench anml_linear``: ANML's Table 2, whose rows are no recipes but scikit-learn estimators."""

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from vicinal.bench.linear_plan import Plan
    from vicinal.bench.results import Line
    from vicinal.training.console import Console


def bench_linear(
    others: Collection[str],
    foreign: Sequence[str],
    *,
    rows: Sequence[str],
    seeds: int | None,
    jobs: int | None,
    minutes: float | None,
    data: str,
    quick: bool,
    results: Path,
    runs: Path,
    page_only: bool,
    into: Path | None,
) -> None:
    """Measure what is missing of the table, and write its pages. The options are those of ``vicinal bench``.

    Args:
        others: tables that were named beside this one.
        foreign: options that came, but that only tables of trained rows have.
        rows: methods, and with ``seeds``, how many splits, what is measured now; the pages are of the whole table.
    """
    from vicinal.bench.excerpt import check_markers
    from vicinal.bench.linear_page import write_into, write_pages
    from vicinal.bench.linear_plan import FULL, QUICK
    from vicinal.bench.linear_run import results_file, run
    from vicinal.bench.results import read
    from vicinal.data.location import data_root
    from vicinal.training.console import Console

    plan, console = QUICK if quick else FULL, Console()
    _check(plan, others, foreign, rows, seeds, page_only)
    path = results_file(plan, results)
    if into is not None:
        check_markers(into, [plan.name])
    failed = False
    if not page_only:
        methods = _methods(rows, console)
        folder = (Path(data) if data else data_root()) / "tabular"
        slots = (os.cpu_count() or 1) if jobs is None else jobs
        try:
            outcome = run(
                plan if seeds is None else replace(plan, splits=seeds),
                methods,
                data=folder,
                folder=results,
                runs=runs,
                slots=slots,
                console=console,
                minutes=minutes,
            )
        except KeyboardInterrupt:
            text, _ = write_pages(read(path)[0], plan, results)
            console.line(f"stopped. The same command goes on; what is there: {text}")
            raise
        failed = bool(outcome.failed)
        if outcome.left:
            console.line(f"{outcome.left} units are missing still; the same command goes on", warning=True)
    lines, notes = read(path)
    for note in notes:
        console.line(note, warning=True)
    text, page = write_pages(lines, plan, results)
    _show(plan, lines)
    typer.echo(f"page: {page} and {text.name}; results: {path}")
    if into is not None:
        write_into(into, lines, plan)
        typer.echo(f"written into {into}: {plan.name}")
    if failed:
        raise typer.Exit(1)


def _check(
    plan: "Plan",
    others: Collection[str],
    foreign: Sequence[str],
    rows: Sequence[str],
    seeds: int | None,
    page_only: bool,
) -> None:
    """Refuse what this table cannot be asked for."""
    from vicinal.bench.linear_contestants import METHODS
    from vicinal.bench.linear_plan import NAME
    from vicinal.errors import ConfigError, unknown

    if others:
        raise ConfigError(
            f"{NAME} is measured by itself, for its rows are no recipes, but {', '.join(others)} came beside it. Give "
            f"each a command of its own."
        )
    if foreign:
        raise ConfigError(
            f"{NAME} tunes every method by cross-validation within each split and finds its units again by set, split "
            f"and method, but {', '.join(foreign)} came, which tables of trained rows have. Leave it out."
        )
    if page_only and (rows or seeds is not None):
        limit = "--rows" if rows else "--seeds"
        raise ConfigError(f"{limit} limits what is run, but --page runs nothing. Leave one of them out.")
    if seeds is not None and not 1 <= seeds <= plan.splits:
        raise ConfigError(
            f"{plan.name} has splits 0 to {plan.splits - 1}, so 1 to {plan.splits} --seeds, but {seeds} came."
        )
    for name in rows:
        if name not in METHODS:
            raise ConfigError(f"in {NAME}: " + unknown("row", name, METHODS))


def _methods(rows: Sequence[str], console: "Console") -> list[str]:
    """The methods to measure: those asked for, or all that can be measured here."""
    from vicinal.bench.linear_contestants import METHODS, PEERS
    from vicinal.bench.linear_peers import lacking
    from vicinal.errors import ConfigError

    wanted = [method for method in METHODS if not rows or method in rows]
    peers = [method for method in wanted if method in PEERS]
    reason = lacking() if peers else ""
    if reason and rows:
        raise ConfigError(f"--rows asks for {' and '.join(peers)}, but {reason}.")
    if reason:
        console.line(f"{' and '.join(peers)} are left out: {reason}", warning=True)
    return [method for method in wanted if not reason or method not in PEERS]


def _show(plan: "Plan", lines: "Sequence[Line]") -> None:
    """Print the table by cross-validation, and what it says."""
    from vicinal.bench.linear_table import lacking, reading
    from vicinal.cli.tables import print_fitting

    found = reading(lines, plan, "accuracy")
    cells = [[f"{cell.score}{'*' * cell.best} {cell.remark}".rstrip() for cell in row.cells] for row in found.rows]
    rows = [[row.label, row.splits, *texts] for row, texts in zip(found.rows, cells, strict=True)]
    print_fitting(plan.title, ["set", "splits", *found.methods], rows)
    legend = ["*: the best of its row, or not told from it."] if found.sentences else []
    for sentence in (*legend, *found.sentences, *lacking(lines, plan)):
        typer.echo(sentence)
