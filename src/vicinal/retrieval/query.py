"""Asking a collection: by images or vectors, by items it holds, by a label; several together are
their mean."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from vicinal.errors import ConfigError, DataError, unknown
from vicinal.files import read_array, read_arrays
from vicinal.retrieval.collection import Snapshot
from vicinal.retrieval.model import EmbeddingModel


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
        members = snapshot.vectors()[snapshot.rows({"label": label})]
        vectors.append(members.mean(axis=0, dtype=np.float64))
    if not vectors:
        raise ConfigError(
            "a search needs something to look for. Name images, or use --text, --id or --label."
        )
    mean = np.mean(vectors, axis=0, dtype=np.float64)
    length = float(np.linalg.norm(mean))
    if length and np.allclose(np.linalg.norm(snapshot.vectors()[:1], axis=1), 1, atol=1e-3):
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
