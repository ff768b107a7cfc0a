"""Asking a collection: by images or vectors, by items it holds, by a label; several together are
their mean."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from vicinal.errors import ConfigError, DataError, unknown
from vicinal.files import read_array, read_arrays
from vicinal.retrieval.collection import Match, Snapshot
from vicinal.retrieval.model import EmbeddingModel
from vicinal.retrieval.store import Where


@dataclass(frozen=True)
class Query:
    """What is looked for.

    Attributes:
        title: how it was asked, for captions.
        vector: the point near which to look.
        exclude: ids of the items it was made of, which are not to be found again.
    """

    title: str
    vector: Float[np.ndarray, "d"]
    exclude: tuple[int, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What was found.

    Attributes:
        query: what was asked.
        generation: of the collection that answered.
        metric: what distances are.
        matches: the nearest items within the threshold, nearest first.
        threshold: the distance beyond which nothing is a match; None where none was asked for.
        beyond: the nearest item that was too far to be a match, where one was looked at.
    """

    query: Query
    generation: int
    metric: str
    matches: tuple[Match, ...]
    threshold: float | None = None
    beyond: Match | None = None

    def document(self) -> dict[str, Any]:
        """Return the answer as JSON."""

        def entry(match: Match) -> dict[str, Any]:
            facts = {
                name: getattr(match.item, name) for name in ("id", "path", "label", "metadata")
            }
            return {**facts, "distance": round(match.distance, 6)}

        asked = {"query": self.query.title, "generation": self.generation, "metric": self.metric}
        beyond = None if self.beyond is None else entry(self.beyond)
        matches = [entry(match) for match in self.matches]
        return {**asked, "threshold": self.threshold, "matches": matches, "beyond": beyond}


def ask(
    snapshot: Snapshot,
    query: Query,
    k: int,
    *,
    where: Where | None = None,
    threshold: float | None = None,
) -> Answer:
    """Find the ``k`` nearest items of a collection; those beyond the threshold are no match."""
    found = snapshot.search(query.vector[None], k, where=where, exclude=query.exclude)[0]
    limit = np.inf if threshold is None else threshold
    matches = tuple(match for match in found if match.distance <= limit)
    beyond = found[len(matches)] if len(matches) < len(found) else None
    return Answer(query, snapshot.generation, snapshot.metric, matches, threshold, beyond)


def query_of(
    snapshot: Snapshot,
    model: EmbeddingModel | None,
    *,
    reader: EmbeddingModel | None = None,
    files: Sequence[Path] = (),
    texts: Sequence[str] = (),
    ids: Sequence[int] = (),
    labels: Sequence[str] = (),
) -> Query:
    """Make one query of everything named: the mean of the vectors, of length 1 where the model's
    are.

    Args:
        snapshot: the collection, which has the vectors of ids and labels.
        model: embeds files; None where there are none.
        reader: embeds texts; None where there are none, or the run has no text encoder.
        files: images, or for a run on features ``.npy`` and ``.npz`` of one vector or several.
        texts: words to look for.
        ids: items of the collection; they are not found again.
        labels: each stands for the mean of the items that have it.
    """
    titles = [*map(str, files), *(f"{text!r:.60}" for text in texts)]
    titles += [*(f"item {id}" for id in ids), *(f"label {label}" for label in labels)]
    if not titles:
        raise ConfigError(
            "a search needs something to look for. Name images, or use --text, --id or --label."
        )
    if files and model is not None and model.kind == "text":
        raise ConfigError(f"this run embeds texts, got the file {files[0]}. Search with --text.")
    if texts and reader is None:
        columns = "`path` and `text` of pictures, or `text` and `label` of sentences"
        raise ConfigError(
            f"this run has no text encoder. Train one on a table with the columns {columns}."
        )
    vectors = [snapshot.vector(id) for id in ids]
    if texts and reader is not None:
        vectors += list(reader.embed(texts))
    if files and model is not None:
        named = (
            files if model.kind == "images" else np.concatenate([_features(file) for file in files])
        )
        vectors += list(model.embed(named))
    for label in labels:
        if label not in snapshot.labels():
            raise DataError(unknown("label", label, snapshot.labels()))
        rows = snapshot.rows({"label": label})
        vectors.append(snapshot.vectors()[rows].mean(axis=0, dtype=np.float64))
    if any(vector.shape != (snapshot.dim,) for vector in vectors):
        lengths = (
            f"the collection's vectors have length {snapshot.dim}, the model's {len(vectors[-1])}"
        )
        raise DataError(f"{lengths}: it was indexed with another model. Index it again.")
    if len(titles) == len(vectors) == 1 and not labels:
        return Query(titles[0], np.asarray(vectors[0], np.float32), tuple(ids))
    mean: np.ndarray = np.stack(vectors).mean(axis=0, dtype=np.float64)
    length = float(np.linalg.norm(mean))
    if length and all(
        abs(float(np.linalg.norm(vector)) - 1) < 1e-3 for vector in snapshot.vectors()[:1]
    ):
        mean /= length  # on the sphere the mean of directions is a direction
    title = titles[0] if len(titles) == 1 else f"mean of {', '.join(titles)}"
    return Query(title, mean.astype(np.float32), tuple(ids))


def conditions(words: Sequence[str], label: str | None = None) -> dict[str, str]:
    """Turn ``KEY=VALUE`` words, and a label where one is named, into conditions on attributes.

    >>> conditions(["camera=3"], label="wren")
    {'label': 'wren', 'camera': '3'}
    """
    found = {} if label is None else {"label": label}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals or name in found:
            raise ConfigError(
                f"--where takes KEY=VALUE, such as label=wren, each key once; got {word[:60]!r}."
            )
        found[name] = value
    return found


def _features(file: Path) -> Float[np.ndarray, "q d"]:
    """Return the vectors of an ``.npy``, or of the array ``features`` of an ``.npz``."""
    ending = file.suffix.lower()
    if ending not in (".npy", ".npz"):
        raise ConfigError(
            f"this run embeds feature vectors: a query is an .npy or .npz; got {file}."
        )
    try:
        found = read_array(file) if ending == ".npy" else read_arrays(file)["features"]
        if found.dtype.kind not in "fiu":
            raise ValueError(f"it holds {found.dtype} instead of numbers")
        return np.atleast_2d(found).astype(np.float32)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{file} is not readable as feature vectors: {error}.") from error
