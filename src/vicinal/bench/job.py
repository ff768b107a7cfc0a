"""One row with one seed, as the bench's workers do it, or a process of its own: ``python -m vicinal.bench.job FOLDER``.

The folder holds ``job.json``, what is to be done; at the end ``done.json``, the results. Training runs lie beside them.
A job that is stopped and started again goes on with its run.
"""

import json
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from vicinal.bench.code import fingerprint
from vicinal.bench.parent import stop_with_parent
from vicinal.bench.recuts import Fold, SelectOnTest
from vicinal.bench.tables import REALITY_DIM, REALITY_FOLDS, Protocol
from vicinal.data import open_path
from vicinal.data.location import existing
from vicinal.errors import ConfigError, DivergenceError, VicinalError
from vicinal.files import read_json, write_json
from vicinal.run_directory import RunDirectory
from vicinal.training.overrides import apply
from vicinal.training.recipe import Recipe, find_recipe, settings

Kind = Literal["trained", "baselines", "fold"]
_PROTOCOL_SETTINGS: dict[Protocol, tuple[str, ...]] = {
    "validation": (),
    "final": ("validation=0",),
    "reality_check": (f"dim={REALITY_DIM}",),
    "authors": ("validation=0",),
}


@dataclass(frozen=True)
class Job:
    """What is done at a time.

    Attributes:
        row: name of the row; ``baselines`` for the three without training.
        kind: train and test; measure the untrained network; or train one fold and score what it held out.
        dim: to which the baselines reduce; 0 for the others.
        fold: which fold, of how many, cut by which seed; for ``fold`` alone.
        data: where this machine has the row's data, such as a packed copy; empty is where the recipe says. It is no
            part of what the job computes.
    """

    row: str
    kind: Kind
    recipe: str
    overrides: tuple[str, ...]
    seed: int
    protocol: Protocol = "validation"
    dim: int = 0
    fold: tuple[int, int, int] = (0, 0, 0)
    data: str = ""

    def resolved(self) -> Recipe:
        """The recipe with all settings; refuses here what its process would refuse later."""
        words = ["artefacts=false", *self.overrides, f"seed={self.seed}"]  # a table shows no run's own pictures
        if self.kind == "baselines":  # fitted on the classes that the protocol's rows learn from; no dim of their own
            words += [] if self.protocol == "validation" else ["validation=0"]
        else:
            words += _PROTOCOL_SETTINGS[self.protocol]
        recipe = apply(find_recipe(self.recipe), words)
        if self.protocol == "validation" and self.kind == "trained" and not recipe.validation:
            raise ConfigError(
                f"row {self.row!r}: protocol `validation` holds training classes out, but the row sets validation=0. "
                f"Leave that out, or use the protocol `final`."
            )
        return recipe

    def located(self) -> Recipe:
        """The recipe with its data where this machine has them; refuses data that are not there."""
        recipe = self.resolved()
        if self.data:
            return replace(recipe, data=open_path(self.data))
        if isinstance(place := getattr(recipe.data, "path", None), str):
            existing(place)
        return recipe

    def identity(self) -> dict[str, Any]:
        """By what a result is found again."""
        return {
            "recipe": self.recipe,
            "kind": self.kind,
            "protocol": self.protocol,
            "seed": self.seed,
            "dim": self.dim,
            "settings": settings(self.resolved()),
        }

    def folder(self, runs: Path) -> Path:
        """Where it works: readable, and another place for other settings."""
        text = json.dumps([self.identity(), self.fold], sort_keys=True)
        name = "".join(c if c.isalnum() else "-" for c in self.row.lower())
        part = f"-fold{self.fold[0]}" if self.kind == "fold" else ""
        return runs / f"{name}-seed{self.seed}{part}-{sha256(text.encode()).hexdigest()[:8]}"


def write(job: Job, folder: Path) -> None:
    write_json(folder / "job.json", asdict(job))


def read(folder: Path) -> Job:
    saved = read_json(folder / "job.json")
    return Job(**{**saved, "overrides": tuple(saved["overrides"]), "fold": tuple(saved["fold"])})


def perform(job: Job, folder: Path) -> list[dict[str, Any]]:
    """Do it; return the results, one for each row of the table that it fills."""
    from vicinal.bench import measuring  # torch and all that follows load only where work is done

    began, recipe = time.monotonic(), job.located()
    facts = {**job.identity(), "overrides": list(job.overrides), **measuring.provenance(recipe)}
    facts["code"] = _code(job.recipe, folder)
    if job.data:
        facts["data_from"] = job.data
    if job.kind == "baselines":
        found = measuring.baselines(recipe, job.dim)
    elif job.kind == "fold":
        fold, folds, seed = job.fold
        recut = replace(recipe, data=Fold(recipe.data, folds, fold, seed, test=False))
        try:
            found = [measuring.held_out(train(job, recut, folder / "run", again=True))]
        except DivergenceError as error:  # that these settings do not train is what the trial wanted to know
            found = [measuring.diverged(str(error))]
    elif job.protocol == "reality_check":
        cuts = [Fold(recipe.data, REALITY_FOLDS, fold, seed=0, test=True) for fold in range(REALITY_FOLDS)]
        parts = [train(job, replace(recipe, data=cut), folder / f"fold-{cut.fold}", again=True) for cut in cuts]
        found = [measuring.concatenated(parts, recipe)]
    elif job.protocol == "authors":
        recut = replace(recipe, data=SelectOnTest(recipe.data))
        found = [measuring.finished(train(job, recut, folder / "run", again=True), recipe.device)]
    else:
        found = [measuring.finished(train(job, recipe, folder / "run", again=False), recipe.device)]
    wall = round(time.monotonic() - began, 1)
    return [
        {"row": job.row, **facts, "created": datetime.now(UTC).isoformat(timespec="seconds"), "wall": wall, **line}
        for line in found
    ]


def _code(recipe: str, folder: Path) -> str:
    """The hash of the code at hand, after those of others that have worked on the runs of this folder before it."""
    path, mine = folder / "code.json", fingerprint(recipe)
    known = read_json(path) if path.is_file() and any(folder.glob("*/run.json")) else []
    known = [*(one for one in known if one != mine), mine]
    write_json(path, known)
    return "+".join(known)


def train(job: Job, recipe: Recipe, path: Path, *, again: bool) -> RunDirectory:
    """The finished run at ``path``: as it lies there, resumed, or trained from the beginning.

    Args:
        again: start an interrupted run again; recut data is not described in a way that a resume could rebuild.
    """
    from vicinal.training.console import Console
    from vicinal.training.run import resume, start

    console = Console()
    if (path / "run.json").is_file():
        run = RunDirectory.open(path)
        state = run.status.get("state")
        if state == "finished":
            return run
        if state in ("running", "interrupted") and not again:
            return resume(path, recipe=job.recipe if job.recipe.endswith(".py") else None, console=console)
    shutil.rmtree(path, ignore_errors=True)  # failed, or stopped before it was a run
    words = " ".join(("vicinal train", job.recipe, *job.overrides, f"seed={job.seed}"))
    return start(job.recipe, recipe, path, command=words, console=console)


def do(folder: Path) -> int:
    """The job of a folder, and its exit code; an error that nobody foresaw is raised."""
    try:
        write_json(folder / "done.json", perform(read(folder), folder))
    except KeyboardInterrupt:
        return 130
    except VicinalError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


def main(arguments: Sequence[str]) -> int:
    stop_with_parent()
    return do(Path(arguments[0]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
