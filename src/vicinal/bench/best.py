"""``vicinal best``: the settings that serve given data best, chosen on held-out training classes.

Candidates race over class-disjoint folds of the training classes, or where these are two or three
over folds of their records: all of them on the first fold, the better half on the next, and so on.
They race first as heads on features that the pretrained backbone gave once, and where the time does
not allow all of them, an eighth of their steps tells which; then the best of them as whole networks
trained on pictures or texts. A fold's score is ``training.select`` of what it holds out after the
last step, class by class. Of all not significantly below the best, paired by class and within two
standard errors, the simplest is trained on all training classes, if it is not below the start
without training. Test records are left out of all but that run.
"""

import math
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import PCA

from vicinal.bench import results
from vicinal.bench.job import Fold, state_of, train_run
from vicinal.bench.page import grid
from vicinal.bench.pool import Pool, Task, slots_here
from vicinal.bench.results import Line
from vicinal.bench.tuning import draw, parse, words_of
from vicinal.config import Config, compose, from_words, is_captioned
from vicinal.data.records import FeatureArray, Records
from vicinal.data.splits import kin_of, most_folds
from vicinal.errors import ConfigError, DataError, VicinalError
from vicinal.evaluation.statistics import spread_of
from vicinal.files import read_arrays, read_lines, write_arrays, write_text
from vicinal.models.efficientnet_lite import EfficientNetLite
from vicinal.parallel import pick_device
from vicinal.reports.tables import MISSING, metric_title, per_cent, signed
from vicinal.run_directory import RunDirectory
from vicinal.training.console import Console, spell
from vicinal.training.estimate import step_seconds
from vicinal.training.experiment import pick_precision, prepare

FOLDS = 4
DRAWN = 64  # candidates of a search over ranges of the user's own
WIDTH = 256  # of the features that heads race on: their largest components
SHORT = 8  # so many times fewer steps tell which heads run where not all of them can
FASTER = 4  # the rate of so few steps, or the highest would always lead
SHARE = 0.4  # of the time for heads, that this may take
BACKWARD = 3.5  # what a step takes of a record, in passes forward
LAST = 0.15  # of the time, that the last run may take
HEADS = 0.25  # of the time before it, that heads may take where networks follow
MARGIN = 0.05  # of the time; to be measured, the last run takes so many seconds, too
END = 15.0
END_A_RECORD = 4e-3
CORES = 4  # of a network that trains on a CPU
SHOWN = 5  # of each level, while the search runs
SIGNIFICANT = 2.0  # standard errors: 95 of 100 differences of equals are smaller
LEAST = 4  # candidates that go on to the next fold
_ON_HEADS = (
    *("loss", "method", "sampler", "model.dim", "model.head", "model.start"),
    "training.head_only",
)
_LENGTH = ("training.epochs=", "training.steps=")
_STARTS = (  # without a step: the network as it is, and with a head
    ("training.head_only=true", "model.head=none", "model.start=random"),
    ("training.head_only=true", "model.start=principal"),
    ("training.head_only=true", "model.start=discriminant"),
)
_HEADS = (
    ("model.head=linear", "model.dim=128", "model.start=discriminant"),
    ("model.head=linear", "model.dim=512", "model.start=random"),
)
_RATES = (3, 0.3, 10)
# The first of their kind on CUB-200, by experiments/losses.py.
_LOSSES = (
    "loss=recall_at_k",
    "loss=info_nce",
    "loss=ranked_list",
    "loss=margin",
    "loss=signal_to_noise_contrastive",
    "loss=cosface",
    "loss=smooth_ap",
    "loss=danml",
)
# Proxies, and what makes other samples or classes for them.
_PROXIES = (
    ("loss=proxy_anchor",),
    *(
        ("loss=proxy_anchor", f"method={name}")
        for name in ("proxy_synthesis", "metrix", "idml", "see", "hdml", "loop")
    ),
)
_PROXY_RATE = 5  # of the default's rate: its authors' 1e-4 on photographs
_LARGER = ("efficientnet_lite1", "efficientnet_lite2")  # than Lite0, the default
Words = tuple[str, ...]
HEAD = ("settings", "trained", "folds", "held out", "difference ± s.e.")


