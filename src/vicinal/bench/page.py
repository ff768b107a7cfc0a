"""The page of a table as Markdown and as one HTML file that needs no network, and the short table in a document."""

import base64
import json
import os
import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from vicinal.bench import text
from vicinal.bench.figures import draw, png
from vicinal.bench.summary import Summary
from vicinal.bench.table import Matrix
from vicinal.errors import DataError
from vicinal.files import write_text
from vicinal.reports.series import Chart


def write_pages(summary: Summary, folder: Path) -> tuple[Path, Path]:
    """Write ``TABLE.md``, ``TABLE.html`` and, where the table has a figure, ``TABLE.png``; return the first two."""
    markdown_path, html_path = folder / f"{summary.table.name}.md", folder / f"{summary.table.name}.html"
    drawn = draw(summary)
    picture = None if drawn is None else png(drawn)
    if picture is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{summary.table.name}.png").write_bytes(picture)
    write_text(markdown_path, markdown(summary, pictured=picture is not None))
    write_text(html_path, html(summary, picture))
    return markdown_path, html_path


def markdown(summary: Summary, *, pictured: bool = False) -> str:
    """The table, its figure, its legend and what each row sets."""
    table = summary.table
    lines = [f"# {plain(table.title)}", ""]
    lines += [f"{plain(sentence)}\n" for sentence in (table.finding, text.best(summary)) if sentence]
    lines += [f"![{plain(table.title)}]({table.name}.png)", ""] if pictured else []
    lines += grid(text.columns(summary), (text.cells(summary, row) for row in summary.rows))
    lines += ["", *(f"- {sentence}" for sentence in text.legend(summary)), ""]
    lines += ["A row has the settings of its baseline, then its own:", ""]
    for row in (row for row in summary.rows if row.trained):
        against = "" if row.difference is None else f" ({plain(row.difference.against)} +)"
        seconds = f", {row.seconds:.0f} s of training" if row.seconds is not None else ""
        words = f"`{row.words}`" if row.words else "as the table"
        lines.append(f"- {plain(row.name)}{against}: {words}{seconds}; {text.origins(row.commits)}")
    run = "; ".join(summary.hardware) or "Nothing has run yet."
    lines += ["", f"`{text.command(table)}`, one row: `--rows NAME`. {run}"]
    lines += ["", *(f"- {plain(note)}" for note in summary.notes)] if summary.notes else []
    return "\n".join(lines).rstrip() + "\n"


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    return [
        "| " + " | ".join(map(_cell, heads)) + " |",
        "|---" * len(heads) + "|",
        *("| " + " | ".join(map(_cell, row)) + " |" for row in rows),
    ]


def html(summary: Summary, picture: bytes | None = None) -> str:
    """The same with learning curves; results are escaped, and scripts run only by their hash."""
    script = _shipped("vicinal.reports", "charts.js")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_shipped("vicinal.bench", "page.html.j2")).render(
        css=Markup(_shipped("vicinal.reports", "page.css")),
        script=Markup(script),
        script_hash=base64.b64encode(sha256(script.encode()).digest()).decode(),
        table=summary.table,
        best=text.best(summary),
        picture=None if picture is None else base64.b64encode(picture).decode(),
        command=text.command(summary.table),
        origins=text.origins,
        heads=text.columns(summary),
        rows=[(row, text.cells(summary, row)) for row in summary.rows],
        legend=text.legend(summary),
        charts=summary.charts,
        charts_json=_json([_chart(chart) for chart in summary.charts]),
        hardware=summary.hardware,
        notes=summary.notes,
    )


def _chart(chart: Chart) -> dict[str, Any]:
    lines = []
    for name, curve in chart.lines.items():
        line: dict[str, Any] = {"name": name, "x": curve.steps, "y": curve.mean}
        lines.append(line if curve.low == curve.high else line | {"low": curve.low, "high": curve.high})
    shown = {name: getattr(chart, name) for name in ("key", "title", "unit", "axis")}
    return {**shown, "mark": None, "lines": lines}


