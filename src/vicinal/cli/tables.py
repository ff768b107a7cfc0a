"""Tables in the terminal."""

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vicinal.reports import table


def print_table(results: Mapping[str, Any]) -> None:
    """The result table of a run, per cent, with what it was measured on above it."""
    content = table(results)
    grid = Table(box=box.SIMPLE_HEAD, title=escape(_title(results)), title_justify="left")
    for place, column in enumerate(content.columns):
        grid.add_column(escape(column), justify="left" if place == 0 else "right")
    for row in content.rows:
        grid.add_row(*map(escape, row))
    console = Console()
    console.print(grid)
    for note in results.get("notes", []):
        console.print(f"note: {escape(note)}")


def _title(results: Mapping[str, Any]) -> str:
    skipped = f", {results['skipped']} unreadable left out" if results.get("skipped") else ""
    return f"{results['records']} records of {results['classes']} {results['split']} classes{skipped}"
