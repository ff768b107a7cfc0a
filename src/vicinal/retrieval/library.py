"""What is asked and served: a run, its collection, its model, its map. Queries are images or
vectors, items, texts and labels; several together are their mean."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from vicinal.errors import ConfigError, DataError, unknown
from vicinal.evaluation.encoder import Encoder
from vicinal.files import read_array, read_arrays
from vicinal.parallel import pick_device
from vicinal.retrieval.calibration import NAME, QUERY_RATE, Threshold, calibration
from vicinal.retrieval.collection import CollectionDirectory, Snapshot
from vicinal.retrieval.decisions import Annotations
from vicinal.retrieval.model import EmbeddingModel
from vicinal.run_directory import RunDirectory


@dataclass(frozen=True)
class Library:
    """All that requests are answered from.

    Attributes:
        run: what was trained.
        collection: what is searched; a request takes one snapshot of it.
        model: embeds pictures, feature vectors or texts.
        reader: embeds texts; None where the run has no text encoder.
        threshold: beyond which a neighbor is no match, as calibrated on the run's validation
            classes; or None.
        layout: makes the map of a snapshot in the place of `collection_map`.
    """

    run: RunDirectory
    collection: CollectionDirectory
    model: EmbeddingModel
    reader: EmbeddingModel | None = None
    threshold: Threshold | None = None
    layout: Callable[[Snapshot], Any] | None = None

    @cached_property
    def annotations(self) -> Annotations:
        return Annotations(self.collection.path)

    def snapshot(self) -> Snapshot:
        """Return the newest generation with the labels that were given here in place of the data's.

        Annotations that cannot be read change nothing here; asked for them, the server says what
        is wrong.
        """
        indexed = self.collection.snapshot()
        with suppress(DataError, OSError):
            return self.annotations.read(indexed).snapshot
        return indexed


def open_library(
    run: Path,
    *,
    collection: Path | None = None,
    device: str = "auto",
    rate: float | None = None,
    images: Sequence[str] = (),
    engine: str | None = None,
) -> Library:
    """Open a run with its collection and model; nothing from the run is executed.

    Args:
        rate: of false matches, at which to calibrate the threshold for "no match"; by default a run
            that was calibrated before shows that of `0.001`, and another none.
        images: folders of pictures to show besides those of the run's own data.
        engine: address of the engine to ask in the place of the collection's own vectors.
    """
    directory = RunDirectory.open(run)
    found = CollectionDirectory.of(directory, collection, images=images, engine=engine)
    model, reader = load_asking(run, device=device)
    threshold = None
    if rate is not None or directory.arrays(NAME) is not None:
        counts = calibration(directory, device=model.device, snapshot=found.snapshot())
        threshold = counts.threshold(rate or QUERY_RATE)
    return Library(directory, found, model, reader, threshold)


def load_asking(
    run: Path, *, device: str = "auto"
) -> tuple["EmbeddingModel", "EmbeddingModel | None"]:
    """Load what embeds the queries of a collection, and what embeds texts, which may be the same,
    or None."""
    encoder = Encoder.load(RunDirectory.open(run), pick_device(device))
    asking = encoder.stream("query")
    held = encoder.stream("gallery")
    if not asking.embedder.reads_text:
        return EmbeddingModel(asking), None
    return EmbeddingModel(held), EmbeddingModel(asking)


def query_vector(
    snapshot: Snapshot,
    model: EmbeddingModel | None,
    *,
    reader: EmbeddingModel | None = None,
    files: Sequence[Path] = (),
    texts: Sequence[str] = (),
    ids: Sequence[int] = (),
    labels: Sequence[str] = (),
) -> Float[np.ndarray, "d"]:
    """Make one query of everything named: the mean of the vectors, of length 1 where all of them
    are.

    Args:
        snapshot: the collection, which has the vectors of ids and labels.
        model: embeds files; None where there are none.
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


def _features(file: Path) -> Float[np.ndarray, "q d"]:
    """Return the vectors of an ``.npy``, or of the array ``features`` of an ``.npz``."""
    archived = file.suffix.lower() == ".npz"
    found = read_arrays(file).get("features", np.empty(0)) if archived else read_array(file)
    if found.dtype.kind not in "fiu" or not found.size:
        raise DataError(f"{file} holds no feature vectors.")
    return np.atleast_2d(found)
