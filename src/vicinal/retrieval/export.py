"""A run's model as a folder to publish: safetensors, ONNX, how to preprocess, and a card with what
was measured."""

import importlib
import json
import logging
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save
from torch import Tensor

from vicinal.arguments import describe
from vicinal.data.transforms import ImageTransform, TextTransform
from vicinal.errors import ConfigError, RunError
from vicinal.evaluation.encoder import Encoder
from vicinal.files import read_json, write_atomically, write_json
from vicinal.models.embedder import Embedder, Role
from vicinal.reports import table
from vicinal.reports.html import render_text
from vicinal.retrieval.handover import handover
from vicinal.retrieval.model import CONFIG, DOCUMENT, WEIGHTS
from vicinal.run_directory import FORMAT as RUN_FORMAT
from vicinal.run_directory import RunDirectory

FORMAT = 1  # of preprocessing.json
INPUT, OUTPUT = "inputs", "embeddings"  # names of the graph's ends
TOLERANCE = (
    1e-5  # of a number of an embedding of length 1; larger embeddings may differ in proportion
)
BATCHES = (1, 2, 5, 8)  # sizes compared: one alone, the size that was traced, and others
_MOST_BYTES = 2**31 - 1  # of one protobuf message
ONNX, CARD = "model.onnx", "README.md"


@dataclass(frozen=True)
class Export:
    """What was written.

    Attributes:
        files: their paths; the JSON last.
        difference: the largest difference between onnxruntime and torch, or None without ONNX.
    """

    files: tuple[Path, ...]
    difference: float | None


def export_run(
    run: RunDirectory,
    to: Path | None = None,
    *,
    onnx: bool = True,
    role: Role | None = None,
    license: str = "unknown",
) -> Export:
    """Write the selected model of a run into a folder, by default ``RUN/export``
    (``RUN/export/ROLE`` with a role).

    The layout is that of the Hugging Face Hub: ``README.md`` is the model card, ``config.json`` and
    ``model.safetensors`` are the model, which ``vicinal.load(folder)`` opens. ``model.onnx`` is
    compared with torch first and rejected where they differ. ``preprocessing.json`` is written last
    and names the other files' SHA-256: a folder in which these agree is whole.

    Args:
        run: a run that has selected a model.
        to: the folder, made where it is missing; an older export in it is replaced, other people's
            files are not.
        onnx: without it only the weights and the JSON are written, and no further package is
            needed.
        role: which network to export of a run that embeds queries and gallery images by different
            ones.
        license: the identifier of the weights' license for the card, such as ``"apache-2.0"``.
    """
    if not re.fullmatch(r"[a-zA-Z0-9.+-]+", license):
        raise ConfigError(
            f"a license is an identifier such as apache-2.0 or cc-by-nc-4.0; got {license!r}."
        )
    folder = run.path / "export" / (role or "") if to is None else to
    _reject_foreign(folder)
    encoder = Encoder.load(run).stream(role)
    encoder = replace(encoder, embedder=encoder.embedder.merged())
    document: dict[str, Any] = {"format": FORMAT, "run": {**_facts(run), "role": role}}
    document |= handover(encoder.embedder, encoder.preprocessing, metric=encoder.embedder.metric)
    tensors = {name: value.contiguous() for name, value in encoder.embedder.state_dict().items()}
    config = {
        "format": RUN_FORMAT,
        "library_name": "vicinal",
        "embedder": describe(encoder.embedder),
    }
    config["preprocessing"] = describe(encoder.preprocessing)
    contents = {WEIGHTS: save(tensors), CONFIG: json.dumps(config, indent=2).encode()}
    difference = None
    if onnx:
        metadata = {
            "vicinal.steps": json.dumps(document["steps"]),
            "vicinal.output": json.dumps(document["output"]),
        }
        contents[ONNX], difference = to_onnx(
            encoder.embedder, _examples(encoder), metadata=metadata
        )
    # Says whose the folder is before anything else is in it, and agrees with nothing until the end.
    write_json(folder / DOCUMENT, {**document, "files": {}})
    contents[CARD] = _card(run, document, license=license, difference=difference).encode()
    if not onnx:  # of an older export: it would belong to other weights
        (folder / ONNX).unlink(missing_ok=True)
    for name, content in contents.items():
        write_atomically(folder / name, lambda file, content=content: file.write(content))  # type: ignore[misc]
    document["model"] = describe(encoder.embedder)
    document["files"] = {
        name: {"sha256": sha256(content).hexdigest()} for name, content in contents.items()
    }
    write_json(folder / DOCUMENT, document)
    return Export((*(folder / name for name in contents), folder / DOCUMENT), difference)


