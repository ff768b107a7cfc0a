"""Summaries as text: estimates in points of a per cent, the cells of the whole and of the short table, legends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vicinal.bench.statistics import Estimate
from vicinal.bench.summary import CLAIM_SEEDS, Difference, Summary, SummaryRow
from vicinal.bench.table import PROTOCOLS, Budget, Matrix, Table
from vicinal.reports.tables import MISSING, metric_title

STAY = "baseline"  # what to pick where no method is significantly above its baseline
WIDEST = 9  # columns of the short table; a wider one is cut down to these metrics and its first
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


def row_score(row: SummaryRow, metric: str) -> str:
    """A row's score, with the number of seeds behind it where not all of them have it."""
    estimate = row.scores.get(metric)
    return score(estimate) + (f" ({estimate.count})" if estimate is not None and estimate.count < row.done else "")


def difference_texts(difference: Difference | None) -> Sequence[str]:
    """Over seeds, over classes, p, and the smallest effect that would have shown."""
    if difference is None:
        return (MISSING,) * 4
    found = interval(difference.over_seeds) + (" ✓" if difference.claimed else "")
    smallest = MISSING if difference.smallest is None else f"{100 * difference.smallest:.1f}"
    return found, interval(difference.over_classes), probability(difference.p), smallest


def columns(summary: Summary) -> list[str]:
    """The heads of the whole table."""
    heads = ["row", *map(metric_title, summary.table.metrics)]
    heads += ["held out"] if _any(summary, "held_out") else []
    if _any(summary, "difference"):
        heads += [f"{metric_title(summary.table.metrics[0])} vs. baseline", "over classes", "p (Holm)", "detectable"]
    heads += ["published"] if any(row.published for row in summary.rows) else []
    return [*heads, "trials", "seeds", "marks"]


def cells(summary: Summary, row: SummaryRow) -> list[str]:
    """A line of the whole table, as long as ``columns``."""
    texts = [row.name, *(row_score(row, metric) for metric in summary.table.metrics)]
    if _any(summary, "held_out"):
        texts.append(MISSING if row.held_out is None else f"{100 * row.held_out:.1f}")
    if _any(summary, "difference"):
        texts += difference_texts(row.difference)
    if any(other.published for other in summary.rows):
        texts.append(", ".join(f"{metric_title(name)} {100 * x:.1f}" for name, x in row.published.items()) or MISSING)
    trials = MISSING if row.trials is None else str(row.trials)
    return [*texts, trials, f"{row.done}/{row.wanted}", "; ".join(row.marks)]


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


def best(summary: Summary) -> str:
    """Which rows held-out classes choose, and how these do on the test classes; empty for a table without kinds."""
    found = summary.contest
    if found is None:
        return ""
    if found.lacking:
        few = ", ".join(found.lacking[:3]) + (" and others" if len(found.lacking) > 3 else "")
        return (
            f"Which row is the best is not chosen yet: {few} have no held-out score of their own; "
            f"`vicinal bench {source(summary.table)} --trials 1` gives each row one."
        )
    first = metric_title(summary.table.metrics[0])
    named = "; ".join(
        f"of the {one.kind} {one.row} (held out {100 * one.held_out:.1f}, test {first} {score(one.test)})"
        for one in found.best
    )
    last = (
        f". On the test classes the first minus the second is {interval(found.difference)}" if found.difference else ""
    )
    return f"Chosen on held-out training classes: {named}{last}."


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


# -- the short table: what a document or a terminal has room for -----------------------------------


def short_columns(summary: Summary) -> list[str]:
    first = metric_title(summary.table.metrics[0])
    heads = ["row", *map(metric_title, _short_metrics(summary))]
    heads += ["baseline", f"{first} vs. baseline"] if _any(summary, "difference") else []
    heads += ["published"] if _has_published(summary) else []
    heads += ["trials"] if len(_trials(summary)) > 1 else []
    return [*heads, "seeds"]


def short_cells(summary: Summary, row: SummaryRow) -> list[str]:
    """A line of the short table; marks are beside the seeds."""
    texts = [row.name, *(row_score(row, metric) for metric in _short_metrics(summary))]
    if _any(summary, "difference"):
        texts += [MISSING if row.difference is None else row.difference.against, difference_texts(row.difference)[0]]
    if _has_published(summary):
        value = row.published.get(summary.table.metrics[0])
        texts.append(MISSING if value is None else f"{100 * value:.1f}")
    if len(_trials(summary)) > 1:
        texts.append(MISSING if row.trials is None else str(row.trials))
    complete = (str(row.done),) if row.done >= row.wanted else ()
    return [*texts, "; ".join((*complete, *row.marks))]


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


