"""One row with one seed: composed from its table's file, trained, measured. Workers call
``perform``.

A result is a line: scores, right answers by class, and where it was computed.
"""

import math
import shutil
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from sklearn.decomposition import PCA
from torch import Tensor
from torch.nn.functional import normalize

from vicinal.bench.pool import Task
from vicinal.bench.results import Line
from vicinal.bench.table import (
    REALITY_DIM,
    REALITY_FOLDS,
    UNTRAINED_ROWS,
    ProtocolName,
    Row,
    Table,
    load_tables,
    merged,
    slots_hash,
)
from vicinal.config import Config, compose, from_words
from vicinal.data.folder import existing
from vicinal.data.loader import contents
from vicinal.data.records import Dataset, Records
from vicinal.data.splits import class_folds, kin_of, sample_folds
from vicinal.errors import ConfigError, DivergenceError, RunError
from vicinal.evaluation.encoder import Embedded, Encoder
from vicinal.evaluation.measure import measure
from vicinal.parallel import pick_device
from vicinal.run_directory import RunDirectory
from vicinal.training.console import Console
from vicinal.training.estimate import step_seconds
from vicinal.training.experiment import load_records, prepare
from vicinal.training.run import commit, hardware, package_version, resume, start

Kind = Literal["trained", "untrained"]
SHARE = 0.2  # of the training classes that protocol `validation` holds out where a row does not say
_FLOOR = 1e-6  # of the largest variance: directions below it are noise that whitening would blow up
_TEXT = "<U10"  # holds "validation"
# A fold is evaluated after the last epoch alone.
_LAST_ALONE = ("training.evaluate_every=1000000", "evaluation.restarts=1")


@dataclass(frozen=True)
class Fold:
    """A data set whose training classes are cut into folds, one of them held out as validation
    classes.

    Attributes:
        data: the data set.
        folds: how many.
        fold: which one is held out, from 0.
        seed: of the cut; all folds of one seed belong together.
        test: whether test records stay in; tuning leaves them out, so that nothing can look at
            them.
        samples: hold out some records of every class instead, where classes are too few.
    """

    data: Dataset
    folds: int
    fold: int
    seed: int = 0
    test: bool = False
    samples: bool = False

    def load(self) -> Records:
        records = self.data.load()
        training = np.flatnonzero(records.splits != "test")
        cut_by = sample_folds if self.samples else class_folds
        _, held = cut_by(kin_of(records)[training], self.folds, self.seed)[self.fold]
        splits = records.splits.astype(_TEXT)
        splits[training] = "train"
        splits[training[held]] = "validation"
        cut = replace(records, splits=splits)
        return cut if self.test else cut.take(np.flatnonzero(splits != "test"))


