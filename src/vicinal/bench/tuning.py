"""Tuning by class-disjoint cross-validation on the training classes; test records are left out of
the data.

Trial 0 is the experiment as it stands, so that no search ends below its start. ``tune`` searches
for one experiment: a fold is scored by Recall@1 of the model that its held-out classes select, the
start before training among them, as `vicinal train` selects. ``tune_table`` gives every row of a
table as many trials on the same folds, and nothing is tested before every row has had all of its
own: a fold is scored after the last step, so the number of steps is a setting like others. A fold
that diverged scores 0. The best of many trials is chosen because it is the best, so its score is a
little too high; what counts is the test.

Optuna draws what is tried: the extra ``tune``.
"""

import shlex
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from vicinal.bench import results
from vicinal.bench.job import Fold, Job
from vicinal.bench.pool import Task
from vicinal.bench.results import Line, fingerprint, records_of
from vicinal.bench.run import Bench, present
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
from vicinal.errors import ConfigError, RunError, few
from vicinal.evaluation.statistics import Estimate, spread_of, t_interval
from vicinal.files import write_text

FOLDER = "tuning"  # of tables' trials, below that of the results
SEARCHERS = ("random", "tpe")
PROPOSED = 256  # points of a search at most, of which those that were tried are passed over
# A table's folds are evaluated after the last epoch alone.
_LAST_ALONE = ("training.evaluate_every=1000000", "evaluation.restarts=1")

Space = Mapping[str, Any]  # Optuna's distributions: of whole numbers, of numbers, and of words
Values = dict[str, str]


# -- what may be tried -----------------------------------------------------------------------------


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
    """The space that words span (key=low..high, key=low..high:log, key=a,b,c), and the words that
    fix a setting.

    >>> space, fixed = parse(["loss.margin=0.1..0.5", "model.dim=64,128", "training.epochs=5"])
    >>> space["loss.margin"], space["model.dim"].choices, fixed
    (FloatDistribution(high=0.5, log=False, low=0.1, step=None), ('64', '128'),
    ['training.epochs=5'])
    """
    space: dict[str, Any] = {}
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
            choices = dict.fromkeys(part.strip() for part in text.split(",") if part.strip())
            space[key] = require_optuna().distributions.CategoricalDistribution(tuple(choices))
        else:
            fixed[key] = word
    return space, list(fixed.values())


