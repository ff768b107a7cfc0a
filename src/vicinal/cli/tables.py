"""Tables in the terminal."""

import sys
from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vicinal.reports import table

WIDE = 10_000  # columns of a file or pipe: no line there needs to be broken


def terminal() -> Console:
    """Where tables are printed: as wide as the terminal is; into a file or pipe, a row stays on its line."""
    return Console() if sys.stdout.isatty() else Console(width=WIDE)


def print_table(results: Mapping[str, Any]) -> None:
    """The result table of a run, per cent, with what it was measured on above it."""
    content = table(results)
    grid = Table(box=box.SIMPLE_HEAD)
    for place, column in enumerate(content.columns):
        grid.add_column(escape(column), justify="left" if place == 0 else "right")
    for row in content.rows:
        grid.add_row(*map(escape, row))
    console = terminal()
    console.print(escape(_title(results)), highlight=False)  # as the table's own title it would be as narrow as that
    console.print(grid)
    for note in results.get("notes", []):
        console.print(f"note: {escape(note)}", highlight=False)


def _title(results: Mapping[str, Any]) -> str:
    skipped = f", {results['skipped']} unreadable left out" if results.get("skipped") else ""
    return f"{results['records']} records of {results['classes']} {results['split']} classes{skipped}"
