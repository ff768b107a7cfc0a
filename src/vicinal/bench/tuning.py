"""Tuning by class-disjoint cross-validation on the training classes; test records are left out of
the data.

Trial 0 is the experiment as it stands, so that no search ends below its start. A trial's score is
the mean over folds of Recall@1 on the classes that the fold held out, after the last step:
``training.validation=0`` tests that one, too, so the number of steps is a setting like others
(``training.epochs=2,5,10``). A fold that diverged scores 0. The best of many trials is chosen
because it is the best, so its score is a little too high; what counts is the test.

``tune`` searches for one experiment. ``tune_table`` gives every row of a table as many trials, on
the same folds; nothing is tested before every row has had all of its own.
"""

import json
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from vicinal.bench import results
from vicinal.bench.job import Fold, Job
from vicinal.bench.pool import Done, Pool, Task
from vicinal.bench.results import Line, fingerprint
from vicinal.bench.run import Bench
from vicinal.bench.run import chosen as rows_to_run
from vicinal.bench.table import Budget, Row, Table, merged, slots_hash
from vicinal.config import compose, from_words, read
from vicinal.errors import ConfigError, RunError
from vicinal.evaluation.statistics import Estimate, spread_of, t_interval
from vicinal.files import read_json, write_json, write_text
from vicinal.training.console import Console

FOLDER = "tuning"  # of tables' trials, below that of the results
_LAST_ALONE = (
    "training.evaluate_every=1000000",
    "evaluation.restarts=1",
)  # the last epoch alone is evaluated
_DIGITS = 16  # of a share of a range that are spread; more trials than 2^16 would not be


# -- what may be tried: key=low..high, key=low..high:log, key=a,b,c; key+key=... is one value for
# both ----------------


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``; whole ones if both ends are written as such."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def draw(self, share: float) -> str:
        """The value at ``share`` (0 to 1) of the range, as it is written on the command line.

        >>> Range(1e-5, 1e-1, log=True).draw(0.5), Range(2, 8, whole=True).draw(0.999)
        ('0.001', '8')
        """
        if self.whole:
            return str(
                min(int(self.high), math.floor(self.low + share * (self.high - self.low + 1)))
            )
        if self.log:
            return f"{math.exp(math.log(self.low) + share * math.log(self.high / self.low)):.4g}"
        return f"{self.low + share * (self.high - self.low):.4g}"


@dataclass(frozen=True)
class Choice:
    """One of some values."""

    values: tuple[str, ...]

    def draw(self, share: float) -> str:
        return self.values[min(len(self.values) - 1, math.floor(share * len(self.values)))]


Space = Mapping[str, Range | Choice]


def parse(words: Sequence[str]) -> tuple[dict[str, Range | Choice], list[str]]:
    """The space that some words span, and the words that fix a setting.

    >>> space, fixed = parse(["loss.margin=0.1..0.5", "model.dim=64,128", "training.epochs=5"])
    >>> space["loss.margin"], space["model.dim"], fixed
    (Range(low=0.1, high=0.5, log=False, whole=False), Choice(values=('64', '128')),
    ['training.epochs=5'])
    """
    space: dict[str, Range | Choice] = {}
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
            space[key] = Choice(tuple(part.strip() for part in text.split(",") if part.strip()))
        else:
            fixed.append(word)
    return space, fixed


def words_of(values: Mapping[str, str]) -> list[str]:
    """Values as settings; a key ``a+b`` gives both the same value.

    >>> words_of({"loss.lambda1+loss.lambda2": "0.5"})
    ['loss.lambda1=0.5', 'loss.lambda2=0.5']
    """
    return [f"{key}={value}" for keys, value in values.items() for key in keys.split("+")]


def random_trial(space: Space, seed: int, number: int) -> dict[str, str]:
    """The values of trial ``number`` (1, 2, ...), each a function of seed, number and its key
    alone.

    So a search continues after a stop, and two spaces that share a range try the same values of it,
    trial by trial: a method and its baseline. Values are random and spread: the first 2^k trials
        have one in each 2^k-th part of a
    range. Independent draws would leave a third of these parts untried.
    """
    return {key: part.draw(_share(key, seed, number - 1)) for key, part in sorted(space.items())}


def _share(key: str, seed: int, place: int) -> float:
    """The van der Corput sequence, each digit flipped at random by the digits before it (Owen
    1995).

    Each doubling of the trials has an order of the key's own, or all settings would move together.
    scipy's scrambled Halton and Sobol sequences draw all dimensions at once: adding a setting would
    change the values of the others.
    """
    name = crc32(key.encode())
    if place > 1:
        doubling = 1 << (place.bit_length() - 1)
        place = doubling + int(
            np.random.default_rng([seed, name, doubling]).permutation(doubling)[place - doubling]
        )
    share = float(np.random.default_rng([seed, name, _DIGITS, place]).random()) / (1 << _DIGITS)
    for digit in range(_DIGITS):
        flipped = int(np.random.default_rng([seed, name, digit, place % (1 << digit)]).integers(2))
        share += ((place >> digit) % 2 ^ flipped) / (2 << digit)
    return share


