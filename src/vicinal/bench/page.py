"""A table's summary as text: cells and legends, its page as Markdown and HTML, and the short table in a document."""

import base64
import io
import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from vicinal.bench.summary import Summary, SummaryRow
from vicinal.bench.table import PROTOCOLS, Budget, Table
from vicinal.errors import DataError
from vicinal.evaluation.statistics import CLAIM_SEEDS, Difference, Estimate
from vicinal.files import write_text
from vicinal.reports.html import chart_data, render_page
from vicinal.reports.tables import MISSING, metric_title, per_cent, signed

WIDEST = 9  # columns of the short table; a wider one is cut down to these metrics and its first
_KEPT = ("map@r", "nmi", "f1")
Columns = dict[str, Callable[[SummaryRow], str]]  # by its head, the cell of a row


def score(estimate: Estimate | None) -> str:
    """
    >>> score(Estimate(0.6214, 0.6101, 0.6327, 5)), score(Estimate(0.5, None, None, 1)), score(None)
    ('62.1 ± 1.1', '50.0', '–')
    """
    if estimate is None:
        return MISSING
    half = estimate.half_width
    return f"{100 * estimate.mean:.1f}" + ("" if half is None else f" ± {100 * half:.1f}")


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
    return score(estimate) + (f" ({estimate.count})" if estimate is not None and estimate.count < row.done else "")


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
            ", ".join(f"{metric_title(name)} {per_cent(x)}" for name, x in row.published.items()) or MISSING
        )
    found["trials"] = lambda row: str(row.trials or MISSING)
    found["seeds"] = lambda row: f"{row.done}/{row.wanted}"
    found["marks"] = lambda row: "; ".join(row.marks)
    return found


def short_columns(summary: Summary) -> Columns:
    """The short table, for a document or a terminal; marks are beside the seeds."""
    first, metrics = summary.table.metrics[0], summary.table.metrics
    rest: Columns = {}
    if _any(summary, "difference"):
        rest["baseline"] = lambda row: row.against or MISSING
        rest[f"{metric_title(first)} vs. baseline"] = _versus
    if _has_published(summary):
        rest["published"] = lambda row: per_cent(row.published.get(first))
    if len(_trials(summary)) > 1:
        rest["trials"] = lambda row: str(row.trials or MISSING)
    rest["seeds"] = lambda row: "; ".join((*([str(row.done)] if row.done >= row.wanted else []), *row.marks))
    if 1 + len(rest) + len(metrics) > WIDEST:
        metrics = tuple(metric for metric in metrics if metric in (first, *_KEPT))
    return _scores(metrics) | rest


def cells(summary: Summary, columns: Columns) -> list[list[str]]:
    """The lines of a table."""
    return [[cell(row) for cell in columns.values()] for row in summary.rows]


def _scores(metrics: Iterable[str]) -> Columns:
    return {"row": lambda row: row.name} | {metric_title(name): partial(row_score, metric=name) for name in metrics}


def _difference(row: SummaryRow) -> Difference:
    return row.difference or Difference()


def _versus(row: SummaryRow) -> str:
    return interval(_difference(row).over_seeds) + " ✓" * _difference(row).claimed


def legend(summary: Summary) -> list[str]:
    """What the columns mean, in sentences."""
    table = summary.table
    text = [
        f"Protocol `{table.protocol}`: {PROTOCOLS[table.protocol]}.",
        "Per cent: mean ± half of the 95 % interval over seeds (Student's t).",
    ]
    if any(estimate.count < row.done for row in summary.rows for estimate in row.scores.values()):
        text.append("A number in brackets is that of the seeds that have a score, where not all do.")
    if _any(summary, "difference"):
        text.append(
            "Vs. baseline: the mean of the paired differences to the baseline with the same seeds, its 95 % interval "
            "over seeds, and the interval of the Recall@1 difference over test classes drawn anew (bootstrap). p is of "
            "the paired t-test, corrected by Holm over the table. Detectable: the true difference that this many seeds "
            f"find in 4 of 5 cases. A claim (✓) needs {CLAIM_SEEDS} seeds, an interval above 0 and p below 0.05."
        )
    if table.tuned:
        text.append(tuning(table.tuned))
    if _any(summary, "held_out"):
        whose = "folds of the chosen trial" if table.tuned else "seeds, of the step that was tested"
        text.append(
            f"Held out: Recall@1 on held-out training classes, mean over the {whose}. What is best is chosen by it."
        )
    text.append("Trials: how many settings were tried before these were chosen, on held-out training classes.")
    return text


def tuning(budget: Budget) -> str:
    """How the rows of a tuned table came by their settings."""
    folds = f"on {budget.folds} class-disjoint folds of the training classes"
    if budget.trials == 1:
        return (
            f"Held out: each row as it stands was scored by Recall@1 after the last step {folds}; then it was trained "
            "on all training classes and tested once."
        )
    return (
        f"Tuned: of each tuned row {budget.trials} settings were tried, its own first, {folds}, what a method and its "
        "baseline share in the same ranges; the best by Recall@1 after the last step was trained on all training "
        "classes and tested once."
    )


def source(table: Table) -> str:
    """What names a table on the command line."""
    return f"{table.file}::{table.origin}" if table.file else table.origin


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
    return " ".join(("vicinal bench", source(table), *options, f"--seeds {table.seeds}"))