def _range(key: str, text: str) -> Any:
    ends, _, scale = text.partition(":")
    low, _, high = ends.partition("..")
    kinds = require_optuna().distributions
    try:
        if not float(low) < float(high) or scale not in ("", "log"):
            raise ValueError
        try:
            return kinds.IntDistribution(int(low), int(high), log=scale == "log")
        except ValueError:
            return kinds.FloatDistribution(float(low), float(high), log=scale == "log")
    except ValueError:
        raise ConfigError(
            f"{key} is searched in low..high with low < high, such as 0.1..0.5, or in "
            f"low..high:log above 0, such as 1e-5..1e-3:log, got {text!r}."
        ) from None


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
) -> list[Values]:
    """The values of ``count`` trials, or of as many as there are, none of them known.

    They are spread at random over the space, by a scrambled Sobol sequence. ``tpe`` is Optuna's
    tree-structured Parzen estimator (Bergstra et al. 2011). Equal arguments give equal trials, so a
    search continues after a stop.

    Args:
        known: values that were tried, with their scores.
    """

    def key(values: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(canonical(values.get(name)) for name in sorted(space))

    tried = {key(values) for values, _ in known}
    fresh: dict[tuple[Any, ...], Values] = {}
    for values in _tpe(space, seed, known) if searcher == "tpe" else _sobol(space, seed):
        if len(fresh) == count:
            break
        if key(values) not in tried:
            fresh.setdefault(key(values), values)
    return list(fresh.values())


def _sobol(space: Space, seed: int) -> Iterator[Values]:
    optuna = require_optuna()
    kinds = optuna.distributions
    scales = {  # words by their place: the sequence has no words
        key: kinds.IntDistribution(0, len(part.choices) - 1) if _listed(part) else part
        for key, part in sorted(space.items())
    }
    sampler = optuna.samplers.QMCSampler(scramble=True, seed=seed, warn_independent_sampling=False)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    lowest = {key: part.low for key, part in scales.items()}  # the sequence starts after a trial
    study.add_trial(optuna.trial.create_trial(params=lowest, distributions=scales, value=0.0))
    for _ in range(PROPOSED if space else 0):
        asked = study.ask(scales).params
        yield {
            key: part.choices[asked[key]] if _listed(part) else _text(asked[key])
            for key, part in sorted(space.items())
        }


def _tpe(
    space: Space, seed: int, known: Sequence[tuple[Mapping[str, Any], float]]
) -> Iterator[Values]:
    optuna = require_optuna()
    # seeded anew each time: the same seed would draw the same first trials
    sampler = optuna.samplers.TPESampler(seed=seed * 10_007 + len(known))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for values, score in known:
        params = {key: _typed(part, values.get(key)) for key, part in space.items()}
        if None not in params.values():
            study.add_trial(
                optuna.trial.create_trial(params=params, distributions=dict(space), value=score)
            )
    for _ in range(PROPOSED):
        yield {key: _text(value) for key, value in study.ask(dict(space)).params.items()}


def _listed(part: Any) -> bool:
    return isinstance(part, require_optuna().distributions.CategoricalDistribution)


def _text(value: Any) -> str:
    """A value as it is written on the command line."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _typed(part: Any, value: Any) -> Any:
    """A value as Optuna takes it; None where it is none of the setting's."""
    if _listed(part):
        return value if value in part.choices else None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    slack = 1e-3 * abs(number)  # four digits are written
    if not part.low - slack <= number <= part.high + slack:
        return None
    return type(part.low)(min(max(number, part.low), part.high))


# -- trials and the choice -------------------------------------------------------------------------


@dataclass
class Trial:
    """One choice of settings, its score on each fold, and the epoch at which each was best; 0 if it
    diverged."""

    number: int
    values: Values
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


@dataclass(frozen=True)
class Chosen:
    """The best trial, and among how many; ``gain`` is its score minus that of trial 0, by fold."""

    trial: Trial
    trials: int
    gain: tuple[float, ...] = ()

    @property
    def epochs(self) -> list[int]:
        """The epoch at which each fold was best."""
        return [self.trial.epochs[fold] for fold in sorted(self.trial.epochs)]

    def described(self) -> dict[str, Any]:
        return {
            "chosen": self.trial.values,
            "trial": self.trial.number,
            "trials": self.trials,
            "held_out": list(self.trial.by_fold),
            "epochs": self.epochs,
        }


def choose(trials: Sequence[Trial]) -> Chosen:
    """Choose the trial of the highest mean; of equal ones the first."""
    if not trials:
        raise RunError(
            "no trial has finished all of its folds. Their logs are in the folders below runs/."
        )
    return Chosen(max(trials, key=lambda trial: (trial.score.mean, -trial.number)), len(trials))


def choose_above_default(trials: Sequence[Trial]) -> Chosen:
    """Choose the trial of the highest mean, if it is above trial 0 on the same folds by more than a
    standard error of the paired differences; else trial 0."""
    best = choose(trials)
    default = trials[0]
    if default.number or best.trial is default:
        return best
    gain = tuple(a - b for a, b in zip(best.trial.by_fold, default.by_fold, strict=True))
    if sum(gain) / len(gain) <= spread_of(gain) / len(gain) ** 0.5:
        return Chosen(default, best.trials)
    return replace(best, gain=gain)


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
    (found,) = _search(table, budget, bench, bench.folder, (), "selected")
    choice = choose_above_default(found.scored())
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
    searches = _search(
        table, budget, bench, place, _LAST_ALONE, "score", recorded_only=recorded_only
    )
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


def _write(table: Table, chosen: Mapping[str, Chosen], place: Path, budget: Budget) -> None:
    lines = [{"row": name, **asdict(budget), **best.described()} for name, best in chosen.items()]
    write_text(place / f"{table.name}.jsonl", "".join(map(results.written, lines)))


class Search:
    """The trials of a row: those that are recorded, with their values, then new ones.

    Args:
        words: further settings of all trials.
        score: which field of a fold's result counts.
        lines: the recorded folds of this row on the same cut of the same records.
    """

    def __init__(
        self,
        table: Table,
        row: Row,
        budget: Budget,
        words: Sequence[str],
        score: str,
    ) -> None:
        self.table = table
        self.row = row
        self.budget = budget
        self.words = tuple(words)
        self.score = score
        self.space, fixed = parse([*table.search, *row.search])
        if fixed:
            raise ConfigError(f"row {row.name!r}: search is given as ranges, got {fixed[0]!r}.")
        self.slots = slots_hash(merged(*table.layers(row)))
        self.trials = [Trial(0, {})]

    def recorded(self, lines: Iterable[Line], records: str | None) -> None:
        """Take what is recorded of this row on the same folds of the same records; where these are
        not known, of those that were measured last."""
        cut = [self.budget.folds, self.budget.seed]
        own = [line for line in lines if line["slots"] == self.slots and line["fold"][1:] == cut]
        if own and records is None:
            records = records_of(max(own, key=lambda line: str(line["created"])))
        for line in sorted(own, key=lambda line: int(line["trial"])):
            if records_of(line) == records and self.score in line:
                values = line["values"]
                parts = self.space.items() if values else ()  # trial 0 may be anywhere
                if all(_typed(part, values.get(key)) is not None for key, part in parts):
                    self.take(line)
        del self.trials[self.budget.trials :]

    def take(self, line: Line) -> Trial:
        """Note a fold's result."""
        trial = next((one for one in self.trials if one.values == line["values"]), None)
        if trial is None:
            trial = Trial(len(self.trials), line["values"])
            self.trials.append(trial)
        fold = line["fold"][0]
        trial.scores[fold] = line[self.score]
        trial.epochs[fold] = line.get("epoch", 0)
        return trial

    def add(self) -> bool:
        """Draw the next trials: at random all at once, while each of `tpe` follows from those
        before it. False where none is left to draw."""
        missing = self.budget.trials - len(self.trials)
        if missing < 1:
            return False
        slots = self.job(0, ()).config().slots()
        own = {}  # what the experiment has, of several settings for one value the first's
        for keys in self.space:
            slot, _, name = keys.split("+")[0].partition(".")
            own[keys] = slots.get(slot, {}).get(name or "name")
        known = [
            (trial.values or own, trial.score.mean if trial.scores else 0.0)
            for trial in self.trials
        ]
        count = 1 if self.budget.searcher == "tpe" else missing
        drawn = draw(
            self.space, count, self.budget.seed, known=known, searcher=self.budget.searcher
        )
        for values in drawn:
            self.trials.append(Trial(len(self.trials), values))
        return bool(drawn)

    def job(self, fold: int, words: Sequence[str]) -> Job:
        budget = self.budget
        cut = (fold, budget.folds, budget.seed)
        return Job(self.table, self.row, "fold", budget.seed, (*words, *self.words), cut)

    def check(self) -> None:
        """Reject before any run what cannot be composed, located or cut into folds."""
        for values in ({}, *draw(self.space, 1, self.budget.seed)):
            config = self.job(0, words_of(values)).located()
        Fold(config.data, self.budget.folds, 0, self.budget.seed, test=False).load()

    def scored(self) -> list[Trial]:
        """The trials that have all of their folds."""
        return [trial for trial in self.trials if len(trial.scores) == self.budget.folds]

    def whole(self) -> bool:
        """Whether all trials that there are have all of their folds."""
        return len(self.scored()) == len(self.trials) and not self.add()


def _search(
    table: Table,
    budget: Budget,
    bench: Bench,
    place: Path,
    words: Sequence[str],
    score: str,
    *,
    recorded_only: bool = False,
) -> list[Search]:
    """Every row with its trials, after running those that are missing of the rows to run."""
    if budget.trials < 1 or budget.folds < 2:
        raise ConfigError(
            f"tuning needs 1 trial and 2 folds at least, got {budget.trials} and {budget.folds}."
        )
    if budget.searcher not in SEARCHERS:
        raise ConfigError(f"--searcher is {' or '.join(SEARCHERS)}, got {budget.searcher!r}.")
    searches = [Search(table, row, budget, words, score) for row in table.rows]
    wanted = [one for one in searches if one.row.name in rows_to_run(table, bench.rows)]
    if not recorded_only:
        for one in wanted:
            one.check()
    lines: list[Line] = []  # of all tables
    for path in sorted(place.glob("*.trials.jsonl")):
        found, notes = results.read(path)
        lines += [one for one in found if not bench.fresh or one.get("code") == fingerprint()]
        for note in notes:
            bench.console.line(note, warning=True)
    for one in searches:
        start = one.job(0, ())
        now = {} if recorded_only else present([start])
        one.recorded(lines, now.get(start.source()))
    if not recorded_only:
        _run(wanted, bench, place)
        while any([one.add() for one in wanted]) and _run(wanted, bench, place):
            pass
    return searches


def _run(searches: Sequence[Search], bench: Bench, place: Path) -> bool:
    """Run the missing folds of all trials, round by round over the rows; False if some are still
    missing."""
    table = searches[0].table
    todo: dict[Task, tuple[Search, Line]] = {}
    for number in range(max(len(one.trials) for one in searches)):
        for search in searches:
            for trial in search.trials[number : number + 1]:
                for fold in sorted(set(range(search.budget.folds)) - trial.scores.keys()):
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
    if not todo:
        return True

    def record(task: Task, found: list[Line]) -> str:
        search, asked = todo[task]
        line = {**found[0], **asked}
        results.append(place / f"{table.name}.trials.jsonl", line)
        search.take(line)
        return "diverged" if "diverged" in line else f"R@1 {100 * line[search.score]:.1f}"

    left, failures = bench.do(todo, record, f"tuning {table.name}")
    if failures or left:
        bench.console.line(
            f"{len(failures)} runs of trials failed, {left} were not started", warning=True
        )
    return not failures and not left