def _range(key: str, text: str) -> Range:
    ends, _, scale = text.partition(":")
    texts = [end.strip() for end in ends.split("..", 1)]
    try:
        low, high = map(float, texts)
    except ValueError:
        low = high = math.nan
    log, whole = scale == "log", all(re.fullmatch(r"-?\d+", end) for end in texts)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigError(
            f"{key} is searched in low..high with low < high, such as 0.1..0.5, got {text!r}."
        )
    if scale not in ("", "log"):
        raise ConfigError(f"{key} is searched on a plain scale or on `:log`, got `:{scale}`.")
    if log and (whole or low <= 0):
        raise ConfigError(
            f"{key} is searched on a log scale, which starts above 0 and has no whole numbers, "
            f"got {text!r}. "
            f"List them, such as {key}=1,2,4."
        )
    return Range(low, high, log, whole)


def require_optuna() -> Any:
    """The package behind ``--searcher optuna``, or an error that says how to install it."""
    try:
        import optuna
    except ImportError:
        raise ConfigError(
            "--searcher optuna needs optuna, which is not installed. Run `pip install "
            "'vicinal[tune]'`, or leave "
            "--searcher out for the random search."
        ) from None
    return optuna


def optuna_trial(
    space: Space, known: Sequence[tuple[Mapping[str, str], float]], seed: int
) -> dict[str, str]:
    """What Optuna's tree-structured Parzen estimator (Bergstra et al. 2011) tries next, given
    values and their scores.

    The study is made anew from the journal each time, so nothing else has to be kept for a resume.
    """
    optuna = require_optuna()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    scales: dict[str, Any] = {}
    for key, part in space.items():
        if isinstance(part, Choice):
            scales[key] = optuna.distributions.CategoricalDistribution(part.values)
        elif part.whole:
            scales[key] = optuna.distributions.IntDistribution(int(part.low), int(part.high))
        else:
            scales[key] = optuna.distributions.FloatDistribution(part.low, part.high, log=part.log)
    # Seeded by how far the search is: the same seed each time would make the same first draws each
    # time.
    sampler = optuna.samplers.TPESampler(seed=seed * 10_007 + len(known))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for values, score in known:
        if values:  # trial 0, as it stands, has values of its own, which are not among these
            numbers = {key: _number(space[key], text) for key, text in values.items()}
            study.add_trial(
                optuna.trial.create_trial(params=numbers, distributions=scales, value=score)
            )
    asked = study.ask(scales).params
    return {
        key: f"{asked[key]:.4g}" if isinstance(asked[key], float) else str(asked[key])
        for key in sorted(space)
    }


def _number(part: Range | Choice, text: str) -> str | int | float:
    if isinstance(part, Choice):
        return text
    return int(text) if part.whole else min(part.high, max(part.low, float(text)))


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
        fold = line["fold"][0] if isinstance(line["fold"], list) else line["fold"]
        self.scores[fold], self.epochs[fold] = line["score"], line.get("epoch", 0)


@dataclass(frozen=True)
class Chosen:
    """The best trial.

    Attributes:
        alike: for each setting the values of all trials within one standard error of the best: how
            much it matters.
    """

    trial: Trial
    alike: Mapping[str, tuple[str, ...]]

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
    return Chosen(best, alike)


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


