"""``vicinal.load``: the model of a run, or of an exported folder, in a user's own program."""

from collections.abc import Iterable
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from vicinal.data.records import Kind, Records
from vicinal.data.table import unfit
from vicinal.data.transforms import ImageTransform, TextTransform
from vicinal.distances import Metric, Poincare, squared_lengths
from vicinal.errors import ConfigError, DataError, RunError
from vicinal.evaluation.encoder import Encoder
from vicinal.evaluation.neighbors import require_finite
from vicinal.files import eight_bit, read_image, upright
from vicinal.models.embedder import Apply, Embedder, Role
from vicinal.parallel import pick_device
from vicinal.retrieval.asking import DOCUMENT, described
from vicinal.retrieval.items import Vector, Vectors
from vicinal.run_directory import RunDirectory

# Of an exported folder.
WEIGHTS = "model.safetensors"
CONFIG = "config.json"


def load(
    run: str | PathLike[str],
    *,
    device: str = "auto",
    role: Role | None = None,
    trust: Any = None,
    module: nn.Module | None = None,
) -> "EmbeddingModel":
    """Load the selected model of a run, or of a folder that ``vicinal export`` wrote; nothing in it
    is executed.

    Args:
        run: the run's folder, or the exported one, which may lie on another machine.
        device: ``"auto"`` (a GPU where there is one), ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
        role: ``"query"`` or ``"gallery"``, for a model that embeds the two by different networks:
            of texts and pictures, texts are the queries; None then gives the pictures' network.
        trust: the class of your own that the run's network is of; without it such a run is not
            loaded.
        module: a network like the one that the run trained; a copy of it gets the run's weights.
    """
    folder = RunDirectory(Path(run))
    if not folder.info_path.is_file() and (folder.path / CONFIG).is_file():
        folder.model_path = folder.path / CONFIG
        for name in (CONFIG, WEIGHTS):
            if not described(folder.path, [name]):
                raise RunError(
                    f"{folder.path / name} is not the file that `vicinal export` wrote, by its "
                    f"SHA-256 in {DOCUMENT}. Export the run again, or copy the whole folder."
                )
    else:
        folder = RunDirectory.open(Path(run))
    trust = trust if module is None else module
    return EmbeddingModel(Encoder.load(folder, pick_device(device), trust=trust).stream(role))


