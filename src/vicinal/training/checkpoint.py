"""Checkpoints: all that a run needs to go on, each one file, whole or not at all.

A state is nested dictionaries, lists and tuples of tensors and plain values, as ``state_dict``
gives. Tensors are kept in safetensors, and the rest, with a number in each tensor's place, beside
them as JSON. Reading one executes nothing.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vicinal.errors import DataError, RunError
from vicinal.files import Document, decoding, read_tensors, write_tensors

REMEDY = "Remove it to use an older one."  # of a damaged checkpoint
_TREE = "tree"  # the JSON of a state among its tensors


def save_checkpoint(folder: Path, step: int, state: Document) -> Path:
    """Write ``folder/step-N.safetensors`` and drop all but the newest two."""
    path = folder / f"step-{step:08d}.safetensors"
    tensors: dict[str, Tensor] = {}
    tree = bytearray(json.dumps(_encode(state, tensors)).encode())
    write_tensors(path, {_TREE: torch.frombuffer(tree, dtype=torch.uint8), **tensors})
    for old in _checkpoints(folder)[:-2]:
        old.unlink()
    return path


def latest_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint, or None."""
    return next(reversed(_checkpoints(folder)), None)


def load_checkpoint(path: Path) -> Document:
    """Return the state saved at ``path``, its tensors on the CPU."""
    try:
        tensors = read_tensors(path)
    except (DataError, FileNotFoundError) as error:
        raise RunError(str(error)) from error
    with decoding(path, REMEDY):
        tree = json.loads(tensors[_TREE].numpy().tobytes())
        result: Document = _decode(tree, tensors)
        return result


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.safetensors"))


def _encode(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return a value as JSON that keeps its types; its tensors, copied, go into ``tensors``."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().to("cpu", copy=True)
        return {"tensor": name}
    if isinstance(value, dict):
        return {"dict": [[key, _encode(item, tensors)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        items = [_encode(item, tensors) for item in value]
        return items if isinstance(value, list) else {"tuple": items}
    return value


def _decode(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "tuple":
        return tuple(_decode(content, tensors))
    return {key: _decode(item, tensors) for key, item in content}
