"""One row with one seed: composed from its table's file, trained, measured. Workers call ``perform``."""

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from vicinal.bench.folds import Fold, SelectOnTest
from vicinal.bench.pool import Task
from vicinal.bench.results import Line, fingerprint
from vicinal.bench.table import REALITY_DIM, REALITY_FOLDS, Protocol, Row, Table, load_tables, merged, slots_hash
from vicinal.config import Config, compose, from_words, read
from vicinal.data import open_path
from vicinal.data.location import existing
from vicinal.errors import ConfigError, DivergenceError
from vicinal.files import read_json, write_json
from vicinal.run_directory import RunDirectory

Kind = Literal["trained", "untrained", "fold"]
SHARE = 0.2  # of the training classes that protocol `validation` holds out where a row does not say


@dataclass(frozen=True)
class Job:
    """What is done at a time.

    Attributes:
        table: with the row.
        kind: train and test; measure the untrained network; or train one fold and score the classes that it held out.
        words: further settings, such as those of a trial.
        fold: which fold, of how many, cut by which seed; for ``fold`` alone.
        data: where this machine has the table's data, such as a packed copy; it does not change what is computed.
    """

    table: Table
    row: Row
    kind: Kind
    seed: int
    words: tuple[str, ...] = ()
    fold: tuple[int, int, int] = (0, 0, 0)
    data: str = ""

    @property
    def protocol(self) -> Protocol:
        return self.table.protocol

    def layers(self) -> list[Any]:
        return [*self.table.layers(self.row), from_words(self.words)]

    def identity(self) -> Line:
        """By what a result is found again."""
        found: Line = {"kind": self.kind, "protocol": self.protocol, "seed": self.seed}
        found["slots"] = slots_hash(merged(*self.layers()))
        return found | ({"fold": list(self.fold)} if self.kind == "fold" else {})

    def config(self) -> Config:
        """The resolved experiment; what cannot be composed is rejected here, before anything runs."""
        layers = self.layers()
        share = merged(*layers).get("training", {}).get("validation", SHARE)
        if self.kind == "fold" or self.protocol in ("final", "authors"):
            share = 0.0
        elif self.protocol == "validation" and not float(share):
            raise ConfigError(
                f"row {self.row.name!r}: protocol `validation` holds training classes out, got "
                f"training.validation=0. Remove it, or use the protocol `final`."
            )
        elif self.kind == "untrained" and self.protocol != "validation":
            share = 0.0
        words = [f"training.seed={self.seed}", f"training.validation={share}", "evaluation.artifacts=false"]
        if self.protocol == "reality_check" and self.kind == "trained":
            words.append(f"model.dim={REALITY_DIM}")
        return compose(merged(*layers, from_words(words)), preset_name=self.table.name)

    def located(self) -> Config:
        """The experiment with its data where this machine has them; raises where they are not there."""
        config = self.config()
        if self.data:
            return config.replace(data=open_path(self.data))
        if isinstance(place := getattr(config.data, "path", None), str):
            existing(place)
        return config

    def task(self) -> Task:
        """What a worker is given: it reads the table's file again, since rows may hold objects of the user's own."""
        part = f" fold {self.fold[0] + 1}/{self.fold[1]}" if self.kind == "fold" else ""
        name = "untrained rows" if self.kind == "untrained" else self.row.name
        described = {
            "source": f"{self.table.file}::{self.table.origin}",
            "row": self.row.name,
            "protocol": self.protocol,
            "kind": self.kind,
            "seed": self.seed,
            "words": [*self.row.extra, *self.words],
            "fold": list(self.fold),
            "data": self.data,
        }
        key = repr(sorted(self.identity().items()))
        return Task(f"{name} seed {self.seed}{part}", "vicinal.bench.job:perform", described, key)


def perform(
    folder: Path,
    *,
    source: str,
    row: str,
    protocol: Protocol,
    kind: Kind,
    seed: int,
    words: Sequence[str],
    fold: Sequence[int],
    data: str,
) -> list[Line]:
    """Do a job in a folder; a job that is stopped and started again resumes its run."""
    from vicinal.bench import measure  # torch and all that follows load only where work is done

    (table,) = load_tables(source)
    table = table.replace(protocol=protocol)
    job = Job(table, table.row(row), kind, seed, tuple(words), (fold[0], fold[1], fold[2]), data)
    began, config = time.monotonic(), job.located()
    if kind == "untrained":
        found = measure.untrained(config, REALITY_FOLDS * REALITY_DIM if protocol == "reality_check" else None)
    elif kind == "fold":
        found = [_fold(config, folder, fold)]
    elif protocol == "reality_check":
        cuts = [Fold(config.data, REALITY_FOLDS, number, seed=0, test=True) for number in range(REALITY_FOLDS)]
        runs = [_train(config.replace(data=cut), folder / f"fold-{cut.fold}", again=True) for cut in cuts]
        found = [measure.concatenated(runs, config)]
    elif protocol == "authors":
        run = _train(config.replace(data=SelectOnTest(config.data)), folder / "run", again=True)
        found = [measure.finished(run, config)]
    else:
        found = [measure.finished(_train(config, folder / "run"), config)]
    facts = {"row": row, **job.identity(), **measure.origin(config), "code": _code(folder)}
    facts |= {"created": datetime.now(UTC).isoformat(timespec="seconds"), "wall": round(time.monotonic() - began, 1)}
    return [facts | line for line in found]


def perform_fold(folder: Path, *, source: str, words: Sequence[str], seed: int, fold: Sequence[int]) -> list[Line]:
    """One fold of a trial of ``vicinal tune``.

    Args:
        source: a preset or an experiment file; empty where the data decide.
    """
    from vicinal.bench import measure

    own = (f"training.seed={seed}", "training.validation=0", "evaluation.artifacts=false")
    config = compose(read(source)[1] if source else {}, from_words((*words, *own)))
    began = datetime.now(UTC).isoformat(timespec="seconds")
    return [{**measure.origin(config), "code": _code(folder), "created": began, **_fold(config, folder, fold)}]


def _fold(config: Config, folder: Path, fold: Sequence[int]) -> Line:
    from vicinal.bench import measure

    cut = Fold(config.data, fold[1], fold[0], fold[2], test=False)
    try:
        return measure.held_out(_train(config.replace(data=cut), folder / "run", again=True))
    except DivergenceError as error:  # that these settings do not train is what the trial asks
        return {"seconds": 0.0, "score": 0.0, "epoch": 0, "diverged": str(error)}


def _code(folder: Path) -> str:
    """The fingerprint of this code, after those of other versions that have worked on the runs of this folder."""
    path, mine = folder / "code.json", fingerprint()
    known = read_json(path) if path.is_file() and any(folder.glob("*/run.json")) else []
    known = [*(one for one in known if one != mine), mine]
    write_json(path, known)
    return "+".join(known)


def _train(config: Config, path: Path, *, again: bool = False) -> RunDirectory:
    """The finished run at ``path``: as it is, resumed, or trained from the beginning.

    Args:
        again: start an interrupted run again, since a resume could not rebuild data that was split anew.
    """
    from vicinal.training.console import Console
    from vicinal.training.run import resume, start

    if (path / "run.json").is_file():
        run = RunDirectory.open(path)
        if run.status.get("state") == "finished":
            return run
        if run.status.get("state") in ("running", "interrupted") and not again and not config.own_slots():
            return resume(path, console=Console())
    shutil.rmtree(path, ignore_errors=True)  # failed, or stopped before it was a run
    return start(config, path, command=f"vicinal bench, {config.preset}", console=Console())
