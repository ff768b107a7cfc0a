"""A table's summary as text: cells and legends, its page as Markdown and HTML, and the short table
in a document."""

import base64
import io
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from vicinal.bench.summary import Summary, SummaryRow
from vicinal.bench.table import PROTOCOLS, Budget, Table
from vicinal.errors import DataError
from vicinal.evaluation.statistics import CLAIM_SEEDS, Difference, Estimate
from vicinal.files import write_text
from vicinal.reports.html import render_page, render_text
from vicinal.reports.tables import MISSING, metric_title, per_cent, signed

Columns = dict[str, Callable[[SummaryRow], str]]  # by its head, the cell of a row


def score(estimate: Estimate | None) -> str:
    """
    >>> score(Estimate(0.6214, 0.6101, 0.6327, 5)), score(Estimate(0.5, None, None, 1)), score(None)
    ('62.1 ± 1.1', '50.0', '–')
    """
    if estimate is None:
        return MISSING
    if estimate.half_width is None:
        return per_cent(estimate.mean)
    return f"{per_cent(estimate.mean)} ± {per_cent(estimate.half_width)}"


def interval(estimate: Estimate | None) -> str:
    """
    >>> interval(Estimate(0.012, 0.004, 0.02, 5)), interval(Estimate(0.012, None, None, 1))
    ('+1.2 (+0.4 to +2.0)', '+1.2')
    """
    if estimate is None:
        return MISSING
    if estimate.low is None or estimate.high is None:
        return signed(estimate.mean)
    return f"{signed(estimate.mean)} ({signed(estimate.low)} to {signed(estimate.high)})"


def probability(p: float | None) -> str:
    """
    >>> probability(0.0312), probability(0.00001), probability(None)
    ('0.031', '< 0.001', '–')
    """
    return MISSING if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def row_score(row: SummaryRow, metric: str) -> str:
    """A row's score, with the number of seeds behind it where not all of them have it."""
    estimate = row.scores.get(metric)
    return score(estimate) + (
        f" ({estimate.count})" if estimate is not None and estimate.count < row.done else ""
    )


def columns(summary: Summary) -> Columns:
    """The whole table."""
    first = metric_title(summary.table.metrics[0])
    found = _scores(summary.table.metrics)
    if _any(summary, "held_out"):
        found["held out"] = lambda row: per_cent(row.held_out)
    if _any(summary, "difference"):
        found[f"{first} vs. baseline"] = _versus
        found["over classes"] = lambda row: interval(_difference(row).over_classes)
        found["p (Holm)"] = lambda row: probability(_difference(row).p)
        found["detectable"] = lambda row: per_cent(_difference(row).smallest)
    if any(row.published for row in summary.rows):
        found["published"] = lambda row: (
            ", ".join(f"{metric_title(name)} {per_cent(x)}" for name, x in row.published.items())
            or MISSING
        )
    found["trials"] = lambda row: str(row.trials or MISSING)
    found["seeds"] = lambda row: f"{row.done}/{row.wanted}"
    found["marks"] = lambda row: "; ".join(row.marks)
    return found


def short_columns(summary: Summary) -> Columns:
    """The short table, for Markdown and a terminal: two metrics, the difference, what is marked."""
    first = summary.table.metrics[0]
    metrics = dict.fromkeys((first, *(name for name in summary.table.metrics if name == "map@r")))
    found = _scores(metrics)
    found["row"] = lambda row: "; ".join((row.name, *row.marks))
    if _any(summary, "difference"):
        found[f"{metric_title(first)} vs. baseline"] = _versus
    if any(first in row.published for row in summary.rows):
        found["published"] = lambda row: per_cent(row.published.get(first))
    return found


def cells(summary: Summary, columns: Columns) -> list[list[str]]:
    """The lines of a table."""
    return [[cell(row) for cell in columns.values()] for row in summary.rows]


def _scores(metrics: Iterable[str]) -> Columns:
    return {"row": lambda row: row.name} | {
        metric_title(name): partial(row_score, metric=name) for name in metrics
    }


def _difference(row: SummaryRow) -> Difference:
    return row.difference or Difference()


def _versus(row: SummaryRow) -> str:
    return interval(_difference(row).over_seeds) + " ✓" * _difference(row).claimed


def legend(summary: Summary) -> list[str]:
    """What the columns mean, in sentences."""
    values: dict[str, Any] = {
        "table": summary.table,
        "protocol": PROTOCOLS[summary.table.protocol],
        "partly": any(
            estimate.count < row.done for row in summary.rows for estimate in row.scores.values()
        ),
        "compared": _any(summary, "difference"),
        "held_out": _any(summary, "held_out"),
        "claim_seeds": CLAIM_SEEDS,
        "filters": {"metric_title": metric_title},
    }
    return render_text("vicinal.bench", "legend.md.j2", **values).splitlines()


def command(table: Table) -> str:
    """How a table is run, also its reduced form, tuned, or under another protocol than its own."""
    options = []
    if table.tuned:
        folds = "" if table.tuned.folds == Budget(1).folds else f" --folds {table.tuned.folds}"
        options.append(f"--trials {table.tuned.trials}{folds}")
    elif table.name == f"{table.origin}-{table.protocol}":
        options.append(f"--protocol {table.protocol}")
    if table.name.startswith(f"{table.origin}-quick"):
        options.append("--quick")
    return " ".join(("vicinal bench", table.source, *options, f"--seeds {table.seeds}"))


