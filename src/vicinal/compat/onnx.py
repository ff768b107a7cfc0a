"""A trained embedder as ONNX with a free batch size, compared with torch before anyone gets to see it."""

import importlib
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vicinal.errors import ConfigError
from vicinal.models.embedder import Embedder

INPUT, OUTPUT = "inputs", "embeddings"  # names of the graph's ends
TOLERANCE = 1e-5  # of a number of an embedding of length 1; larger embeddings may differ in proportion
BATCHES = (1, 2, 5, 8)  # sizes compared: one alone, the size that was traced, and others
_MOST_BYTES = 2**31 - 1  # of one protobuf message


@dataclass(frozen=True)
class OnnxModel:
    """A checked ONNX file.

    Attributes:
        content: the file's bytes, weights included.
        difference: the largest difference from torch that was seen, of any number of any embedding.
    """

    content: bytes
    difference: float


def to_onnx(embedder: Embedder, examples: Tensor, *, metadata: Mapping[str, str] | None = None) -> OnnxModel:
    """The embedder as ONNX bytes, refused where onnxruntime's embeddings differ from torch's.

    The graph takes ``inputs`` of any batch size and gives ``embeddings [batch d]``, float32, normalised where the
    embedder normalises. It is run in onnxruntime on batches of several sizes; a number may differ from torch's by 1e-5,
    or by that share of the largest number where that is above 1.

    Args:
        embedder: in evaluation mode, on the CPU.
        examples: preprocessed inputs to compare on, at least ``max(BATCHES)`` of them.
        metadata: texts that travel in the file.
    """
    if embedder.training or len(examples) < max(BATCHES):
        raise ConfigError(
            f"an export needs an embedder in evaluation mode and {max(BATCHES)} examples, but training = "
            f"{embedder.training} and {len(examples)} examples came. Call `embedder.eval()`; give more examples."
        )
    onnxruntime = _installed("onnxruntime")
    content = _traced(embedder, examples[:2], metadata or {})
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()  # its own choice would take every core of the machine
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    differences = {size: _difference(embedder, session, examples[:size]) for size in BATCHES}
    if not max(differences.values()) <= TOLERANCE:  # written so that NaN is refused as well
        seen = ", ".join(f"{difference:.1e} at batch size {size}" for size, difference in differences.items())
        raise ConfigError(
            f"the ONNX model should give torch's embeddings to {TOLERANCE:.0e}, but in onnxruntime "
            f"{onnxruntime.__version__} they differ by {seen}. Nothing was written. Try another onnxruntime."
        )
    return OnnxModel(content, max(differences.values()))


def _traced(embedder: Embedder, examples: Tensor, metadata: Mapping[str, str]) -> bytes:
    for package in ("onnx", "onnxscript"):
        _installed(package)
    try:
        with _quietly():
            program = torch.onnx.export(
                embedder,
                (examples,),
                dynamo=True,
                input_names=[INPUT],
                output_names=[OUTPUT],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                external_data=False,
                verbose=False,
            )
    except Exception as error:  # tracing raises whatever a network's own code runs into
        reason = str(error).strip().splitlines() or [""]
        raise ConfigError(
            f"{type(embedder.backbone).__name__} cannot be written as ONNX: {type(error).__name__}: {reason[0]:.300} "
            f"Export the weights alone (`--no-onnx`)."
        ) from error
    if program is None:
        raise ConfigError("torch's ONNX exporter gave no model. Export the weights alone (`--no-onnx`).")
    model = program.model_proto
    if model.ByteSize() > _MOST_BYTES:
        raise ConfigError(
            f"an ONNX file holds at most {_MOST_BYTES / 2**30:.0f} GiB, but this model needs "
            f"{model.ByteSize() / 2**30:.1f}. Export the weights alone (`--no-onnx`)."
        )
    _forget_the_machine(model)
    for key, value in metadata.items():
        model.metadata_props.add(key=key, value=value)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _forget_the_machine(model: Any) -> None:
    """Take out what the exporter notes on each node: stack traces, which name folders of the machine that exported."""
    for part in (model, model.graph, *model.graph.node, *model.graph.value_info, *model.graph.initializer):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    for end in (*model.graph.input, *model.graph.output):
        end.ClearField("metadata_props")


def _difference(embedder: Embedder, session: Any, inputs: Tensor) -> float:
    with torch.inference_mode():
        expected = embedder(inputs)
    found = torch.from_numpy(session.run([OUTPUT], {INPUT: inputs.numpy()})[0])
    if found.shape != expected.shape:
        raise ConfigError(
            f"the ONNX model should give {tuple(expected.shape)} for a batch of {len(inputs)}, but gave "
            f"{tuple(found.shape)}. Nothing was written."
        )
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1))


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the exporter's talk of packages that are not used here; what matters it raises."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _installed(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(
            f"ONNX export needs {package}, which cannot be imported here: {error}. Run `pip install 'vicinal[onnx]'`."
        ) from error
