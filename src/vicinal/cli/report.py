"""``vicinal report``: the page of a run, made from its folder alone."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from vicinal.run_directory import RunDirectory


def report(run: Path) -> None:
    """Write RUN/report.html and its figures, and print the result table.

    Args:
        run: A run's folder.
    """
    from vicinal.run_directory import RunDirectory

    show(RunDirectory.open(run), write=True)


def show(run: "RunDirectory", *, write: bool) -> None:
    """Print the result table and where the report lies."""
    from vicinal.cli.tables import print_table
    from vicinal.reports import write_report

    if run.results is not None:
        print_table(run.results)
    if write:
        typer.echo(f"report: {write_report(run.path)}")
