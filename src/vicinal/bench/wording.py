"""Estimates as text, in points of a per cent, with the signs and dashes that tables have."""

from collections.abc import Sequence

from vicinal.bench.statistics import Estimate
from vicinal.bench.summary import CLAIM_SEEDS, Difference, Summary, SummaryRow
from vicinal.bench.tables import PROTOCOLS, Budget, Table
from vicinal.reports.tables import MISSING, metric_title


def score(estimate: Estimate | None) -> str:
    """
    >>> score(Estimate(0.6214, 0.6101, 0.6327, 5)), score(Estimate(0.5, None, None, 1)), score(None)
    ('62.1 ± 1.1', '50.0', '–')
    """
    if estimate is None:
        return MISSING
    half = estimate.half_width
    return f"{100 * estimate.mean:.1f}" + ("" if half is None else f" ± {100 * half:.1f}")


def row_score(row: SummaryRow, metric: str) -> str:
    """A row's score, with the number of seeds behind it where not all of them have it."""
    estimate = row.scores.get(metric)
    return score(estimate) + (f" ({estimate.count})" if estimate is not None and estimate.count < row.done else "")


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
    heads += ["held out"] if _has_held_out(summary) else []
    if any(row.difference for row in summary.rows):
        first = metric_title(summary.table.metrics[0])
        heads += [f"{first} to twin", "over classes", "p (Holm)", "shows from"]
    if any(row.published for row in summary.rows):
        heads.append("published")
    return [*heads, "trials", "seeds", "marks"]


def cells(summary: Summary, row: SummaryRow) -> list[str]:
    """One printed line, as long as ``columns``."""
    texts = [row.name, *(row_score(row, metric) for metric in summary.table.metrics)]
    if _has_held_out(summary):
        texts.append(MISSING if row.held_out is None else f"{100 * row.held_out:.1f}")
    if any(other.difference for other in summary.rows):
        texts += difference_texts(row.difference)
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
    if any(estimate.count < row.done for row in summary.rows for estimate in row.scores.values()):
        said.append("A number in brackets is that of the seeds that have a score, where not all do.")
    if any(row.difference for row in summary.rows):
        said.append(
            "To twin: the mean of the paired differences to the plain twin with the same seeds, its 95 % interval over "
            "seeds, and the interval of the Recall@1 difference over test classes drawn anew (bootstrap). p is of the "
            "paired t-test, corrected by Holm over the table. Shows from: the true difference that this many seeds "
            f"would find in 4 of 5 cases. A claim (✓) needs {CLAIM_SEEDS} seeds, an interval above 0 and p below 0.05."
        )
    if table.tuned:
        said.append(tuning(table.tuned))
    if _has_held_out(summary):
        whose = "folds of the chosen trial" if table.tuned else "seeds, of the step that was tested"
        said.append(
            f"Held out: Recall@1 on held-out training classes, mean over the {whose}. What is best is chosen by it."
        )
    said.append("Trials: how many settings were tried before these were chosen, on held-out training classes.")
    return said


def tuning(budget: Budget) -> str:
    """How the rows of a tuned table came by their settings."""
    folds = f"on {budget.folds} class-disjoint folds of the training classes"
    if budget.trials == 1:
        return (
            f"Held out: each row as it stands was scored by Recall@1 after the last step {folds}; then it was trained "
            "on all training classes and tested once."
        )
    return (
        f"Tuned: of each tuned row {budget.trials} settings were tried, its own first, {folds}, rate, steps and margin "
        "in the same ranges for a method and its twin; the best by Recall@1 after the last step was trained on all "
        "training classes and tested once."
    )


def best(summary: Summary) -> str:
    """Which rows held-out classes choose, and how these do on the test classes; empty for a table that asks nothing."""
    found = summary.contest
    if found is None:
        return ""
    if found.lacking:
        few = ", ".join(found.lacking[:3]) + (" and others" if len(found.lacking) > 3 else "")
        name = summary.table.name.removesuffix("-tuned").removesuffix(f"-{summary.table.protocol}")
        return (
            f"Which row is the best is not chosen yet: {few} have no held-out score of their own; "
            f"`vicinal bench {name} --trials 1` gives each row one."
        )
    first = metric_title(summary.table.metrics[0])
    named = "; ".join(
        f"of the {one.kind} {one.row} (held out {100 * one.held_out:.1f}, test {first} {score(one.test)})"
        for one in found.best
    )
    last = (
        f". On the test classes the first is {interval(found.difference)} from the second" if found.difference else ""
    )
    return f"Chosen on held-out training classes: {named}{last}."


def command(table: Table) -> str:
    """How a table is run, or its reduced form, or under another protocol than it says itself."""
    name, options = table.name, f"--seeds {table.seeds}"
    if table.tuned:
        folds = "" if table.tuned.folds == Budget(1).folds else f" --folds {table.tuned.folds}"
        name, options = name.removesuffix("-tuned"), f"--trials {table.tuned.trials}{folds} {options}"
    elif name.endswith(f"-{table.protocol}"):
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


def _has_held_out(summary: Summary) -> bool:
    return any(row.held_out is not None for row in summary.rows)


def difference_texts(difference: Difference | None) -> Sequence[str]:
    """Over seeds, over classes, p, and the smallest effect that would have shown."""
    if difference is None:
        return (MISSING,) * 4
    found = interval(difference.over_seeds) + (" ✓" if difference.claimed else "")
    smallest = MISSING if difference.smallest is None else f"{100 * difference.smallest:.1f}"
    return found, interval(difference.over_classes), probability(difference.p), smallest
