"""Tuning by class-disjoint cross-validation on the training classes; test records are left out of
the data.

Trial 0 is the experiment as it stands, so that no search ends below its start. A trial's score is
the mean over folds of Recall@1 on the classes that the fold held out, after the last step, so the
number of steps is a setting like others (``training.epochs=2,5,10``). A fold that diverged scores
0. The best of many trials is chosen because it is the best, so its score is a little too high; what
counts is the test.

``tune`` searches for one experiment. ``tune_table`` gives every row of a table as many trials, on
the same folds; nothing is tested before every row has had all of its own. Optuna's samplers draw
what is tried: the extra ``tune``.
"""

import math
import re
import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from vicinal.bench import results
from vicinal.bench.job import Fold, Job
from vicinal.bench.pool import Done, Task
from vicinal.bench.results import Line, fingerprint
from vicinal.bench.run import Bench
from vicinal.bench.run import chosen as rows_to_run
from vicinal.bench.table import (
    UNTRAINED_ROWS,
    Budget,
    Row,
    Table,
    canonical,
    experiment,
    merged,
    slots_hash,
)
from vicinal.errors import ConfigError, RunError
from vicinal.evaluation.statistics import Estimate, spread_of, t_interval
from vicinal.files import write_text

FOLDER = "tuning"  # of tables' trials, below that of the results
SEARCHERS = ("random", "tpe")
_LAST_ALONE = (
    "training.evaluate_every=1000000",
    "evaluation.restarts=1",
)  # the last epoch alone is evaluated

# -- what may be tried: key=low..high, key=low..high:log, key=a,b,c; key+key=... is one value for
# both ----------------

Space = Mapping[str, Any]  # Optuna's distributions: of whole numbers, of numbers, and of words