def _json(value: Any) -> Markup:
    """JSON that may stand in a script element: nothing in it can end the element or begin another."""
    written = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(written.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def plain(words: str) -> str:
    """One line, in which Markdown takes nothing for HTML."""
    return " ".join(words.split()).replace("&", "&amp;").replace("<", "&lt;")


def _cell(words: str) -> str:
    return plain(words).replace("|", "\\|")


def _shipped(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


# -- tables in a document -------------------------------------------------------------------------


def markers(name: str) -> tuple[str, str]:
    """The lines between which a document shows the table of that name."""
    return f"<!-- bench:{name}:start -->", f"<!-- bench:{name}:end -->"


def check_markers(document: Path, names: Iterable[str]) -> None:
    """Reject a document that has no place for a table, before the tables are made."""
    for name in names:
        _place(_read(document), name, document)


def write_into(document: Path, contents: Iterable[tuple[str, str]]) -> None:
    """Write each table's text between its markers, all in one step; the rest of the document stays byte for byte."""
    whole = _read(document)
    for name, inside in contents:
        start, end = _place(whole, name, document)
        whole = f"{whole[:start]}\n{inside}{whole[end:]}"
    write_text(document, whole)


def excerpt(summary: Summary, document: Path | None = None, folder: Path | None = None) -> str:
    """The short table as Markdown: finding, figure, rows, legend, and how it was made.

    Args:
        document: where it will stand, and
        folder: where its page and figure are; they are linked to where the document can reach them.
    """
    table = summary.table
    title = plain(table.title) + ("" if table.title.endswith("?") else ".")
    page, picture = (_link(folder, f"{table.name}{suffix}", document) for suffix in (".md", ".png"))
    said = (plain(sentence) for sentence in (table.finding, text.best(summary)) if sentence)
    lines = [" ".join([f"**{title}**", *said]), ""]
    lines += [f"![{plain(table.title)}]({picture})", ""] if picture else []
    if isinstance(table.figure, Matrix):  # a line for each condition needs less room than one for each row
        lines += grid(
            text.matrix_columns(table.figure), map(text.matrix_cells, text.matrix_lines(summary, table.figure))
        )
        lines += ["", f"{text.matrix_legend(summary, table.figure)} {text.trials_text(summary)}", ""]
    else:
        lines += grid(text.short_columns(summary), (text.short_cells(summary, row) for row in summary.rows))
        lines += ["", text.short_legend(summary), ""]
    made = sorted({commit for row in summary.rows for commit in row.commits})
    facts = (text.origins(made), *summary.hardware) if made else ("nothing has run yet",)
    lines.append(f"`{text.command(table)}`: {plain('; '.join(facts))}.")
    if page:
        lines.append(f"Each row's settings, its intervals over classes and all metrics are on [its page]({page}).")
    return "\n".join(lines) + "\n"


def _read(document: Path) -> str:
    if not document.is_file():
        raise DataError(f"--into writes into an existing document, and {document} is not a file. Create it first.")
    return document.read_bytes().decode()  # as bytes: line endings stay


def _place(whole: str, name: str, document: Path) -> tuple[int, int]:
    """From the end of the first marker to the beginning of the second; each stands alone on its line, once."""
    first, last = markers(name)
    starts, ends = (
        list(re.finditer(rf"^{re.escape(line)}(?=[ \t]*\r?$)", whole, re.MULTILINE)) for line in (first, last)
    )
    if len(starts) != 1 or len(ends) != 1 or starts[0].end() > ends[0].start():
        raise DataError(
            f"{document} needs one place for table {name!r}, got its first marker {len(starts)} times and its last "
            f"{len(ends)} times{', in the wrong order' * (len(starts) == len(ends) == 1)}. "
            f"The table goes between these two lines:\n{first}\n{last}"
        )
    return starts[0].end(), ends[0].start()


def _link(folder: Path | None, name: str, document: Path | None) -> str | None:
    """The way from the document to a file, where both are below the working directory: no path of this machine."""
    if folder is None or document is None:
        return None
    here, target, document = Path.cwd().resolve(), (folder / name).resolve(), document.resolve()
    if not target.is_file() or not target.is_relative_to(here) or not document.is_relative_to(here):
        return None
    return Path(os.path.relpath(target, document.parent)).as_posix()