# -- jobs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """What is done at a time.

    Attributes:
        table: with the row.
        kind: train and test, or measure the untrained network.
        words: further settings, such as those of a trial.
        fold: which fold to train and score the classes that it held out, and of how many, split by
            the seed; to test where there is none.
    """

    table: Table
    row: Row
    kind: Kind
    seed: int
    words: Sequence[str] = ()
    fold: Sequence[int] = ()

    def source(self) -> str:
        """What its records are, as far as the row says it."""
        slots = merged(*self.layers())
        return slots_hash({key: slots[key] for key in ("preset", "data") if key in slots})

    def layers(self) -> list[Any]:
        return [*self.table.layers(self.row), from_words(self.words)]

    def identity(self) -> Line:
        """By what a result is found again."""
        found: Line = {"kind": self.kind, "protocol": self.table.protocol, "seed": self.seed}
        found["slots"] = slots_hash(merged(*self.layers()))
        return found | ({"fold": list(self.fold)} if self.fold else {})

    @property
    def key(self) -> str:
        return repr(self.identity())

    def config(self) -> Config:
        """The resolved experiment; what cannot be composed is rejected here, before anything
        runs."""
        layers = self.layers()
        protocol = self.table.protocol
        words = [f"training.seed={self.seed}", "evaluation.artifacts=false"]
        share = 0.0
        if self.fold:
            words += _LAST_ALONE
        elif protocol == "validation":
            share = float(merged(*layers).get("training", {}).get("validation", SHARE))
            if not share:
                raise ConfigError(
                    f"row {self.row.name!r}: protocol `validation` holds training classes out, got "
                    f"training.validation=0. Remove it, or use the protocol `final`."
                )
        elif protocol == "reality_check" and self.kind == "trained":
            words.append(f"model.dim={REALITY_DIM}")
        words.append(f"training.validation={share}")
        return compose(merged(*layers, from_words(words)), preset_name=self.table.name)

    def located(self) -> Config:
        """The experiment with its data where this machine has them; raises where they are not
        there."""
        config = self.config()
        if isinstance(place := getattr(config.data, "path", None), str):
            existing(place)
        return config

    def cut(self) -> Config:
        """The experiment on its fold."""
        config = self.located()
        fold, folds = self.fold
        return config.replace(data=Fold(config.data, folds, fold, self.seed))

    def measured_seconds(self) -> float | None:
        """How long its training takes, by some of its steps on random features; None for pictures
        and texts, whose steps take longer than it is worth to know."""
        config, records = load_records(self.located())
        if not config.transform.kind == "features" == records.source.kind:
            return None
        found = step_seconds(config, records, records.source.read(0).shape)
        return None if found is None else math.prod(found)

    def task(self) -> Task:
        """What a worker is given: it reads the table's file again, since rows may hold objects of
        the user's own."""
        name = "untrained rows" if self.kind == "untrained" else self.row.name
        named = [name, f"seed {self.seed}"]
        if self.fold:
            named = [name, *self.words, f"fold {self.fold[0] + 1}/{self.fold[1]}"]
        described: Line = {
            "source": self.table.source,
            "row": self.row.name,
            "protocol": self.table.protocol,
            "kind": self.kind,
            "seed": self.seed,
            "words": [*self.row.extra, *self.words],
            "fold": list(self.fold),
        }
        return Task(" ".join(named), "vicinal.bench.job:perform", described, self.key)


def perform(
    folder: Path, *, source: str, row: str, protocol: ProtocolName, **options: Any
) -> list[Line]:
    """Do the job of a task in its folder; a job that is stopped and started again resumes its
    run."""
    table = load_tables(source)[0].replace(protocol=protocol)
    job = Job(table, table.row(row), **options)
    began = time.monotonic()
    config = job.located()
    if job.kind == "untrained":
        found = untrained_rows(
            config, REALITY_FOLDS * REALITY_DIM if protocol == "reality_check" else None
        )
    elif job.fold:
        found = [_held_out(job, folder)]
    elif protocol == "reality_check":
        runs = []
        for number in range(REALITY_FOLDS):
            cut = Fold(config.data, REALITY_FOLDS, number, test=True)
            runs.append(train_run(config.replace(data=cut), folder / f"fold-{number}", again=True))
        found = [concatenated(runs, config)]
    else:
        found = [finished(train_run(config, folder / "run"))]
    facts = {
        "row": row,
        **job.identity(),
        **origin(config),
        "records": state_of(config.data.load()),
        "wall": round(time.monotonic() - began, 1),
    }
    return [facts | line for line in found]


def state_of(records: Records) -> str:
    """A short hash of names, labels, splits and content of all rows."""
    return records.fingerprint() + sha256(contents(records).tobytes()).hexdigest()[:8]


def _held_out(job: Job, folder: Path) -> Line:
    """Recall@1 on the classes that a fold held out, after the last step."""
    try:
        run = train_run(job.cut(), folder / "run", again=True)
    except DivergenceError as error:  # that these settings do not train is what the trial asks
        return {"seconds": 0.0, "metrics": {"recall@1": 0.0}, "diverged": str(error)}
    looks = _looks(run)
    return {"seconds": run.status["seconds"], "metrics": {"recall@1": looks[max(looks)]}}


