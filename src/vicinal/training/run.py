"""Starting and resuming runs, from a config or from a checkpoint, in one process or in several
together; and where a run comes from: config, data, command, commit, hardware and versions."""

import math
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock, Timeout

from vicinal import parallel
from vicinal.arguments import Count, coerce, describe
from vicinal.config import DEFAULT_PRESET, Config, Layer, Trust, compose, presets
from vicinal.data.check import Rows, check_unchanged, kept_rows, rows_of
from vicinal.errors import ConfigError, RunError
from vicinal.files import Document, decoding, remove_parts, write_arrays
from vicinal.run_directory import RunDirectory
from vicinal.training.checkpoint import REMEDY, latest_checkpoint, load_checkpoint
from vicinal.training.console import Console
from vicinal.training.estimate import introduce
from vicinal.training.experiment import Experiment, prepare, pretrained
from vicinal.training.trainer import Trainer


def start(
    config: Config, path: Path, *, command: str, console: Console, until: float = math.inf
) -> RunDirectory:
    """Train ``config`` from the beginning into a new run directory, with the processes started with
    this one; ``until`` as for the trainer."""
    with parallel.joined():
        if parallel.first():
            RunDirectory(path).check_unused()  # before data are decoded
        experiment = prepare(config, console, None if console.quiet else partial(introduce, path))
        plan = experiment.begin()  # raises its errors before there is a folder
        run = parallel.from_first(lambda: RunDirectory.create(path))
        with _locked(run):
            if parallel.first():
                experiment.encoder.save_description(run)
                title = "reading what is new"
                with console.following(len(experiment.records), 0, title) as follower:
                    rows = rows_of(experiment.records, follower.advance)
                write_arrays(run.rows_path, rows)
                # Last: it makes the folder a run.
                run.write_info(provenance(experiment, rows, run.path.name, command))
                experiment.save_head(run)
            Trainer(experiment, run, plan, until).train()
    return run


def resume(
    path: Path,
    *,
    console: Console,
    own: Layer | None = None,
    trust: Trust | None = None,
) -> RunDirectory:
    """Go on with an interrupted run, from its newest whole checkpoint, as if nothing had happened.

    Args:
        own: objects of the user's own by slot, needed where the run was made with such; and
            ``training`` with a greater length, to train longer than the run was to.
        trust: classes of the user's own that the run may name: code is run because the user names
            it, never because a run does.
    """
    with parallel.joined():
        own = own or {}
        run, info = parallel.from_first(lambda: _opened(path, own, trust or {}))
        longer = not {"epochs", "steps"}.isdisjoint(own.get("training", ()))
        if info["finished"] and not longer:
            console.line(f"{run.path} is finished; nothing is left to train.")
            return run
        with _locked(run):
            with decoding(run.info_path):
                saved = info["config"]
                # A file is not needed again.
                base = saved["preset"] if saved["preset"] in presets() else DEFAULT_PRESET
                config = compose(
                    {"preset": base},
                    saved["slots"],
                    own,
                    preset_name=saved["preset"],
                    trust=trust,
                )
            experiment = prepare(config, console)
            if parallel.first():
                check_unchanged(run, kept_rows(run), rows_of(experiment.records))
                if longer:
                    run.write_status("interrupted", message="goes on for longer")
                    run.write_info(run.info | {"config": saved | {"slots": config.slots()}})
            checkpoint = parallel.from_first(lambda: latest_checkpoint(run.checkpoints_path))
            trainer = Trainer(experiment, run, experiment.begin() if checkpoint is None else None)
            if parallel.first():
                # As at the start, where it draws from torch's generator.
                experiment.encoder.save_description(run)
                if checkpoint is None:
                    experiment.save_head(run)
            if checkpoint is not None:
                state = load_checkpoint(checkpoint)
                with decoding(checkpoint, REMEDY):
                    trainer.restore(state)
            console.line(f"resuming {run.path} at step {trainer.position.step}")
            trainer.train()
    return run