def candidates(config: Config, *, heads: bool) -> list[Words]:
    """The built-in candidates, the simplest first.

    Args:
        heads: with settings that mean something else where the network trains, too.
    """
    losses: list[Words] = [(), *((loss,) for loss in _LOSSES)]
    rates = [(), *(faster(config, factor) for factor in _RATES)] if heads else [()]
    raced = [loss + head + rate for head in ((), *_HEADS) for rate in rates for loss in losses]
    longer = [twice_as_long(config)] if heads else []
    return [(), *_STARTS, *raced[1:], *longer, ("method=hdml",), ("method=loop",)]


def faster(config: Config, factor: float) -> Words:
    return (f"optimizer.learning_rate={factor * config.optimizer.learning_rate:g}",)


def twice_as_long(config: Config) -> Words:
    unit = "steps" if config.training.steps else "epochs"
    return (f"training.{unit}={2 * getattr(config.training, unit)}",)


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
        return float(self.by_class(self.scores).mean()) if self.scores else 0.0


def gain(trial: Trial, other: Trial) -> tuple[float, float]:
    """By how much a trial is above another on the classes of their folds, and the standard
    error."""
    folds = sorted(trial.scores.keys() & other.scores.keys())
    apart = trial.by_class(folds) - other.by_class(folds)
    return float(apart.mean()), spread_of(apart.tolist()) / math.sqrt(len(apart))


def simplest(trials: Sequence[Trial]) -> Trial:
    """The first trial that is not significantly below the best, and not below a start without
    training; all have the same folds."""
    start = max((trial.score for trial in trials if _closed(trial.words)), default=0.0)
    able = [trial for trial in trials if trial.score >= start]
    best = max(able, key=lambda trial: trial.score)
    for trial in able:
        above, error = gain(best, trial)
        if above <= SIGNIFICANT * error:
            return trial
    return best


def composed(data: Any, words: Iterable[str], *layers: Mapping[str, Any]) -> Config:
    """The experiment of a candidate."""
    return compose({"data": data}, *layers, from_words(words))


def steps_of(config: Config, records: Records) -> int:
    """About how many steps it takes to train on so many records."""
    training = config.training
    return training.steps or training.epochs * len(records) // training.batch_size


def trained(config: Config) -> list[float]:
    """Train in memory, without a run; MAP@R of each held-out class after the last step."""
    experiment = prepare(config)
    plan = experiment.begin()
    embedder = experiment.method.embedder
    precision = pick_precision(config.training.precision, experiment.device)
    embedder.accelerate(precision, compiled=False)
    epoch = 0
    left = experiment.steps
    while left:
        plan = (plan or experiment.plan(epoch))[:left]
        embedder.train()
        for batch in experiment.batches(plan, epoch=epoch, start=0):
            experiment.method(batch)
        left -= len(plan)
        epoch += 1
        plan = None
    verdict = experiment.judge(experiment.encoder).verdict
    found: list[float] = (np.array(verdict.sums) / verdict.queries).round(5).tolist()
    return found