def require_optuna() -> Any:
    """The package that draws trials, or an error that says how to install it."""
    try:
        import optuna
    except ImportError:
        raise ConfigError(
            "a search needs optuna, which is not installed. Run `pip install 'vicinal[tune]'`."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna


def parse(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The space that some words span, and the words that fix a setting.

    >>> space, fixed = parse(["loss.margin=0.1..0.5", "model.dim=64,128", "training.epochs=5"])
    >>> space["loss.margin"], space["model.dim"].choices, fixed
    (FloatDistribution(high=0.5, log=False, low=0.1, step=None), ('64', '128'),
    ['training.epochs=5'])
    """
    space: dict[str, Any] = {}
    fixed: list[str] = []
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise ConfigError(
                f"a setting is written key=value, key=low..high or key=a,b,c, got {word!r}."
            )
        if key in space or any(other.startswith(f"{key}=") for other in fixed):
            raise ConfigError(f"{key} is given twice; name each setting once.")
        if ".." in text:
            space[key] = _range(key, text)
        elif "," in text:
            choices = dict.fromkeys(part.strip() for part in text.split(",") if part.strip())
            space[key] = require_optuna().distributions.CategoricalDistribution(tuple(choices))
        else:
            fixed.append(word)
    return space, fixed


def _range(key: str, text: str) -> Any:
    ends, _, scale = text.partition(":")
    texts = [end.strip() for end in ends.split("..", 1)]
    try:
        low, high = map(float, texts)
    except ValueError:
        low = high = math.nan
    log = scale == "log"
    whole = all(re.fullmatch(r"-?\d+", end) for end in texts)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigError(
            f"{key} is searched in low..high with low < high, such as 0.1..0.5, got {text!r}."
        )
    if scale not in ("", "log"):
        raise ConfigError(f"{key} is searched on a plain scale or on `:log`, got `:{scale}`.")
    if log and (whole or low <= 0):
        raise ConfigError(
            f"{key} is searched on a log scale, which starts above 0 and has no whole numbers, "
            f"got {text!r}. List them, such as {key}=1,2,4."
        )
    kinds = require_optuna().distributions
    if whole:
        return kinds.IntDistribution(int(low), int(high))
    return kinds.FloatDistribution(low, high, log=log)


def words_of(values: Mapping[str, str]) -> list[str]:
    """Values as settings; a key ``a+b`` gives both the same value.

    >>> words_of({"loss.lambda1+loss.lambda2": "0.5"})
    ['loss.lambda1=0.5', 'loss.lambda2=0.5']
    """
    return [f"{key}={value}" for keys, value in values.items() for key in keys.split("+")]


def draw(
    space: Space,
    count: int,
    seed: int,
    *,
    known: Sequence[tuple[Mapping[str, Any], float]] = (),
    searcher: str = "random",
) -> list[dict[str, str]]:
    """The values of ``count`` trials, or of as many as there are.

    They are spread at random over the space, by a scrambled Sobol sequence; where it holds no real
    numbers, no combination comes twice. ``tpe`` is Optuna's tree-structured Parzen estimator
    (Bergstra et al. 2011). Equal arguments give equal trials, so a search continues after a stop.

    Args:
        known: values that were tried, with their scores.
    """
    optuna = require_optuna()
    kinds = optuna.distributions
    scales = {}
    for key, part in sorted(space.items()):  # words by their place: a sequence has no words
        words = isinstance(part, kinds.CategoricalDistribution) and searcher == "random"
        scales[key] = kinds.IntDistribution(0, len(part.choices) - 1) if words else part
    if not scales:
        return []
    tried = [
        (place, score)
        for values, score in known
        if (place := _place(space, scales, values)) is not None
    ]
    samplers = optuna.samplers
    whole = not any(isinstance(part, kinds.FloatDistribution) for part in space.values())
    if searcher == "tpe":  # seeded anew each time: the same seed would draw the same first trials
        sampler = samplers.TPESampler(seed=seed * 10_007 + len(known))
    elif whole:
        sampler = samplers.BruteForceSampler(seed=seed)
        sizes = (
            len(part.choices) if hasattr(part, "choices") else part.high - part.low + 1
            for part in space.values()
        )
        count = min(count, math.prod(sizes) - len({str(place) for place, _ in tried}))
    else:
        sampler = samplers.QMCSampler(scramble=True, seed=seed, warn_independent_sampling=False)
        # the sequence starts after a first trial of any values
        tried = [({key: part.low for key, part in scales.items()}, 0.0)]
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for place, score in tried:
        study.add_trial(optuna.trial.create_trial(params=place, distributions=scales, value=score))
    asked = [study.ask(scales).params for _ in range(count)]
    return [{key: _text(space[key], values[key]) for key in scales} for values in asked]


def _text(part: Any, value: Any) -> str:
    """A value as it is written on the command line."""
    if hasattr(part, "choices"):
        return value if isinstance(value, str) else str(part.choices[value])
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _place(space: Space, scales: Space, values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Values as the sampler takes them; None where they are no point of the space."""
    found: dict[str, Any] = {}
    for key, part in space.items():
        value = canonical(values.get(key))
        if hasattr(part, "choices"):
            places = [n for n, choice in enumerate(part.choices) if canonical(choice) == value]
            if not places:
                return None
            found[key] = part.choices[places[0]] if scales[key] is part else places[0]
            continue
        try:
            number = float(value)
        except (TypeError, ValueError):
            return None
        slack = 1e-3 * abs(number)  # four digits are written
        if not part.low - slack <= number <= part.high + slack:
            return None
        number = min(part.high, max(part.low, number))
        found[key] = int(number) if isinstance(part.low, int) else number
    return found


# -- trials and the choice -------------------------------------------------------------------------


@dataclass
class Trial:
    """One choice of settings, its score on each fold, and the epoch at which each was best; 0 if it
    diverged."""

    number: int
    values: dict[str, str]
    scores: dict[int, float] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)

    @property
    def by_fold(self) -> tuple[float, ...]:
        return tuple(self.scores[fold] for fold in sorted(self.scores))

    @property
    def score(self) -> Estimate:
        """The mean over folds with its interval; of the best trial a little too high, since it was
        chosen by it."""
        return t_interval(self.by_fold)

    def take(self, line: Mapping[str, Any]) -> None:
        fold = line["fold"][0]
        self.scores[fold] = line["score"]
        self.epochs[fold] = line.get("epoch", 0)


@dataclass(frozen=True)
class Chosen:
    """The best trial.

    Attributes:
        trials: among how many.
        alike: for each setting the values of all trials within one standard error of the best: how
            much it matters.
    """

    trial: Trial
    alike: Mapping[str, tuple[str, ...]]
    trials: int

    @property
    def spread(self) -> float:
        """The standard deviation over folds."""
        return spread_of(self.trial.by_fold)

    @property
    def epochs(self) -> list[int]:
        """The epoch at which each fold was best."""
        return [self.trial.epochs[fold] for fold in sorted(self.trial.epochs)]

    def described(self) -> dict[str, Any]:
        return {
            "chosen": self.trial.values,
            "trial": self.trial.number,
            "held_out": list(self.trial.by_fold),
            "spread": self.spread,
            "within_one_standard_error": {key: list(values) for key, values in self.alike.items()},
            "epochs": self.epochs,
        }


def choose(trials: Sequence[Trial]) -> Chosen:
    """Choose the trial of the highest mean; of equal ones the first."""
    if not trials:
        raise RunError(
            "no trial has finished all of its folds. Their logs are in the folders below runs/."
        )
    best = max(trials, key=lambda trial: (trial.score.mean, -trial.number))
    least = best.score.mean - spread_of(best.by_fold) / len(best.by_fold) ** 0.5
    near = [trial.values for trial in trials if trial.score.mean >= least]
    keys = sorted({key for trial in trials for key in trial.values})
    alike = {
        key: tuple(sorted({values.get(key, "(as it is)") for values in near}, key=_order))
        for key in keys
    }
    return Chosen(best, alike, len(trials))


def _order(text: str) -> tuple[int, float, str]:
    """Numbers by their size, then words."""
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text


def _recorder(todo: Mapping[Task, tuple[Trial, Line]], journal: Path) -> Done:
    """Append each fold as it comes to the journal: what was found, then what the task was asked."""

    def record(task: Task, found: list[Line]) -> str:
        trial, asked = todo[task]
        line = {**found[0], **asked, "trial": trial.number, "values": trial.values}
        results.append(journal, line)
        trial.take(line)
        return "diverged" if "diverged" in line else f"R@1 {100 * line['score']:.1f}"

    return record


# -- the search ------------------------------------------------------------------------------------


def tune(
    source: str,
    words: Sequence[str],
    searched: Sequence[str],
    budget: Budget,
    bench: Bench,
) -> tuple[Chosen, str]:
    """Search for one experiment; return the choice among the trials that have all of their folds,
    and the command that trains it.

    Each fold is appended to ``tuning.trials.jsonl`` as it comes, the choice is written to
    ``tuning.jsonl``.

    Args:
        source: a preset or an experiment file; empty where the data decide.
        words: settings that stay, as on the command line.
        searched: what is tried, as ``parse`` reads it.
    """
    if not searched:
        raise ConfigError(
            "nothing to search: give at least one setting as key=low..high, key=low..high:log or "
            "key=a,b,c."
        )
    table = experiment(source, words).replace(search=tuple(searched))
    (found,) = _search(table, budget, bench, bench.folder, ())
    choice = choose(found.scored())
    _write(table, {found.row.name: choice}, bench.folder, budget)
    command = ["vicinal", "train", *([source] if source else [])]
    for word in (*words, *words_of(choice.trial.values)):
        command += ["--data", word[5:]] if word.startswith("data=") else [word]
    return choice, shlex.join(command)


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
    place = bench.folder / FOLDER
    searches = _search(table, budget, bench, place, _LAST_ALONE, recorded_only=recorded_only)
    chosen = {one.row.name: choose(one.trials) for one in searches if one.whole()}
    if not recorded_only:
        if not rows_to_run(table, bench.rows) - {*UNTRAINED_ROWS} <= chosen.keys():
            bench.console.line(
                f"{table.name}: trials are missing. Nothing is tested before every row has had its "
                "trials; run the same command to continue",
                warning=True,
            )
            return None
        _write(table, chosen, place, budget)
    rows = []
    for row in table.rows:
        if row.name in chosen:
            best = chosen[row.name]
            row = replace(
                row,
                extra=(*row.extra, *words_of(best.trial.values)),
                trials=(row.trials or 1) - 1 + best.trials,  # trial 0 had some before it
                held_out=best.trial.by_fold,
            )
        rows.append(row)
    return table.replace(
        name=f"{table.name}-tuned",
        protocol="final",
        finding=table.findings.get("tuned", ""),
        rows=tuple(rows),
        tuned=budget,
    )


def _search(
    table: Table,
    budget: Budget,
    bench: Bench,
    place: Path,
    words: Sequence[str],
    *,
    recorded_only: bool = False,
) -> list["RowSearch"]:
    """Every row with its trials, after running those that are missing of the rows to run."""
    if budget.trials < 1 or budget.folds < 2:
        raise ConfigError(
            f"tuning needs 1 trial and 2 folds at least, got {budget.trials} and {budget.folds}."
        )
    if budget.searcher not in SEARCHERS:
        raise ConfigError(f"--searcher is {' or '.join(SEARCHERS)}, got {budget.searcher!r}.")
    known: dict[tuple[Any, ...], list[Line]] = {}  # of all tables by row, trial, folds and seed
    for path in sorted(place.glob("*.trials.jsonl")):
        lines, notes = results.read(path)
        for note in notes:
            bench.console.line(note, warning=True)
        for line in lines:
            if not bench.fresh or line.get("code") == fingerprint():
                known.setdefault((line["slots"], line["trial"], *line["fold"][1:]), []).append(line)
    searches = [RowSearch(table, row, budget, words, known) for row in table.rows]
    if not recorded_only:
        wanted = [one for one in searches if one.row.name in rows_to_run(table, bench.rows)]
        for one in wanted:
            one.check(bench.data)
        # at random all trials are known at once; each of `tpe` follows from those before it
        size = budget.trials if budget.searcher == "random" else 1
        for first in range(0, budget.trials, size):
            _run(wanted, range(first, first + size), bench, place)
    return searches


def _write(table: Table, chosen: Mapping[str, Chosen], place: Path, budget: Budget) -> None:
    lines = [{"row": name, **best.described(), **asdict(budget)} for name, best in chosen.items()]
    write_text(place / f"{table.name}.jsonl", "".join(map(results.written, lines)))


class RowSearch:
    """The trials of a row, with what is recorded of them; a recorded trial keeps its values."""

    def __init__(
        self,
        table: Table,
        row: Row,
        budget: Budget,
        words: Sequence[str],
        known: Mapping[tuple[Any, ...], list[Line]],
    ) -> None:
        self.table = table
        self.row = row
        self.budget = budget
        self.words = tuple(words)
        self.space, fixed = parse([*table.search, *row.search])
        if fixed:
            raise ConfigError(f"row {row.name!r}: search is given as ranges, got {fixed[0]!r}.")
        self.slots = slots_hash(merged(*table.layers(row)))
        self.trials = [Trial(0, {})]
        self._known = known
        self._drawn: list[dict[str, str]] | None = None
        for line in self._recorded(0):
            self.trials[0].take(line)
        while len(self.trials) < budget.trials and self._recorded(len(self.trials)):
            self.trial(len(self.trials))

    def _recorded(self, number: int) -> list[Line]:
        key = (self.slots, number, self.budget.folds, self.budget.seed)
        lines = self._known.get(key, [])
        return [
            line
            for line in lines
            if not number or _place(self.space, self.space, line["values"]) is not None
        ]

    def trial(self, number: int) -> Trial | None:
        """A trial by its number; None where all of the space has been tried before it."""
        if number < len(self.trials):
            return self.trials[number]
        lines = self._recorded(number)
        values = dict(lines[-1]["values"]) if lines else self._next(number)
        if values is None:
            return None
        self.trials.append(Trial(number, values))
        for line in lines:
            if line["values"] == values:
                self.trials[number].take(line)
        return self.trials[number]

    def _next(self, number: int) -> dict[str, str] | None:
        if not self.space:
            return None
        slots = self.job(0, ()).config().slots()
        own = {key: _setting(slots, key) for key in self.space}
        if self.budget.searcher == "tpe":
            known = [
                (trial.values or own, trial.score.mean) for trial in self.trials if trial.scores
            ]
            return draw(self.space, 1, self.budget.seed, known=known, searcher="tpe")[0]
        if self._drawn is None:
            self._drawn = draw(
                self.space, self.budget.trials - 1, self.budget.seed, known=[(own, 0.0)]
            )
        return self._drawn[number - 1] if number <= len(self._drawn) else None

    def job(self, fold: int, words: Sequence[str]) -> Job:
        budget = self.budget
        cut = (fold, budget.folds, budget.seed)
        return Job(self.table, self.row, "fold", budget.seed, (*words, *self.words), cut)

    def check(self, data: str) -> None:
        """Reject before any run what cannot be composed, located or cut into folds."""
        for values in ({}, *(draw(self.space, 1, self.budget.seed) if self.space else ())):
            config = replace(self.job(0, words_of(values)), data=data).located()
        Fold(config.data, self.budget.folds, 0, self.budget.seed, test=False).load()

    def scored(self) -> list[Trial]:
        """The trials that have all of their folds."""
        return [trial for trial in self.trials if len(trial.scores) == self.budget.folds]

    def whole(self) -> bool:
        """Whether all trials that there are have all of their folds."""
        return len(self.scored()) == len(self.trials) and (
            len(self.trials) == self.budget.trials or self.trial(len(self.trials)) is None
        )


def _setting(slots: Mapping[str, Any], keys: str) -> Any:
    """What an experiment has for ``slot`` or ``slot.name``; of several keys the first."""
    slot, _, name = keys.split("+")[0].partition(".")
    return slots.get(slot, {}).get(name or "name")


def _run(searches: Sequence[RowSearch], numbers: range, bench: Bench, place: Path) -> None:
    """Run what is missing of some trials of all rows."""
    table = searches[0].table
    todo: dict[Task, tuple[Trial, Line]] = {}
    for number in numbers:
        for search in searches:
            if (trial := search.trial(number)) is None:
                continue
            for fold in sorted(set(range(search.budget.folds)) - trial.scores.keys()):
                job = replace(search.job(fold, words_of(trial.values)), data=bench.data)
                job.located()  # raises before anything runs
                name = f"{search.row.name}, trial {number}, fold {fold + 1}"
                asked: Line = {"table": table.name, "row": search.row.name, "slots": search.slots}
                todo[replace(job.task(), name=name)] = trial, {**asked, "fold": list(job.fold)}
    bench.console.line(
        f"{table.name}: trials {numbers[0]} to {numbers[-1]} of {len(searches)} rows on "
        f"{searches[0].budget.folds} folds of the training classes: {len(todo)} runs to do"
    )
    if not todo:
        return
    journal = place / f"{table.name}.trials.jsonl"
    left, failures = bench.do(todo, _recorder(todo, journal), f"tuning {table.name}")
    if failures or left:
        bench.console.line(
            f"{len(failures)} runs of trials failed, {left} were not started", warning=True
        )