def _card(
    run: RunDirectory, document: Mapping[str, Any], *, license: str, difference: float | None
) -> str:
    """Render the model card, with no path of the machine that trained."""
    results, config = run.results, run.config
    measured: dict[str, Any] = next(
        (row["metrics"] for row in (results or {}).get("rows", []) if row["name"] == "trained"), {}
    )
    model = config["slots"].get("model") or {}
    text = render_text(
        "vicinal.retrieval",
        "card.md.j2",
        filters={"json": json.dumps, "settings": _settings, "shareable": _shareable},
        **{key: document[key] for key in ("kind", "input", "output")},
        name=document["run"]["name"],
        version=document["run"]["vicinal"],
        data={"counts": None, "notes": None}
        | _data(run)
        | {"name": document["run"]["data"] or "unnamed data"},
        config=config,
        weights=Path(
            str(model.get("weights", "unknown") if isinstance(model, Mapping) else "unknown")
        ).name,
        results=results,
        metrics={name: value for name, value in measured.items() if isinstance(value, float)},
        table=table(results) if results else None,
        license=license,
        onnx=difference is not None,
        difference=difference,
    )
    return text + "\n"


def _shareable(notes: Sequence[str] | None) -> list[str]:
    """Leave out the notes that name a path of the machine that trained."""
    return [note for note in notes or () if os.sep not in note]


def _settings(slot: Any) -> str:
    """Write a slot in one line, without paths."""
    if not isinstance(slot, Mapping):
        return str(slot)
    words = [
        f"{key}={value}"
        for key, value in slot.items()
        if key != "name" and os.sep not in str(value)
    ]
    return " ".join([str(slot.get("name", "")), *words]).strip()


def _data(run: RunDirectory) -> dict[str, Any]:
    return run.info.get("data") or {}


def _facts(run: RunDirectory) -> dict[str, Any]:
    """Return which run the model is from; nothing about the machine."""
    facts = {key: run.info.get(key) for key in ("name", "created", "vicinal")}
    return (
        facts
        | {key: run.config.get(key) for key in ("preset", "title")}
        | {"data": _data(run).get("name")}
    )