def train_run(
    config: Config,
    path: Path,
    *,
    again: bool = False,
    command: str = "vicinal bench",
    until: float = math.inf,
) -> RunDirectory:
    """The finished run at ``path``: as it is, resumed, or trained from the beginning.

    Args:
        again: start an interrupted run again, since a resume could not rebuild data that was split
            anew.
        command: what the run says that it was made by.
        until: when, by ``time.monotonic``, a training that begins here ends though steps are left.
    """
    if (path / "run.json").is_file():
        run = RunDirectory.open(path)
        if run.status.get("state") == "finished":
            return run
        if (
            run.status.get("state") in ("running", "interrupted")
            and not again
            and not config.own_slots()
        ):
            return resume(path, console=Console())
    shutil.rmtree(path, ignore_errors=True)  # failed, or stopped before it was a run
    return start(config, path, command=command, console=Console(), until=until)


# -- what is recorded -----------------------------------------------------------------------------


def origin(config: Config) -> Line:
    """Commit, machine and time."""
    facts = hardware(pick_device(config.training.device))
    place = facts.get("gpu") or f"{facts['cores']} {facts['machine']} cores"
    threads = f"{facts['threads']} thread{'s' * (facts['threads'] > 1)}"
    return {
        "commit": commit(),
        "hardware": f"{place}, {threads} a run, torch {package_version('torch')}",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def finished(run: RunDirectory, metric: str = "recall@1") -> Line:
    """A finished run on its test classes, by class in one metric if that is a mean over queries."""
    step = results_of(run)["selected"]["step"]
    metrics = metrics_of(run)
    by_class = run.arrays("by_class") or {}
    # Beside those of the test classes: does a method reduce over-fitting?
    rows = (run.document("diagnostics") or {"rows": []})["rows"]
    known: Line = next((row for row in rows if row["name"] == "train"), {})
    return {
        "seconds": run.status["seconds"],
        "data": run.info["data"]["fingerprint"],
        "metrics": metrics | {f"train {name}": known[name] for name in metrics if name in known},
        "held_out": _looks(run).get(step),
        "selected": step,
        **(class_scores(by_class, metric) if metric in by_class else {}),
        "scalars": scalars(run),
    }


def _looks(run: RunDirectory) -> dict[int, float]:
    """Recall@1 on the validation classes, by step."""
    lines = (line for line in run.metrics() if line["kind"] == "evaluation")
    return {line["step"]: line["metrics"]["recall@1"] for line in lines}


def concatenated(runs: Sequence[RunDirectory], config: Config) -> Line:
    """The models of all folds side by side, and the mean of each alone (Musgrave et al. 2020).

    As there, each model is selected by MAP@R of its validation classes.
    """
    device = pick_device(config.training.device)
    skip = config.training.skip_corrupt
    part = config.data.load().part("test")
    each = [Encoder.load(run, device).embed(part, skip_corrupt=skip) for run in runs]
    vectors = torch.cat([embedded.vectors for embedded in each], dim=1)
    alone = [metrics_of(run) for run in runs]
    width = each[0].vectors.shape[1]
    scores = _scores(replace(each[0], vectors=vectors), config)
    scores["metrics"] |= {
        f"{name} {width}-d": sum(m[name] for m in alone) / len(alone) for name in alone[0]
    }
    return {"seconds": sum(run.status["seconds"] for run in runs), **scores}


def untrained_rows(config: Config, dim: int | None = None) -> list[Line]:
    """The rows without training: the untrained network's features by cosine, their PCA, their
    whitened PCA.

    Projections are fitted on what the trained rows learn from. Features are put on the sphere
    before and after.

    Args:
        dim: to which PCA reduces; that of the model by default.
    """
    experiment = prepare(config, Console())
    test = experiment.embed(experiment.encoder, experiment.records.part("test"), features=True)
    known = normalize(
        experiment.embed(experiment.encoder, experiment.train, features=True).vectors, dim=1
    )
    features = normalize(test.vectors, dim=1)
    dim = dim or config.model.dim or features.shape[1]
    projected = [
        normalize(pca(features, known, dim, whiten=whiten), dim=1) for whiten in (False, True)
    ]
    return [
        {"row": name, "seconds": 0.0, **_scores(replace(test, vectors=vectors), config)}
        for name, vectors in zip(UNTRAINED_ROWS, (features, *projected), strict=True)
    ]


def pca(
    vectors: Float[Tensor, "n c"], known: Float[Tensor, "m c"], dim: int, *, whiten: bool
) -> Float[Tensor, "n d"]:
    """Project ``vectors`` on the ``dim`` directions in which ``known`` varies most.

    ``whiten`` scales each to variance 1 (Jégou and Chum 2012), small ones up to a floor, which
    scikit-learn's PCA lacks. There are fewer where there are not as many: m vectors span m - 1
    directions about their mean.
    """
    kept = min(dim, known.shape[1], len(known) - 1)
    fitted = PCA(kept, svd_solver="full").fit(known.double().numpy())
    projected = (vectors.double().numpy() - fitted.mean_) @ fitted.components_.T
    if whiten:
        variances = fitted.explained_variance_
        projected /= np.sqrt(np.maximum(variances, _FLOOR * variances[0]))
    return torch.from_numpy(projected).float()


def class_scores(by_class: Mapping[str, np.ndarray], metric: str = "recall@1") -> dict[str, Any]:
    """``queries`` and ``hits`` of each class, by growing label: how many queries, and the sum of
    their scores.

    Classes that no neighbor can be of are left out. ``queries`` is one number where all classes
    have as many.
    """
    queries = by_class["queries"].tolist()
    hits = by_class[metric].tolist()
    hits = [round(value) if metric.startswith("recall@") else round(value, 6) for value in hits]
    return {"queries": queries[0] if len(set(queries)) == 1 else queries, "hits": hits}


def metrics_of(run: RunDirectory) -> dict[str, float]:
    """The scores of a run's model, and of its first dimensions where they were measured, such as
    ``recall@1 64-d``."""
    found: dict[str, float] = {}
    for row in results_of(run)["rows"]:
        name, *size = row["name"].split()
        if name in ("trained", "trained,"):
            end = f" {size[0]}-d" if size else ""
            found |= {f"{metric}{end}": value for metric, value in row["metrics"].items()}
    return found


def scalars(run: RunDirectory) -> dict[str, float]:
    """The mean of each of the method's own scalars over the middle fifth of the steps."""
    series = defaultdict[str, list[float]](list)
    for line in run.metrics():
        for name, value in line.items() if line["kind"] == "step" else ():
            if "/" in name and isinstance(value, (int, float)) and math.isfinite(value):
                series[name].append(value)
    middles = {
        name: np.array_split(np.array(values), 5)[2]
        for name, values in series.items()
        if len(values) >= 5
    }
    return {name: float(f"{part.mean():.5g}") for name, part in middles.items()}


def results_of(run: RunDirectory) -> dict[str, Any]:
    """The results of a run; a RunError where there are none."""
    if run.results is None:
        raise RunError(
            f"{run.path} has no results: it is {run.status.get('state')}, or its data has no "
            "classes to measure on."
        )
    return run.results


def _scores(embedded: Embedded, config: Config) -> Line:
    """The metrics of vectors, and Recall@1 by class."""
    recalls = config.evaluation.recalls
    restarts = config.evaluation.restarts
    found = measure(
        embedded, recalls=recalls, clustering=True, seed=config.training.seed, restarts=restarts
    )
    return {"metrics": found, **class_scores(found.queries.by_class())}
