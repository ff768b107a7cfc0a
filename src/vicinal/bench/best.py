"""``vicinal best``: the settings that serve given data best, chosen on held-out training classes.

Candidates race over class-disjoint folds of the training classes: all of them on the first fold,
the better half on the next, and so on. They race twice: first as heads on features that the
pretrained backbone gave once, which takes seconds, then the best of them as whole networks trained
on pictures or texts, as far as the time allows. A fold's score is MAP@R of the classes it holds out
after the last step, class by class. Of all that cannot be told from the best, paired by class and
within one standard error, the simplest is trained on all training classes, if it is not below the
start without training. Test records are left out of all but that run.
"""

import math
import re
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from vicinal.bench import results
from vicinal.bench.job import Fold, state_of, train_run
from vicinal.bench.page import grid
from vicinal.bench.pool import Pool, Task, slots_here
from vicinal.bench.results import Line
from vicinal.bench.tuning import draw, parse, words_of
from vicinal.config import Config, compose, from_words, is_captioned
from vicinal.data.records import FeatureArray, Records
from vicinal.data.splits import kin_of
from vicinal.errors import ConfigError, DataError, VicinalError
from vicinal.evaluation.statistics import spread_of
from vicinal.files import read_arrays, write_arrays, write_text
from vicinal.reports.tables import MISSING, per_cent, signed
from vicinal.run_directory import RunDirectory
from vicinal.training.console import Console, spell
from vicinal.training.experiment import pick_precision, prepare

FOLDS = 4
DRAWN = 64  # candidates of a search over ranges of the user's own
PASSES = 4  # over all records, that the last run takes to be measured
BACKWARD = 3.5  # what a step takes of a record, in passes forward
LAST = 0.4  # of the time, that the last run may take
HEADS = 0.25  # of the time before it, that heads may take where networks follow
MARGIN = 0.1  # of the time, and at least so many seconds, for all else
MARGIN_SECONDS = 15.0
SHOWN = 5  # of each level, while the search runs
LEAST = 4  # candidates that go on to the next fold
_FACTOR = re.compile(r"^(.+)=([\d.]+)x$")
_ON_HEADS = (
    *("loss", "method", "sampler", "model.dim", "model.head", "model.start"),
    "training.head_only",
)
_LENGTH = ("training.epochs=", "training.steps=")
_STARTS = (
    ("training.head_only=true", "model.start=principal"),
    ("training.head_only=true", "model.start=discriminant"),
)
_HEADS = (
    ("model.head=linear", "model.dim=128", "model.start=discriminant"),
    ("model.head=linear", "model.dim=512", "model.start=random"),
)
_RATES = ("optimizer.learning_rate=3x", "optimizer.learning_rate=10x")
# The first of their kind on CUB-200, by experiments/losses.py.
_LOSSES = tuple(
    f"loss={name}"
    for name in (
        "recall_at_k",
        "info_nce",
        "ranked_list",
        "margin",
        "cosface",
        "smooth_ap",
        "danml",
    )
)
# What candidates on features cannot show, the simplest first; of the best of them, too.
_NETWORKS = (("model.head=none", "model.start=random"), ("training.steps=2x",), (_RATES[0],))
Words = tuple[str, ...]
HEAD = ("settings", "trained", "folds", "MAP@R", "difference ± s.e.")


def candidates(*, heads: bool) -> list[Words]:
    """The built-in candidates, the simplest first.

    Args:
        heads: with settings that mean something else where the network trains, too.
    """
    simple = [(), *_STARTS, *_HEADS, *((loss,) for loss in _LOSSES)]
    combined = [(loss, *head) for head in _HEADS for loss in _LOSSES]
    methods = [("method=hdml",), ("method=loop",)]
    if not heads:
        return [*simple, *combined, *methods]
    lengths = [("training.epochs=2x",), *((rate,) for rate in _RATES)]
    return [
        *simple,
        *lengths,
        *((loss, rate) for rate in _RATES for loss in _LOSSES),
        *combined,
        *methods,
    ]


@dataclass(frozen=True)
class Kept:
    """Records in memory as a data set."""

    records: Records

    @property
    def kind(self) -> str:
        return self.records.source.kind

    def load(self) -> Records:
        return self.records


