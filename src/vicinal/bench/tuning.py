"""Tuning by class-disjoint cross-validation on the training classes; test records are left out of
the data.

Every row of a table gets as many trials on the same folds, and nothing is tested before every row
has had all of its own. Trial 0 is the row as it stands. A fold is scored by Recall@1 after the last
step, so the number of steps is a setting like others; one that diverged scores 0. The best of many
trials is chosen because it is the best, so its score is a little too high; what counts is the test.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.quasirandom import SobolEngine

from vicinal.bench import results
from vicinal.bench.job import Fold, Job
from vicinal.bench.pool import Task
from vicinal.bench.results import Line, records_of
from vicinal.bench.run import Bench, present
from vicinal.bench.run import chosen as rows_to_run
from vicinal.bench.table import (
    Budget,
    Row,
    Table,
    canonical,
    merged,
    slots_hash,
)
from vicinal.errors import ConfigError, few
from vicinal.files import write_text

FOLDER = "tuning"  # of tables' trials, below that of the results
PROPOSED = 256  # points of a search at most, of which those that were tried are passed over
# A table's folds are evaluated after the last epoch alone.
_LAST_ALONE = ("training.evaluate_every=1000000", "evaluation.restarts=1")

Values = dict[str, str]


# -- what may be tried -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Range:
    """Numbers between two ends: whole ones, or such as are spread over orders of magnitude."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def at(self, place: float) -> str:
        """The value at a place from 0 to 1, as it is written on the command line.

        >>> Range(1, 100, log=True).at(0.5), Range(1, 3, whole=True).at(0.99)
        ('10', '3')
        """
        margin = 0.5 if self.whole else 0.0
        low = self.low - margin
        width = self.high + margin - low
        value = low * (1 + width / low) ** place if self.log else low + place * width
        return f"{value:.0f}" if self.whole else f"{value:.4g}"


Part = Range | tuple[str, ...]  # of a search: numbers, or a list of words
Space = Mapping[str, Part]


def parse(words: Sequence[str]) -> tuple[dict[str, Part], list[str]]:
    """The space that words span (key=low..high, key=low..high:log, key=a,b,c), and the words that
    fix a setting.

    >>> space, fixed = parse(["loss.margin=0.1..0.5", "model.dim=64,128", "training.epochs=5"])
    >>> space["loss.margin"], space["model.dim"], fixed
    (Range(low=0.1, high=0.5, log=False, whole=False), ('64', '128'), ['training.epochs=5'])
    """
    space: dict[str, Part] = {}
    fixed: dict[str, str] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise ConfigError(
                f"a setting is written key=value, key=low..high or key=a,b,c, got {word!r}."
            )
        if key in space or key in fixed:
            raise ConfigError(f"{key} is given twice; name each setting once.")
        if ".." in text:
            space[key] = _range(key, text)
        elif "," in text:
            listed = (part.strip() for part in text.split(","))
            space[key] = tuple(dict.fromkeys(filter(None, listed)))
        else:
            fixed[key] = word
    return space, list(fixed.values())


def _range(key: str, text: str) -> Range:
    ends, _, scale = text.partition(":")
    low, _, high = ends.partition("..")
    whole = all(re.fullmatch(r"[+-]?\d+", end) for end in (low, high))
    with suppress(ValueError):
        found = Range(float(low), float(high), scale == "log", whole)
        if found.low < found.high and (scale == "" or (found.log and found.low > 0)):
            return found
    raise ConfigError(
        f"{key} is searched in low..high with low < high, such as 0.1..0.5, or in "
        f"low..high:log above 0, such as 1e-5..1e-3:log, got {text!r}."
    )


def words_of(values: Mapping[str, str]) -> list[str]:
    """Values as settings; a key ``a+b`` gives both the same value.

    >>> words_of({"loss.lambda1+loss.lambda2": "0.5"})
    ['loss.lambda1=0.5', 'loss.lambda2=0.5']
    """
    return [f"{key}={value}" for keys, value in values.items() for key in keys.split("+")]


