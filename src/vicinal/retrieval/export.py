"""A run's model as a folder to publish: safetensors, ONNX, how to preprocess, and a card with what
was measured."""

import copy
import json
import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save
from torch import Tensor

from vicinal.arguments import describe
from vicinal.data import own_data
from vicinal.data.loader import load_all
from vicinal.data.records import Batch
from vicinal.data.transforms import ImageTransform, TextTransform, Transform
from vicinal.errors import ConfigError, RunError, check_known, few, package
from vicinal.evaluation.encoder import Encoder
from vicinal.evaluation.measure import Scores, measure
from vicinal.files import decoding, read_object, write_atomically, write_json
from vicinal.models.backbone import forbids_commerce
from vicinal.models.embedder import Embedder, Role
from vicinal.reports import table
from vicinal.reports.page import render_text
from vicinal.retrieval.asking import DOCUMENT, GRAPHS, INPUT, ONNX, OUTPUT, Step, open_graph
from vicinal.retrieval.model import CONFIG, WEIGHTS
from vicinal.run_directory import FORMAT as RUN_FORMAT
from vicinal.run_directory import RunDirectory, model_fingerprint

FORMAT = 1  # of preprocessing.json
# Of a number of an embedding of length 1; larger embeddings may differ in proportion.
TOLERANCE = 1e-5
BATCHES = (1, 2, 5, 8)  # sizes compared: one alone, the size that was traced, and others
_GRAPH_FILES = {name for names in GRAPHS.values() for name in names}
CALIBRATION = 128  # training records from which int8 takes the ranges of activations
CARD = "README.md"
_PATH = {"/", "\\"}  # of this machine, or of the one that trained


@dataclass(frozen=True)
class Export:
    """What was written.

    Attributes:
        files: their paths; the JSON last.
        difference: the largest difference between onnxruntime and torch, or None without ONNX.
        scores: Recall@1 and MAP@R of torch and of each further graph, by file name.
    """

    files: tuple[Path, ...]
    difference: float | None
    scores: dict[str, Scores] = field(default_factory=dict)


