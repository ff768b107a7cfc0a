"""``vicinal.load``: a run's model in a user's own program."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from vicinal.data.records import Kind, Records
from vicinal.data.transforms import ImageTransform
from vicinal.errors import ConfigError, DataError, unknown
from vicinal.evaluation.encoder import Encoder
from vicinal.index.exact import Metric
from vicinal.models.embedder import Role
from vicinal.run_directory import RunDirectory
from vicinal.search import inputs


def load(
    run: str | PathLike[str], *, device: str = "auto", role: Role | None = None, trust: Any = None
) -> "EmbeddingModel":
    """The selected model of a run, ready to embed; nothing from the run is executed.

    Args:
        run: the run's folder.
        device: ``"auto"`` (a GPU where there is one), ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
        role: ``"query"`` or ``"gallery"``, for a model that embeds the two by different networks.
        trust: the class of your own that the run's network is of; without it such a run is not loaded.
    """
    encoder = Encoder.load(RunDirectory.open(Path(run)), _device(device), trust=trust)
    return EmbeddingModel(replace(encoder, embedder=encoder.embedder.stream(role)))


class EmbeddingModel:
    """From images, or feature vectors, to embeddings.

    >>> model = vicinal.load("runs/birds")  # doctest: +SKIP
    >>> vectors = model.embed(["wren.jpg", "robin.jpg"])  # doctest: +SKIP
    >>> model.distance(vectors[:1], vectors[1:])  # doctest: +SKIP

    Attributes:
        metric: by which embeddings of this model are near.
    """

    metric: Metric = "euclidean"

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def __repr__(self) -> str:
        return f"EmbeddingModel({self.kind} -> {self.dim} dimensions, on {self.device})"

    @property
    def device(self) -> torch.device:
        return self._encoder.device

    @property
    def kind(self) -> Kind:
        """What it embeds: ``"images"`` or ``"features"``."""
        return self._encoder.preprocessing.kind

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        return self._encoder.embedder.dim or self._encoder.embedder.width

    def embed(self, images: Any, *, batch_size: int = 64) -> Float32[np.ndarray, "n d"]:
        """Embeddings, one row for each image in their order; one image gives one row.

        An image is a path, a ``PIL.Image`` or a uint8 array ``[h w]`` or ``[h w 3]``; images come one alone, in any
        iterable (read ``batch_size`` at a time, so it may be longer than memory), or as an array ``[n h w 3]``, to a
        grey model also ``[n h w]``. A model of features takes an array ``[d]`` or ``[n d]``, or an iterable of ``[d]``.

        Args:
            images: what to embed; what cannot be is refused with its name or position.
            batch_size: images at a time.
        """
        if batch_size < 1:
            raise ConfigError(f"a batch holds at least 1 image, but batch_size = {batch_size} came.")
        rows = [np.empty((0, self.dim), dtype=np.float32)]
        with torch.inference_mode():
            for batch in self._batches(images, batch_size):
                rows.append(self._encoder.embedder(batch.to(self.device)).float().cpu().numpy())  # noqa: PERF401
        return np.concatenate(rows)

    def embed_records(self, records: Records) -> Float32[np.ndarray, "n d"]:
        """Embeddings of the records of a data set, in their order."""
        return self._encoder.embed(records).vectors.numpy()

    def distance(self, left: Float[np.ndarray, "n d"], right: Float[np.ndarray, "m d"]) -> Float32[np.ndarray, "n m"]:
        """Distances of each row of ``left`` to each row of ``right``; taken as differences, so equal rows have 0."""
        first, second = (torch.from_numpy(np.array(rows, dtype=np.float64)) for rows in (left, right))
        if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1]:
            raise DataError(
                f"distances are between rows [n d] and [m d], but {list(first.shape)} and {list(second.shape)} came."
            )
        found = torch.cdist(first, second, compute_mode="donot_use_mm_for_euclid_dist")
        return found.numpy().astype(np.float32)

    def _batches(self, images: Any, size: int) -> Iterator[Tensor]:
        """Preprocessed inputs, ``size`` at a time."""
        transform = self._encoder.preprocessing
        if isinstance(transform, ImageTransform):
            prepared = (_prepared(transform, *each) for each in inputs.images(images, grey=transform.channels == 1))
            while part := list(islice(prepared, size)):
                yield transform.assemble(part)
        else:
            vectors = inputs.vectors(images, self._encoder.embedder.width)
            while rows := list(islice(vectors, size)):
                yield transform.batch(np.stack(rows))


def _prepared(transform: ImageTransform, name: str, image: Any) -> Tensor:
    try:
        return transform.prepare(image)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error


def _device(wanted: str) -> torch.device:
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError as error:
        raise ConfigError(unknown("device", wanted, ("auto", "cpu", "cuda"))) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"device={wanted} was asked for, but torch sees no GPU. Use device='cpu', or check the driver."
        )
    return device
