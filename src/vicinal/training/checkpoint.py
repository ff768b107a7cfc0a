"""Checkpoints: all that a run needs to go on, each one file, whole or not at all.

A state is nested dictionaries, lists and tuples of tensors and plain values, as ``state_dict``
gives. Tensors are kept in safetensors, and the rest, with a number in each tensor's place, beside
them as JSON. Reading one executes nothing. Of several processes the first one writes and reads, and
a shard is whole in the file, so that any number of processes can go on.
"""

import json
from collections import deque
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vicinal.errors import DataError, RunError
from vicinal.files import Document, Rows, decoding, read_tensors, write_tensors
from vicinal.parallel import Shard, collect, deal, first, from_all, from_first

REMEDY = "Remove it to use an older one."  # of a damaged checkpoint
_TREE = "tree"  # the JSON of a state among its tensors


def save_checkpoint(folder: Path, step: int, state: Document) -> Path:
    """Write ``folder/step-N.safetensors`` and drop all but the newest two, in all processes."""
    path = folder / f"step-{step:08d}.safetensors"
    found: dict[str, Tensor] = {}
    encoded = _encode(state, found)
    shards = {}
    for name, shard in found.items():
        if isinstance(shard, Shard):
            shape = sum(from_all(len(shard))), *shard.shape[1:]
            shards[name] = Rows(shape, shard.dtype, collect(shard))
    if not first():
        for rows in shards.values():
            deque(rows.blocks, maxlen=0)
        return path
    tree = bytearray(json.dumps({"state": encoded, "shards": [*shards]}).encode())
    write_tensors(path, {**found, **shards, _TREE: torch.frombuffer(tree, dtype=torch.uint8)})
    for old in _checkpoints(folder)[:-2]:
        old.unlink()
    return path


def latest_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint, or None."""
    return next(reversed(_checkpoints(folder)), None)


def load_checkpoint(path: Path) -> Document:
    """Return the state saved at ``path``, its tensors on the CPU and of shards this process's
    rows; all processes call it."""
    whole: dict[str, Tensor] = {}

    def read() -> tuple[Any, dict[str, Tensor], dict[str, Tensor]]:
        try:
            tensors = read_tensors(path)
        except (DataError, FileNotFoundError) as error:
            raise RunError(str(error)) from error
        with decoding(path, REMEDY):
            tree = json.loads(tensors.pop(_TREE).numpy().tobytes())
            whole.update((name, tensors.pop(name)) for name in tree["shards"])
            like = {name: rows.to("meta") for name, rows in whole.items()}
            return tree["state"], tensors, like

    tree, tensors, like = from_first(read)
    shards = {name: deal(whole.get(name, rows)) for name, rows in like.items()}
    with decoding(path, REMEDY):
        result: Document = _decode(tree, tensors | shards)
        return result


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.safetensors"))


def _encode(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return a value as JSON that keeps its types; its tensors go into ``tensors``."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value
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
