"""ANML's Table 2 from its units: means over splits, and which differ by the corrected resampled
t-test; its page."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from printed import PRINTED
from scipy import stats
from sets import DIRECTIONS, LEAST, TEST_SHARE
from units import FIT_ROWS, FIT_STEPS, LARGE, RACED, SEARCH_STEPS, SUBSAMPLE, Plan

from methods import FOLDS, METHODS, NEW, OWN
from vicinal.bench.page import grid, plain
from vicinal.bench.results import Line
from vicinal.evaluation.statistics import LEVEL, Estimate

By = Literal["accuracy", "oracle"]
Splits = dict[int, Line]  # a method's units on a set
# Of which the paper says that the first is above the second.
PAIRS = (
    ("pnca", "nca"),
    ("lanml-", "lmnn"),
)


@dataclass(frozen=True)
class Cell:
    """A method on a set.

    Attributes:
        values: its accuracies, one for each split.
        best: whether none is significantly above it.
        few: whether it has fewer splits than others of its row.
    """

    values: tuple[float, ...] = ()
    best: bool = False
    few: bool = False

    @property
    def score(self) -> str:
        """Mean ± standard deviation, per cent.

        >>> Cell((0.97, 0.99)).score, Cell((0.97,)).score, Cell().score
        ('98.0 ± 1.4', '97.0', '')
        """
        if not self.values:
            return ""
        spread = f" ± {100 * np.std(self.values, ddof=1):.1f}" if len(self.values) > 1 else ""
        return f"{100 * np.mean(self.values):.1f}{spread}"

    @property
    def remark(self) -> str:
        return f"({len(self.values)})" if self.few else ""


@dataclass(frozen=True)
class Row:
    """A set.

    Attributes:
        splits: how many it has, of those wanted where these are more.
        complete: whether all of our own methods have all splits.
        printed: what the paper prints for each method, empty where it prints none; with the paper's
            choice of k alone.
    """

    name: str
    splits: str
    cells: tuple[Cell, ...]
    complete: bool
    printed: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return self.name if self.complete else f"{self.name} (incomplete)"


@dataclass(frozen=True)
class View:
    """The table with one choice of k, and what it shows."""

    methods: tuple[str, ...]
    rows: tuple[Row, ...]
    sentences: tuple[str, ...]


def view(lines: Iterable[Line], plan: Plan, by: By) -> View:
    """The best of each set, with all that are not significantly below it.

    Two methods are compared on the splits that both have; a method with fewer splits than the rest
    says so, and one with a single split is shown and compared with none. A mean over fewer splits
    is one of other splits: it alone makes no method the best, but what such a method is
    significantly above is not among the best. A set on which one of our own methods cannot be
    compared yet is shown, and judged later.

    Args:
        lines: lines of units.
        by: ``"accuracy"``, k by cross-validation, or ``"oracle"``, the best k on the test part.
    """
    units = _by_set(lines)
    methods = tuple(m for m in METHODS if m in OWN or any(m in there for there in units.values()))
    rows = list[Row]()
    among_best = list[bool]()
    verdicts: dict[tuple[str, str], list[str]] = {pair: [] for pair in PAIRS}
    for name in plan.sets:
        there = units.get(name, {})
        most = max(map(len, there.values()), default=0)
        compared = {method: own for method, own in there.items() if len(own) > 1}
        judged = set(OWN) <= set(compared)
        ties = _ties(compared, by) if judged else set()
        if judged:
            among_best.append(not ties.isdisjoint(NEW))
            for (ours, theirs), found in verdicts.items():
                if {ours, theirs} <= set(compared):
                    found.append(difference(compared[ours], compared[theirs], by))
        cells = []
        for method in methods:
            values = tuple(line[by] for line in there.get(method, {}).values())
            cells.append(Cell(values, method in ties, 0 < len(values) < most))
        splits = str(most) if most >= plan.splits else f"{most} of {plan.splits}"
        complete = all(len(there.get(m, ())) >= plan.splits for m in OWN)
        rows.append(
            Row(
                name,
                splits,
                tuple(cells),
                complete,
                _printed(name, methods) if by == "oracle" else (),
            )
        )
    return View(methods, tuple(rows), tuple(_sentences(among_best, verdicts)))


def _printed(name: str, methods: Iterable[str]) -> tuple[str, ...]:
    return tuple(
        f"{100 * PRINTED[name][method]:.2f}" if method in PRINTED[name] else ""
        for method in methods
    )


def difference(ours: Mapping[int, Line], theirs: Mapping[int, Line], by: By) -> str:
    """Whether one method differs significantly from another on the splits that both have."""
    shared = sorted(set(ours) & set(theirs))
    if len(shared) < 2:
        return "not significant"
    first = ours[shared[0]]
    found = corrected_resampled_t(
        [ours[number][by] for number in shared],
        [theirs[number][by] for number in shared],
        trained_on=first["trained_on"],
        tested_on=first["tested_on"],
    )
    if found.above_zero:
        return "above"
    return "below" if found.high is not None and found.high < 0 else "not significant"


def corrected_resampled_t(
    values: Sequence[float], others: Sequence[float], *, trained_on: int, tested_on: int
) -> Estimate:
    """Test pairs over random splits of one data set, whose training parts overlap (Nadeau and
    Bengio 2003).

        t = mean(d) / √((1/J + n_test / n_train) s²),   J - 1 degrees of freedom

    The plain paired test takes the J splits for independent and finds differences that are not
    there.

    Args:
        trained_on: records of the training part of a split.
        tested_on: records of its test part.
    """
    differences = np.subtract(values, others)
    count = len(differences)
    mean = float(differences.mean())
    error = float(np.sqrt((1 / count + tested_on / trained_on) * differences.var(ddof=1)))
    if error <= 1e-12:  # rounding: all differences are equal
        return Estimate(mean, mean, mean, count, 1.0 if abs(mean) <= 1e-12 else 0.0)
    half = float(stats.t.ppf((1 + LEVEL) / 2, count - 1)) * error
    return Estimate(
        mean, mean - half, mean + half, count, float(2 * stats.t.sf(abs(mean) / error, count - 1))
    )


def lacking(lines: Sequence[Line], plan: Plan) -> list[str]:
    """What the table lacks: splits that were not measured or that a method cannot serve, fits that
    ran out of steps."""
    units = _by_set(lines)
    failed = Counter((line["method"], line["set"]) for line in lines if "error" in line)
    alike = defaultdict[str, list[str]](list)  # methods by what they lack
    for method in METHODS:
        sets = defaultdict[int, list[str]](list)
        for name in plan.sets:
            there = len(units.get(name, {}).get(method, ()))
            if there + failed[method, name] < plan.splits:
                sets[there].append(name)
        places = [
            f"{count} on {_joined(sets[count], plan)}" for count in sorted(sets, reverse=True)
        ]
        alike["; ".join(places)].append(method)
    splits = f"{plan.splits} split{'s' * (plan.splits > 1)}"
    said = [
        f"Incomplete: {', '.join(alike[places])}. Of {splits}: {places}."
        for places in alike
        if places
    ]
    failures = Counter(
        (line["method"], line["set"], line["error"]) for line in lines if "error" in line
    )
    said += [
        f"{method} fails on {count} splits of {name}: {error}"
        for (method, name, error), count in failures.items()
    ]
    short = Counter(line["method"] for line in lines if not line.get("converged", True))
    if short:
        said.append(
            "Last fits that ran out of steps: "
            f"{', '.join(f'{m} {short[m]}' for m in METHODS if short[m])}."
        )
    return said


def _joined(sets: Sequence[str], plan: Plan) -> str:
    return "every set" if len(sets) == len(plan.sets) else ", ".join(sets)


def _by_set(lines: Iterable[Line]) -> dict[str, dict[str, Splits]]:
    found: dict[str, dict[str, Splits]] = {}
    for line in lines:
        if "error" not in line:
            found.setdefault(line["set"], {}).setdefault(line["method"], {})[line["split"]] = line
    return found


def _ties(compared: Mapping[str, Splits], by: By) -> set[str]:
    """The method of the best mean, and those that neither it nor a method of fewer splits is
    significantly above."""
    means = {
        method: float(np.mean([line[by] for line in own.values()]))
        for method, own in compared.items()
    }
    most = max(map(len, compared.values()))
    best = max(
        (method for method in compared if len(compared[method]) == most), key=means.__getitem__
    )
    rivals = {best} | {method for method in compared if len(compared[method]) < most}
    return {
        method
        for method, own in compared.items()
        if all(difference(compared[rival], own, by) != "above" for rival in rivals - {method})
    }


def _sentences(
    among_best: Collection[bool], verdicts: Mapping[tuple[str, str], Sequence[str]]
) -> Iterable[str]:
    if among_best:
        yield (
            "One of PNCA, LANML⁺, LANML⁻ best or not significantly below the best: "
            f"{sum(among_best)} of "
            f"{len(among_best)} sets."
        )
    for (ours, theirs), found in verdicts.items():
        if found:
            counts = ", ".join(
                f"{word} {found.count(word)}" for word in ("above", "not significant", "below")
            )
            yield f"{ours} against {theirs}, {len(found)} sets, significantly: {counts}."


# -- page -----------------------------------------------------------------------------------------

ABOUT = (
    "Accuracy of k nearest neighbours in per cent, mean ± standard deviation over random splits; "
    "in bold the best and "
    "all that do not differ significantly from it (corrected resampled t-test, Nadeau and Bengio "
    "2003, 95 %). A number "
    "in brackets is that of splits, where a method has fewer."
)
FLATTERS = (
    "As in the paper, with the best k in 1 .. 40 on the test part itself, which flatters every "
    "method. Below each "
    "set stand the means that the paper prints, of 30 splits of its own; it has neither euclidean "
    "nor lda."
)


def tables(lines: Sequence[Line], plan: Plan) -> str:
    """Both choices of k as Markdown, the paper's below."""
    ours, paper = ("\n".join(_markdown(view(lines, plan, by))) for by in ("accuracy", "oracle"))
    means = re.sub(r" ± [\d.]+", "", paper)
    return f"{ours}\n\n{FLATTERS}\n\n{means}\n"


