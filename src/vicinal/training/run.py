"""Starting and resuming runs, from a config or from a checkpoint, in one process or in several together."""

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vicinal import parallel
from vicinal.config import DEFAULT_PRESET, Config, compose, presets
from vicinal.errors import RunError
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
    with joined() as company:
        experiment = prepare(config, console)
        experiment.start_head(console)
        plan = experiment.plan(0)  # raises its errors before there is a folder
        weights = sum(p.numel() * p.element_size() for p in experiment.method.embedder.parameters())
        need = CHECKPOINT_COPIES * weights + ARTEFACT_BYTES
        run = parallel.from_first(lambda: RunDirectory.create(path, need_bytes=need))
        with _alone(run):
            if parallel.first():
                run.write_info(provenance.info(experiment, run.path.name, command))
                experiment.encoder.save_description(run)
            trainer = Trainer(experiment, run, console, plan)
            company.report = trainer.report_end
            trainer.go()
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
    with joined() as company:
        run, info = parallel.from_first(lambda: _opened(path, own or {}, trust or {}))
        with _alone(run):
            config = _composed(info["config"], own or {}, trust)
            experiment = prepare(config, console)
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


def _composed(saved: Mapping[str, Any], own: Mapping[str, Any], trust: Mapping[str, Any] | None) -> Config:
    """The config that a run wrote down; its own file, where it had one, is not needed again."""
    base = saved["preset"] if saved["preset"] in presets() else DEFAULT_PRESET
    return compose({"preset": base}, saved["slots"], own, preset_name=saved["preset"], trust=trust)


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
