"""Tables in the terminal."""

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

Rows = Iterable[Sequence[str]]
Places = Collection[int]  # of columns
WIDE = 10_000  # columns of a file or pipe: no line there needs to be broken


def terminal() -> Console:
    """Where tables are printed: as wide as the terminal is; into a file or pipe, a row stays on its
    line."""
    return Console() if sys.stdout.isatty() else Console(width=WIDE)


def print_fitting(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A grid without the columns that the terminal has no room for, from the right; a file gets
    them all."""
    widths = [2 + max(len(row[place]) for row in (heads, *rows)) for place in range(len(heads))]
    widths[-1] = min(widths[-1], 20)  # remarks may be broken into lines
    kept = list(range(len(heads)))
    room = terminal().width
    for place in range(len(heads) - 2, 1, -1):
        if sum(widths[other] for other in kept) > room and not heads[place].endswith(
            "vs. baseline"
        ):
            kept.remove(place)
    print_grid(
        title, [heads[place] for place in kept], [[row[place] for place in kept] for row in rows]
    )


def print_grid(
    title: str,
    heads: Sequence[str],
    rows: Rows,
    *,
    unbroken: Places = (0,),
    left: Places | None = None,
) -> None:
    """Print rows of texts below a title, none of it taken for markup.

    Args:
        unbroken: columns that keep to one line.
        left: columns of words, the others are numbers; by default the first and the last, and all
            stand closer.
    """
    console = terminal()
    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0) if left is None else (0, 1))
    for place, head in enumerate(heads):
        words = place in ((0, len(heads) - 1) if left is None else left)
        justify: Literal["left", "right"] = "left" if words else "right"
        grid.add_column(escape(head), justify=justify, no_wrap=place in unbroken, overflow="fold")
    for row in rows:
        grid.add_row(*map(escape, row))
    if title:
        # As the table's own title it would be as narrow as that.
        console.print(escape(title), highlight=False)
    console.print(grid)


def print_table(results: Mapping[str, Any]) -> None:
    """The result table of a run, per cent, with what it was measured on above it."""
    from vicinal.reports.tables import table

    content = table(results)
    skipped = f", {results['skipped']} unreadable left out" if results.get("skipped") else ""
    title = (
        f"{results['records']} records of {results['classes']} {results['split']} classes{skipped}"
    )
    print_grid(title, content.columns, content.rows, unbroken=(), left=(0,))
    for note in results.get("notes", []):
        terminal().print(f"note: {escape(note)}", highlight=False)


def print_compact(results: Mapping[str, Any]) -> None:
    """The size, time and scores of each way to store the embeddings, where they were measured."""
    if not (measured := results.get("compact")):
        return
    rows = []
    for row in measured:
        again = f" + {row['rescoring_bytes']:,}" if row["rescoring_bytes"] else ""
        size = f"{row['vector_bytes']:,}{again}", f"{row['total_bytes'] / 2**20:,.2f} MiB"
        scores = (f"{100 * row[name]:.1f}" for name in ("recall_at_1", "map_at_r"))
        kind = f"{row['dims']} {row['stored']}" + (f", {row['refined']}" if row["refined"] else "")
        rows.append([kind, *size, f"{1e3 * row['query_seconds']:.2f} ms", *scores])
    heads = ["embedding", "bytes/vector", "in all", "time/query", "Recall@1", "MAP@R"]
    print_grid(
        "Size and time; rescoring reads so many more bytes of a vector, which may lie on disk",
        heads,
        rows,
    )