@dataclass
class Trial:
    """A candidate at one level (``heads`` or ``whole``): its scores by fold, a number a class."""

    words: Words
    scores: dict[int, list[float]] = field(default_factory=dict)
    seconds: float = 0.0

    def by_class(self, folds: Iterable[int]) -> np.ndarray:
        return np.concatenate([self.scores[fold] for fold in folds])

    @property
    def score(self) -> float:
        return float(self.by_class(self.scores).mean())


def gain(trial: Trial, other: Trial) -> tuple[float, float]:
    """By how much a trial is above another on the classes of their folds, and the standard
    error."""
    folds = sorted(trial.scores.keys() & other.scores.keys())
    apart = trial.by_class(folds) - other.by_class(folds)
    return float(apart.mean()), spread_of(apart.tolist()) / math.sqrt(len(apart))


def simplest(trials: Sequence[Trial]) -> Trial:
    """The first trial that cannot be told from the best, of those with the most folds, and that is
    not below a start without training."""
    most = max(len(trial.scores) for trial in trials)
    whole = [trial for trial in trials if len(trial.scores) == most]
    start = max((trial.score for trial in whole if _closed(trial.words)), default=0.0)
    able = [trial for trial in whole if trial.score >= start]
    best = max(able, key=lambda trial: trial.score)
    for trial in able:
        above, error = gain(best, trial)
        if above <= error:
            return trial
    return best


def settled(config: Config, words: Sequence[str]) -> list[str]:
    """Words whose factors, such as ``optimizer.learning_rate=3x``, are numbers."""
    found = []
    for word in words:
        if match := _FACTOR.match(word):
            slot, _, name = match[1].partition(".")
            value = float(match[2]) * getattr(getattr(config, slot), name)
            word = f"{match[1]}={value:g}"
        found.append(word)
    return found


def composed(data: Any, words: Sequence[str], *layers: Mapping[str, Any]) -> Config:
    """The experiment of a candidate."""
    plain = from_words(word for word in words if not _FACTOR.match(word))
    config = compose({"data": data}, *layers, plain)
    return compose({"data": data}, *layers, from_words(settled(config, words)))


def trained(config: Config) -> list[float]:
    """Train in memory, without a run; MAP@R of each held-out class after the last step."""
    experiment = prepare(config)
    plan = experiment.begin()
    embedder = experiment.method.embedder
    precision = pick_precision(config.training.precision, experiment.device)
    embedder.accelerate(precision, compiled=False)
    step = epoch = 0
    while step < experiment.steps:
        plan = (plan or experiment.plan(epoch))[: experiment.steps - step]
        embedder.train()
        for batch in experiment.batches(plan, epoch=epoch, start=0):
            experiment.method(batch)
        step += len(plan)
        epoch += 1
        plan = None
    verdict = experiment.judge(experiment.encoder).verdict
    found: list[float] = (np.array(verdict.sums) / verdict.queries).round(5).tolist()
    return found


def train_fold(
    folder: Path, *, data: Any, words: Sequence[str], fold: int, folds: int
) -> list[Line]:
    """Train a whole network on a fold; a task of the pool."""
    began = time.monotonic()
    config = composed(data, words)
    cut = Fold(config.data, folds, fold, 0, test=False)
    scores = trained(config.replace(data=cut))
    return [{"scores": scores, "seconds": time.monotonic() - began}]


