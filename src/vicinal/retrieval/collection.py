"""A searchable collection on disk, and the unchanging snapshot of it that a reader holds.

``RUN/collection`` holds one folder per generation and a small pointer file, ``current.json``, that
names the newest. A generation is written whole beside the old ones and becomes visible by one
rename of the pointer; it never changes afterwards. A reader takes a ``Snapshot`` and answers from
it, however often the collection is written meanwhile. ``generations`` writes, ``indexing`` decides
what.

A collection can come from somebody else. What it names outside of itself, folders of pictures and
the address of an engine, is used only where its seal shows that it was indexed by this user, or
where the user says ``--trust``.
"""

import hmac
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from PIL import Image

from vicinal.arguments import build, coerce, construct
from vicinal.data.images import read_image
from vicinal.data.location import cache_folder
from vicinal.distances import Metric
from vicinal.errors import ConfigError, DataError, RunError, unknown
from vicinal.files import check_links, file_hash, read_array, read_lines, read_object
from vicinal.retrieval.store import Attributes, FlatStore, Ids, Item, Queries, Store, Where
from vicinal.run_directory import RunDirectory

FORMAT = 1  # raised when a reader of the old format would misread the new one
FOLDER = "collection"  # where a run keeps its own
POINTER = "current.json"
ABOUT, ITEMS, VECTORS = "about.json", "items.jsonl", "vectors.npy"
# to open a generation that a writer may remove under us; each needs two writes in the meantime
_ATTEMPTS = 8

Kind = Literal["folder", "table", "archive", "features", "data set"]


@dataclass(frozen=True)
class Place:
    """A folder, table, archive, array file or data set that was indexed.

    Attributes:
        path: what the user named, absolute; by it a place is known again.
        kind: which of these it is.
        root: folder below which the items' pictures lie, absolute or, for what was unpacked there,
            below the collection; None where there are no picture files.
        split: the part of a data set that was indexed; ``"all"`` for all of it.
        images: what ``--images`` named, so that indexing again need not name it again.
        description: of a data set that keeps its pictures in another form than files, as
            ``DATASETS`` build it.
    """

    path: str
    kind: Kind
    root: str | None
    split: str = "all"
    images: str | None = None
    description: Any = None

    def file(self, collection: Path, path: str) -> Path | None:
        """Return the picture file of an item; None where this place has no files; a DataError
        outside the root.

        Links are followed before the check, so that neither ``..`` nor a link leads out.
        """
        if self.root is None:
            return None
        root = (collection / self.root).resolve()
        found = (root / path).resolve()
        if not found.is_relative_to(root):
            raise DataError(
                f"{path!r} leads out of the indexed folder {root} and is not read. Index that "
                "file's own."
            )
        return found


@dataclass(frozen=True)
class Match:
    """An item that a search found, and how far from the query it lies."""

    item: Item
    distance: float


