"""The short table: what a document or a terminal has room for; the page has all."""

from vicinal.bench.summary import CLAIM_SEEDS, Summary, SummaryRow
from vicinal.bench.tables import PROTOCOLS
from vicinal.bench.wording import difference_texts, row_score, tuning
from vicinal.reports.tables import MISSING, metric_title

WIDEST = 9  # columns; a wider table is cut down to these and its first metric
_KEPT = ("map@r", "nmi", "f1")


def short_columns(summary: Summary) -> list[str]:
    """The heads."""
    first = metric_title(summary.table.metrics[0])
    heads = ["row", *(metric_title(metric) for metric in _short_metrics(summary))]
    heads += ["twin", f"{first} to twin"] if _has_twins(summary) else []
    heads += ["published"] if _has_published(summary) else []
    heads += ["trials"] if len(_trials(summary)) > 1 else []
    return [*heads, "seeds"]


def short_cells(summary: Summary, row: SummaryRow) -> list[str]:
    """One line of the short table, as long as ``short_columns``; what must not be overlooked stands with the seeds."""
    texts = [row.name, *(row_score(row, metric) for metric in _short_metrics(summary))]
    if _has_twins(summary):
        texts += [MISSING if row.difference is None else row.difference.twin, difference_texts(row.difference)[0]]
    if _has_published(summary):
        value = row.published.get(summary.table.metrics[0])
        texts.append(MISSING if value is None else f"{100 * value:.1f}")
    if len(_trials(summary)) > 1:
        texts.append(MISSING if row.trials is None else str(row.trials))
    complete = (str(row.done),) if row.done >= row.wanted else ()
    return [*texts, "; ".join((*complete, *row.marks))]


def short_legend(summary: Summary) -> str:
    """What the short table's columns mean, in a paragraph."""
    table, first = summary.table, metric_title(summary.table.metrics[0])
    said = [
        f"Per cent, mean ± half of the 95 % interval over seeds; protocol `{table.protocol}`: "
        f"{PROTOCOLS[table.protocol]}."
    ]
    if _has_twins(summary):
        said.append(
            f"To twin: the mean paired difference in {first} with its 95 % interval over seeds; ✓ needs {CLAIM_SEEDS} "
            "seeds, an interval above 0 and p below 0.05 after Holm's correction."
        )
    if _has_published(summary):
        said.append(f"Published: the paper's own {first} on these images.")
    if table.tuned:
        said.append(tuning(table.tuned))
    return " ".join([*said, trials_said(summary)])


def trials_said(summary: Summary) -> str:
    """What was tried before the rows' settings were chosen, where no column says it."""
    trials = _trials(summary)
    if trials == [None]:
        return "Trials behind the rows' settings were not counted."
    if len(trials) == 1:
        return f"Trials behind each row's settings, on held-out training classes: {trials[0]}."
    return "Trials: settings tried before these were chosen, on held-out training classes."


def _short_metrics(summary: Summary) -> tuple[str, ...]:
    metrics = summary.table.metrics
    others = 2 + 2 * _has_twins(summary) + _has_published(summary) + (len(_trials(summary)) > 1)
    if others + len(metrics) <= WIDEST:
        return metrics
    return tuple(metric for metric in metrics if metric in (metrics[0], *_KEPT))


def _has_twins(summary: Summary) -> bool:
    return any(row.difference for row in summary.rows)


def _has_published(summary: Summary) -> bool:
    return any(summary.table.metrics[0] in row.published for row in summary.rows)


def _trials(summary: Summary) -> list[int | None]:
    """The different numbers of trials of the rows that train."""
    return list(dict.fromkeys(row.trials for row in summary.rows if row.command))
