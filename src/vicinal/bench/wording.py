"""Estimates as text, in points of a per cent, with the signs and dashes that tables have."""

from collections.abc import Sequence

from vicinal.bench.statistics import Estimate
from vicinal.bench.summary import CLAIM_SEEDS, Difference, Summary, SummaryRow
from vicinal.bench.tables import PROTOCOLS, Table
from vicinal.reports.tables import MISSING, metric_title

WIDEST = 9  # columns of a short table; a wider one is cut down to these and its first metric
_KEPT = ("map@r", "nmi", "f1")


def score(estimate: Estimate | None) -> str:
    """
    >>> score(Estimate(0.6214, 0.6101, 0.6327, 5)), score(Estimate(0.5, None, None, 1)), score(None)
    ('62.1 ± 1.1', '50.0', '–')
    """
    if estimate is None:
        return MISSING
    half = estimate.half_width
    return f"{100 * estimate.mean:.1f}" + ("" if half is None else f" ± {100 * half:.1f}")


def signed(value: float) -> str:
    """
    >>> signed(0.0123), signed(-0.004), signed(0.00001)
    ('+1.2', '−0.4', '0.0')
    """
    text = f"{abs(100 * value):.1f}"
    return text if text == "0.0" else ("+" if value > 0 else "−") + text


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


def columns(summary: Summary) -> list[str]:
    """The heads of the printed table."""
    heads = ["row", *(metric_title(metric) for metric in summary.table.metrics)]
    if any(row.difference for row in summary.rows):
        first = metric_title(summary.table.metrics[0])
        heads += [f"{first} to twin", "over classes", "p (Holm)", "shows from"]
    if any(row.published for row in summary.rows):
        heads.append("published")
    return [*heads, "trials", "seeds", "marks"]


def cells(summary: Summary, row: SummaryRow) -> list[str]:
    """One printed line, as long as ``columns``."""
    texts = [row.name, *(score(row.scores.get(metric)) for metric in summary.table.metrics)]
    if any(other.difference for other in summary.rows):
        texts += _difference(row.difference)
    if any(other.published for other in summary.rows):
        texts.append(", ".join(f"{metric_title(name)} {100 * x:.1f}" for name, x in row.published.items()) or MISSING)
    trials = MISSING if row.trials is None else str(row.trials)
    return [*texts, trials, f"{row.done}/{row.wanted}", "; ".join(row.marks)]


def legend(summary: Summary) -> list[str]:
    """What the columns mean, in sentences."""
    table = summary.table
    said = [
        f"Protocol `{table.protocol}`: {PROTOCOLS[table.protocol]}.",
        "Per cent: mean ± half of the 95 % interval over seeds (Student's t).",
    ]
    if any(row.difference for row in summary.rows):
        said.append(
            "To twin: the mean of the paired differences to the plain twin with the same seeds, its 95 % interval over "
            "seeds, and the interval of the Recall@1 difference over test classes drawn anew (bootstrap). p is of the "
            "paired t-test, corrected by Holm over the table. Shows from: the true difference that this many seeds "
            f"would find in 4 of 5 cases. A claim needs {CLAIM_SEEDS} seeds and an interval above 0."
        )
    said.append("Trials: how many settings were tried before these were chosen, on held-out training classes.")
    return said


def short_columns(summary: Summary) -> list[str]:
    """The heads of the table that a document or a terminal has room for; the page has all."""
    first = metric_title(summary.table.metrics[0])
    heads = ["row", *(metric_title(metric) for metric in _short_metrics(summary))]
    heads += ["twin", f"{first} to twin"] if _has_twins(summary) else []
    heads += ["published"] if _has_published(summary) else []
    heads += ["trials"] if len(_trials(summary)) > 1 else []
    return [*heads, "seeds"]


def short_cells(summary: Summary, row: SummaryRow) -> list[str]:
    """One line of the short table, as long as ``short_columns``; what must not be overlooked stands with the seeds."""
    texts = [row.name, *(score(row.scores.get(metric)) for metric in _short_metrics(summary))]
    if _has_twins(summary):
        texts += [MISSING if row.difference is None else row.difference.twin, _difference(row.difference)[0]]
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
            "seeds and an interval above 0."
        )
    if _has_published(summary):
        said.append(f"Published: the paper's own {first} on these images.")
    trials = _trials(summary)
    if trials == [None]:
        said.append("Trials behind the rows' settings were not counted.")
    elif len(trials) == 1:
        said.append(f"Trials behind each row's settings, on held-out training classes: {trials[0]}.")
    else:
        said.append("Trials: settings tried before these were chosen, on held-out training classes.")
    return " ".join(said)


def command(table: Table) -> str:
    """How a table is run, or its reduced form, or under another protocol than it says itself."""
    name, options = table.name, f"--seeds {table.seeds}"
    if name.endswith(f"-{table.protocol}"):
        name, options = name.removesuffix(f"-{table.protocol}"), f"--protocol {table.protocol} {options}"
    if name.endswith("-quick"):
        name, options = name.removesuffix("-quick"), f"--quick {options}"
    return f"vicinal bench {name} {options}"


def origins(commits: Sequence[str]) -> str:
    """
    >>> origins(["abc", "def", "code 12"]), origins([])
    ('commits abc, def; code 12', '–')
    """
    codes = [one.removeprefix("code ") for one in commits if one.startswith("code ")]
    named = [one for one in commits if not one.startswith("code ")]
    said = [f"commit{'s' * (len(named) > 1)} {', '.join(named)}"] if named else []
    return "; ".join([*said, f"code {', '.join(codes)}"] if codes else said) or MISSING


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


def _difference(difference: Difference | None) -> Sequence[str]:
    if difference is None:
        return (MISSING,) * 4
    found = interval(difference.over_seeds) + (" ✓" if difference.claimed else "")
    smallest = MISSING if difference.smallest is None else f"{100 * difference.smallest:.1f}"
    return found, interval(difference.over_classes), probability(difference.p), smallest
