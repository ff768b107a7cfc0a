"""Checkpoints: all that a run needs to go on, each one file, whole or not at all.

A state is nested dictionaries and lists of tensors and plain values, as ``state_dict`` gives.
Tensors are kept in safetensors, and the rest, with a number in each tensor's place, beside them as
JSON: a tuple comes back as a list, and a key of digits as a number. Reading one executes nothing.
Of several processes the first one writes and reads, and a shard is whole in the file, so that any
number of processes can go on.
"""

import json
from collections import deque
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vicinal.files import Document, Rows, decoding, read_tensors, write_tensors
from vicinal.parallel import Shard, collect, deal, first, from_all, from_first

REMEDY = "Remove it to use an older one."  # of a damaged checkpoint
_TREE = "tree"  # the JSON of a state among its tensors
_PLACE = "tensor"  # what stands in it for each


def save_checkpoint(folder: Path, step: int, state: Document) -> Path:
    """Write ``folder/step-N.safetensors`` and drop all but the newest two, in all processes."""
    path = folder / f"step-{step:08d}.safetensors"
    found: dict[str, Tensor] = {}

    def place(value: object) -> dict[str, str]:
        if not isinstance(value, Tensor):
            raise TypeError(f"{value!r:.80} is not JSON serializable")
        name = str(len(found))
        found[name] = value
        return {_PLACE: name}

    tree = json.dumps(state, default=place)
    shards = {}
    for name, shard in found.items():
        if isinstance(shard, Shard):
            shape = sum(from_all(len(shard))), *shard.shape[1:]
            shards[name] = Rows(shape, shard.dtype, collect(shard))
    if not first():
        for rows in shards.values():
            deque(rows.blocks, maxlen=0)
        return path
    text = bytearray(json.dumps({"state": tree, "shards": [*shards]}).encode())
    write_tensors(path, {**found, **shards, _TREE: torch.frombuffer(text, dtype=torch.uint8)})
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

    def read() -> tuple[str, dict[str, Tensor], dict[str, Tensor]]:
        tensors = read_tensors(path)
        with decoding(path, REMEDY):
            tree = json.loads(tensors.pop(_TREE).numpy().tobytes())
            whole.update((name, tensors.pop(name)) for name in tree["shards"])
            like = {name: rows.to("meta") for name, rows in whole.items()}
            return tree["state"], tensors, like

    text, tensors, like = from_first(read)
    tensors |= {name: deal(whole.get(name, rows)) for name, rows in like.items()}

    def restored(found: Document) -> Any:
        if _PLACE in found:
            return tensors[found[_PLACE]]
        return {int(key) if key.isdigit() else key: value for key, value in found.items()}

    with decoding(path, REMEDY):
        return json.loads(text, object_hook=restored)


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.safetensors"))
