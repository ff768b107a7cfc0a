"""The origin of a run: config, data, command, commit, hardware and versions."""

import os
import platform
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vicinal import parallel
from vicinal.arguments import describe
from vicinal.data.kept import Rows
from vicinal.training.experiment import Experiment


def info(experiment: Experiment, rows: Rows, run_name: str, command: str) -> dict[str, Any]:
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


def hardware(device: torch.device) -> dict[str, Any]:
    facts: dict[str, Any] = {
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