class EmbeddingModel:
    """From images, feature vectors or texts to embeddings.

    >>> model = vicinal.load("runs/birds")  # doctest: +SKIP
    >>> vectors = model.embed(["wren.jpg", "robin.jpg"])  # doctest: +SKIP
    >>> model.distance(vectors[:1], vectors[1:])  # doctest: +SKIP

    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def __repr__(self) -> str:
        return f"EmbeddingModel({self.kind} -> {self.dim} dimensions, on {self.device})"

    @property
    def device(self) -> torch.device:
        return self._encoder.device

    @property
    def kind(self) -> Kind:
        """What it embeds: ``"images"``, ``"features"`` or ``"text"``."""
        return self._encoder.preprocessing.kind

    @property
    def metric(self) -> Metric:
        """By which embeddings of this model are near."""
        return self._encoder.embedder.metric

    @property
    def introspective(self) -> bool:
        """Whether it tells the uncertainty of what it embeds."""
        return self._encoder.embedder.uncertainty

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        return self._encoder.embedder.embedding_dim

    def embed(self, images: Any, *, batch_size: int = 64) -> Vectors:
        """Compute embeddings, one row for each image in their order; one image gives one row.

        An image is a path, a ``PIL.Image`` or a uint8 array ``[h w]`` or ``[h w 3]``; images come
        one alone, in any iterable (read ``batch_size`` at a time, so it may be longer than memory),
        or as an array ``[n h w 3]``, to a gray model also ``[n h w]``. A model of features takes an
        array ``[d]`` or ``[n d]``, or an iterable of ``[d]``; a model of texts takes a ``str`` or
        an iterable of them.

        Args:
            images: what to embed; what cannot be raises a DataError with its name or position.
            batch_size: images at a time.
        """
        return self._through(Embedder.__call__, self.dim, images, batch_size)

    def uncertainty(self, images: Any, *, batch_size: int = 64) -> Vector:
        """Tell how ambiguous images are to a model that ``method=idml`` trained: the lengths of
        their uncertainty embeddings. Arguments as in ``embed``."""
        if not self.introspective:
            raise ConfigError(
                "this model has no uncertainty. Train one with method=idml loss=proxy_anchor."
            )
        return self._through(Embedder.ambiguity, 1, images, batch_size)[:, 0]

    def _through(self, apply: Apply, width: int, images: Any, batch_size: int) -> Vectors:
        """Return what ``apply`` makes of images with the network."""
        if batch_size < 1:
            raise ConfigError(f"a batch holds at least 1 image; got batch_size = {batch_size}.")
        transform = self._encoder.preprocessing
        images = _array(images)
        if self._is_one(images):
            images = [images]
        if not isinstance(images, Iterable):
            raise DataError(f"this model embeds {self.kind}, one or many; got {_shown(images)}.")
        each = iter(images)
        rows = [np.empty((0, width), dtype=np.float32)]
        done = 0
        while some := list(islice(each, batch_size)):
            named = enumerate(map(_array, some), done)
            if isinstance(transform, ImageTransform):
                images = [
                    transform.prepare(*_image(value, f"image {place}")) for place, value in named
                ]
                batch = transform.finish(transform.cut_drawn(images, None))
            elif isinstance(transform, TextTransform):
                batch = transform.batch([_text(value, place) for place, value in named])
            else:
                numbers = self._encoder.embedder.input_width
                batch = transform.batch([_vector(value, place, numbers) for place, value in named])
            with torch.inference_mode():
                found = apply(self._encoder.embedder, batch.to(self.device))
            rows.append(found.float().cpu().numpy())
            done += len(some)
        return np.concatenate(rows)

    def _is_one(self, inputs: Any) -> bool:
        """Return whether this is one input, not many; ``[n h w]`` are many to a gray model alone,
        for ``[3 h w]``, an image with its channels first, would pass for three gray ones."""
        if isinstance(inputs, np.ndarray) and inputs.dtype.kind not in "OU":
            if self.kind == "features":
                return inputs.ndim < 2
            transform = self._encoder.preprocessing
            gray = isinstance(transform, ImageTransform) and transform.channels == 1
            return inputs.ndim < 3 or (inputs.ndim == 3 and (inputs.shape[-1] == 3 or not gray))
        if self.kind == "features" and isinstance(inputs, list | tuple) and inputs:
            return all(isinstance(each, int | float) for each in inputs)
        return isinstance(inputs, str | PathLike | Image.Image)

    def embed_records(self, records: Records) -> Vectors:
        """Embed the records of a data set, in their order."""
        return self._encoder.embed(records).vectors.numpy()

    def distance(self, left: Vectors, right: Vectors) -> Vectors:
        """Distances of each row of ``left`` to each row of ``right``; taken as differences, so
        equal rows have 0."""
        first, second = (
            torch.from_numpy(np.array(rows, dtype=np.float64)) for rows in (left, right)
        )
        if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1]:
            shapes = f"{list(first.shape)} and {list(second.shape)}"
            raise DataError(f"distances are between rows [n d] and [m d]; got {shapes}.")
        found = torch.cdist(first, second, compute_mode="donot_use_mm_for_euclid_dist")
        if self.metric == "poincare":
            found = Poincare().of_lengths(found, squared_lengths(first), squared_lengths(second))
        return found.numpy().astype(np.float32)


def _text(value: Any, place: int) -> str:
    if problem := unfit(value) if isinstance(value, str) else "should be a str.":
        raise DataError(f"text {place}, {_shown(value)}, {problem}")
    return str(value)


def _image(value: Any, name: str) -> tuple[Image.Image, str]:
    """Return a decoded image, and the name by which an error should call it."""
    if isinstance(value, str | PathLike):
        return read_image(Path(value)), str(value)
    if isinstance(value, Image.Image):
        return eight_bit(upright(value)), name
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.size:
        pixels = value[..., 0] if value.ndim == 3 and value.shape[2] == 1 else value
        if pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3):
            return Image.fromarray(np.ascontiguousarray(pixels)), name
    raise DataError(
        f"{name} should be a path, a PIL image, or a uint8 array [h w] or [h w 3]; got "
        f"{_shown(value)}."
    )


def _vector(value: Any, place: int, width: int) -> Vector:
    name = f"feature vector {place}"
    try:
        vector = np.asarray(value, dtype=np.float32)
    except (TypeError, ValueError):
        vector = np.empty(0, np.float32)
    if vector.shape != (width,):
        raise DataError(f"{name} should be {width} numbers; got {_shown(value)}.")
    require_finite(torch.from_numpy(vector)[None], name)
    return vector


def _array(value: Any) -> Any:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value


def _shown(value: Any) -> str:
    """Return a value in a few words.

    >>> _shown(np.zeros((2, 3), dtype=np.float32)), _shown(7)
    ('a float32 array [2, 3]', 'int 7')
    """
    if isinstance(value, np.ndarray):
        return f"a {value.dtype} array {list(value.shape)}"
    return f"{type(value).__name__} {value!r:.60}"