def _opened(path: Path, own: Layer, trust: Trust) -> tuple[RunDirectory, Document]:
    run = RunDirectory.open(path)
    with decoding(run.info_path):
        config = run.info["config"]
        # All but the length of training stays as it is.
        before = config["slots"]["training"]
        unit = "epochs" if before["steps"] is None else "steps"
        for slot, value in own.items():
            longer = slot == "training" and isinstance(value, Mapping) and value.keys() == {unit}
            if not longer and slot not in config["own"]:
                raise ConfigError(
                    f"a resumed run keeps its settings, but it may train longer than its "
                    f"training.{unit}={before[unit]}; got {slot}={value!r:.80}. For other settings "
                    "begin a new run; model.weights=RUN lets it start from this one's weights."
                )
            if longer and coerce(value[unit], Count, f"training.{unit}") <= before[unit]:
                raise ConfigError(
                    f"a resumed run may only train longer than its training.{unit}={before[unit]}, "
                    f"got {value[unit]}."
                )
        names = {
            slot: str(config["slots"][slot].get("name") or config["slots"][slot]["select"])
            for slot in config.get("own", ())
            if slot not in own
        }
        missing = {slot: name for slot, name in names.items() if name not in trust}
    if missing:
        slots = ", ".join(f"{slot}=..." for slot in missing)
        advice = f"Go on from Python with vicinal.train(resume=..., {slots})"
        if missing.keys().isdisjoint(config.get("live", ())):
            words = " ".join(f"--trust {name}" for name in missing.values())
            advice += f", or with `{run.resume_command()} {words}`"
        raise RunError(
            f"{run.path} was trained with code of your own: {', '.join(missing.values())}. "
            f"{advice}."
        )
    return run, run.info | {"finished": run.status.get("state") == "finished"}


@contextmanager
def _locked(run: RunDirectory) -> Iterator[None]:
    """Hold the run for this process and those it works with; the lock goes with the first, however
    that ends."""
    if not parallel.first():
        yield
        return
    try:
        lock = FileLock(run.path / ".lock").acquire(blocking=False)
    except Timeout:
        raise RunError(
            f"another process is training {run.path}. Wait for it or stop it first."
        ) from None
    with lock:
        for folder in (run.path, run.artifacts_path, run.checkpoints_path):  # not of a collection
            remove_parts(folder)
        yield


# -- where a run comes from -----------------------------------------------------------------------


def provenance(experiment: Experiment, rows: Rows, run_name: str, command: str) -> Document:
    """Return the content of ``run.json``; ``rows`` are what the run keeps of its records."""
    config = experiment.config
    records = experiment.records
    counts = {
        split: {"records": rows, "classes": classes}
        for split, (rows, classes) in records.counts().items()
    }
    split = np.where(records.splits == "test", "test", "train")
    whole = replace(records, splits=split).fingerprint()
    return {
        "vicinal": package_version("vicinal"),
        "name": run_name,
        "command": command,
        "commit": commit(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": hardware(experiment.device),
        "versions": {
            "python": platform.python_version(),
            **{p: package_version(p) for p in ("torch", "numpy")},
        },
        "config": {
            "preset": config.preset,
            "title": config.title(records.name),
            "own": config.own_slots(),
            "live": config.own_slots(live=True),
            "slots": config.slots(),
        },
        "pretrained": pretrained(config.model, experiment.method.embedder),
        "data": {
            "description": describe(config.data),
            "name": records.name,
            "fingerprint": records.fingerprint(),
            # The same for all classes that a seed may hold out.
            "records": sha256(whole.encode() + rows["content"].tobytes()).hexdigest()[:16],
            "counts": counts,
            "notes": list(experiment.notes),
        },
    }


def hardware(device: torch.device) -> Document:
    facts: Document = {
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": device.type,
        "processes": parallel.processes(),
    }
    if device.type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name(device)
    return facts


def commit() -> str | None:
    """Return the commit of this source tree, marked when it had changes; None outside a checkout of
    vicinal."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():  # installed, perhaps into some other project's repository
        return None
    words = ["describe", "--always", "--abbrev=12", "--dirty=+changes", "--exclude=*"]
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def package_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # run from source, not installed
        return "source"
