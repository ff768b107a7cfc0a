"""A table's summary as text: its cells, for a terminal and for its page in Markdown."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from vicinal.bench.summary import Summary, SummaryRow
from vicinal.bench.table import Budget, Table
from vicinal.evaluation.statistics import Difference, Estimate
from vicinal.files import write_text
from vicinal.reports import tables
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
    return f"{signed(estimate.mean)} {tables.interval(vars(estimate))}".rstrip()


def probability(p: float | None) -> str:
    """
    >>> probability(0.0312), probability(0.00001), probability(None)
    ('0.031', '< 0.001', '–')
    """
    return MISSING if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def columns(summary: Summary) -> Columns:
    """The columns that have something to show; docs/howto/bench.md says what they mean."""
    first, *others = summary.table.metrics
    found: Columns = {"row": lambda row: "; ".join((row.name, *row.marks))}
    found[metric_title(first)] = partial(_score, metric=first)
    if any(row.difference for row in summary.rows):
        found[f"{metric_title(first)} vs. baseline"] = lambda row: (
            interval(_difference(row).over_seeds) + " ✓" * _difference(row).claimed
        )
        found["over classes"] = lambda row: interval(_difference(row).over_classes)
        found["p (Holm)"] = lambda row: probability(_difference(row).p)
        found["detectable"] = lambda row: per_cent(_difference(row).smallest)
    for metric in others:
        found[metric_title(metric)] = partial(_score, metric=metric)
    if any(row.held_out is not None for row in summary.rows):
        found["held out"] = lambda row: per_cent(row.held_out)
    if any(first in row.published for row in summary.rows):
        found["published"] = lambda row: per_cent(row.published.get(first))
    return found


def _score(row: SummaryRow, metric: str) -> str:
    """A row's score, with the number of seeds behind it where not all of them have it."""
    estimate = row.scores.get(metric)
    if estimate is None or estimate.count == row.done:
        return score(estimate)
    return f"{score(estimate)} ({estimate.count})"


def _difference(row: SummaryRow) -> Difference:
    return row.difference or Difference()


def cells(summary: Summary) -> list[list[str]]:
    """The lines of a table."""
    return [[cell(row) for cell in columns(summary).values()] for row in summary.rows]


def command(table: Table) -> str:
    """How a table is run, also tuned, or under another protocol than its own."""
    options = []
    if table.tuned:
        folds = "" if table.tuned.folds == Budget(1).folds else f" --folds {table.tuned.folds}"
        options.append(f"--trials {table.tuned.trials}{folds}")
    elif table.name == f"{table.origin}-{table.protocol}":
        options.append(f"--protocol {table.protocol}")
    return " ".join(("vicinal bench", table.source, *options, f"--seeds {table.seeds}"))


def write_page(summary: Summary, folder: Path) -> Path:
    """Write ``TABLE.md`` and, where the table has a figure, ``TABLE.png``; return the first."""
    path = folder / f"{summary.table.name}.md"
    drawn = summary.table.figure.draw(summary) if summary.table.figure else None
    if drawn is not None:
        folder.mkdir(parents=True, exist_ok=True)
        # Equal results, equal bytes.
        drawn.savefig(path.with_suffix(".png"), dpi=144, metadata={"Software": None})
    write_text(path, markdown(summary, pictured=drawn is not None))
    return path


def markdown(summary: Summary, *, pictured: bool = False) -> str:
    """The page of a table: what was found, its figure, its cells, and how they were made."""
    table = summary.table
    shown = table.figure.excerpt(summary) if table.figure else None
    if shown is None:
        lines = grid(columns(summary), cells(summary))
        shown = [line.replace(f" {MISSING} ", " ") for line in lines]
    made = "; ".join(summary.made) or "nothing has run yet"
    parts = [
        f"# {plain(table.title)}",
        plain(table.finding),
        plain(summary.remark),
        f"![{plain(table.title)}]({table.name}.png)" if pictured else "",
        "\n".join(shown),
        f"`{command(table)}`: {made}",
        plain(summary.note),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def grid(heads: Iterable[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    return [
        "| " + " | ".join(map(_cell, heads)) + " |",
        "|---" * len(list(heads)) + "|",
        *("| " + " | ".join(map(_cell, row)) + " |" for row in rows),
    ]


def plain(words: str) -> str:
    """One line, in which Markdown takes nothing for HTML."""
    return " ".join(words.split()).replace("&", "&amp;").replace("<", "&lt;")


def _cell(words: str) -> str:
    return plain(words).replace("|", "\\|")