class Snapshot:
    """One generation of a collection; nothing of it changes while it is held. Any thread may ask
    it.

    Attributes:
        folder: of this generation; derived files (the map) may be put into it, atomically.
        generation: its number, 1 for the first.
        dim: length of the vectors.
        metric: what distances are.
        places: where the items are from.
        about: all of ``about.json``.
        trusted: whether it may name folders and engines outside of itself.
    """

    def __init__(self, folder: Path, *, trust: bool = False) -> None:
        self.folder = folder
        self.about = about = read_object(folder / ABOUT)
        try:
            self.generation, self.dim = int(about["generation"]), int(about["dim"])
            self.metric = coerce(about["metric"], Metric, "metric")
            self.places = tuple(construct(Place, place, "places") for place in about["places"])
            store = about.get("store")
            self._engine = (
                None
                if store is None
                else (str(store["address"]), str(store["table"]), store["index"])
            )
            self._items = tuple(_item(line) for line in read_lines(folder / ITEMS))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            fault = f"{ABOUT} or {ITEMS} is damaged in {folder}: {type(error).__name__}: {error}"
            raise RunError(f"{fault}. Remove the collection and index again.") from error
        self.trusted = trust or (
            bool(mine := seal(about)) and hmac.compare_digest(str(about.get("seal")), mine)
        )
        empty = np.empty((0, self.dim), np.float32)
        self._vectors = (
            read_array(folder / VECTORS, mapped=True)
            if about.get("count") or self._items
            else empty
        )
        if self._vectors.shape != (len(self._items), self.dim) or self._vectors.dtype != np.float32:
            held = f"{VECTORS} is of {self._vectors.dtype} and shape {list(self._vectors.shape)}"
            fault = (
                f"{folder} is damaged: {ITEMS} has {len(self._items)} items of length "
                f"{self.dim}, but {held}"
            )
            raise RunError(f"{fault}. Remove the collection and index again.")
        self._rows = {item.id: row for row, item in enumerate(self._items)}
        self._lock = Lock()
        self._opened: Store | None = None
        self._as_indexed: Snapshot | None = None  # of one that is relabeled
        self._relabeled: tuple[Mapping[int, str], Snapshot] | None = None
        self._data_sets: dict[int, tuple[Any, dict[str, int]]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def item(self, id: int) -> Item:
        """Return the item with this id; a DataError where there is none in this generation."""
        return self._items[self._row(id)]

    def items(self) -> Sequence[Item]:
        """Return all items by ascending id; item ``i`` of these has row ``i`` of ``vectors()``."""
        return self._items

    def relabeled(self, labels: Mapping[int, str]) -> "Snapshot":
        """Return this generation with other labels for some items, by id; the same object for the
        same mapping."""
        if not labels:
            return self
        if self._relabeled is not None and self._relabeled[0] is labels:
            return self._relabeled[1]
        items, other = list(self._items), copy(self)
        for id, label in labels.items():
            if (row := self._rows.get(id)) is not None:
                items[row] = replace(items[row], label=label)
        other._items, other._as_indexed, other._opened, other._lock = (
            tuple(items),
            self,
            None,
            Lock(),
        )
        other._engine = (
            None  # it has the labels of the data: by these here vectors are searched without it
        )
        other.__dict__.pop("attributes", None)
        self._relabeled = labels, other
        return other

    def labels(self) -> Mapping[str, int]:
        """Return how many items each label has, by label; items without one are not counted."""
        return self.attributes.values("label")

    def euclidean_vectors(self) -> Float[np.ndarray, "n d"]:
        """Return `vectors` to whoever compares them by Euclidean distance; an error where the model
        does not."""
        if self.metric != "euclidean":
            raise ConfigError(
                f"groups are made by Euclidean distance, but this collection's is {self.metric}."
            )
        return self.vectors()

    def vectors(self) -> Float[np.ndarray, "n d"]:
        """Return all vectors, float32, memory-mapped and read-only, in the order of ``items()``."""
        return self._vectors

    def vector(self, id: int) -> Float[np.ndarray, "d"]:
        """Return the vector of one item; a DataError where there is none."""
        return np.array(self._vectors[self._row(id)])

    @cached_property
    def attributes(self) -> Attributes:
        """Which items have which label and metadata."""
        return Attributes([item.attributes for item in self._items])

    def search(
        self, vectors: Queries, k: int, *, where: Where = None, exclude: Ids = ()
    ) -> list[list[Match]]:
        """Find the ``k`` nearest items of each vector, nearest first; fewer where the collection
        has no more.

        Args:
            vectors: embeddings of the run's model; NaN and other lengths raise a DataError.
            k: at least 1.
            where: items must have all of these; ``label`` is the label, ``path`` the path, other
                keys are metadata. A key that no item has is a DataError that names the nearest.
            exclude: ids that are not to be found (the query's own).
        """
        if k < 1:
            raise ConfigError(f"a search needs k of at least 1; got k = {k}.")
        if vectors.ndim != 2 or vectors.shape[1] != self.dim:
            fault = (
                f"queries are vectors [q {self.dim}], as the collection's; got "
                f"{list(vectors.shape)}"
            )
            raise DataError(
                f"{fault}. Embed them with the run that the collection was indexed with."
            )
        for name in where or ():
            if name not in self.attributes.names:
                raise DataError(unknown("attribute", name, self.attributes.names))
        found = self._store(where).search(
            vectors, min(k, max(1, len(self))), where=where, exclude=exclude
        )
        return [
            [
                Match(self.item(id), distance)
                for id, distance in zip(ids, distances, strict=True)
                if id >= 0
            ]
            for ids, distances in zip(found.ids.tolist(), found.distances.tolist(), strict=True)
        ]

    def image(self, id: int) -> Image.Image:
        """Decode the picture of an item, RGB or gray; a DataError where it has none, or its file is
        gone or damaged.

        Never reads a file outside the item's place, whatever the path says and whatever links point
        to.
        """
        item = self.item(id)
        place = self.places[item.place]
        if place.root is None or Path(place.root).is_absolute() or ".." in place.root:
            self._require_trust(f"pictures of {place.path}")
        file = place.file(self.folder.parent, item.path)
        if file is not None and not file.is_file():
            raise DataError(
                f"the picture {file} was indexed, but is gone. Index {place.path} again."
            )
        if file is not None:
            return read_image(file)
        if place.description is None:
            fault = f"{item.path!r} of {place.path} is a feature vector or text without a picture"
            raise DataError(
                f"{fault}. If its name is the path of one, index again with --images FOLDER."
            )
        source, positions = self._data_set(item.place)
        if item.path not in positions:
            raise DataError(
                f"{item.path!r} was indexed, but is no longer in {place.path}. Index it again."
            )
        image: Image.Image = source.read(positions[item.path])
        return image

    def _require_trust(self, what: str) -> None:
        if not self.trusted:
            fault = (
                f"the collection in {self.folder.parent} was not indexed by you here, and "
                f"names {what}"
            )
            raise DataError(f"{fault}. Add --trust if you trust its author, or index anew.")

    def _row(self, id: int) -> int:
        row = self._rows.get(id)
        if row is None:
            span = (
                f" with ids from {self._items[0].id} to {self._items[-1].id}" if self._items else ""
            )
            held = f"it has {len(self)} items{span}"
            raise DataError(
                f"generation {self.generation} of the collection has no item {id}; {held}."
            )
        return row

    def _data_set(self, place: int) -> tuple[Any, dict[str, int]]:
        """Return a data set that has pictures in another form than files, opened once, and the row
        of each name."""
        from vicinal.data import DATASETS  # all data sets, which most searches need none of

        with self._lock:
            if place not in self._data_sets:
                source = build(self.places[place].description, DATASETS).load().source
                self._data_sets[place] = (
                    source,
                    {source.name(row): row for row in range(len(source))},
                )
            return self._data_sets[place]

    def _store(self, where: Where = None) -> Store:
        if self._as_indexed is not None and "label" not in (where or ()):
            return self._as_indexed._store()
        with self._lock:
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    def _open(self) -> Store:
        if self._engine is None:
            ids = np.array([item.id for item in self._items], dtype=np.int64)
            # Not self.attributes.rows: most searches have no condition, and need no attributes.
            return FlatStore(
                self._vectors,
                ids,
                metric=self.metric,
                matching=lambda where: self.attributes.rows(where),
            )
        from vicinal.retrieval.milvus import Milvus

        address, table, index = self._engine
        self._require_trust(f"the engine at {address}")
        return Milvus(address, table, dim=self.dim, index=index).at(self.generation)


class CollectionDirectory:
    """A collection on disk: where ``vicinal index`` writes, what search, serve, cluster and dedupe
    open."""

    def __init__(self, path: Path | str, *, trust: bool = False) -> None:
        self.path, self.trust, self._lock = Path(path), trust, Lock()
        self._held: Snapshot | None = None

    @classmethod
    def open(cls, path: Path | str, *, trust: bool = False) -> "CollectionDirectory":
        """Open an existing collection; a RunError says how to make one where there is none, or of
        another format."""
        check_links(Path(path))
        return cls(path, trust=trust)._existing()

    @classmethod
    def of(
        cls, run: RunDirectory, collection: Path | None = None, *, trust: bool = False
    ) -> "CollectionDirectory":
        """Return the collection of an opened run: its own ``RUN/collection``, or what
        ``--collection`` names."""
        if collection is not None:
            return cls.open(collection, trust=trust)
        return cls(
            run.path / FOLDER, trust=trust
        )._existing()  # opening the run has checked its links

    def _existing(self) -> "CollectionDirectory":
        if not (self.path / POINTER).is_file():
            raise RunError(
                f"{self.path} is no collection: it has no {POINTER}. `vicinal index RUN PATH...` "
                "makes one."
            )
        self.latest_generation()
        return self

    def latest_generation(self) -> int:
        """Return the number of the newest generation; costs one small read, so it can be asked
        before each request."""
        pointer = read_object(self.path / POINTER)
        if pointer.get("format") != FORMAT or not isinstance(pointer.get("generation"), int):
            fault = f"{self.path / POINTER} is not of collection format {FORMAT}"
            raise RunError(
                f"{fault}. Use the version that wrote it, or remove the collection and index again."
            )
        number: int = pointer["generation"]
        return number

    def folder(self, generation: int) -> Path:
        return self.path / f"generation-{generation:08d}"

    def snapshot(self) -> Snapshot:
        """Return the newest generation; cheap to call again, and the same object while the number
        is the same."""
        with self._lock:
            for _ in range(_ATTEMPTS):
                number = self.latest_generation()
                if self._held is not None and self._held.generation == number:
                    return self._held
                try:
                    self._held = Snapshot(self.folder(number), trust=self.trust)
                except (
                    FileNotFoundError
                ):  # written twice since the pointer was read, so already removed
                    continue
                return self._held
        fault = f"{self.path} names generation {number}, but that is not there"
        raise RunError(f"{fault}. Remove the collection and index again.")


def snapshot_of(
    run: RunDirectory, collection: Path | None = None, *, trust: bool = False
) -> Snapshot:
    """Return the newest generation of a run's collection, whose vectors the run's model made."""
    snapshot = CollectionDirectory.of(run, collection, trust=trust).snapshot()
    require_same_model(run, snapshot.about)
    return snapshot


def model_fingerprint(run: RunDirectory) -> str:
    """Return network, preprocessing and weights of a run's selected model: what its vectors depend
    on."""
    return file_hash(run.model_path)[:32] + file_hash(run.weights_path)[:32]


def require_same_model(run: RunDirectory, about: Mapping[str, Any]) -> None:
    """Raise where another model made a collection's vectors; their distances to new ones would mean
    nothing."""
    if "model" in about and about["model"] != model_fingerprint(run):
        again = f"`vicinal index {shlex.quote(str(run.path))}`, or name another with --collection"
        raise RunError(
            f"the collection was indexed with another model than {run.path} has now. Update it "
            f"with {again}."
        )


def seal(about: Mapping[str, Any]) -> str:
    """Compute the seal of what a collection names outside of itself, by a secret that this user's
    cache keeps."""
    folder = cache_folder()
    if folder is None:
        return ""
    key = folder / "collections.key"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(os.urandom(32))
    except FileExistsError:
        pass
    except OSError:  # no place for a secret: then no collection has a seal
        return ""
    named = json.dumps([about["places"], about.get("store")], sort_keys=True)
    return hmac.digest(key.read_bytes(), named.encode(errors="surrogateescape"), "sha256").hex()


def _item(line: Mapping[str, Any]) -> Item:
    item = Item(**line)
    kinds = (
        (item.id, int),
        (item.path, str),
        (item.label, str | None),
        (item.metadata, dict),
        (item.place, int),
    )
    if not all(isinstance(value, kind) for value, kind in kinds) or not 0 <= item.id < 2**63:
        raise ValueError(f"an item is {line}")
    return item
