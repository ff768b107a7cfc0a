"""Checkpoints: all that a run needs to go on, each one file, whole or not at all.

A state is nested dictionaries, lists and tuples of tensors and plain values, as ``state_dict``
gives. Reading one executes nothing: torch unpickles tensors and plain values, and nothing else.
"""

import io
import re
from pathlib import Path
from pickle import PickleError
from typing import Any

import torch
from torch import Tensor

from vicinal.errors import ConfigError, RunError
from vicinal.files import write_atomically

REMEDY = "Remove it to use an older one."  # of a damaged checkpoint
_NAME = re.compile(r"step-(\d{8})\.pt")


def save_checkpoint(folder: Path, step: int, state: dict[str, Any], *, keep: int = 2) -> Path:
    """Write ``folder/step-N.pt`` and drop all but the newest ``keep``.

    The first one is read before it is written: a method of the user's own may keep what could not
    be, and after hours that would be late.
    """
    path = folder / f"step-{step:08d}.pt"
    written = io.BytesIO()  # and not the file: torch would hide why a disk takes no more
    try:
        torch.save(state, written)
        if not _checkpoints(folder):
            written.seek(0)
            torch.load(written, weights_only=True)
    except (PickleError, AttributeError, TypeError) as error:
        raise ConfigError(
            "a method's state holds tensors, numbers, text and containers of them, got another: "
            f"{str(error).splitlines()[0]}"
        ) from error
    write_atomically(path, lambda file: file.write(written.getbuffer()))
    for old in _checkpoints(folder)[:-keep]:
        old.unlink()
    return path


def latest_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint, or None."""
    return next(reversed(_checkpoints(folder)), None)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Return the state saved at ``path``, its tensors on the CPU."""
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (PickleError, RuntimeError, EOFError, ValueError, LookupError) as error:
        raise RunError(f"{path} is damaged: {str(error).splitlines()[0]} {REMEDY}") from error
    return state


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("step-*") if _NAME.fullmatch(path.name))


def random_state() -> dict[str, Tensor]:
    """Return the state of torch's global generators, for what draws from them (dropout)."""
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_random_state(state: dict[str, Tensor]) -> None:
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
