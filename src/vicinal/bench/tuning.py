"""Tuning: settings by class-disjoint cross-validation on the training classes; test records are left out of the data.

Trial 0 is the recipe as it stands, so that no search ends below its start. A trial's score is the mean over folds of
Recall@1 on the classes that the fold held out, after the last step: ``vicinal train RECIPE validation=0 CHOSEN`` tests
that one, too, so the number of steps is a setting like others (``epochs=2,5,10``). A fold that diverged scores 0. The
best of many trials is chosen because it is the best, so its score is a little too high; what counts is the test.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from vicinal.bench import results
from vicinal.bench.job import Job
from vicinal.bench.optuna_search import next_values, require_optuna
from vicinal.bench.pool import Pool
from vicinal.bench.search_space import Choice, Range, Space, random_trial
from vicinal.bench.statistics import Estimate, spread_of, t_interval
from vicinal.errors import ConfigError, RunError
from vicinal.files import read_json, write_json
from vicinal.training.console import Console

Searcher = Literal["random", "optuna"]


@dataclass(frozen=True)
class Search:
    """What is tuned and how.

    Attributes:
        fixed: settings that stay, as on the command line.
        trials: how many settings are tried, the recipe's own among them; method and twin deserve the same number.
        folds: of the training classes.
        seed: of the folds, the draws and the runs.
    """

    recipe: str
    fixed: tuple[str, ...]
    space: Space
    trials: int = 20
    folds: int = 4
    seed: int = 0
    searcher: Searcher = "random"

    def check(self) -> "Search":
        if not self.space:
            raise ConfigError(
                "nothing to search: give at least one setting as key=low..high, key=low..high:log or key=a,b,c."
            )
        if self.trials < 1 or self.folds < 2:
            raise ConfigError(f"tuning takes 1 trial and 2 folds at least, but {self.trials} and {self.folds} came.")
        if self.searcher not in ("random", "optuna"):
            raise ConfigError(f"the searcher is random or optuna, but {self.searcher!r} came.")
        if self.searcher == "optuna":
            require_optuna()
        for number in range(min(2, self.trials)):  # refuses unknown settings and wrong types before anything runs
            values = {} if number == 0 else random_trial(self.space, self.seed, number)
            self.job(number, 0, values).resolved()
        return self

    def job(self, number: int, fold: int, values: Mapping[str, str]) -> Job:
        words = (*self.fixed, *(f"{key}={value}" for key, value in values.items()))
        return Job(f"trial {number}", "fold", self.recipe, words, self.seed, fold=(fold, self.folds, self.seed))

    def describe(self) -> dict[str, Any]:
        """The search as its file has it: JSON knows lists where we have tuples."""
        described = {**asdict(self), "space": {key: asdict(part) for key, part in sorted(self.space.items())}}
        return dict(json.loads(json.dumps(described)))


@dataclass
class Trial:
    """One choice of settings, what its folds scored, and after how many epochs each was at its best."""

    number: int
    values: dict[str, str]
    scores: dict[int, float] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        return sum(self.scores.values()) / len(self.scores)


@dataclass(frozen=True)
class Chosen:
    """The best trial.

    Attributes:
        score: mean over folds with its interval; a little too high, for it was chosen by it.
        spread: standard deviation over folds.
        alike: for each setting the values of all trials within one standard error of the best: how much it matters.
        epochs: by fold, after which epoch it was at its best; 0 if it diverged.
    """

    trial: Trial
    score: Estimate
    spread: float
    alike: Mapping[str, tuple[str, ...]]
    epochs: tuple[int, ...]


def tune(search: Search, folder: Path, *, slots: int, console: Console) -> Chosen:
    """Search; every fold is written to ``folder/trials.jsonl`` as it comes, the choice to ``folder/tuning.json``."""
    _claim(search.check(), folder)
    journal = folder / "trials.jsonl"
    lines, notes = results.read(journal)
    for note in notes:
        console.line(note, warning=True)
    trials: dict[int, Trial] = {}
    for line in lines:
        _take(trials, line)
    with Pool(folder / "runs", slots=slots, console=console) as pool:
        for batch in _batches(search, trials):
            by_number = {trial.number: trial for trial in batch}

            def record(job: Job, found: Sequence[Mapping[str, Any]], known: dict[int, Trial] = by_number) -> None:
                trial = known[int(job.row.split()[1])]
                line = {
                    "trial": trial.number,
                    "values": trial.values,
                    "fold": job.fold[0],
                    **{key: found[0][key] for key in ("commit", "hardware", "created", "seconds", "wall")},
                    "score": found[0]["last"],
                    "epoch": 0 if "diverged" in found[0] else found[0]["selected"]["epoch"] + 1,
                }
                results.append(journal, line)
                _take(trials, line)

            todo = [
                search.job(trial.number, fold, trial.values)
                for trial in batch
                for fold in range(search.folds)
                if trial.number not in trials or fold not in trials[trial.number].scores
            ]
            if todo:
                pool.run(todo, record, title=f"tuning {search.recipe}")
    chosen = choose([trial for trial in trials.values() if len(trial.scores) == search.folds])
    whole = sum(len(trial.scores) == search.folds for trial in trials.values())
    write_json(folder / "tuning.json", {**_document(search, chosen), "trials_done": whole})
    return chosen


def choose(trials: Sequence[Trial]) -> Chosen:
    """The trial of the highest mean; of equal ones the first."""
    if not trials:
        raise RunError("no trial has finished all of its folds. The log of each lies in its folder below runs/.")
    best = max(trials, key=lambda trial: (trial.mean, -trial.number))
    scores = list(best.scores.values())
    spread = spread_of(scores)
    near = [trial for trial in trials if trial.mean >= best.mean - spread / len(scores) ** 0.5]
    keys = sorted({key for trial in trials for key in trial.values})
    alike = {key: tuple(sorted({trial.values.get(key, "(recipe)") for trial in near}, key=_order)) for key in keys}
    return Chosen(best, t_interval(scores), spread, alike, tuple(best.epochs[fold] for fold in sorted(best.epochs)))


def command(search: Search, chosen: Chosen) -> str:
    """How the choice is trained on all training classes and tested once."""
    values = (f"{key}={value}" for key, value in chosen.trial.values.items())
    return " ".join(("vicinal train", search.recipe, "validation=0", *search.fixed, *values))


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
        known = [trials[n] for n in sorted(trials) if n < number and len(trials[n].scores) == search.folds]
        yield [Trial(number, begun if begun is not None else next_values(search.space, known, search.seed))]


def _take(trials: dict[int, Trial], line: Mapping[str, Any]) -> None:
    trial = trials.setdefault(line["trial"], Trial(line["trial"], dict(line["values"])))
    trial.scores[line["fold"]], trial.epochs[line["fold"]] = line["score"], line["epoch"]


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


def _document(search: Search, chosen: Chosen) -> dict[str, Any]:
    return {
        **search.describe(),
        "chosen": chosen.trial.values,
        "trial": chosen.trial.number,
        "score": asdict(chosen.score),
        "spread": chosen.spread,
        "within_one_standard_error": {key: list(values) for key, values in chosen.alike.items()},
        "epochs": list(chosen.epochs),
        "command": command(search, chosen),
    }


def _order(text: str) -> tuple[int, float, str]:
    """Numbers by their size, then words."""
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text


__all__ = ["Choice", "Chosen", "Range", "Search", "Trial", "choose", "command", "tune"]
