"""Starting and resuming runs, from a recipe or from a checkpoint, in one process or in several together."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vicinal import parallel
from vicinal.errors import RunError
from vicinal.run_directory import RunDirectory
from vicinal.training import provenance
from vicinal.training.checkpoint import latest_checkpoint, load_checkpoint
from vicinal.training.console import Console
from vicinal.training.experiment import prepare
from vicinal.training.processes import joined
from vicinal.training.recipe import Recipe, find_recipe, from_settings
from vicinal.training.trainer import Trainer

# Two kept checkpoints and one in the making, each of weights and two Adam moments, and the selected model.
CHECKPOINT_COPIES = 3 * 3 + 1
ARTEFACT_BYTES = 32 * 2**20


def start(name: str, recipe: Recipe, path: Path, *, command: str, console: Console) -> RunDirectory:
    """Train ``recipe`` from the beginning into a new run directory, with the processes started with this one."""
    with joined() as company:
        experiment = prepare(recipe, console)
        experiment.start_head(console)
        plan = experiment.plan(0)  # what it refuses is refused before there is a folder
        weights = sum(p.numel() * p.element_size() for p in experiment.method.embedder.parameters())
        need = CHECKPOINT_COPIES * weights + ARTEFACT_BYTES
        run = parallel.from_first(lambda: RunDirectory.create(path, need_bytes=need))
        with _alone(run):
            if parallel.first():
                run.write_info(provenance.info(name, experiment, run.path.name, command))
                experiment.encoder.save_description(run)
            trainer = Trainer(experiment, run, console, plan)
            company.report = trainer.report_end
            trainer.go()
    return run


def resume(path: Path, *, recipe: str | None, console: Console) -> RunDirectory:
    """Go on with an interrupted run, from its newest whole checkpoint, as if nothing had happened.

    Args:
        recipe: the recipe file, needed when the run was made from a file of the user's own: code is run because the
            user names it, never because a run does.
    """
    with joined() as company:
        run, info = parallel.from_first(lambda: _opened(path, recipe))
        with _alone(run):
            saved = info["recipe"]
            experiment = prepare(from_settings(find_recipe(recipe or saved["name"]), saved["settings"]), console)
            before, now = info["data"]["fingerprint"], experiment.records.fingerprint()
            if before != now:
                raise RunError(
                    f"the data of {run.path} changed since it started (rows {before}, now {now}). Start a new run."
                )
            trainer = Trainer(experiment, run, console)
            state = parallel.from_first(lambda: _latest(run))
            if state is None:
                experiment.start_head(console)
            else:
                trainer.restore(state)
            company.report = trainer.report_end
            console.line(f"resuming {run.path} at step {trainer.position.step}")
            trainer.go()
    return run


def _opened(path: Path, recipe: str | None) -> tuple[RunDirectory, dict[str, Any]]:
    run = RunDirectory.open(path)
    saved = run.info["recipe"]
    if saved["name"].endswith(".py") and recipe is None:
        raise RunError(
            f"{run.path} was trained with the recipe file {saved['name']}. Name it to go on: `{run.resume_command()}`."
        )
    return run, run.info


def _latest(run: RunDirectory) -> dict[str, Any] | None:
    checkpoint = latest_checkpoint(run.checkpoints_path)
    return None if checkpoint is None else load_checkpoint(checkpoint)


@contextmanager
def _alone(run: RunDirectory) -> Iterator[None]:
    """Hold the run for this process and those it works with; the lock goes with the first, however that ends."""
    if not parallel.first():
        yield
        return
    with (run.path / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(f"another process is training {run.path}. Wait for it or stop it first.") from None
        yield