def train_fold(folder: Path, *, data: Any, words: Sequence[str], cut: Line) -> list[Line]:
    """Train a whole network on a fold; a task of the pool."""
    began = time.monotonic()
    scores: list[float] = []
    with suppress(VicinalError):  # it does not go with these data, or diverged
        config = composed(data, words)
        scores = trained(config.replace(data=Fold(config.data, **cut)))
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
        self.clocks = (time.monotonic(), time.process_time())
        space, fixed = parse(words)
        self.data = data
        self.out = out
        self.journal = out / "trials.jsonl"
        self.console = console
        self.jobs = jobs
        self.fixed = tuple(fixed)
        self.given = [word.partition("=")[0] for word in fixed]
        self.base = composed(data, fixed)
        if is_captioned(self.base.data):
            raise ConfigError("best does not search for pictures with texts; use `vicinal train`.")
        if self.base.model.start == "best":  # which would need further held-out classes
            self.fixed += ("model.start=discriminant",)
            self.base = composed(data, self.fixed)
        records = self.base.data.load()
        self.records = records.take(np.flatnonzero(records.splits != "test"))
        self.tested = len(records) - len(self.records)
        _, sizes = np.unique(kin_of(self.records), return_counts=True)
        self.samples = len(sizes) < 4
        self.folds = min(FOLDS, most_folds(self.records))
        if self.folds < 2:
            raise DataError(
                "best needs 2 training classes of 4 records at least, or 4 classes, got "
                f"{len(sizes)}, one of {sizes.min(initial=0)} records."
            )
        own = (state_of(self.records), self.fixed, minutes)
        self.key = sha256(repr(own).encode()).hexdigest()[:10]
        self.trials: dict[tuple[str, Words], Trial] = {}
        self.done: dict[str, int] = {}  # folds that all had which were left, by level
        self.guess = 0.0  # the seconds of a network's training before one is known
        self.measured = math.inf  # when it is measured
        known = [line for line in read_lines(self.journal) if line["search"] == self.key]
        for line in known:
            self._take(line)
        self.began = self.clocks[0] - max((line["elapsed"] for line in known), default=0.0)
        self.until = self.began + 60 * minutes
        self.read = self.records.source.kind == "features"  # no backbone to train
        self.level = "heads" if self.read else "whole"  # what is chosen from
        self.candidates = [*filter(self.free, candidates(self.base, heads=self.read))]
        if space:
            drawn = draw(space, DRAWN, 0)
            self.candidates = [(), *_STARTS, *(tuple(words_of(values)) for values in drawn)]

    def cut(self, fold: int) -> dict[str, Any]:
        """What ``Fold`` takes."""
        return {"folds": self.folds, "fold": fold, "samples": self.samples}

    def free(self, words: Words) -> bool:
        """Whether a candidate changes nothing that the user fixed; a start in closed form may."""
        keys = [word.partition("=")[0] for word in words]
        clash = any(f"{mine}.".startswith(f"{key}.") for mine in self.given for key in keys)
        return _closed(words) or not clash

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

    @cached_property
    def features(self) -> Kept:
        """The training records as the largest components of what the untrained backbone gives."""
        path = self.out / f"features-{self.key}.npz"
        if not path.is_file():
            config = self.base.replace(data=Kept(self.records), training={"validation": 0.0})
            experiment = prepare(config, self.console)
            began = time.monotonic()
            embedded = experiment.embed(experiment.encoder, self.records, features=True)
            if len(embedded.vectors) < len(self.records):
                raise DataError(f"{len(embedded.skipped)} records cannot be read.")
            self.note("features", (), 0, [], time.monotonic() - began)
            vectors = embedded.vectors.float().cpu().numpy()
            if min(vectors.shape) > WIDTH:
                vectors = PCA(WIDTH, random_state=0).fit_transform(vectors)
            write_arrays(path, {"features": vectors})
        names = self.records.names()
        source = FeatureArray(read_arrays(path)["features"], names)
        return Kept(replace(self.records, source=source))

    # -- racing -----------------------------------------------------------------------------------

    def race(self, level: str, running: list[Words], until: float) -> None:
        """Halve the candidates fold by fold; the default and the starts stay. What the first of
        them take tells how many others the time allows on all folds."""
        always = [words for words in running if not words or _closed(words)]
        first = running[: len(always) + 1]
        self.measure(level, first, 0, until)
        taken = [self.trial(level, words).seconds for words in first if not _closed(words)]
        cost = max(0.01, min(taken))  # the first of all also loads what all others find loaded
        slots = 1 if level == "heads" else self.jobs
        left = until - time.monotonic()
        if level == "heads" and len(running) > max(LEAST, left / cost / 2):
            self.measure("short", running, 0, time.monotonic() + SHARE * left)
            scores = {words: self.trial("short", words).score for words in running}
            running = sorted(running, key=lambda words: (words not in first, -scores[words]))
            left = until - time.monotonic()
        running = running[: max(LEAST, int(left / cost * slots / 2))]
        for fold in range(self.folds):
            whole = self.measure(level, running, fold, until)
            self.console.line(f"{level}, fold {fold + 1}, {self.leading(level, SHOWN)}")
            if not whole:
                return
            self.done[level] = fold + 1
            done = [words for words in running if fold in self.trial(level, words).scores]
            ranked = sorted(done, key=lambda words: -self.trial(level, words).score)
            better = {*always, *ranked[: max(LEAST, len(ranked) // 2)]}
            running = [words for words in done if words in better]

    def measure(self, level: str, running: Iterable[Words], fold: int, until: float) -> bool:
        """Train on a fold what was not yet; return whether the time allowed it. Whole networks
        train in processes of their own where the data have a name."""
        todo = [words for words in running if fold not in self.trial(level, words).scores]
        title = f"{level}, fold {fold + 1}/{self.folds}"
        if level == "whole" and isinstance(self.data, str):
            return self.on_pool(todo, fold, title, until)
        data = self.base.data if level == "whole" else self.features
        cut = Kept(Fold(data, **self.cut(fold)).load())
        took = 0.0
        with self.console.following(len(todo), 0, title) as follower:
            for number, words in enumerate(todo, 1):
                began = time.monotonic()
                if began + max(took, self.trial(level, words).seconds) >= until:
                    return False
                scores: list[float] = []
                with suppress(VicinalError):  # it does not go with these data, or diverged
                    scores = trained(self.config(level, words, cut))
                took = time.monotonic() - began
                self.note(level, words, fold, scores, took)
                follower.advance(number, self.leading(level, 1))
        return True

    def config(self, level: str, words: Words, cut: Kept) -> Config:
        """What trains a candidate on a fold: its network, or a head on features."""
        own = [*self.fixed, *words, "training.validation=0"]
        if level == "whole":
            return composed(self.data, own).replace(data=cut)
        model = self.base.model
        head: dict[str, Any] = {"model": {"head": model.head, "start": model.start}}
        if model.dim is not None:
            head["model"]["dim"] = model.dim
        if not self.read:
            own = [*filter(_for_heads, self.fixed), *words, "training.validation=0"]
        config = composed(cut, own, {"preset": "features"}, head)
        if level == "short":
            steps = steps_of(config, cut.records.part("train")) // SHORT
            rate = FASTER * config.optimizer.learning_rate
            config = config.replace(
                training={"steps": max(1, steps)}, optimizer={"learning_rate": rate}
            )
        return config

    def on_pool(self, todo: Iterable[Words], fold: int, title: str, until: float) -> bool:
        """Train whole networks in processes of their own."""
        tasks = {}
        for words in todo:
            own = [*self.fixed, *words]
            arguments = {"data": self.data, "words": own, "cut": self.cut(fold)}
            name = f"{_named(words)}, fold {fold + 1}"
            tasks[Task(name, "vicinal.bench.best:train_fold", arguments, repr(arguments))] = words

        def done(task: Task, lines: list[Line]) -> str:
            self.note("whole", tasks[task], fold, **lines[0])
            scores = lines[0]["scores"]
            return (
                f"held out {per_cent(float(np.mean(scores)))}"
                if scores
                else "cannot be trained here"
            )

        latest = until - (self.longest() or self.guess)
        with Pool(self.out / "jobs", slots=self.jobs, console=self.console) as pool:
            return not pool.run(tasks, done, title=title, until=latest, stop=until)

    # -- the whole search -------------------------------------------------------------------------

    def run(self) -> RunDirectory:
        """Search, and train what was found."""
        self.search()
        chosen = self.choose()
        words = [*self.fixed, *chosen.words, "training.validation=0"]
        config = composed(self.data, words)
        data = self.data if isinstance(self.data, str) else "DATA"
        command = shlex.join(["vicinal", "train", "--data", data, *words])
        run = train_run(config, self.out / "run", command=command, until=self.measured)
        write_text(run.path / "best.toml", config.toml())
        write_text(run.path / "best.md", self.page(chosen, command))
        return run

    def search(self) -> None:
        """Race heads, then the best of them as whole networks, as far as the time allows; what a
        record takes is known from its features."""
        self.features  # noqa: B018
        whole = self.until - self.began
        end = END + END_A_RECORD * self.tested
        passed = time.monotonic() - self.clocks[0]
        used = time.process_time() - self.clocks[1]
        if pick_device(self.base.training.device).type == "cpu":  # which others may keep busy
            end *= max(1.0, passed / used)
        record = self.trial("features", ()).seconds / len(self.records)
        steps = steps_of(self.base, self.records)
        step = BACKWARD * record * self.base.training.batch_size
        if self.read:
            timed = step_seconds(self.base, self.records, self.records.source.read(0).shape)
            step = timed[0] if timed else 0.0
        every = len(self.records) + self.tested
        scored = record * (every + self.tested)
        begun = record * (every + len(self.records))  # decoded, and its head started
        self.measured = self.until - MARGIN * whole - end - scored
        until = self.measured - begun
        rest = whole - scored - begun
        if until - self.began < record * len(self.records):
            self.console.line(
                f"{whole / 60:g} minutes are too short for a comparison: beginning and measuring "
                f"a run take {spell(self.until - until)}. Give --minutes more.",
                warning=True,
            )
            return
        fit = int(LAST * max(0.0, rest) / step) if step else 2 * steps
        if any(word.startswith(_LENGTH) for words in self.candidates for word in words):
            fit = max(fit, steps)  # the user searches it
        if fit < steps:
            given = (word for word in self.fixed if not word.startswith(_LENGTH))
            self.fixed = (*given, f"training.steps={max(1, fit)}")
        longest = 2 if fit >= 2 * steps else 1
        longer = twice_as_long(self.base)
        own: list[Words] = [  # what features cannot show, the best first by experiments/peers.md
            faster(self.base, _RATES[0]),
            (*_PROXIES[0], *faster(self.base, _PROXY_RATE)),
            ("loss=batch_hard_triplet", "loss.margin=0.1", "loss.normalize=true"),
            longer,
            (*longer, *faster(self.base, _RATES[0])),
            ("model.head=none", "model.start=random"),
            *self.of_pictures(),
            *_PROXIES,
        ]
        if longest == 1:
            own = [words for words in own if longer[0] not in words]
            self.candidates = [words for words in self.candidates if words != longer]
        own = [*filter(self.free, own)]
        cost = self.longest() or min(steps, fit) * step + record * len(self.records)
        last = until - longest * cost if fit else until  # when the last run starts
        self.guess = cost * self.jobs  # which share the machine
        if self.read:
            self.race("heads", self.candidates, last)
            return
        heads = [words for words in self.candidates if all(map(_for_heads, words))]
        share = max(HEADS * (last - time.monotonic()), MARGIN * whole)
        self.race("heads", heads, time.monotonic() + share)
        if fit:
            others = [one.words for one in self.ranked("heads") if not _closed(one.words)]
            varied = [(*first, *words) for first in others[:1] for words in own]
            more = [words for words in self.candidates if words not in heads]
            wanted = [(), *_STARTS, *others[:1], *own, *others[1:3], *varied, *more, *others]
            self.candidates = [*dict.fromkeys([*self.candidates, *wanted])]
            self.race("whole", [*dict.fromkeys(wanted)], last)

    def longest(self) -> float:
        """The seconds of the network that took the longest so far; 0 where none has ended."""
        seconds = [one.seconds for (level, _), one in self.trials.items() if level == "whole"]
        return max(seconds, default=0.0)

    def of_pictures(self) -> list[Words]:
        """Pooling, crops and larger networks, where their weights are at hand."""
        model = self.base.model
        found = list[Words]()
        if model.pooling == "generalized":
            found.append(("model.pooling=average",))
        if getattr(self.base.transform, "crop", "") == "resized":
            found.append(("transform.area=0.4,1.0",))
        if model.name == "efficientnet_lite0" and model.weights == "imagenet":
            for name in _LARGER:
                with suppress(ConfigError):
                    EfficientNetLite(name.removeprefix("efficientnet_")).find_weights("imagenet")  # type: ignore[arg-type]
                    kept = (f"model.{key}={getattr(model, key)}" for key in ("pooling", "start"))
                    found.append((f"model={name}", *kept))
        return found

    def ranked(self, level: str) -> list[Trial]:
        """The trials of a level, those with the most folds first, and of these the best."""
        trials = [one for (where, _), one in self.trials.items() if where == level and one.scores]
        return sorted(trials, key=lambda one: (-len(one.scores), -one.score))

    def choose(self) -> Trial:
        """The simplest of the best, by the folds that all those had which were left; where there
        was no time for networks, a start."""
        folds = range(self.done.get(self.level, 1))
        left = [
            Trial(one.words, {fold: one.scores[fold] for fold in folds})
            for one in self.ranked(self.level)
            if one.words in self.candidates and one.scores.keys() >= {*folds}
        ]
        left = left or [one for one in self.ranked("heads") if _closed(one.words)]
        if not left:  # there was no time to measure anything
            return Trial(_STARTS[-1])
        return simplest(sorted(left, key=lambda one: self.candidates.index(one.words)))

    # -- what is shown ----------------------------------------------------------------------------

    def cells(self, level: str, words: Words) -> list[list[str]]:
        """What was tried at a level, the best first, and what it is above ``words``."""
        against = self.trial(level, words)
        lines = []
        for one in self.ranked(level):
            apart = MISSING
            if one.scores.keys() & against.scores.keys():
                above, error = gain(one, against)
                apart = f"{signed(above)} ± {per_cent(error)}"
            count = str(len(one.scores))
            lines.append([_named(one.words), level, count, per_cent(one.score), apart])
        return lines

    def leading(self, level: str, count: int) -> str:
        """What leads at a level."""
        first = [f"{_named(one.words)} {per_cent(one.score)}" for one in self.ranked(level)[:count]]
        return f"leading: {', '.join(first)}"

    def page(self, chosen: Trial, command: str) -> str:
        """What was tried, what it gained, how sure that is, and what was left untried."""
        tried = {words for (_, words), one in self.trials.items() if one.scores}
        untried = [f"`{_named(words)}`" for words in self.candidates if words not in tried]
        held = "records" if self.samples else "classes"
        metric = metric_title(str(self.base.training.select))
        levels = ("whole", "heads", "short")
        lines = [line for level in levels for line in self.cells(level, chosen.words)]
        return "\n".join(
            [
                f"# The best of {len(tried)}: {_named(chosen.words)}\n",
                f"`{command}`\n",
                f"{metric} of {held} held out of the training classes, {self.folds} folds, after "
                "the last step; differences to the choice are paired by class, ± one standard "
                "error. Of those not significantly below the best and not below a start "
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
    if jobs is None:
        on_gpu = pick_device("auto").type == "cuda"
        jobs = slots_here() if on_gpu else max(1, slots_here() // CORES)
    return Search(data, words, minutes, folder, console, jobs).run()
