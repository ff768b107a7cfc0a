"""The page of a table: Markdown for a repository, and one HTML file that needs no network."""

import base64
import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from vicinal.bench.figures import draw, png
from vicinal.bench.summary import Summary
from vicinal.bench.wording import best, cells, columns, command, legend, origins
from vicinal.files import write_text
from vicinal.reports.series import Chart


def write_pages(summary: Summary, folder: Path) -> tuple[Path, Path]:
    """Write ``TABLE.md``, ``TABLE.html`` and, where the table has a figure, ``TABLE.png``; return the first two."""
    text, page = folder / f"{summary.table.name}.md", folder / f"{summary.table.name}.html"
    drawn = draw(summary)
    picture = None if drawn is None else png(drawn)
    if picture is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{summary.table.name}.png").write_bytes(picture)
    write_text(text, markdown(summary, pictured=picture is not None))
    write_text(page, html(summary, picture))
    return text, page


def markdown(summary: Summary, *, pictured: bool = False) -> str:
    """The table, its figure, its legend and the commands behind each row."""
    table, heads = summary.table, columns(summary)
    lines = [f"# {plain(table.title)}", ""]
    lines += [f"{plain(said)}\n" for said in (table.says, best(summary)) if said]
    lines += [f"![{plain(table.title)}]({table.name}.png)", ""] if pictured else []
    lines += grid(heads, (cells(summary, row) for row in summary.rows))
    lines += [
        "",
        *(f"- {sentence}" for sentence in legend(summary)),
        "",
        "Each row is one command and one seed a time (`seed=0`, `seed=1`, ...):",
        "",
    ]
    for row in summary.rows:
        if row.command:
            seconds = f", {row.seconds:.0f} s of training" if row.seconds is not None else ""
            lines.append(f"- {plain(row.name)}: `{row.command}`{seconds}; {origins(row.commits)}")
    lines += [
        "",
        f"All of it: `{command(table)}`. " + ("; ".join(summary.hardware) or "Nothing has run yet."),
    ]
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
    """The same with learning curves; whatever comes from results is escaped, and scripts run only by their hash."""
    script = _shipped("vicinal.reports", "charts.js")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_shipped("vicinal.bench", "page.html.j2")).render(
        css=Markup(_shipped("vicinal.reports", "page.css")),
        script=Markup(script),
        script_hash=base64.b64encode(sha256(script.encode()).digest()).decode(),
        table=summary.table,
        best=best(summary),
        picture=None if picture is None else base64.b64encode(picture).decode(),
        command=command(summary.table),
        origins=origins,
        heads=columns(summary),
        rows=[(row, cells(summary, row)) for row in summary.rows],
        legend=legend(summary),
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
    return {
        "key": chart.key,
        "title": chart.title,
        "unit": chart.unit,
        "axis": chart.axis,
        "mark": None,
        "lines": lines,
    }


def _json(value: Any) -> Markup:
    """JSON that may stand in a script element: nothing in it can end the element or begin another."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def plain(text: str) -> str:
    """One line, in which Markdown takes nothing for HTML."""
    return " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")


def _cell(text: str) -> str:
    return plain(text).replace("|", "\\|")


def _shipped(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")
