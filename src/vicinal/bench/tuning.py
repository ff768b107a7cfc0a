"""Tuning by class-disjoint cross-validation on the training classes; test records are left out of the data.

Trial 0 is the experiment as it stands, so that no search ends below its start. A trial's score is the mean over folds
of Recall@1 on the classes that the fold held out, after the last step: ``training.validation=0`` tests that one, too,
so the number of steps is a setting like others (``training.epochs=2,5,10``). A fold that diverged scores 0. The best of
many trials is chosen because it is the best, so its score is a little too high; what counts is the test.

``tune`` searches for one experiment. ``tune_table`` gives every row of a table as many trials, on the same folds;
nothing is tested before every row has had all of its own.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from vicinal.bench import results
from vicinal.bench.job import Job
from vicinal.bench.pool import Pool, Task
from vicinal.bench.results import Line, fingerprint
from vicinal.bench.run import chosen as rows_to_run
from vicinal.bench.search_space import Space, optuna_trial, parse, random_trial, require_optuna, words_of
from vicinal.bench.statistics import Estimate, spread_of, t_interval
from vicinal.bench.table import Budget, Row, Table, merged, slots_hash
from vicinal.config import compose, from_words, read
from vicinal.errors import ConfigError, RunError
from vicinal.files import read_json, write_json, write_text
from vicinal.training.console import Console

FOLDER = "tuning"  # of tables' trials, below that of the results
_LAST_ALONE = ("training.evaluate_every=1000000", "evaluation.restarts=1")  # the last epoch alone is evaluated
_KEPT = ("commit", "code", "hardware", "created", "seconds", "wall", "diverged")


@dataclass
class Trial:
    """One choice of settings, its score on each fold, and the epoch at which each was best."""

    number: int
    values: dict[str, str]
    scores: dict[int, float] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        return sum(self.scores.values()) / len(self.scores)

    @property
    def by_fold(self) -> tuple[float, ...]:
        return tuple(self.scores[fold] for fold in sorted(self.scores))

    def take(self, line: Mapping[str, Any]) -> None:
        fold = line["fold"][0] if isinstance(line["fold"], list) else line["fold"]
        self.scores[fold], self.epochs[fold] = line["score"], line.get("epoch", 0)


@dataclass(frozen=True)
class Chosen:
    """The best trial.

    Attributes:
        score: mean over folds with its interval; a little too high, since it was chosen by it.
        spread: standard deviation over folds.
        alike: for each setting the values of all trials within one standard error of the best: how much it matters.
        epochs: by fold, the epoch at which it was best; 0 if it diverged.
    """

    trial: Trial
    score: Estimate
    spread: float
    alike: Mapping[str, tuple[str, ...]]
    epochs: tuple[int, ...]


def choose(trials: Sequence[Trial]) -> Chosen:
    """The trial of the highest mean; of equal ones the first."""
    if not trials:
        raise RunError("no trial has finished all of its folds. Their logs are in the folders below runs/.")
    best = max(trials, key=lambda trial: (trial.mean, -trial.number))
    scores = best.by_fold
    spread = spread_of(scores)
    near = [trial for trial in trials if trial.mean >= best.mean - spread / len(scores) ** 0.5]
    keys = sorted({key for trial in trials for key in trial.values})
    alike = {key: tuple(sorted({trial.values.get(key, "(as it is)") for trial in near}, key=_order)) for key in keys}
    return Chosen(best, t_interval(scores), spread, alike, tuple(best.epochs[fold] for fold in sorted(best.epochs)))


def _order(text: str) -> tuple[int, float, str]:
    """Numbers by their size, then words."""
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text


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
    searcher: Literal["random", "optuna"] = "random"

    def check(self) -> "Search":
        if not self.space:
            raise ConfigError(
                "nothing to search: give at least one setting as key=low..high, key=low..high:log or key=a,b,c."
            )
        if self.trials < 1 or self.folds < 2:
            raise ConfigError(f"tuning needs 1 trial and 2 folds at least, got {self.trials} and {self.folds}.")
        if self.searcher not in ("random", "optuna"):
            raise ConfigError(f"--searcher is random or optuna, got {self.searcher!r}.")
        if self.searcher == "optuna":
            require_optuna()
        for number in range(min(2, self.trials)):  # rejects unknown settings and wrong types before anything runs
            values = {} if number == 0 else random_trial(self.space, self.seed, number)
            layer = read(self.source)[1] if self.source else {}
            compose(layer, from_words(self.words(values)), from_words(["training.validation=0"]))
        return self

    def words(self, values: Mapping[str, str]) -> list[str]:
        return [*self.fixed, *words_of(values)]

    def task(self, trial: Trial, fold: int) -> Task:
        arguments = {"source": self.source, "words": self.words(trial.values), "seed": self.seed}
        name = f"trial {trial.number} fold {fold + 1}/{self.folds}"
        arguments |= {"fold": [fold, self.folds, self.seed]}
        return Task(name, "vicinal.bench.job:perform_fold", arguments, json.dumps(arguments))

    def describe(self) -> dict[str, Any]:
        """The search as its file has it."""
        described = {**asdict(self), "space": {key: asdict(part) for key, part in sorted(self.space.items())}}
        return dict(json.loads(json.dumps(described)))

    def command(self, chosen: Chosen) -> str:
        """How the choice is trained on all training classes and tested once."""
        words = [f"--data {w[5:]}" if w.startswith("data=") else w for w in self.words(chosen.trial.values)]
        return " ".join(filter(None, ("vicinal train", self.source, *words, "training.validation=0")))


def tune(
    search: Search, folder: Path, *, slots: int, console: Console, make_pool: Callable[..., Pool] = Pool
) -> Chosen:
    """Search; every fold is written to ``folder/trials.jsonl`` as it comes, the choice to ``folder/tuning.json``."""
    _claim(search.check(), folder)
    journal = folder / "trials.jsonl"
    lines, notes = results.read(journal)
    for note in notes:
        console.line(note, warning=True)
    trials: dict[int, Trial] = {}
    for line in lines:
        trials.setdefault(line["trial"], Trial(line["trial"], dict(line["values"]))).take(line)
    with make_pool(folder / "runs", slots=slots, console=console) as pool:
        for batch in _batches(search, trials):
            for trial in batch:
                trials.setdefault(trial.number, trial)
            todo = {
                search.task(trial, fold): (trials[trial.number], fold)
                for trial in batch
                for fold in range(search.folds)
                if fold not in trials[trial.number].scores
            }

            def record(task: Task, found: list[Line], known: Mapping[Task, tuple[Trial, int]] = todo) -> str:
                trial, fold = known[task]
                line = {"trial": trial.number, "values": trial.values, "fold": fold, **found[0]}
                results.append(journal, line)
                trial.take(line)
                return _outcome(line)

            if todo:
                pool.run(todo, record, title=f"tuning {search.source}")
    whole = [trial for trial in trials.values() if len(trial.scores) == search.folds]
    chosen = choose(whole)
    written = {**_described(chosen), "command": search.command(chosen), "trials_done": len(whole)}
    write_json(folder / "tuning.json", search.describe() | written)
    return chosen


def _outcome(line: Line) -> str:
    return "diverged" if "diverged" in line else f"R@1 {100 * line['score']:.1f}"


def _batches(search: Search, trials: Mapping[int, Trial]) -> Iterator[list[Trial]]:
    """Trials to run together: all of a random search; one by one where the next depends on the last."""
    first = Trial(0, {})
    if search.searcher == "random":
        drawn = (Trial(n, random_trial(search.space, search.seed, n)) for n in range(1, search.trials))
        yield [first, *drawn]
        return
    yield [first]
    for number in range(1, search.trials):
        # A trial begun before a stop keeps its values; the searcher would by now propose others.
        begun = trials[number].values if number in trials else None
        whole = [trials[n] for n in sorted(trials) if n < number and len(trials[n].scores) == search.folds]
        known = [(trial.values, trial.mean) for trial in whole]
        yield [Trial(number, begun if begun is not None else optuna_trial(search.space, known, search.seed))]


def _claim(search: Search, folder: Path) -> None:
    """Hold the folder for this search: trials of another one must not mix with its own; more trials may follow."""
    path, wanted = folder / "search.json", search.describe()
    if path.is_file():
        before = read_json(path)
        differing = [key for key in wanted if key != "trials" and before.get(key) != wanted[key]]
        if differing:
            raise ConfigError(
                f"{folder} holds another search: {', '.join(differing)} differ "
                f"({', '.join(str(before.get(key)) for key in differing)} there). Name another folder with --out."
            )
    write_json(path, wanted)


def _described(chosen: Chosen) -> dict[str, Any]:
    return {
        "chosen": chosen.trial.values,
        "trial": chosen.trial.number,
        "held_out": list(chosen.trial.by_fold),
        "spread": chosen.spread,
        "within_one_standard_error": {key: list(values) for key, values in chosen.alike.items()},
        "epochs": list(chosen.epochs),
    }


# -- all rows of a table --------------------------------------------------------------------------


def tune_table(
    table: Table,
    budget: Budget,
    folder: Path,
    runs: Path,
    *,
    slots: int,
    console: Console,
    rows: Collection[str] = (),
    minutes: float | None = None,
    data: str = "",
    fresh: bool = False,
    recorded_only: bool = False,
    make_pool: Callable[..., Pool] = Pool,
) -> Table | None:
    """The table at the settings that its trials chose; None while some are missing, with which the same call continues.

    Trials go round by round over all rows. Each fold is appended to ``folder/tuning/TABLE.trials.jsonl`` as it comes;
    the choices are written to ``folder/tuning/TABLE.jsonl``, a line for each row. A row that stands in several tables
    is tuned once.

    Args:
        rows: tune these alone, with their baselines; what was tuned before counts all the same.
        minutes: no trial starts later than this.
        data: a copy of the table's data on this machine, if it is not where the rows say.
        fresh: accept trials of this very code alone.
        recorded_only: run nothing; rows without all of their trials stay as they are.
    """
    place = folder / FOLDER
    known = _recorded(place, console, fresh=fresh)
    trials = {row.name: _trials(table, row, budget, known) for row in table.rows}
    if recorded_only:
        return at(table, budget, _settle(trials, budget))
    wanted = rows_to_run(table, rows)
    todo: dict[Task, tuple[Row, Trial, Job]] = {}
    for number in range(budget.trials):
        for row in table.rows:
            trial = trials[row.name][number]
            for fold in range(budget.folds):
                if row.name in wanted and fold not in trial.scores:
                    words = (*words_of(trial.values), *_LAST_ALONE)
                    job = Job(table, row, "fold", budget.seed, words, (fold, budget.folds, budget.seed), data)
                    task = job.task()
                    todo[replace(task, name=f"{row.name}, trial {number}, fold {fold + 1}")] = row, trial, job
    for _, _, job in todo.values():
        job.located()
    console.line(
        f"{table.name}: {budget.trials} trials of {len(wanted & trials.keys())} rows on {budget.folds} folds of the "
        f"training classes: {len(todo)} runs to do"
    )

    def record(task: Task, lines: list[Line]) -> str:
        row, trial, job = todo[task]
        line: Line = {"table": table.name, "row": row.name, "slots": _row_hash(table, row), "trial": trial.number}
        line |= {"values": trial.values, "fold": list(job.fold), "score": lines[0]["score"]}
        line |= {key: lines[0][key] for key in _KEPT if key in lines[0]}
        results.append(place / f"{table.name}.trials.jsonl", line)
        trial.take(line)
        return _outcome(line)

    pool = make_pool(runs / "jobs", slots=slots, console=console, fresh=fresh)
    left = pool.run(todo, record, title=f"tuning {table.name}", minutes=minutes)
    if pool.failures or left:
        console.line(
            f"{table.name}: {len(pool.failures)} runs of trials failed, {left} were not started. Nothing is tested "
            "before every row has had its trials; run the same command to continue",
            warning=True,
        )
        return None
    settled = _settle(trials, budget)
    lines = [{"row": name, **_described(best), **asdict(budget)} for name, best in settled.items()]
    write_text(place / f"{table.name}.jsonl", "".join(map(results.written, lines)))
    return at(table, budget, settled)


def _settle(trials: Mapping[str, Sequence[Trial]], budget: Budget) -> dict[str, Chosen]:
    """The choices of the rows that have had all of their trials."""
    whole = {name: own for name, own in trials.items() if all(len(one.scores) == budget.folds for one in own)}
    return {name: choose(own) for name, own in whole.items()}


def at(table: Table, budget: Budget, settled: Mapping[str, Chosen]) -> Table:
    """The table with its rows at what was chosen, trained on all training classes and tested once."""
    rows = tuple(_settled(row, budget, settled[row.name]) if row.name in settled else row for row in table.rows)
    finding = table.findings.get("tuned", "")
    return table.replace(name=f"{table.name}-tuned", protocol="final", finding=finding, rows=rows, tuned=budget)


def _settled(row: Row, budget: Budget, best: Chosen) -> Row:
    tried = (row.trials or 1) - 1 + budget.trials  # the settings of trial 0 have trials behind them, too
    return replace(row, extra=(*row.extra, *words_of(best.trial.values)), trials=tried, held_out=best.trial.by_fold)


def _trials(table: Table, row: Row, budget: Budget, known: Mapping[tuple[Any, ...], list[Line]]) -> list[Trial]:
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


def _recorded(place: Path, console: Console, *, fresh: bool) -> dict[tuple[Any, ...], list[Line]]:
    """The folds of all tables by row, trial, number of folds and seed."""
    known: dict[tuple[Any, ...], list[Line]] = {}
    for path in sorted(place.glob("*.trials.jsonl")):
        lines, notes = results.read(path)
        for note in notes:
            console.line(note, warning=True)
        for line in lines:
            if not fresh or line.get("code") == fingerprint():
                known.setdefault((line["slots"], line["trial"], *line["fold"][1:]), []).append(line)
    return known
