"""A run's model for programs that have no vicinal: ONNX, safetensors, and how to preprocess."""

import json
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save
from torch import Tensor

from vicinal.compat.handover import handover
from vicinal.compat.onnx import BATCHES, to_onnx
from vicinal.data.transforms import ImageTransform
from vicinal.description import describe
from vicinal.errors import RunError
from vicinal.evaluation.encoder import Encoder
from vicinal.files import read_json, write_atomically, write_json
from vicinal.index.exact import Metric
from vicinal.models.embedder import Role
from vicinal.run_directory import RunDirectory

FORMAT = 1  # of preprocessing.json
ONNX, WEIGHTS, WORDS = "model.onnx", "model.safetensors", "preprocessing.json"
METRIC: Metric = "euclidean"  # by which runs are trained, selected and measured


@dataclass(frozen=True)
class Export:
    """What was written.

    Attributes:
        files: their paths; the JSON last.
        difference: the largest difference between onnxruntime and torch, or None without ONNX.
    """

    files: tuple[Path, ...]
    difference: float | None


def export_run(run: RunDirectory, folder: Path | None = None, *, onnx: bool = True, role: Role | None = None) -> Export:
    """Write the selected model of a run into ``folder``, by default ``RUN/export`` (``RUN/export/ROLE`` with a role).

    ``model.onnx`` is compared with torch first and refused where they differ. ``preprocessing.json`` is written last
    and names the other files' SHA-256: a folder in which these agree is whole.

    Args:
        run: a run that has selected a model.
        folder: made where it is missing; an older export in it is replaced, other people's files are not.
        onnx: without it only the weights and the JSON are written, and no further package is needed.
        role: which network to export of a run that embeds queries and gallery images by different ones.
    """
    folder = run.path / "export" / (role or "") if folder is None else folder
    _refuse_foreign(folder)
    encoder = Encoder.load(run)
    encoder = replace(encoder, embedder=encoder.embedder.stream(role).merged())
    document = {
        "format": FORMAT,
        "run": _facts(run) | {"role": role},
        **handover(encoder.embedder, encoder.preprocessing, metric=METRIC),
    }
    tensors = {name: value.contiguous() for name, value in encoder.embedder.state_dict().items()}
    contents = {WEIGHTS: save(tensors)}
    difference = None
    if onnx:
        metadata = {"vicinal.steps": json.dumps(document["steps"]), "vicinal.output": json.dumps(document["output"])}
        model = to_onnx(encoder.embedder, _examples(encoder), metadata=metadata)
        contents[ONNX], difference = model.content, model.difference
    else:
        (folder / ONNX).unlink(missing_ok=True)  # of an older export: it would belong to other weights
    for name, content in contents.items():
        write_atomically(folder / name, lambda file, content=content: file.write(content))  # type: ignore[misc]
    document["model"] = describe(encoder.embedder)
    document["files"] = {name: {"sha256": sha256(content).hexdigest()} for name, content in contents.items()}
    write_json(folder / WORDS, document)
    return Export((*(folder / name for name in contents), folder / WORDS), difference)


def _facts(run: RunDirectory) -> dict[str, Any]:
    """Which run the model came from; nothing about the machine."""
    info = run.info
    config, data = run.config, info.get("data") or {}
    return {
        "name": info.get("name"),
        "preset": config.get("preset"),
        "title": config.get("title"),
        "data": data.get("name"),
        "created": info.get("created"),
        "vicinal": info.get("vicinal"),
    }


def _refuse_foreign(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise RunError(f"an export is a folder, but {folder} is a file. Name another with --to.")
    words = folder / WORDS
    document = read_json(words) if words.is_file() else None
    ours = isinstance(document, dict) and {"format", "steps", "files"} <= set(document)
    taken = [name for name in (ONNX, WEIGHTS, WORDS) if (folder / name).exists()]
    if taken and not ours:
        raise RunError(
            f"an export would replace {', '.join(taken)} in {folder}, but no earlier export wrote them. "
            f"Name another folder with --to."
        )


def _examples(encoder: Encoder) -> Tensor:
    """Inputs to compare on: black, white, noise and coarse noise, or normal vectors, preprocessed as real ones are."""
    rng, transform = np.random.default_rng(0), encoder.preprocessing
    if not isinstance(transform, ImageTransform):
        return transform.batch(rng.normal(size=(max(BATCHES), encoder.embedder.width)).astype(np.float32))
    side = transform.resize or transform.canvas or transform.size
    fine = rng.integers(0, 256, (max(BATCHES), side, side, 3), dtype=np.uint8)
    images = [Image.fromarray(pixels) for pixels in fine]
    for place in range(0, len(images), 2):
        images[place] = images[place].resize((4, 4)).resize((side, side), Image.Resampling.BICUBIC)
    images[-2:] = [Image.new("RGB", (side, side), colour) for colour in ("black", "white")]
    return transform.batch(images).to(torch.float32)