# -- one experiment -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Search:
    """What is tuned and how.

    Attributes:
        source: a preset or an experiment file; empty where the data decide.
        fixed: settings that stay, as on the command line.
        trials: how many settings are tried, the experiment's own among them.
        folds: of the training classes.
        seed: of the folds, the draws and the runs.
    """

    source: str
    fixed: tuple[str, ...]
    space: Space
    trials: int = 20
    folds: int = 4
    seed: int = 0
    searcher: str = "random"

    def check(self) -> None:
        if not self.space:
            raise ConfigError(
                "nothing to search: give at least one setting as key=low..high, key=low..high:log "
                "or key=a,b,c."
            )
        if self.trials < 1 or self.folds < 2:
            raise ConfigError(
                f"tuning needs 1 trial and 2 folds at least, got {self.trials} and {self.folds}."
            )
        if self.searcher not in ("random", "optuna"):
            raise ConfigError(f"--searcher is random or optuna, got {self.searcher!r}.")
        if self.searcher == "optuna":
            require_optuna()
        for values in (
            {},
            random_trial(self.space, self.seed, 1),
        ):  # rejects what cannot run before anything does
            layer = read(self.source)[1] if self.source else {}
            config = compose(
                layer, from_words(self.words(values)), from_words(["training.validation=0"])
            )
        Fold(config.data, self.folds, 0, self.seed, test=False).load()

    def words(self, values: Mapping[str, str]) -> list[str]:
        return [*self.fixed, *words_of(values)]

    def task(self, trial: Trial, fold: int) -> Task:
        arguments = {"source": self.source, "words": self.words(trial.values), "seed": self.seed}
        arguments |= {"fold": [fold, self.folds, self.seed]}
        name = f"trial {trial.number} fold {fold + 1}/{self.folds}"
        return Task(name, "vicinal.bench.job:perform_fold", arguments, json.dumps(arguments))

    def describe(self) -> dict[str, Any]:
        """The search as its file has it."""
        described = {
            **asdict(self),
            "space": {key: asdict(part) for key, part in sorted(self.space.items())},
        }
        return dict(json.loads(json.dumps(described)))

    def command(self, chosen: Chosen) -> str:
        """How the choice is trained on all training classes and tested once."""
        words = [self.source] * bool(self.source)
        for word in self.words(chosen.trial.values):
            words += ["--data", word[5:]] if word.startswith("data=") else [word]
        return shlex.join(["vicinal", "train", *words, "training.validation=0"])


def tune(
    search: Search,
    folder: Path,
    *,
    slots: int,
    console: Console,
    make_pool: Callable[..., Pool] = Pool,
) -> Chosen:
    """Search; every fold is written to ``folder/trials.jsonl`` as it comes, the choice to
    ``folder/tuning.json``."""
    search.check()
    _claim(search, folder)
    journal = folder / "trials.jsonl"
    trials: dict[int, Trial] = {}
    for line in _noted(journal, console):
        trials.setdefault(line["trial"], Trial(line["trial"], dict(line["values"]))).take(line)
    with make_pool(folder / "runs", slots=slots, console=console) as pool:
        for numbers in (
            [range(search.trials)]
            if search.searcher == "random"
            else [[n] for n in range(search.trials)]
        ):
            for number in numbers:
                if number not in trials:  # one begun before a stop keeps its values
                    trials[number] = Trial(
                        number, _values(search, trials, number) if number else {}
                    )
            todo: dict[Task, tuple[Trial, Line]] = {
                search.task(trials[number], fold): (trials[number], {"fold": fold})
                for number in numbers
                for fold in range(search.folds)
                if fold not in trials[number].scores
            }
            if todo:
                pool.run(todo, _recorder(todo, journal), title=f"tuning {search.source}")
    whole = [trial for trial in trials.values() if len(trial.scores) == search.folds]
    chosen = choose(whole)
    facts = {"command": search.command(chosen), "trials_done": len(whole)}
    write_json(folder / "tuning.json", search.describe() | chosen.described() | facts)
    return chosen


def _values(search: Search, trials: Mapping[int, Trial], number: int) -> dict[str, str]:
    """What trial ``number`` tries; Optuna knows the trials before it."""
    if search.searcher == "random":
        return random_trial(search.space, search.seed, number)
    known = [
        trials[n] for n in sorted(trials) if n < number and len(trials[n].scores) == search.folds
    ]
    return optuna_trial(
        search.space, [(trial.values, trial.score.mean) for trial in known], search.seed
    )


def _claim(search: Search, folder: Path) -> None:
    """Hold the folder for this search: trials of another one must not mix with its own; more trials
    may follow."""
    path, wanted = folder / "search.json", search.describe()
    if path.is_file():
        before = read_json(path)
        differing = [key for key in wanted if key != "trials" and before.get(key) != wanted[key]]
        if differing:
            raise ConfigError(
                f"{folder} holds another search: {', '.join(differing)} differ "
                f"({', '.join(str(before.get(key)) for key in differing)} there). Name another "
                "folder with --out."
            )
    write_json(path, wanted)


def _noted(journal: Path, console: Console) -> list[Line]:
    lines, notes = results.read(journal)
    for note in notes:
        console.line(note, warning=True)
    return lines


# -- all rows of a table --------------------------------------------------------------------------


