"""Checkpoints: any state of a method as safetensors and JSON, whole or not at all.

A state is nested dictionaries, lists and tuples of tensors and plain values, as ``state_dict``
gives. Tensors go to ``state.safetensors``; the structure, with a reference in each tensor's place,
goes to ``state.json``. Reading one executes nothing.
"""

import math
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vicinal.errors import ConfigError, DataError, RunError
from vicinal.files import (
    decoding,
    read_object,
    read_tensors,
    remove_parts,
    sync_directory,
    write_json,
    write_tensors,
)

FORMAT = 1
REMEDY = "Remove that folder to use an older one."  # of a damaged checkpoint
_NAME = re.compile(r"step-(\d{8})")


def save_checkpoint(folder: Path, step: int, state: dict[str, Any], *, keep: int = 2) -> Path:
    """Write ``folder/step-N`` and drop all but the newest ``keep``.

    The folder appears under its name only when all of it is on the disk.
    """
    final, partial, replaced = (
        folder / f"step-{step:08d}",
        folder / f".step-{step:08d}.part",
        folder / ".replaced.part",
    )
    remove_parts(folder)
    partial.mkdir(parents=True)
    tensors: dict[str, Tensor] = {}
    tree = _encode(state, "state", tensors)
    write_tensors(partial / "state.safetensors", tensors)
    write_json(partial / "state.json", {"format": FORMAT, "step": step, "state": tree})
    if final.exists():
        final.rename(replaced)
    partial.rename(final)
    sync_directory(folder)
    for old in (replaced, *_steps(folder)[:-keep]):
        shutil.rmtree(old, ignore_errors=True)
    return final


def latest_checkpoint(folder: Path) -> Path | None:
    """Return the newest whole checkpoint, or None."""
    return next(reversed(_steps(folder)), None)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Return the state saved at ``path``, its tensors on the CPU."""
    try:
        document, tensors = (
            read_object(path / "state.json"),
            read_tensors(path / "state.safetensors"),
        )
    except (DataError, FileNotFoundError) as error:
        raise RunError(f"{error} {REMEDY}") from error
    if document.get("format") != FORMAT:
        raise RunError(
            f"{path} is not a checkpoint of format {FORMAT}. Resume with the version that wrote it."
        )
    with decoding(path, REMEDY):
        state: dict[str, Any] = _decode({"dict": document["state"]["dict"]}, tensors)
    return state


def _steps(folder: Path) -> list[Path]:
    return (
        sorted(path for path in folder.glob("step-*") if _NAME.fullmatch(path.name))
        if folder.is_dir()
        else []
    )


def _encode(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """JSON with ``{"tensor": name}`` for tensors and tagged containers, so that types survive the
    trip."""
    if isinstance(value, Tensor):
        tensors[name] = (
            value.detach().to("cpu", copy=True).contiguous()
        )  # a copy: shared storage cannot be saved
        return {"tensor": name}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        if not all(isinstance(key, (str, int)) for key in value):
            raise ConfigError(
                f"state {name} has keys that are neither text nor numbers: {list(value)[:3]}"
            )
        return {
            "dict": [[key, _encode(item, f"{name}.{key}", tensors)] for key, item in value.items()]
        }
    if isinstance(value, (list, tuple)):
        tag = "tuple" if isinstance(value, tuple) else "list"
        return {
            tag: [_encode(item, f"{name}.{place}", tensors) for place, item in enumerate(value)]
        }
    raise ConfigError(
        f"state {name} is a {type(value).__name__}; a state holds tensors, numbers, text and "
        "containers."
    )


def _decode(value: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag == "tensor":
        return tensors[content]
    if tag == "float":
        return float(content)
    if tag == "dict":
        return {key: _decode(item, tensors) for key, item in content}
    items = [_decode(item, tensors) for item in content]
    return tuple(items) if tag == "tuple" else items


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