def _reject_foreign(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise RunError(f"an export is a folder; {folder} is a file. Name another with --to.")
    document = read_json(folder / DOCUMENT) if (folder / DOCUMENT).is_file() else None
    ours = isinstance(document, dict) and {"format", "steps", "files"} <= set(document)
    taken = [name for name in (ONNX, WEIGHTS, CONFIG, CARD, DOCUMENT) if (folder / name).exists()]
    if taken and not ours:
        fault = (
            f"an export would replace {', '.join(taken)} in {folder}, but no earlier export "
            "wrote them"
        )
        raise RunError(f"{fault}. Name another folder with --to.")


def _examples(encoder: Encoder) -> Tensor:
    """Make inputs to compare on: black, white, noise and coarse noise, or normal vectors,
    preprocessed as real ones."""
    rng, transform = np.random.default_rng(0), encoder.preprocessing
    if isinstance(transform, TextTransform):
        raise ConfigError("a text encoder cannot be written as ONNX. Leave it out with --no-onnx.")
    if not isinstance(transform, ImageTransform):
        return transform.batch(
            rng.normal(size=(max(BATCHES), encoder.embedder.input_width)).astype(np.float32)
        )
    side = transform.resize or transform.canvas or transform.size
    fine = rng.integers(0, 256, (max(BATCHES), side, side, 3), dtype=np.uint8)
    images = [Image.fromarray(pixels) for pixels in fine]
    for place in range(0, len(images), 2):
        images[place] = images[place].resize((4, 4)).resize((side, side), Image.Resampling.BICUBIC)
    images[-2:] = [Image.new("RGB", (side, side), color) for color in ("black", "white")]
    return transform.batch(images).to(torch.float32)


def to_onnx(
    embedder: Embedder, examples: Tensor, *, metadata: Mapping[str, str] | None = None
) -> tuple[bytes, float]:
    """Write the embedder as ONNX bytes, weights included, and measure the largest difference from
    torch.

    The graph takes ``inputs`` of any batch size and gives ``embeddings [batch d]``, float32,
    normalized where the embedder normalizes. It is run in onnxruntime on batches of several sizes;
    a number may differ from torch's by 1e-5, or by that share of the largest number where that is
    above 1; more is a ConfigError.

    Args:
        embedder: in evaluation mode, on the CPU.
        examples: preprocessed inputs to compare on, at least ``max(BATCHES)`` of them.
        metadata: texts that travel in the file.
    """
    onnxruntime, *_ = map(_installed, ("onnxruntime", "onnx", "onnxscript"))
    content = _traced(embedder, examples[:2], metadata or {})
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = (
        torch.get_num_threads()
    )  # its own choice would take every core of the machine
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    differences = {size: _difference(embedder, session, examples[:size]) for size in BATCHES}
    if not max(differences.values()) <= TOLERANCE:  # written so that NaN is rejected as well
        seen = ", ".join(
            f"{difference:.1e} at batch size {size}" for size, difference in differences.items()
        )
        fault = (
            f"ONNX should give torch's embeddings to {TOLERANCE:.0e}, but in onnxruntime "
            f"{onnxruntime.__version__}"
        )
        raise ConfigError(
            f"{fault} they differ by {seen}. Nothing was written. Try another onnxruntime."
        )
    return content, max(differences.values())


def _traced(embedder: Embedder, examples: Tensor, metadata: Mapping[str, str]) -> bytes:
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    try:
        with warnings.catch_warnings():  # the exporter warns of packages that are not used here
            warnings.simplefilter("ignore")
            logger.setLevel(logging.ERROR)
            ends: Any = {"input_names": [INPUT], "output_names": [OUTPUT]}
            ends |= {"dynamic_shapes": ({0: torch.export.Dim("batch")},), "external_data": False}
            program = torch.onnx.export(embedder, (examples,), dynamo=True, verbose=False, **ends)
    except Exception as error:  # tracing raises whatever a network's own code runs into
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]:.300}"
        fault = f"{type(embedder.backbone).__name__} cannot be written as ONNX: {reason}"
        raise ConfigError(f"{fault} Export the weights alone (`--no-onnx`).") from error
    finally:
        logger.setLevel(level)
    model: Any = program.model_proto  # type: ignore[union-attr]
    if model.ByteSize() > _MOST_BYTES:
        size = f"{model.ByteSize() / 2**30:.1f} GiB; an ONNX file holds {_MOST_BYTES / 2**30:.0f}"
        raise ConfigError(f"this model needs {size}. Export the weights alone (`--no-onnx`).")
    _forget_the_machine(model)
    for key, value in metadata.items():
        model.metadata_props.add(key=key, value=value)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _forget_the_machine(model: Any) -> None:
    """Take out what the exporter notes on each node: stack traces, which name folders of the
    machine that exported."""
    for part in (
        model,
        model.graph,
        *model.graph.node,
        *model.graph.value_info,
        *model.graph.initializer,
    ):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    for end in (*model.graph.input, *model.graph.output):
        end.ClearField("metadata_props")


def _difference(embedder: Embedder, session: Any, inputs: Tensor) -> float:
    with torch.inference_mode():
        expected = embedder(inputs)
    found = torch.from_numpy(session.run([OUTPUT], {INPUT: inputs.numpy()})[0])
    if found.shape != expected.shape:
        shapes = f"{tuple(expected.shape)} for a batch of {len(inputs)}; got {tuple(found.shape)}"
        raise ConfigError(f"the ONNX model should give {shapes}. Nothing was written.")
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1))


def _installed(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        fault = f"ONNX export needs {package}, which cannot be imported here: {error}"
        raise ConfigError(f"{fault}. Run `pip install 'vicinal[onnx]'`.") from error