def markdown(lines: Sequence[Line], plan: Plan) -> str:
    """Both tables, what they lack, and how they were measured."""
    parts = [f"# {plan.title}", "", ABOUT, "", tables(lines, plan)]
    if lacks := lacking(lines, plan):
        parts += ["## What is missing", *(f"- {plain(sentence)}" for sentence in lacks), ""]
    parts += ["## How it was measured", *(f"- {sentence}" for sentence in protocol(plan))]
    parts += ["", f"`{plan.command}`"]
    return "\n".join(parts) + "\n"


def protocol(plan: Plan) -> list[str]:
    """How a unit is measured, in sentences."""
    return [
        f"Each split tests a random {TEST_SHARE:.0%} of a set. Scaling, and PCA to {DIRECTIONS} "
        "directions where there "
        f"are more features, are fitted on the training part. Classes with fewer than {LEAST} "
        "samples are left out.",
        f"Parameters and k are chosen by {FOLDS}-fold cross-validation on the training part, on a "
        "stratified "
        f"{SUBSAMPLE:,} rows of it where it has more than {LARGE:,}. Of a method's grid at most "
        f"{plan.budget} points "
        f"are drawn; above {RACED} training rows {plan.raced}, which race: all on one fold, the "
        "best third on three, "
        "the best third of those on all.",
        "Grids are the paper's where it names one. NCA has no dial, so its start and tolerance "
        "are tuned; GMML uses "
        "all pairs; RVML is the linear form with class-based virtual points.",
        f"Iterative methods may take {SEARCH_STEPS} steps of their own kind in the search, and "
        f"{FIT_STEPS} or their "
        "own default, whichever is more, in the fit that follows. The first limit hurts LMNN's "
        "choice of parameters: "
        "it needs some 1,000 steps where LANML needs 20.",
        f"The last fit uses a stratified {FIT_ROWS:,} rows at most; neighbours are looked for "
        "among all training rows.",
    ]


def _markdown(found: View) -> Iterator[str]:
    rows = list[list[str]]()
    for row in found.rows:
        rows.append([row.label, row.splits, *map(_marked, row.cells)])
        rows += [["*the paper*", "", *row.printed]] if row.printed else []
    yield from grid(["set", "splits", *found.methods], rows)
    yield ""
    yield from found.sentences


def _marked(cell: Cell) -> str:
    return f"{f'**{cell.score}**' if cell.best else cell.score} {cell.remark}".rstrip()
