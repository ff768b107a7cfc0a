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
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch.quasirandom import SobolEngine

from vicinal.bench import results
from vicinal.bench.job import Job
from vicinal.bench.results import Line, Store
from vicinal.bench.run import Bench, chosen, present
from vicinal.bench.table import Budget, Row, Table, canonical, merged, slots_hash
from vicinal.errors import ConfigError, few
from vicinal.files import read_lines, write_text

FOLDER = "tuning"  # of tables' trials, below that of the results
PROPOSED = 256  # points of a search at most, of which those that were tried are passed over
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


# -- the search ------------------------------------------------------------------------------------


def trials(table: Table, row: Row, budget: Budget) -> list[Values]:
    """What is tried of a row: the row as it stands, then what is drawn."""
    space, fixed = parse([*table.search, *row.search])
    if fixed:
        raise ConfigError(f"row {row.name!r}: search is given as ranges, got {fixed[0]!r}.")
    slots = Job(table, row, "trained", 0).config().slots()
    own = {}  # what the row has, of several settings for one value the first's
    for keys in space:
        slot, _, name = keys.split("+")[0].partition(".")
        own[keys] = slots.get(slot, {}).get(name or "name")
    return [{}, *draw(space, budget.trials - 1, budget.seed, [own])]


def tune_table(
    table: Table, budget: Budget, bench: Bench, *, recorded_only: bool = False
) -> Table | None:
    """The table at the settings that its trials chose; None while some are missing, with which the
    same call continues.

    Trials go round by round over all rows, to ``folder/tuning/TABLE.folds.jsonl``, and the choices
    to ``folder/tuning/TABLE.choices.jsonl``. A row that stands in several tables is tuned once.

    Args:
        recorded_only: run nothing; rows without a recorded choice stay as they are.
    """
    if budget.trials < 1 or budget.folds < 2:
        raise ConfigError(
            f"tuning needs 1 trial and 2 folds at least, got {budget.trials} and {budget.folds}."
        )
    path = bench.folder / FOLDER / f"{table.name}.choices.jsonl"
    known = (one for one in read_lines(path) if asdict(budget).items() <= one.items())
    choices = {one["slots"]: one for one in known}
    names = () if recorded_only else chosen(table, bench.rows)
    rows = [row for row in table.rows if row.name in names]
    if rows:
        found = _choose(table, rows, budget, bench)
        if found is None:
            return None
        choices |= found
        write_text(path, "".join(map(results.written, choices.values())))
    tuned = []
    for row in table.rows:
        if one := choices.get(_slots(table, row)):
            row = replace(
                row,
                extra=(*row.extra, *words_of(one["chosen"])),
                trials=(row.trials or 1) - 1 + one["tried"],  # trial 0 had some before it
                held_out=tuple(one["held_out"]),
            )
        tuned.append(row)
    return table.replace(
        name=f"{table.name}-tuned",
        protocol="final",
        finding=table.findings.get("tuned", ""),
        rows=tuple(tuned),
        tuned=budget,
    )


def _slots(table: Table, row: Row) -> str:
    return slots_hash(merged(*table.layers(row)))


@dataclass(frozen=True)
class Trial:
    """One choice of a row's settings, and what trains its folds."""

    row: Row
    number: int
    values: Values
    jobs: Sequence[Job]


def _choose(
    table: Table, rows: Sequence[Row], budget: Budget, bench: Bench
) -> dict[str, Line] | None:
    """Run the missing folds of all trials, round by round over the rows; the choices, by their
    rows' slots."""
    cuts = [(fold, budget.folds) for fold in range(budget.folds)]
    tried = [
        Trial(
            row,
            number,
            values,
            [Job(table, row, "trained", budget.seed, words, cut) for cut in cuts],
        )
        for row in rows
        for number, values in enumerate(trials(table, row, budget))
        for words in (words_of(values),)
    ]
    tried.sort(key=lambda trial: trial.number)
    every = [job for trial in tried for job in trial.jobs]
    for trial in tried[: len(rows)]:  # too few classes are an error before anything runs
        trial.jobs[0].cut().data.load()
    now = present(every)
    place = bench.folder / FOLDER
    store = Store(place, "*.folds.jsonl")

    def scores(trial: Trial) -> list[float]:
        lines = (store.find(job.identity()).get(now[job.source()]) for job in trial.jobs)
        return [line["metrics"]["recall@1"] for line in lines if line]

    missing = {
        job.key: (place / f"{table.name}.folds.jsonl", job)
        for job in every
        if now[job.source()] not in store.find(job.identity())
    }
    bench.console.line(
        f"{table.name}: {len(missing)} runs to do, of {few([row.name for row in rows])} on "
        f"{budget.folds} folds of the training classes"
    )
    bench.run(missing.values(), store, f"tuning {table.name}")
    if any(len(scores(trial)) < budget.folds for trial in tried):
        bench.console.line(
            f"{table.name}: trials are missing. Nothing is tested before every row has had its "
            "trials; run the same command to continue",
            warning=True,
        )
        return None
    choices = {}
    for row in rows:
        own = [trial for trial in tried if trial.row is row]
        best = max(own, key=lambda trial: sum(scores(trial)))  # of equal ones the first
        choices[_slots(table, row)] = {
            "row": row.name,
            "slots": _slots(table, row),
            **asdict(budget),
            "chosen": best.values,
            "trial": best.number,
            "tried": len(own),
            "held_out": scores(best),
        }
    return choices
