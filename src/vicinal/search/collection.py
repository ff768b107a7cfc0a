"""A searchable collection on disk, and the unchanging snapshot of it that a reader holds.

``RUN/collection`` holds one folder per generation and a small pointer file, ``current.json``, that names the newest.
A generation is written whole beside the old ones and becomes visible by one rename of the pointer; it never changes
afterwards. A reader takes a ``Snapshot`` and answers from it, however often the collection is written meanwhile.
``generations`` writes, ``indexing`` decides what.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from jaxtyping import Float
from PIL import Image

from vicinal.errors import ConfigError, DataError, RunError, unknown
from vicinal.files import read_array, read_json
from vicinal.index.exact import Metric
from vicinal.index.flat import FlatStore
from vicinal.index.store import Attributes, Store
from vicinal.search.places import Pictures, Place

FORMAT = 1  # raised when a reader of the old format would misread the new one
FOLDER = "collection"  # where a run keeps its own
POINTER = "current.json"
ABOUT, ITEMS, VECTORS = "about.json", "items.jsonl", "vectors.npy"
_ATTEMPTS = 8  # to open a generation that a writer may remove under us; each needs two writes in the meantime


@dataclass(frozen=True)
class Item:
    """One thing in a collection.

    Attributes:
        id: stays with the thing through all generations, also when its content changes; never used again.
        path: where it lies below its place (``Snapshot.places``), ``/`` between parts; for feature vectors their name.
        label: its class, where one is known.
        metadata: further facts by which a search can be narrowed.
        place: position of the folder, table, archive or array file it came from in ``Snapshot.places``.
        digest: SHA-256 of its content, by which a change is seen.
    """

    id: int
    path: str
    label: str | None
    metadata: Mapping[str, str] = field(default_factory=dict)
    place: int = 0
    digest: str = ""

    @property
    def attributes(self) -> dict[str, str]:
        """What a search can be narrowed by: metadata, ``label`` and ``path``."""
        return {**self.metadata, "path": self.path} | ({} if self.label is None else {"label": self.label})


@dataclass(frozen=True)
class Match:
    """An item that a search found, and how far from the query it lies."""

    item: Item
    distance: float


class Snapshot:
    """One generation of a collection; nothing of it changes while it is held. Any thread may ask it.

    Attributes:
        folder: of this generation; derived files (the map) may be put into it, atomically.
        generation: its number, 1 for the first.
        dim: length of the vectors.
        metric: what distances are.
        places: where the items came from.
        about: all of ``about.json``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.about: dict[str, Any] = read_json(folder / ABOUT)
        self.generation: int = self.about["generation"]
        self.dim: int = self.about["dim"]
        self.metric: Metric = self.about["metric"]
        self.places = tuple(Place(**place) for place in self.about["places"])
        self._items = _read_items(folder / ITEMS)
        self._vectors = read_array(folder / VECTORS, mapped=True) if self._items else _none(self.dim)
        if self._vectors.shape != (len(self._items), self.dim):
            raise RunError(
                f"{folder} should hold {len(self._items)} vectors of length {self.dim}, but {VECTORS} has the shape "
                f"{list(self._vectors.shape)}. Remove the collection and index again."
            )
        self._pictures = Pictures(folder.parent, self.places)
        self._rows = {item.id: row for row, item in enumerate(self._items)}
        self._lock = Lock()
        self._opened: Store | None = None

    def __len__(self) -> int:
        return len(self._items)

    def item(self, id: int) -> Item:
        """The item with this id; a DataError where there is none in this generation."""
        return self._items[self._row(id)]

    def items(self) -> Sequence[Item]:
        """All items by ascending id; item ``i`` of these has row ``i`` of ``vectors()``."""
        return self._items

    def labels(self) -> Mapping[str, int]:
        """How many items each label has, by label; items without one are not counted."""
        return self.attributes.values("label")

    def vectors(self) -> Float[np.ndarray, "n d"]:
        """All vectors, float32, memory-mapped and read-only, in the order of ``items()``."""
        return self._vectors

    def vector(self, id: int) -> Float[np.ndarray, "d"]:
        """The vector of one item; a DataError where there is none."""
        return np.array(self._vectors[self._row(id)])

    @cached_property
    def attributes(self) -> Attributes:
        """Which items have which label and metadata."""
        return Attributes([item.attributes for item in self._items])

    def search(
        self,
        vectors: Float[np.ndarray, "q d"],
        k: int,
        *,
        where: Mapping[str, str] | None = None,
        exclude: Collection[int] = (),
    ) -> list[list[Match]]:
        """The ``k`` nearest items of each vector, nearest first; fewer where the collection has no more.

        Args:
            vectors: embeddings of the run's model; NaN and other lengths are refused with a DataError.
            k: at least 1.
            where: items must have all of these; ``label`` is the label, ``path`` the path, other keys are metadata.
                A key that no item has is a DataError that names the nearest.
            exclude: ids that are not to be found (the query's own).
        """
        if k < 1:
            raise ConfigError(f"a search gives at least 1 item, but k = {k} was asked for.")
        if vectors.ndim != 2 or vectors.shape[1] != self.dim:
            raise DataError(
                f"queries are vectors [q {self.dim}], as the collection's, but {list(vectors.shape)} came. "
                f"Embed them with the run that the collection was indexed with."
            )
        for name in where or ():
            if name not in self.attributes.names:
                raise DataError(unknown("attribute", name, self.attributes.names))
        found = self._store().search(vectors, min(k, max(1, len(self))), where=where, exclude=exclude)
        return [
            [Match(self.item(id), distance) for id, distance in zip(ids, distances, strict=True) if id >= 0]
            for ids, distances in zip(found.ids.tolist(), found.distances.tolist(), strict=True)
        ]

    def image(self, id: int) -> Image.Image:
        """The picture of an item, decoded, RGB or grey; DataError where it has none, or its file is gone or damaged.

        Never reads a file outside the item's place, whatever the path says and whatever links point to.
        """
        item = self.item(id)
        return self._pictures.image(item.place, item.path)

    def close(self) -> None:
        """Let go of the engine's connections; a later search opens them again."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def _row(self, id: int) -> int:
        row = self._rows.get(id)
        if row is None:
            raise DataError(
                f"item {id} was asked for, but generation {self.generation} of the collection has none of that id. "
                f"Its {len(self)} items have ids from {self._span()}."
            )
        return row

    def _span(self) -> str:
        return f"{self._items[0].id} to {self._items[-1].id}" if self._items else "none to none"

    def _store(self) -> Store:
        with self._lock:
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    def _open(self) -> Store:
        store = self.about.get("store")
        if store is not None:
            from vicinal.index.milvus import Milvus

            return Milvus(store["address"], store["table"], dim=self.dim, metric=self.metric, index=store["index"]).at(
                self.generation
            )
        ids = np.array([item.id for item in self._items], dtype=np.int64)
        # Not self.attributes.rows: most searches have no condition, and need no attributes.
        return FlatStore(self._vectors, ids, metric=self.metric, matching=lambda where: self.attributes.rows(where))


class CollectionDirectory:
    """A collection on disk: where ``vicinal index`` writes, what search, serve, cluster and dedupe open."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._lock = Lock()
        self._held: Snapshot | None = None

    @classmethod
    def open(cls, path: Path | str) -> "CollectionDirectory":
        """An existing collection of a format we read; a RunError that says how to make one otherwise."""
        collection = cls(path)
        if not (collection.path / POINTER).is_file():
            raise RunError(
                f"{collection.path} is no collection: it has no {POINTER}. `vicinal index RUN PATH...` makes one."
            )
        collection.latest_generation()
        return collection

    @classmethod
    def of(cls, run: Path | str, collection: Path | str | None = None) -> "CollectionDirectory":
        """The collection of a run: its own ``RUN/collection``, or the one that ``--collection`` names."""
        return cls.open(collection if collection is not None else Path(run) / FOLDER)

    def latest_generation(self) -> int:
        """The number of the newest generation; costs one small read, so it can be asked before each request."""
        pointer = read_json(self.path / POINTER)
        if not isinstance(pointer, dict) or pointer.get("format") != FORMAT:
            raise RunError(
                f"{self.path / POINTER} is not of collection format {FORMAT}. Use the version that wrote it, or remove "
                f"the collection and index again."
            )
        return int(pointer["generation"])

    def snapshot(self) -> Snapshot:
        """The newest generation; cheap to call again: the same object comes back while the number is the same."""
        with self._lock:
            for _ in range(_ATTEMPTS):
                number = self.latest_generation()
                if self._held is not None and self._held.generation == number:
                    return self._held
                try:
                    self._held = Snapshot(generation_folder(self.path, number))
                except FileNotFoundError:  # written twice since the pointer was read, so already removed
                    continue
                return self._held
        raise RunError(
            f"{self.path} names generation {number}, but that is not there. Remove the collection and index again."
        )


def generation_folder(collection: Path, number: int) -> Path:
    return collection / f"generation-{number:08d}"


def _read_items(path: Path) -> tuple[Item, ...]:
    try:
        with path.open(encoding="utf-8") as file:
            return tuple(Item(**json.loads(line)) for line in file)
    except (ValueError, TypeError) as error:
        raise RunError(f"{path} is damaged: {error}. Remove the collection and index again.") from error


def _none(dim: int) -> np.ndarray:
    return np.empty((0, dim), np.float32)
