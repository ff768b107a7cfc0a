"""Starting and resuming runs: one process at a time, from a recipe or from a checkpoint."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vicinal.errors import RunError
from vicinal.run_directory import RunDirectory
from vicinal.training import provenance
from vicinal.training.checkpoint import latest_checkpoint, load_checkpoint
from vicinal.training.console import Console
from vicinal.training.experiment import prepare
from vicinal.training.recipe import Recipe, find_recipe, from_settings
from vicinal.training.trainer import Trainer

# Two kept checkpoints and one in the making, each of weights and two Adam moments, and the selected model.
CHECKPOINT_COPIES = 3 * 3 + 1
ARTEFACT_BYTES = 32 * 2**20


def start(name: str, recipe: Recipe, path: Path, *, command: str, console: Console) -> RunDirectory:
    """Train ``recipe`` from the beginning into a new run directory."""
    experiment = prepare(recipe, console)
    weights = sum(p.numel() * p.element_size() for p in experiment.method.embedder.parameters())
    run = RunDirectory.create(path, need_bytes=CHECKPOINT_COPIES * weights + ARTEFACT_BYTES)
    with _alone(run):
        run.write_info(provenance.info(name, experiment, run.path.name, command))
        experiment.encoder.save_description(run)
        Trainer(experiment, run, console).go()
    return run


def resume(path: Path, *, recipe: str | None, console: Console) -> RunDirectory:
    """Go on with an interrupted run, from its newest whole checkpoint, as if nothing had happened.

    Args:
        recipe: the recipe file, needed when the run was made from a file of the user's own: code is run because the
            user names it, never because a run does.
    """
    run = RunDirectory.open(path)
    saved = run.info["recipe"]
    if saved["name"].endswith(".py") and recipe is None:
        raise RunError(
            f"{run.path} was trained with the recipe file {saved['name']}. Name it to go on: "
            f"`vicinal train {saved['name']} --resume {run.path}`."
        )
    with _alone(run):
        experiment = prepare(from_settings(find_recipe(recipe or saved["name"]), saved["settings"]), console)
        before, now = run.info["data"]["fingerprint"], experiment.records.fingerprint()
        if before != now:
            raise RunError(
                f"the data of {run.path} changed since it started (rows {before}, now {now}). Start a new run."
            )
        trainer = Trainer(experiment, run, console)
        checkpoint = latest_checkpoint(run.checkpoints_path)
        if checkpoint is not None:
            trainer.restore(load_checkpoint(checkpoint))
        console.line(f"resuming {run.path} at step {trainer.position.step}")
        trainer.go()
    return run


@contextmanager
def _alone(run: RunDirectory) -> Iterator[None]:
    """Hold the run for this process; the lock goes with the process, however that ends."""
    with (run.path / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(f"another process is training {run.path}. Wait for it or stop it first.") from None
        yield