def draw(
    space: Space, count: int, seed: int, known: Iterable[Mapping[str, Any]] = ()
) -> list[Values]:
    """The values of ``count`` trials, or of as many as there are, none of them known.

    They are spread at random over the space, by a scrambled Sobol sequence. Equal arguments give
    equal trials, so a search continues after a stop.
    """

    order = sorted(space)

    def key(values: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(canonical(values.get(name)) for name in order)

    if not order:
        return []
    tried = set(map(key, known))
    fresh: dict[tuple[Any, ...], Values] = {}
    drawn = SobolEngine(len(order), scramble=True, seed=seed)  # type: ignore[no-untyped-call]
    for places in drawn.draw(PROPOSED, dtype=torch.float64).tolist():
        values = {
            name: part.at(place) if isinstance(part, Range) else part[int(place * len(part))]
            for name, place in zip(order, places, strict=True)
            for part in (space[name],)
        }
        if len(fresh) < count and key(values) not in tried:
            fresh.setdefault(key(values), values)
    return list(fresh.values())


def _within(part: Part, text: str) -> bool:
    """Whether a value is one of the setting's."""
    if not isinstance(part, Range):
        return text in part
    try:
        value = float(text)
    except ValueError:
        return False
    slack = 1e-3 * abs(value)  # four digits are written
    return part.low - slack <= value <= part.high + slack


# -- the search ------------------------------------------------------------------------------------


@dataclass
class Trial:
    """One choice of settings, and its score on each fold; 0 if it diverged."""

    values: Values
    scores: dict[int, float] = field(default_factory=dict)

    @property
    def by_fold(self) -> tuple[float, ...]:
        return tuple(self.scores[fold] for fold in sorted(self.scores))


class Search:
    """The trials of a row: those that are recorded, with their values, then new ones."""

    def __init__(self, table: Table, row: Row, budget: Budget) -> None:
        self.table = table
        self.row = row
        self.budget = budget
        self.space, fixed = parse([*table.search, *row.search])
        if fixed:
            raise ConfigError(f"row {row.name!r}: search is given as ranges, got {fixed[0]!r}.")
        self.slots = slots_hash(merged(*table.layers(row)))
        self.trials = [Trial({})]

    def recorded(self, lines: Iterable[Line], records: str | None) -> None:
        """Take what is recorded of this row on the same folds of the same records; where these are
        not known, of those that were measured last."""
        cut = [self.budget.folds, self.budget.seed]
        own = [line for line in lines if line["slots"] == self.slots and line["fold"][1:] == cut]
        if own and records is None:
            records = records_of(max(own, key=lambda line: str(line["created"])))
        for line in sorted(own, key=lambda line: int(line["trial"])):
            values = line["values"]
            parts = self.space.items() if values else ()  # trial 0 may be anywhere
            inside = all(_within(part, str(values.get(key))) for key, part in parts)
            if inside and records_of(line) == records and "score" in line:
                self.take(line)
        del self.trials[self.budget.trials :]

    def take(self, line: Line) -> None:
        """Note a fold's result."""
        trial = next((one for one in self.trials if one.values == line["values"]), None)
        if trial is None:
            trial = Trial(line["values"])
            self.trials.append(trial)
        trial.scores[line["fold"][0]] = line["score"]

    def drawn(self) -> list[Trial]:
        """The trials that are missing still."""
        missing = self.budget.trials - len(self.trials)
        if missing < 1:
            return []
        slots = self.job(0, ()).config().slots()
        own = {}  # what the row has, of several settings for one value the first's
        for keys in self.space:
            slot, _, name = keys.split("+")[0].partition(".")
            own[keys] = slots.get(slot, {}).get(name or "name")
        known = [trial.values or own for trial in self.trials]
        return [Trial(values) for values in draw(self.space, missing, self.budget.seed, known)]

    def job(self, fold: int, words: Sequence[str]) -> Job:
        cut = (fold, self.budget.folds, self.budget.seed)
        return Job(self.table, self.row, "fold", self.budget.seed, (*words, *_LAST_ALONE), cut)

    def whole(self) -> bool:
        """Whether all trials that there are have all of their folds."""
        scored = all(len(trial.scores) == self.budget.folds for trial in self.trials)
        return scored and not self.drawn()

    def best(self) -> Trial:
        """The trial of the highest mean; of equal ones the first."""
        return max(self.trials, key=lambda trial: sum(trial.by_fold))


def tune_table(
    table: Table, budget: Budget, bench: Bench, *, recorded_only: bool = False
) -> Table | None:
    """The table at the settings that its trials chose; None while some are missing, with which the
    same call continues.

    Trials go round by round over all rows, to ``folder/tuning/TABLE.trials.jsonl``, and the choices
    to ``folder/tuning/TABLE.jsonl``. A row that stands in several tables is tuned once.

    Args:
        recorded_only: run nothing; rows without all of their trials stay as they are.
    """
    if budget.trials < 1 or budget.folds < 2:
        raise ConfigError(
            f"tuning needs 1 trial and 2 folds at least, got {budget.trials} and {budget.folds}."
        )
    place = bench.folder / FOLDER
    searches = [Search(table, row, budget) for row in table.rows]
    limits = () if recorded_only else rows_to_run(table, bench.rows)
    wanted = [one for one in searches if one.row.name in limits]
    for one in wanted:  # what cannot be composed, located or cut is rejected before any run
        for values in ({}, *draw(one.space, 1, budget.seed)):
            config = one.job(0, words_of(values)).located()
        Fold(config.data, budget.folds, 0, budget.seed, test=False).load()
    now = present(one.job(0, ()) for one in wanted)
    files = sorted(place.glob("*.trials.jsonl"))  # of all tables
    lines = [line for path in files for line in results.read(path)]
    for one in searches:
        one.recorded(lines, now.get(one.job(0, ()).source()))
    for one in wanted:
        one.trials += one.drawn()
    if wanted:
        _run(wanted, bench, place)
    chosen = {one.row.name: one for one in searches if one.whole()}
    if any(one.row.name not in chosen for one in wanted):
        bench.console.line(
            f"{table.name}: trials are missing. Nothing is tested before every row has had its "
            "trials; run the same command to continue",
            warning=True,
        )
        return None
    if wanted:
        written = [
            {
                "row": name,
                **asdict(budget),
                "chosen": one.best().values,
                "trial": one.trials.index(one.best()),
                "trials": len(one.trials),
                "held_out": list(one.best().by_fold),
            }
            for name, one in chosen.items()
        ]
        write_text(place / f"{table.name}.jsonl", "".join(map(results.written, written)))
    rows = []
    for row in table.rows:
        if row.name in chosen:
            one = chosen[row.name]
            row = replace(
                row,
                extra=(*row.extra, *words_of(one.best().values)),
                trials=(row.trials or 1) - 1 + len(one.trials),  # trial 0 had some before it
                held_out=one.best().by_fold,
            )
        rows.append(row)
    return table.replace(
        name=f"{table.name}-tuned",
        protocol="final",
        finding=table.findings.get("tuned", ""),
        rows=tuple(rows),
        tuned=budget,
    )


def _run(searches: Sequence[Search], bench: Bench, place: Path) -> None:
    """Run the missing folds of all trials, round by round over the rows."""
    table = searches[0].table
    todo: dict[Task, tuple[Search, Line]] = {}
    missing = [
        (number, fold, search, trial)
        for search in searches
        for number, trial in enumerate(search.trials)
        for fold in range(search.budget.folds)
        if fold not in trial.scores
    ]
    for number, fold, search, trial in sorted(missing, key=lambda one: one[0]):
        job = search.job(fold, words_of(trial.values))
        job.located()  # raises before anything runs
        name = f"{search.row.name}, trial {number}, fold {fold + 1}"
        asked = {
            "table": table.name,
            "row": search.row.name,
            "slots": search.slots,
            "fold": list(job.fold),
            "trial": number,
            "values": trial.values,
        }
        todo[replace(job.task(), name=name)] = search, asked
    bench.console.line(
        f"{table.name}: {len(todo)} runs to do, of {few([each.row.name for each in searches])} on "
        f"{searches[0].budget.folds} folds of the training classes"
    )

    def record(task: Task, found: list[Line]) -> str:
        search, asked = todo[task]
        line = {**found[0], **asked}
        results.append(place / f"{table.name}.trials.jsonl", line)
        search.take(line)
        return "diverged" if "diverged" in line else f"R@1 {100 * line['score']:.1f}"

    left, failures = bench.do(todo, record, f"tuning {table.name}")
    if failures or left:
        bench.console.line(
            f"{len(failures)} runs of trials failed, {left} were not started", warning=True
        )