def export_run(
    run: RunDirectory,
    to: Path | None = None,
    *,
    onnx: bool = True,
    also: Sequence[str] = (),
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
        also: further graphs, each measured on the run's test records: ``"float16"`` and ``"int8"``,
            ONNX of half and a quarter of the size (int8 takes its ranges from training records),
            and ``"openvino"``.
        role: which network to export of a run that embeds queries and gallery images by different
            ones.
        license: the identifier of the weights' license for the card, such as ``"apache-2.0"``.
    """
    folder = run.path / "export" / (role or "") if to is None else to
    _reject_foreign(folder)
    encoder = Encoder.load(run).stream(role)
    encoder = replace(encoder, embedder=encoder.embedder.merged())
    info = run.info
    document: dict[str, Any] = {
        "format": FORMAT,
        "run": {key: info.get(key) for key in ("name", "created", "vicinal", "pretrained")}
        | {"role": role, "model": model_fingerprint(run)},
        **handover(encoder.embedder, encoder.preprocessing),
    }
    config = {
        "format": RUN_FORMAT,
        "library_name": "vicinal",
        "embedder": describe(encoder.embedder),
        "preprocessing": describe(encoder.preprocessing),
    }
    tensors = {name: value.contiguous() for name, value in encoder.embedder.state_dict().items()}
    contents = {WEIGHTS: save(tensors), CONFIG: json.dumps(config, indent=2).encode()}
    difference = None
    if onnx:
        contents[ONNX], difference = to_onnx(encoder.embedder, _examples(encoder))
    graphs, scores = measured(run, encoder, contents.get(ONNX, b""), also)
    contents |= graphs
    # Says whose the folder is before anything else is in it, and agrees with nothing until the end.
    write_json(folder / DOCUMENT, {**document, "files": {}})
    with decoding(run.path):
        contents[CARD] = model_card(
            run, document, license=license, difference=difference, scores=scores
        ).encode()
    for name in _GRAPH_FILES - contents.keys():  # of an older export: other weights
        (folder / name).unlink(missing_ok=True)
    for name, content in contents.items():
        write_atomically(folder / name, lambda file, content=content: file.write(content))  # type: ignore[misc]
    document["files"] = {
        name: {"sha256": sha256(content).hexdigest()} for name, content in contents.items()
    }
    write_json(folder / DOCUMENT, document)
    return Export((*(folder / name for name in contents), folder / DOCUMENT), difference, scores)


def handover(embedder: Embedder, transform: Transform) -> dict[str, Any]:
    """Tell how to feed the model, for programmers of any language: its input, the steps that make
    it from an image file, a feature vector or a text, and its output. ``docs/howto/export.md`` says
    what each step does."""
    kind = "float32"
    shape: list[str | int]
    if isinstance(transform, TextTransform):
        kind = "uint8"
        shape = ["batch", "bytes"]
        steps = [{"step": "utf8"}]
    elif isinstance(transform, ImageTransform):
        shape = ["batch", transform.channels, transform.size, transform.size]
        steps = image_steps(transform)
    else:
        shape = ["batch", embedder.input_width]
        steps = [{"step": "unit_length"}] if transform.normalize else []
    return {
        "kind": transform.kind,
        "input": {"name": "inputs", "type": kind, "shape": shape},
        "steps": steps,
        "output": {
            "name": "embeddings",
            "type": "float32",
            "dim": embedder.embedding_dim,
            "unit_length": embedder.normalize,
            "metric": embedder.metric,
        },
    }


def image_steps(transform: ImageTransform) -> list[Step]:
    """List the steps from an image file to one ``[channel, row, column]`` input, as evaluation does
    it."""
    steps: list[Step] = [
        {"step": "decode", "channels": "gray" if transform.channels == 1 else "RGB"}
    ]
    if transform.resize is not None:
        squash = {"width": transform.resize, "height": transform.resize}
        size = squash if transform.fit == "squash" else {"shorter_side": transform.resize}
        steps.append({"step": "resize", **size, "filter": transform.interpolation})
    if transform.canvas is not None:
        steps.append({"step": "crop", "side": transform.canvas})
    if transform.pad:
        steps.append({"step": "pad", "pixels": transform.pad, "value": transform.fill})
    if transform.prepared_side != transform.size:
        steps.append({"step": "crop", "side": transform.size})
    if transform.order == "BGR":
        steps.append({"step": "reorder", "order": "BGR"})
    mean, std = (
        [*values] * (transform.channels // len(values))
        for values in (transform.mean, transform.std)
    )
    steps.append({"step": "normalize", "scale": transform.scale, "mean": mean, "std": std})
    return [*steps, {"step": "layout", "layout": "channel, row, column"}]


def measured(
    run: RunDirectory, encoder: Encoder, content: bytes, kinds: Sequence[str]
) -> tuple[dict[str, bytes], dict[str, Scores]]:
    """Make further graphs of a graph; return their files by name, and what they and torch score on
    the run's test records."""
    for kind in kinds:
        check_known("graph", kind, _MAKE)
    if not kinds:
        return {}, {}
    if not content:
        raise ConfigError("further graphs are made from ONNX. Leave out --no-onnx.")
    records = own_data(run)[1]
    train = records.part("train")
    chosen = np.random.default_rng(0).permutation(len(train))[:CALIBRATION]
    test = records.part("test")

    def score(encoder: Encoder) -> Scores:
        return measure(encoder.embed(test, skip_corrupt=True), recalls=(1,), clustering=False)

    scores = {"torch": score(encoder)}
    graphs = dict[str, bytes]()
    with TemporaryDirectory() as folder:
        for kind in kinds:
            file = Path(folder, GRAPHS[kind][0])
            with _quiet():
                _MAKE[kind](content, file, load_all(train.take(chosen), encoder.preprocessing, 8))
            scores[file.name] = score(_running(encoder, file))
            graphs |= {name: file.with_name(name).read_bytes() for name in GRAPHS[kind]}
    return graphs, scores


def _float16(content: bytes, file: Path, batches: Iterable[Batch]) -> None:
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16  # type: ignore[import-untyped]

    halved = convert_float_to_float16(onnx.load_from_string(content), keep_io_types=True)
    file.write_bytes(halved.SerializeToString(deterministic=True))


def _int8(content: bytes, file: Path, batches: Iterable[Batch]) -> None:
    """Quantize weights by channel, and activations by the ranges that they take on batches."""
    import onnx
    from onnxruntime import quantization  # type: ignore[import-untyped]

    inputs = ({INPUT: batch.inputs.numpy()} for batch in batches)

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(inputs, None)

    file.write_bytes(content)
    quantization.quant_pre_process(file, file, skip_symbolic_shape=True)
    quantization.quantize_static(file, file, Reader(), per_channel=True)
    model = onnx.load(file)
    _forget_the_machine(model)
    file.write_bytes(model.SerializeToString(deterministic=True))


def _openvino(content: bytes, file: Path, batches: Iterable[Batch]) -> None:
    openvino = package("openvino", "openvino")
    openvino.save_model(openvino.Core().read_model(content), file, compress_to_fp16=False)


_MAKE = {"float16": _float16, "int8": _int8, "openvino": _openvino}


def _running(encoder: Encoder, graph: Path | bytes) -> Encoder:
    """Return an encoder whose embeddings come from a graph."""
    run = open_graph(graph, torch.get_num_threads())  # by itself it takes every core
    embedder = copy.copy(encoder.embedder)
    embedder.forward = lambda inputs: torch.from_numpy(run(inputs.numpy()))  # type: ignore[method-assign]
    return replace(encoder, embedder=embedder)


def model_card(
    run: RunDirectory,
    document: Mapping[str, Any],
    *,
    license: str,
    difference: float | None,
    scores: Mapping[str, Scores] | None = None,
) -> str:
    """Render the model card, with no path of the machine that trained."""
    results = run.results
    rows = {row["name"]: row["metrics"] for row in (results or {}).get("rows", [])}
    return render_text(
        "vicinal.retrieval",
        "card.md.j2",
        filters={
            "json": json.dumps,
            "settings": _settings,
            "shareable": _shareable,
            "forbids_commerce": forbids_commerce,
        },
        **document,
        data={"name": "unnamed data", "counts": None, "notes": None} | (run.info.get("data") or {}),
        config=run.config,
        pretrained=run.info.get("pretrained") or [],
        results=results,
        metrics={
            name: value
            for name, value in rows.get("trained", {}).items()
            if isinstance(value, float)
        },
        table=table(results) if results else None,
        license=license,
        difference=difference,
        scores=scores or {},
    )


def _shareable(notes: Sequence[str] | None) -> list[str]:
    """Leave out the notes that name a path of the machine that trained."""
    return [note for note in notes or () if not _PATH & {*note}]


def _settings(slot: Any) -> str:
    """Write a slot in one line, without paths."""
    if not isinstance(slot, Mapping):
        return str(slot)
    words = [
        f"{key}={value}"
        for key, value in slot.items()
        if key != "name" and not _PATH & {*str(value)}
    ]
    return " ".join([str(slot.get("name", "")), *words]).strip()


def _reject_foreign(folder: Path) -> None:
    names = (*sorted(_GRAPH_FILES), WEIGHTS, CONFIG, CARD, DOCUMENT)
    taken = [name for name in names if (folder / name).exists()]
    if taken and not ((folder / DOCUMENT).is_file() and "files" in read_object(folder / DOCUMENT)):
        raise RunError(
            f"an export would replace {', '.join(taken)} in {folder}, but no earlier export wrote "
            "them. Name another folder with --to."
        )


def _examples(encoder: Encoder) -> Tensor:
    """Make inputs to compare on: fine and coarse noise, or normal vectors, preprocessed as real
    ones."""
    rng = np.random.default_rng(0)
    transform = encoder.preprocessing
    count = max(BATCHES)
    if isinstance(transform, TextTransform):
        raise ConfigError("a text encoder cannot be written as ONNX. Leave it out with --no-onnx.")
    if not isinstance(transform, ImageTransform):
        rows = rng.normal(size=(count, encoder.embedder.input_width))
        return transform.batch(list(rows.astype(np.float32)))
    side = transform.resize or transform.canvas or transform.size
    cells = (side, 4) * (count // 2)
    noise = (rng.integers(0, 256, (each, each, 3), np.uint8) for each in cells)
    images = [Image.fromarray(pixels).resize((side, side)) for pixels in noise]
    return transform.batch(images).to(torch.float32)


def to_onnx(embedder: Embedder, examples: Tensor) -> tuple[bytes, float]:
    """Write the embedder as ONNX bytes, weights included, and measure the largest difference from
    torch.

    The graph takes ``inputs`` of any batch size and gives ``embeddings [batch d]``, float32,
    normalized where the embedder normalizes. It is run in onnxruntime on batches of several sizes;
    a number may differ from torch's by 1e-5, or by that share of the largest number where that is
    above 1; more is a ConfigError.

    Args:
        embedder: in evaluation mode, on the CPU.
        examples: preprocessed inputs to compare on, at least ``max(BATCHES)`` of them.
    """
    for name in ("onnx", "onnxscript"):
        package(name, "onnx")
    onnxruntime = package("onnxruntime", "onnx")
    content = _traced(embedder, examples[:2])
    run = open_graph(content, torch.get_num_threads())
    with torch.inference_mode():
        expected = embedder(examples)
    apart = (expected[:size] - torch.from_numpy(run(examples[:size].numpy())) for size in BATCHES)
    largest = expected.abs().max().clamp(min=1)
    differences = [float(far.abs().max() / largest) for far in apart]
    if not max(differences) <= TOLERANCE:  # written so that NaN is rejected as well
        raise ConfigError(
            f"ONNX should give torch's embeddings to {TOLERANCE:.0e}, but in onnxruntime "
            f"{onnxruntime.__version__} they differ by "
            f"{few([*map('{:.1e}'.format, differences)], 4)} at batch "
            f"sizes {few(BATCHES, 4)}. Nothing was written. Try another onnxruntime."
        )
    return content, max(differences)


def _traced(embedder: Embedder, examples: Tensor) -> bytes:
    try:
        with _quiet():
            program = torch.onnx.export(
                embedder,
                (examples,),
                dynamo=True,
                verbose=False,
                input_names=[INPUT],
                output_names=[OUTPUT],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                external_data=False,
            )
        model: Any = program.model_proto  # type: ignore[union-attr]
        _forget_the_machine(model)
        return model.SerializeToString(deterministic=True)  # which holds 2 GiB at most
    except Exception as error:  # tracing raises what a network's own code runs into
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]:.300}"
        fault = f"{type(embedder.backbone).__name__} cannot be written as ONNX: {reason}"
        raise ConfigError(f"{fault} Export the weights alone (`--no-onnx`).") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep exporters from warning of packages and layers that they leave alone."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)


def _forget_the_machine(model: Any) -> None:
    """Take out what the exporter notes on each node: stack traces, which name folders of the
    machine that exported."""
    graph = model.graph
    for part in (model, graph, *graph.node, *graph.value_info, *graph.initializer):
        part.ClearField("doc_string")
        part.ClearField("metadata_props")
    for end in (*graph.input, *graph.output):
        end.ClearField("metadata_props")