def _short_metrics(summary: Summary) -> tuple[str, ...]:
    metrics = summary.table.metrics
    others = 2 + 2 * _any(summary, "difference") + _has_published(summary) + (len(_trials(summary)) > 1)
    if others + len(metrics) <= WIDEST:
        return metrics
    return tuple(metric for metric in metrics if metric in (metrics[0], *_KEPT))


def _any(summary: Summary, field: str) -> bool:
    return any(getattr(row, field) is not None for row in summary.rows)


def _has_published(summary: Summary) -> bool:
    return any(summary.table.metrics[0] in row.published for row in summary.rows)


def _trials(summary: Summary) -> list[int | None]:
    """The different numbers of trials of the rows that train."""
    return list(dict.fromkeys(row.trials for row in summary.rows if row.trained))


# -- the matrix of conditions and methods ---------------------------------------------------------


@dataclass(frozen=True)
class MatrixLine:
    """One condition.

    Attributes:
        levels: the baselines' own scores.
        differences: each method's paired difference to its baseline; None where it was not run.
        pick: of the methods significantly above their baselines the one that scores highest; ``baseline`` where none
            is; empty while a cell has no interval.
    """

    condition: str
    levels: tuple[Estimate | None, ...]
    differences: tuple[Estimate | None, ...]
    pick: str


def matrix_methods(asked: Matrix) -> list[str]:
    """The columns, in the order in which conditions name them."""
    return list(dict.fromkeys(method for line in asked.cells.values() for method in line))


def matrix_lines(summary: Summary, asked: Matrix) -> list[MatrixLine]:
    rows, metric, found = {row.name: row for row in summary.rows}, summary.table.metrics[0], []
    for condition, names in asked.cells.items():
        levels = tuple(rows[level[condition]].scores.get(metric) for level in asked.levels.values())
        scores = {name: rows[row].scores.get(metric) for name, row in names.items()}
        known = {name: rows[row].difference for name, row in names.items()}
        differences = {name: None if one is None else one.over_seeds for name, one in known.items()}
        line = tuple(differences.get(name) for name in matrix_methods(asked))
        found.append(MatrixLine(condition, levels, line, _pick(differences, scores)))
    return found


def matrix_columns(asked: Matrix) -> list[str]:
    return ["", *asked.levels, *matrix_methods(asked), "pick"]


def matrix_cells(line: MatrixLine) -> list[str]:
    """A line of the table that has a line for each condition; bold where the interval excludes 0."""
    differences = []
    for one in line.differences:
        text = MISSING if one is None else signed(one.mean)
        text += "" if one is None or one.half_width is None else f" ± {100 * one.half_width:.1f}"
        differences.append(f"**{text}**" if one is not None and one.significant else text)
    return [line.condition, *map(score, line.levels), *differences, line.pick or MISSING]


def matrix_legend(summary: Summary, asked: Matrix) -> str:
    """How figure and table are read, in a paragraph."""
    table = summary.table
    counts = {one.count for line in matrix_lines(summary, asked) for one in line.differences if one is not None}
    few, many = min(counts, default=0), max(counts, default=0)
    metric = metric_title(table.metrics[0])
    text = f"{' and '.join(asked.levels)}: {metric}, per cent. " if asked.levels else ""
    text += f"Methods: {metric} minus that of their baseline, in points"
    protocol = f"Protocol {table.protocol}: {PROTOCOLS[table.protocol]}."
    if many < 2:
        return f"{text}, of {many} seed: no interval, so nothing is significant and nothing is picked. {protocol}"
    return (
        f"{text}, mean ± half of the 95 % interval over {few if few == many else f'{few} to {many}'} seeds; bold "
        f"(in the figure with ▲ ▼): it excludes 0. Pick: of the methods significantly above their baselines the "
        f"one that scores highest; {STAY} where none is. {protocol}"
    )


def _pick(differences: Mapping[str, Estimate | None], scores: Mapping[str, Estimate | None]) -> str:
    better = {
        name: own.mean
        for name, own in scores.items()
        if own is not None and (found := differences[name]) is not None and found.above_zero
    }
    if better:
        return max(better, key=better.__getitem__)  # baselines differ in their batches, so scores count
    return STAY if all(one is not None and one.low is not None for one in differences.values()) else ""