def tune_table(
    table: Table, budget: Budget, bench: Bench, *, recorded_only: bool = False
) -> Table | None:
    """The table at the settings that its trials chose; None while some are missing, with which the
    same call continues.

    Trials go round by round over all rows. Each fold is appended to
    ``folder/tuning/TABLE.trials.jsonl`` as it comes; the choices are written to
    ``folder/tuning/TABLE.jsonl``, a line for each row. A row that stands in several tables is tuned
    once.

    Args:
        recorded_only: run nothing; rows without all of their trials stay as they are.
    """
    place, console = bench.folder / FOLDER, bench.console
    known: dict[
        tuple[Any, ...], list[Line]
    ] = {}  # the folds of all tables by row, trial, number of folds and seed
    for path in sorted(place.glob("*.trials.jsonl")):
        for line in _noted(path, console):
            if not bench.fresh or line.get("code") == fingerprint():
                known.setdefault((line["slots"], line["trial"], *line["fold"][1:]), []).append(line)
    trials = {row.name: _trials(table, row, budget, known) for row in table.rows}
    if recorded_only:
        return _tuned(table, budget, _settle(trials, budget))
    wanted = [row for row in table.rows if row.name in rows_to_run(table, bench.rows)]
    todo: dict[Task, tuple[Trial, Line]] = {}
    job = None
    for number in range(budget.trials):
        for row in wanted:
            trial = trials[row.name][number]
            asked: Line = {"table": table.name, "row": row.name, "slots": _row_hash(table, row)}
            for fold in sorted(set(range(budget.folds)) - trial.scores.keys()):
                words, cut = (
                    (*words_of(trial.values), *_LAST_ALONE),
                    (fold, budget.folds, budget.seed),
                )
                job = Job(table, row, "fold", budget.seed, words, cut, bench.data)
                job.located()  # raises before anything runs
                task = replace(job.task(), name=f"{row.name}, trial {number}, fold {fold + 1}")
                todo[task] = trial, {**asked, "fold": list(cut)}
    if job:  # the rows of a table share its data
        Fold(job.located().data, budget.folds, 0, budget.seed, test=False).load()
    console.line(
        f"{table.name}: {budget.trials} trials of {len(wanted)} rows on {budget.folds} folds of "
        "the training classes: "
        f"{len(todo)} runs to do"
    )
    left, failures = bench.do(
        todo, _recorder(todo, place / f"{table.name}.trials.jsonl"), f"tuning {table.name}"
    )
    if failures or left:
        console.line(
            f"{table.name}: {len(failures)} runs of trials failed, {left} were not started. "
            "Nothing is tested "
            "before every row has had its trials; run the same command to continue",
            warning=True,
        )
        return None
    settled = _settle(trials, budget)
    lines = [{"row": name, **best.described(), **asdict(budget)} for name, best in settled.items()]
    write_text(place / f"{table.name}.jsonl", "".join(map(results.written, lines)))
    return _tuned(table, budget, settled)


def _settle(trials: Mapping[str, Sequence[Trial]], budget: Budget) -> dict[str, Chosen]:
    """The choices of the rows that have had all of their trials."""
    whole = {
        name: own
        for name, own in trials.items()
        if all(len(one.scores) == budget.folds for one in own)
    }
    return {name: choose(own) for name, own in whole.items()}


def _tuned(table: Table, budget: Budget, settled: Mapping[str, Chosen]) -> Table:
    """The table with its rows at what was chosen, trained on all training classes and tested
    once."""
    rows = []
    for row in table.rows:
        if row.name in settled:
            best, tried = (
                settled[row.name].trial,
                (row.trials or 1) - 1 + budget.trials,
            )  # trial 0 had some before it
            row = replace(
                row, extra=(*row.extra, *words_of(best.values)), trials=tried, held_out=best.by_fold
            )
        rows.append(row)
    finding = table.findings.get("tuned", "")
    return table.replace(
        name=f"{table.name}-tuned",
        protocol="final",
        finding=finding,
        rows=tuple(rows),
        tuned=budget,
    )


def _trials(
    table: Table, row: Row, budget: Budget, known: Mapping[tuple[Any, ...], list[Line]]
) -> list[Trial]:
    """The trials of a row with the scores that are there; a recorded trial keeps its values."""
    space, fixed = parse([*table.search, *row.search])
    if fixed:
        raise ConfigError(f"row {row.name!r}: search is given as ranges, got {fixed[0]!r}.")
    found = []
    for number in range(budget.trials):
        lines = [
            line
            for line in known.get((_row_hash(table, row), number, budget.folds, budget.seed), ())
            if not line["values"] or set(line["values"]) == set(space)
        ]
        drawn = random_trial(space, budget.seed, number) if number else {}
        trial = Trial(number, dict(lines[-1]["values"]) if lines else drawn)
        for line in lines:
            if line["values"] == trial.values:
                trial.take(line)
        found.append(trial)
    return found


def _row_hash(table: Table, row: Row) -> str:
    return slots_hash(merged(*table.layers(row)))
