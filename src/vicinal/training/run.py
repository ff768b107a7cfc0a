"""Starting and resuming runs, from a config or from a checkpoint, in one process or in several together."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from vicinal import parallel
from vicinal.config import DEFAULT_PRESET, Config, compose, presets
from vicinal.errors import RunError
from vicinal.files import remove_parts
from vicinal.run_directory import RunDirectory
from vicinal.training import provenance
from vicinal.training.checkpoint import latest_checkpoint, load_checkpoint
from vicinal.training.console import Console
from vicinal.training.experiment import prepare
from vicinal.training.processes import joined
from vicinal.training.trainer import Trainer

# Two kept checkpoints and one in the making, each of weights and two Adam moments, and the selected model.
CHECKPOINT_COPIES = 3 * 3 + 1
ARTEFACT_BYTES = 32 * 2**20


def start(config: Config, path: Path, *, command: str, console: Console) -> RunDirectory:
    """Train ``config`` from the beginning into a new run directory, with the processes started with this one."""
    with joined():
        experiment = prepare(config, console)
        experiment.start_head()
        plan = experiment.plan(0)  # raises its errors before there is a folder
        weights = sum(p.numel() * p.element_size() for p in experiment.method.embedder.parameters())
        need = CHECKPOINT_COPIES * weights + ARTEFACT_BYTES
        run = parallel.from_first(lambda: RunDirectory.create(path, need_bytes=need))
        with _locked(run):
            if parallel.first():
                run.write_info(provenance.info(experiment, run.path.name, command))
                experiment.encoder.save_description(run)
            Trainer(experiment, run, plan).train()
    return run


def resume(
    path: Path, *, console: Console, own: Mapping[str, Any] | None = None, trust: Mapping[str, Any] | None = None
) -> RunDirectory:
    """Go on with an interrupted run, from its newest whole checkpoint, as if nothing had happened.

    Args:
        own: objects of the user's own by slot, needed where the run was made with such.
        trust: classes of the user's own that the run may name: code is run because the user names it, never because a
            run does.
    """
    with joined():
        run, info = parallel.from_first(lambda: _opened(path, own or {}, trust or {}))
        with _locked(run):
            saved = info["config"]
            base = saved["preset"] if saved["preset"] in presets() else DEFAULT_PRESET  # a file is not needed again
            config = compose({"preset": base}, saved["slots"], own or {}, preset_name=saved["preset"], trust=trust)
            experiment = prepare(config, console)
            before, now = info["data"]["fingerprint"], experiment.records.fingerprint()
            if before != now:
                raise RunError(
                    f"the data of {run.path} changed since it started (rows {before}, now {now}). Start a new run."
                )
            trainer = Trainer(experiment, run)
            checkpoint = parallel.from_first(lambda: latest_checkpoint(run.checkpoints_path))
            if checkpoint is None:
                experiment.start_head()
            else:
                trainer.restore(parallel.from_first(lambda: load_checkpoint(checkpoint)))
            console.line(f"resuming {run.path} at step {trainer.position.step}")
            trainer.train()
    return run


def _opened(path: Path, own: Mapping[str, Any], trust: Mapping[str, Any]) -> tuple[RunDirectory, dict[str, Any]]:
    run = RunDirectory.open(path)
    if "config" not in run.info:
        raise RunError(
            f"{run.path} was written by an earlier version of vicinal. It can be evaluated, searched and reported, but "
            f"training goes on only with the version that began it ({run.info.get('vicinal', 'unknown')})."
        )
    config = run.info["config"]
    missing = {
        slot: config["slots"][slot].get("name", "")
        for slot in config.get("own", ())
        if slot not in own and config["slots"][slot].get("name") not in trust
    }
    if missing:
        slots = ", ".join(f"{slot}=..." for slot in missing)
        raise RunError(
            f"{run.path} was trained with code of your own: {', '.join(missing.values())}. Go on with `"
            f"{run.resume_command()} {' '.join(f'--trust {name}' for name in missing.values())}`, or from Python with "
            f"vicinal.train(resume=..., {slots})."
        )
    return run, run.info


@contextmanager
def _locked(run: RunDirectory) -> Iterator[None]:
    """Hold the run for this process and those it works with; the lock goes with the first, however that ends."""
    if not parallel.first():
        yield
        return
    try:
        lock = FileLock(run.path / ".lock").acquire(blocking=False)
    except Timeout:
        raise RunError(f"another process is training {run.path}. Wait for it or stop it first.") from None
    with lock:
        remove_parts(run.path)
        yield
