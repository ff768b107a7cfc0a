"""What is asked: images or vectors, items, texts and labels; several together are their mean.

Nothing here needs torch, which takes longer to import than a search.
"""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vicinal.errors import ConfigError, DataError, check_known, package, unknown
from vicinal.files import file_hash, read_array, read_arrays, read_image, read_object
from vicinal.retrieval.collection import Snapshot
from vicinal.retrieval.items import Vector, Vectors
from vicinal.run_directory import RunDirectory, model_fingerprint

# Of an exported folder.
DOCUMENT = "preprocessing.json"
ONNX = "model.onnx"
GRAPHS = {  # by name: its file, and those beside it
    "onnx": (ONNX,),
    "float16": ("model.float16.onnx",),
    "int8": ("model.int8.onnx",),
    "openvino": ("model.openvino.xml", "model.openvino.bin"),
}
INPUT = "inputs"  # names of the graph's ends
OUTPUT = "embeddings"
Step = dict[str, Any]  # its name (``step``) and its numbers


Graph = Callable[[np.ndarray], Vectors]


def open_graph(model: Path | bytes, threads: int = 0) -> Graph:
    """Open an ONNX or OpenVINO graph for inputs on the CPU; 0 threads are as many as there are
    cores."""
    if isinstance(model, Path) and model.suffix == ".xml":
        # By itself it takes bfloat16 where the processor has it.
        settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
        openvino = package("openvino", "openvino")
        compiled = openvino.Core().compile_model(model, "CPU", settings)
        return lambda inputs: compiled({INPUT: inputs})[OUTPUT]
    runtime = package("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run([OUTPUT], {INPUT: inputs})[0]


class ExportedModel:
    """Embeds pictures by a graph of an export.

    Args:
        steps: of its ``preprocessing.json``.
        graph: from inputs to embeddings.
    """

    kind = "images"
    introspective = False

    def __init__(self, steps: Sequence[Step], graph: Graph) -> None:
        self._steps = steps
        self._graph = graph

    @classmethod
    def of(cls, run: RunDirectory, graph: str = "onnx") -> "ExportedModel":
        """Open a graph of ``RUN/export``; a ConfigError where there is none, where it is not of the
        run's present weights, or does not take any picture."""
        check_known("graph", graph, GRAPHS)
        folder = run.path / "export"
        made_of = {"model": model_fingerprint(run), "role": None}
        document = described(folder, GRAPHS[graph])
        if (
            not made_of.items() <= document.get("run", {}).items()
            or not any(step["step"] == "resize" for step in document["steps"])
            or read_object(run.model_path)["embedder"].get("uncertainty")
        ):
            also = "" if graph == "onnx" else f" --also {graph}"
            raise ConfigError(
                f"{folder} holds no {graph} graph of the present weights that embeds any picture. "
                f"Run `vicinal export {shlex.quote(str(run.path))}{also}`."
            )
        return cls(document["steps"], open_graph(folder / GRAPHS[graph][0]))

    def embed(self, images: Sequence[Any]) -> Vectors:
        """Compute embeddings, one row for each picture or path of one."""
        pictures = [read_image(one) if isinstance(one, Path) else one for one in images]
        return self._graph(np.stack([prepared(each, self._steps) for each in pictures]))


def described(folder: Path, names: Sequence[str]) -> dict[str, Any]:
    """Read what an export says of itself; nothing where one of these files is not the one that was
    written with it."""
    document = read_object(folder / DOCUMENT) if (folder / DOCUMENT).is_file() else {}
    files = document.get("files", {})
    known = all(
        (folder / name).is_file() and files.get(name) == {"sha256": file_hash(folder / name)}
        for name in names
    )
    return document if known else {}


def prepared(image: Any, steps: Sequence[Step]) -> np.ndarray:
    """Follow the steps of ``preprocessing.json`` from a decoded picture to a graph's input."""
    from PIL import Image, ImageOps

    for step in steps:
        match step["step"]:
            case "decode":
                image = image.convert("L" if step["channels"] == "gray" else "RGB")
            case "resize":
                size = [step.get("width"), step.get("height")]
                if shorter := step.get("shorter_side"):
                    size = [round(side * shorter / min(image.size)) for side in image.size]
                image = image.resize(size, Image.Resampling[step["filter"].upper()])
            case "crop":
                left, top = ((length - step["side"]) // 2 for length in image.size)
                image = image.crop((left, top, left + step["side"], top + step["side"]))
            case "pad":
                fill = (step["value"],) * len(image.getbands())
                image = ImageOps.expand(image, step["pixels"], fill)
            case "reorder":
                image = np.asarray(image)[:, :, ::-1]
            case "normalize":
                pixels = np.atleast_3d(np.asarray(image)) * (step["scale"] / 255)
                image = (pixels - step["mean"]) / step["std"]
            case "layout":
                image = image.transpose(2, 0, 1).astype(np.float32)
    return np.ascontiguousarray(image)


def query_vector(
    snapshot: Snapshot,
    model: Any,
    *,
    reader: Any = None,
    files: Sequence[Path] = (),
    texts: Sequence[str] = (),
    ids: Sequence[int] = (),
    labels: Sequence[str] = (),
) -> Vector:
    """Make one query of everything named: the mean of the vectors, of length 1 where all of them
    are.

    Args:
        snapshot: the collection, which has the vectors of ids and labels.
        model: an `EmbeddingModel` or `ExportedModel` that embeds files; None where there are none.
        reader: embeds texts; None where there are none, or the run has no text encoder.
        files: images, or for a run on features ``.npy`` and ``.npz`` of one vector or several.
        texts: words to look for.
        ids: items of the collection.
        labels: each stands for the mean of the items that have it.
    """
    vectors = [snapshot.vector(id) for id in ids]
    if texts:
        if reader is None:
            columns = "`path` and `text` of pictures, or `text` and `label` of sentences"
            raise ConfigError(
                f"this run has no text encoder. Train one on a table with the columns {columns}."
            )
        vectors += list(reader.embed(texts))
    if files and model is not None:
        if model.kind == "text":
            raise ConfigError(f"this run embeds texts, got the file {files[0]}. Use --text.")
        rows = files if model.kind == "images" else np.concatenate([*map(_features, files)])
        vectors += list(model.embed(rows))
    for label in labels:
        if label not in snapshot.labels():
            raise DataError(unknown("label", label, snapshot.labels()))
        members = snapshot.vectors[snapshot.rows({"label": label})]
        vectors.append(members.mean(axis=0, dtype=np.float64))
    if not vectors:
        raise ConfigError(
            "a search needs something to look for. Name images, or use --text, --id or --label."
        )
    mean = np.mean(vectors, axis=0, dtype=np.float64)
    length = float(np.linalg.norm(mean))
    if length and np.allclose(np.linalg.norm(snapshot.vectors[:1], axis=1), 1, atol=1e-3):
        mean /= length  # on the sphere the mean of directions is a direction
    return np.asarray(mean, np.float32)


def conditions(words: Sequence[str], label: str | None = None) -> dict[str, str]:
    """Turn ``KEY=VALUE`` words, and a label where one is named, into conditions on attributes.

    >>> conditions(["camera=3"], label="wren")
    {'label': 'wren', 'camera': '3'}
    """
    found = {} if label is None else {"label": label}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name in found:
            raise ConfigError(
                f"--where takes KEY=VALUE, such as label=wren, each key once; got {word[:60]!r}."
            )
        found[name] = value
    return found


def _features(file: Path) -> Vectors:
    """Return the vectors of an ``.npy``, or of the array ``features`` of an ``.npz``."""
    archived = file.suffix.lower() == ".npz"
    found = read_arrays(file).get("features", np.empty(0)) if archived else read_array(file)
    if found.dtype.kind not in "fiu" or not found.size:
        raise DataError(f"{file} holds no feature vectors.")
    return np.atleast_2d(found)