class Search:
    """The state of one search; everything measured is in ``trials.jsonl``.

    Args:
        data: as ``vicinal.train`` takes it.
        words: fixed settings, and ranges of the user's own, which replace the built-in candidates.
    """

    def __init__(
        self,
        data: Any,
        words: Sequence[str],
        minutes: float,
        out: Path,
        console: Console,
        jobs: int,
    ) -> None:
        space, fixed = parse(words)
        self.data = data
        self.out = out
        self.console = console
        self.jobs = jobs
        self.fixed = tuple(fixed)
        self.base = composed(data, fixed)
        if is_captioned(self.base.data):
            raise ConfigError("best does not search for pictures with texts; use `vicinal train`.")
        if self.base.model.start == "best":  # which would need further held-out classes
            self.fixed += ("model.start=discriminant",)
            self.base = composed(data, self.fixed)
        records = self.base.data.load()
        self.records = records.take(np.flatnonzero(records.splits != "test"))
        self.tested = len(records) - len(self.records)
        classes = len(np.unique(kin_of(self.records)))
        self.folds = min(FOLDS, classes // 2)
        if self.folds < 2:
            raise DataError(f"best needs 4 training classes to hold some out, got {classes}.")
        known = (state_of(self.records), self.fixed, minutes)
        self.key = sha256(repr(known).encode()).hexdigest()[:10]
        self.trials: dict[tuple[str, Words], Trial] = {}
        spent = 0.0
        for line in results.read(self.journal)[0]:
            if line["search"] == self.key:
                spent = max(spent, line["elapsed"])
                self._take(line)
        self.began = time.monotonic() - spent
        self.until = self.began + 60 * minutes
        self.read = self.records.source.kind == "features"  # no backbone to train
        self.level = "heads" if self.read else "whole"  # what is chosen from
        self.candidates = candidates(heads=self.read)
        if space:
            drawn = draw(space, DRAWN, 0)
            self.candidates = [(), *_STARTS, *(tuple(words_of(values)) for values in drawn)]

    @property
    def journal(self) -> Path:
        return self.out / "trials.jsonl"

    def trial(self, level: str, words: Words) -> Trial:
        return self.trials.setdefault((level, words), Trial(words))

    def _take(self, line: Line) -> None:
        trial = self.trial(line["level"], tuple(line["words"]))
        if line["scores"]:
            trial.scores[line["fold"]] = line["scores"]
        trial.seconds = line["seconds"]

    def note(
        self, level: str, words: Words, fold: int, scores: list[float], seconds: float
    ) -> None:
        """Record a result; no scores are those of what cannot be trained."""
        line = {
            "search": self.key,
            "level": level,
            "words": list(words),
            "fold": fold,
            "scores": scores,
            "seconds": round(seconds, 2),
            "elapsed": round(time.monotonic() - self.began, 2),
        }
        results.append(self.journal, line)
        self._take(line)

    # -- features, once ---------------------------------------------------------------------------

    def features(self) -> Kept:
        """The training records as features of the untrained backbone."""
        path = self.out / f"features-{self.key}.npz"
        if not path.is_file():
            config = self.base.replace(data=Kept(self.records), training={"validation": 0.0})
            experiment = prepare(config, self.console)
            began = time.monotonic()
            embedded = experiment.embed(experiment.encoder, self.records, features=True)
            if len(embedded.vectors) < len(self.records):
                raise DataError(f"{len(embedded.skipped)} records cannot be read.")
            write_arrays(path, {"features": embedded.vectors.cpu().numpy()})
            self.note("features", (), 0, [], time.monotonic() - began)
        names = [*map(self.records.source.name, range(len(self.records)))]
        source = FeatureArray(read_arrays(path)["features"], names)
        return Kept(replace(self.records, source=source))

    # -- racing -----------------------------------------------------------------------------------

    def race(self, level: str, running: list[Words], until: float) -> None:
        """Halve the candidates fold by fold; the default and the starts stay. What the first of
        them take tells how many others the time allows on all folds."""
        always = [words for words in running if not words or _closed(words)]
        measure = self.on_heads if level == "heads" else self.on_whole
        slots = 1 if level == "heads" else self.jobs
        first = running[:LEAST]
        measure([words for words in first if not self.trial(level, words).scores], 0, until)
        taken = [self.trial(level, words).seconds for words in first if not _closed(words)]
        cost = max(0.01, min(taken))  # the first of all also loads what all others find loaded
        room = int((until - time.monotonic()) / cost * slots / 2)
        running = running[: max(LEAST, room)]
        for fold in range(self.folds):
            missing = [words for words in running if fold not in self.trial(level, words).scores]
            measure(missing, fold, until)
            self.show()
            if time.monotonic() >= until:
                return
            done = [words for words in running if fold in self.trial(level, words).scores]
            ranked = sorted(done, key=lambda words: -self.trial(level, words).score)
            better = {*always, *ranked[: max(LEAST, len(ranked) // 2)]}
            running = [words for words in done if words in better]

    def on_heads(self, todo: list[Words], fold: int, until: float) -> None:
        """Train heads on features in this process."""
        cut = Fold(self.features(), self.folds, fold, 0, test=False)
        model = self.base.model
        head: dict[str, Any] = {"model": {"head": model.head, "start": model.start}}
        if model.dim is not None:
            head["model"]["dim"] = model.dim
        fixed = self.fixed if self.read else tuple(filter(_for_heads, self.fixed))
        title = f"heads, fold {fold + 1}/{self.folds}"
        with self.console.following(len(todo), 0, title) as follower:
            for number, words in enumerate(todo, 1):
                began = time.monotonic()
                if began >= until:
                    return
                scores: list[float] = []
                with suppress(VicinalError):  # it does not go with these data, or diverged
                    own = [*fixed, *words, "training.validation=0"]
                    scores = trained(composed(cut, own, {"preset": "features"}, head))
                self.note("heads", words, fold, scores, time.monotonic() - began)
                first = self.ranked("heads")[:1]
                leading = [f"{_named(one.words)} {per_cent(one.score)}" for one in first]
                follower.advance(number, f"leading: {', '.join(leading)}")

    def on_whole(self, todo: list[Words], fold: int, until: float) -> None:
        """Train whole networks, in processes of their own where the data have a name."""
        tasks = {}
        for words in todo:
            own = [*self.fixed, *words]
            task = Task(
                f"{_named(words)}, fold {fold + 1}",
                "vicinal.bench.best:train_fold",
                {"data": self.data, "words": own, "fold": fold, "folds": self.folds},
                repr((self.key, own, fold)),
            )
            tasks[task] = words

        def done(task: Task, lines: list[Line]) -> str:
            self.note("whole", tasks[task], fold, lines[0]["scores"], lines[0]["seconds"])
            return f"MAP@R {100 * np.mean(lines[0]['scores']):.1f}"

        if isinstance(self.data, str):
            with Pool(self.out / "jobs", slots=self.jobs, console=self.console) as pool:
                pool.run(tasks, done, title=f"fold {fold + 1}/{self.folds}", until=until)
            return
        for task in tasks:
            if time.monotonic() < until:
                done(task, train_fold(self.out, **task.arguments))

    # -- the whole search -------------------------------------------------------------------------

    def run(self) -> RunDirectory:
        """Search, and train what was found."""
        whole = self.until - self.began
        until = self.until - max(MARGIN * whole, MARGIN_SECONDS)
        if self.read:
            self.race("heads", self.candidates, until)
        else:
            self.on_pictures(until)
        chosen = self.choose()
        words = [*self.fixed, *chosen.words, "training.validation=0"]
        config = composed(self.data, words)
        data = self.data if isinstance(self.data, str) else "DATA"
        command = shlex.join(["vicinal", "train", "--data", data, *settled(config, words)])
        run = train_run(config, self.out / "run", command=command)
        write_text(run.path / "best.toml", config.toml())
        write_text(run.path / "best.md", self.page(chosen, command))
        return run

    def on_pictures(self, until: float) -> None:
        """Race heads, then the best of them as whole networks, as far as the time allows; what a
        record takes is known from its features."""
        self.features()
        record = self.trial("features", ()).seconds / len(self.records)
        passes = PASSES * record * (len(self.records) + self.tested)
        training = self.base.training
        step = BACKWARD * record * training.batch_size
        steps = training.steps or training.epochs * len(self.records) // training.batch_size
        fit = int((LAST * (until - self.began) - passes) / step)
        if any(word.startswith(_LENGTH) for words in self.candidates for word in words):
            fit = steps  # the user searches it
        else:
            given = (word for word in self.fixed if not word.startswith(_LENGTH))
            self.fixed = (*given, f"training.steps={max(1, min(fit, steps))}")
        longest = 2 if fit >= 2 * steps else 1
        known = [trial.seconds for (level, _), trial in self.trials.items() if level == "whole"]
        cost = max(known, default=min(steps, fit) * step + record * len(self.records))
        last = until - passes - (longest * cost if fit > 0 else 0)  # when the last run starts
        heads = [words for words in self.candidates if all(map(_for_heads, words))]
        left = last - time.monotonic()
        self.race(
            "heads", heads, time.monotonic() + max(HEADS * left, MARGIN * (until - self.began))
        )
        if fit > 0:
            others = [one.words for one in self.ranked("heads") if not _closed(one.words)]
            own = [words for words in _NETWORKS if longest > 1 or not words[0].startswith(_LENGTH)]
            varied = [(*first, *words) for first in others[:1] for words in own]
            more = [words for words in self.candidates if words not in heads]
            wanted = [*dict.fromkeys([(), *others[:3], *own, *varied, *more, *others])]
            self.candidates = [*dict.fromkeys([*self.candidates, *wanted])]
            self.race("whole", wanted, last - longest * cost)

    def ranked(self, level: str) -> list[Trial]:
        """The trials of a level, those with the most folds first, and of these the best."""
        trials = [one for (where, _), one in self.trials.items() if where == level and one.scores]
        return sorted(trials, key=lambda one: (-len(one.scores), -one.score))

    def choose(self) -> Trial:
        """The simplest of the best; a start in closed form scores the same at both levels."""
        trials = self.ranked(self.level)
        if self.level == "whole":
            folds = trials[0].scores if trials else range(self.folds)
            for one in self.ranked("heads"):
                if _closed(one.words):
                    scores = {fold: one.scores[fold] for fold in folds if fold in one.scores}
                    trials.append(replace(one, scores=scores))
        if not trials:  # there was no time to measure anything: what never is below the start
            return Trial(_STARTS[-1])
        known = [one for one in trials if one.words in self.candidates]
        return simplest(sorted(known, key=lambda one: self.candidates.index(one.words)))

    # -- what is shown ----------------------------------------------------------------------------

    def cells(self, level: str, against: Trial) -> list[list[str]]:
        """What was tried at a level, the best first, and what it is above ``against``."""
        lines = []
        for one in self.ranked(level):
            apart = MISSING
            if one.scores.keys() & against.scores.keys():
                above, error = gain(one, against)
                apart = f"{signed(above)} ± {per_cent(error)}"
            count = str(len(one.scores))
            lines.append([_named(one.words), level, count, per_cent(one.score), apart])
        return lines

    def show(self) -> None:
        """Print what leads."""
        left = max(0.0, self.until - time.monotonic())
        table = Table(*HEAD, title=f"{len(self.trials)} trials, {spell(left)} left")
        for level in ("whole", "heads"):
            for line in self.cells(level, self.trial(level, ()))[:SHOWN]:
                table.add_row(*line)
        self.console.table(table)

    def page(self, chosen: Trial, command: str) -> str:
        """What was tried, what it gained, how sure that is, and what was left untried."""
        tried = {words for (_, words), one in self.trials.items() if one.scores}
        untried = [f"`{_named(words)}`" for words in self.candidates if words not in tried]
        levels = dict.fromkeys((self.level, "heads"))
        lines = [line for level in levels for line in self.cells(level, chosen)]
        return "\n".join(
            [
                f"# The best of {len(tried)}: {_named(chosen.words)}\n",
                f"`{command}`\n",
                f"MAP@R of classes held out of the training classes, {self.folds} folds, after the "
                "last step; differences to the choice are paired by class, ± one standard "
                "error. Of those that cannot be told from the best and are not below a start "
                "without training, the simplest was chosen. No test class was used.\n",
                *grid(HEAD, lines),
                f"\nLeft untried: {', '.join(untried) or 'nothing'}.\n",
            ]
        )


def _for_heads(word: str) -> bool:
    """Whether a setting means the same for a head on features."""
    key = word.partition("=")[0]
    return key in _ON_HEADS or key.partition(".")[0] in _ON_HEADS


def _closed(words: Words) -> bool:
    return _STARTS[0][0] in words


def _named(words: Words) -> str:
    return " ".join(words) or "default"


def search(
    data: Any,
    words: Sequence[str] = (),
    *,
    minutes: float = 30.0,
    out: Path | None = None,
    jobs: int | None = None,
    console: Console,
) -> RunDirectory:
    """Search, train what was found, and return its run; the same call continues a search."""
    name = Path(data).stem if isinstance(data, str) else "data"
    folder = out or Path("runs") / f"best-{name}"
    at_once = slots_here() if jobs is None else jobs
    return Search(data, words, minutes, folder, console, at_once).run()