def _any(summary: Summary, field: str) -> bool:
    return any(getattr(row, field) is not None for row in summary.rows)


# -- pages ----------------------------------------------------------------------------------------


def write_pages(summary: Summary, folder: Path) -> tuple[Path, Path]:
    """Write ``TABLE.md``, ``TABLE.html`` and, where the table has a figure, ``TABLE.png``; return
    the first two."""
    markdown_path = folder / f"{summary.table.name}.md"
    html_path = folder / f"{summary.table.name}.html"
    drawn = summary.table.figure.draw(summary) if summary.table.figure else None
    picture = None if drawn is None else png(drawn)
    if picture is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{summary.table.name}.png").write_bytes(picture)
    write_text(markdown_path, markdown(summary, pictured=picture is not None))
    write_text(html_path, html(summary, picture))
    return markdown_path, html_path


def markdown(summary: Summary, *, pictured: bool = False) -> str:
    """The short table with its finding, its figure and its command; all else is in HTML."""
    picture = f"{summary.table.name}.png" if pictured else None
    return _in_markdown(summary, f"# {plain(summary.table.title)}\n\n", picture, None)


def _in_markdown(summary: Summary, head: str, picture: str | None, page: str | None) -> str:
    shown = summary.table.figure.excerpt(summary) if summary.table.figure else None
    if shown is None:
        heads = short_columns(summary)
        shown = [line.replace(f" {MISSING} ", " ") for line in grid(heads, cells(summary, heads))]
    return _rendered(
        render_text, "page.md.j2", summary, head=head, picture=picture, page=page, shown=shown
    )


def _rendered(render: Callable[..., str], template: str, summary: Summary, **values: Any) -> str:
    given = {
        name: getattr(summary, name) for name in ("table", "rows", "remark", "hardware", "notes")
    }
    given |= {
        "command": command(summary.table),
        "filters": {"plain": plain},
        **values,
    }
    return render("vicinal.bench", template, **given)


def grid(heads: Iterable[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    return [
        "| " + " | ".join(map(_cell, heads)) + " |",
        "|---" * len(list(heads)) + "|",
        *("| " + " | ".join(map(_cell, row)) + " |" for row in rows),
    ]


def html(summary: Summary, picture: bytes | None = None) -> str:
    """The same with all columns, what they mean, and how each row was run."""
    heads = columns(summary)
    values: dict[str, Any] = {
        "picture": None if picture is None else base64.b64encode(picture).decode(),
        "heads": list(heads),
        "rows": list(zip(summary.rows, cells(summary, heads), strict=True)),
    }
    given = {"scripts": [], "legend": legend(summary)}
    return _rendered(render_page, "page.html.j2", summary, **given, **values)


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    # Equal results, equal bytes.
    figure.savefig(buffer, format="png", dpi=144, metadata={"Software": None})
    return buffer.getvalue()


def plain(words: str) -> str:
    """One line, in which Markdown takes nothing for HTML."""
    return " ".join(words.split()).replace("&", "&amp;").replace("<", "&lt;")


def _cell(words: str) -> str:
    return plain(words).replace("|", "\\|")


# -- tables in a document -------------------------------------------------------------------------


def markers(name: str) -> tuple[str, str]:
    """The lines between which a document shows the table of that name."""
    return f"<!-- bench:{name}:start -->", f"<!-- bench:{name}:end -->"


def check_markers(document: Path, names: Iterable[str]) -> None:
    """Reject a document that has no place for a table, before the tables are made."""
    _written_into(document, [(name, "") for name in names])


def write_into(document: Path, contents: Iterable[tuple[str, str]]) -> None:
    """Write each table's text between its markers, all in one step; the rest of the document stays
    byte for byte."""
    write_text(document, _written_into(document, contents))


def _written_into(document: Path, contents: Iterable[tuple[str, str]]) -> str:
    if not document.is_file():
        raise DataError(f"--into writes into an existing document: create {document} first.")
    whole = document.read_bytes().decode()  # as bytes: line endings stay
    for name, inside in contents:
        first, last = markers(name)
        before, _, rest = whole.partition(first)
        _, _, after = rest.partition(last)
        if whole.count(first) != 1 or rest.count(last) != 1:
            raise DataError(
                f"{document} needs one place for table {name!r}, between these two lines:\n"
                f"{first}\n{last}"
            )
        whole = f"{before}{first}\n{inside}{last}{after}"
    return whole


def excerpt(summary: Summary, document: Path | None = None, folder: Path | None = None) -> str:
    """The same for a document.

    Args:
        document: where it will stand, and
        folder: where its page and figure are; they are linked to where the document can reach them.
    """
    table = summary.table
    page, picture = (_link(folder, f"{table.name}{suffix}", document) for suffix in (".md", ".png"))
    title = f"**{plain(table.title)}{'' if table.title.endswith('?') else '.'}** "
    return _in_markdown(summary, title, picture, page)


def _link(folder: Path | None, name: str, document: Path | None) -> str | None:
    """The way from the document to a file, where both are below the working directory: no path of
    this machine."""
    if folder is None or document is None or not (folder / name).is_file():
        return None
    here = Path.cwd().resolve()
    target = (folder / name).resolve()
    start = document.resolve().parent
    if not (target.is_relative_to(here) and start.is_relative_to(here)):
        return None
    return Path(os.path.relpath(target, start)).as_posix()