def origins(commits: Sequence[str]) -> str:
    """
    >>> origins(["abc", "def", "code 12"]), origins([])
    ('commits abc, def; code 12', '–')
    """
    codes = [one.removeprefix("code ") for one in commits if one.startswith("code ")]
    named = [one for one in commits if not one.startswith("code ")]
    text = [f"commit{'s' * (len(named) > 1)} {', '.join(named)}"] if named else []
    return "; ".join([*text, f"code {', '.join(codes)}"] if codes else text) or MISSING


def short_legend(summary: Summary) -> str:
    table, first = summary.table, metric_title(summary.table.metrics[0])
    text = [
        f"Per cent, mean ± half of the 95 % interval over seeds; protocol `{table.protocol}`: "
        f"{PROTOCOLS[table.protocol]}."
    ]
    if _any(summary, "difference"):
        text.append(
            f"Vs. baseline: the mean paired difference in {first} with its 95 % interval over seeds; ✓ needs "
            f"{CLAIM_SEEDS} seeds, an interval above 0 and p below 0.05 after Holm's correction."
        )
    if _has_published(summary):
        text.append(f"Published: the paper's own {first} on these images.")
    if table.tuned:
        text.append(tuning(table.tuned))
    return " ".join([*text, trials_text(summary)])


def trials_text(summary: Summary) -> str:
    """How many settings were tried for the rows, where no column says it."""
    trials = _trials(summary)
    if trials == [None]:
        return "Trials behind the rows' settings were not counted."
    if len(trials) == 1:
        return f"Trials behind each row's settings, on held-out training classes: {trials[0]}."
    return "Trials: settings tried before these were chosen, on held-out training classes."


def _any(summary: Summary, field: str) -> bool:
    return any(getattr(row, field) is not None for row in summary.rows)


def _has_published(summary: Summary) -> bool:
    return any(summary.table.metrics[0] in row.published for row in summary.rows)


def _trials(summary: Summary) -> list[int | None]:
    """The different numbers of trials of the rows that train."""
    return list(dict.fromkeys(row.trials for row in summary.rows if row.trained))


# -- pages ----------------------------------------------------------------------------------------


def write_pages(summary: Summary, folder: Path) -> tuple[Path, Path]:
    """Write ``TABLE.md``, ``TABLE.html`` and, where the table has a figure, ``TABLE.png``; return the first two."""
    markdown_path, html_path = folder / f"{summary.table.name}.md", folder / f"{summary.table.name}.html"
    drawn = summary.table.figure.draw(summary) if summary.table.figure else None
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
    lines += [f"{plain(sentence)}\n" for sentence in (table.finding, summary.remark) if sentence]
    lines += [f"![{plain(table.title)}]({table.name}.png)", ""] if pictured else []
    heads = columns(summary)
    lines += grid(heads, cells(summary, heads))
    lines += ["", *(f"- {sentence}" for sentence in legend(summary)), ""]
    lines += ["A row has the settings of its baseline, then its own:", ""]
    for row in (row for row in summary.rows if row.trained):
        against = f" ({plain(row.against)} +)" if row.against else ""
        seconds = f", {row.seconds:.0f} s of training" if row.seconds is not None else ""
        words = f"`{row.words}`" if row.words else "as the table"
        lines.append(f"- {plain(row.name)}{against}: {words}{seconds}; {origins(row.commits)}")
    run = "; ".join(summary.hardware) or "Nothing has run yet."
    lines += ["", f"`{command(table)}`, one row: `--rows NAME`. {run}"]
    lines += ["", *(f"- {plain(note)}" for note in summary.notes)] if summary.notes else []
    return "\n".join(lines).rstrip() + "\n"


def grid(heads: Iterable[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    return [
        "| " + " | ".join(map(_cell, heads)) + " |",
        "|---" * len(list(heads)) + "|",
        *("| " + " | ".join(map(_cell, row)) + " |" for row in rows),
    ]


def html(summary: Summary, picture: bytes | None = None) -> str:
    """The same with learning curves."""
    heads = columns(summary)
    return render_page(
        "vicinal.bench",
        "page.html.j2",
        scripts=["charts.js"],
        filters={"origins": origins},
        table=summary.table,
        remark=summary.remark,
        picture=None if picture is None else base64.b64encode(picture).decode(),
        command=command(summary.table),
        heads=list(heads),
        rows=list(zip(summary.rows, cells(summary, heads), strict=True)),
        legend=legend(summary),
        charts=summary.charts,
        data=[chart_data(chart) for chart in summary.charts],
        hardware=summary.hardware,
        notes=summary.notes,
    )


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=144, metadata={"Software": None})  # equal results, equal bytes
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
    said = (plain(sentence) for sentence in (table.finding, summary.remark) if sentence)
    lines = [" ".join([f"**{title}**", *said]), ""]
    lines += [f"![{plain(table.title)}]({picture})", ""] if picture else []
    shown = table.figure.excerpt(summary) if table.figure else None
    if shown is None:
        heads = short_columns(summary)
        shown = [*grid(heads, cells(summary, heads)), "", short_legend(summary), ""]
    lines += shown
    made = sorted({commit for row in summary.rows for commit in row.commits})
    facts = (origins(made), *summary.hardware) if made else ("nothing has run yet",)
    lines.append(f"`{command(table)}`: {plain('; '.join(facts))}.")
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
