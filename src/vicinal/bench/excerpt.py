"""A table's results in a document: the short table between two markers, which each new writing replaces."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from vicinal.bench.matrix import grid_cells, grid_columns, matrix_legend, matrix_lines
from vicinal.bench.page import grid, plain
from vicinal.bench.short_table import short_cells, short_columns, short_legend, trials_said
from vicinal.bench.summary import Summary
from vicinal.bench.tables import Matrix
from vicinal.bench.wording import best, command, origins
from vicinal.errors import DataError
from vicinal.files import write_text


def markers(name: str) -> tuple[str, str]:
    """The lines between which a document shows the table of that name."""
    return f"<!-- bench:{name}:start -->", f"<!-- bench:{name}:end -->"


def check_markers(document: Path, names: Iterable[str]) -> None:
    """Refuse a document that has no place for a table, before the tables are made."""
    text = read_document(document)
    for name in names:
        place(text, name, document)


def write_into(document: Path, summaries: Sequence[Summary], folder: Path) -> None:
    """Write each table between its markers, all in one step; the rest of the document stays byte for byte.

    Args:
        folder: where the tables' pages and figures lie; they are linked to where the document can tell the way.
    """
    text = read_document(document)
    for summary in summaries:
        name = summary.table.name
        page, picture = (_link(folder / f"{name}{suffix}", document) for suffix in (".md", ".png"))
        start, end = place(text, name, document)
        text = f"{text[:start]}\n{excerpt(summary, page=page, picture=picture)}{text[end:]}"
    write_text(document, text)


def excerpt(summary: Summary, *, page: str | None = None, picture: str | None = None) -> str:
    """The short table as Markdown: what it says, its figure, its rows, how to read it, and how it was made.

    Args:
        page: a link to the whole page.
        picture: a link to the table's figure.
    """
    table = summary.table
    title = plain(table.title) + ("" if table.title.endswith("?") else ".")
    lines = [" ".join([f"**{title}**", *(plain(said) for said in (table.says, best(summary)) if said)]), ""]
    lines += [f"![{plain(table.title)}]({picture})", ""] if picture else []
    if isinstance(table.figure, Matrix):  # a line for each condition says it in less room than one for each row
        lines += [*grid(grid_columns(table.figure), map(grid_cells, matrix_lines(summary, table.figure))), ""]
        lines += [f"{matrix_legend(summary)} {trials_said(summary)}", ""]
    else:
        lines += [*grid(short_columns(summary), (short_cells(summary, row) for row in summary.rows)), ""]
        lines += [short_legend(summary), ""]
    made = sorted({commit for row in summary.rows for commit in row.commits})
    facts = (origins(made), *summary.hardware) if made else ("nothing has run yet",)
    lines.append(f"`{command(table)}`: {plain('; '.join(facts))}.")
    if page:
        lines.append(f"Each row's command, its intervals over classes and all metrics are on [its page]({page}).")
    return "\n".join(lines) + "\n"


def read_document(document: Path) -> str:
    """The document's text, with its own line endings."""
    if not document.is_file():
        raise DataError(f"tables are written into an existing document, but {document} is not a file. Make it first.")
    return document.read_bytes().decode()  # as bytes: line endings stay what they are


def place(text: str, name: str, document: Path) -> tuple[int, int]:
    """From the end of the first marker to the beginning of the second; each stands alone on its line, once."""
    first, last = markers(name)
    starts, ends = (
        list(re.finditer(rf"^{re.escape(line)}(?=[ \t]*\r?$)", text, re.MULTILINE)) for line in (first, last)
    )
    if len(starts) != 1 or len(ends) != 1 or starts[0].end() > ends[0].start():
        raise DataError(
            f"{document} should have one place for table {name!r}, but its first marker is there {len(starts)} times "
            f"and its last {len(ends)} times{', in the wrong order' * (len(starts) == len(ends) == 1)}. "
            f"The table goes between these two lines:\n{first}\n{last}"
        )
    return starts[0].end(), ends[0].start()


def _link(target: Path, document: Path) -> str | None:
    """The way from the document to a file that is there; None where it leads out of the working directory.

    A link from a repository to a folder elsewhere would be a path of this machine.
    """
    here = Path.cwd().resolve()
    target, document = target.resolve(), document.resolve()
    if not target.is_file() or not target.is_relative_to(here) or not document.is_relative_to(here):
        return None
    return Path(os.path.relpath(target, document.parent)).as_posix()
