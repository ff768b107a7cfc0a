"""A searchable collection on disk, and the unchanging snapshot of it that a reader holds.

``RUN/collection`` holds one folder per generation and a small pointer file, ``current.json``, that
names the newest. A generation is written whole beside the old ones and becomes visible by one
rename of the pointer; it never changes afterwards. A reader takes a ``Snapshot`` and answers from
it, however often the collection is written meanwhile. ``generations`` writes, ``indexing`` decides
what.

A collection can come from somebody else. Pictures are read below the folders of the run's own data
and those that the user names in the same call, and an engine is asked where the user names it.
"""

import shlex
import warnings
import zlib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from PIL import Image

from vicinal.arguments import build
from vicinal.data.location import existing, expanded
from vicinal.distances import Metric
from vicinal.errors import ConfigError, DataError, RunError, unknown
from vicinal.evaluation.neighbors import Gallery, joined, require_finite
from vicinal.files import (
    check_links,
    decoding,
    file_hash,
    followed,
    read_array,
    read_lines,
    read_object,
)
from vicinal.retrieval.store import Item, Place, Queries, Where
from vicinal.run_directory import RunDirectory

if TYPE_CHECKING:
    from vicinal.retrieval.milvus import MilvusStore

FORMAT = 2  # raised when a reader of the old format would misread the new one
FOLDER = "collection"  # where a run keeps its own
POINTER = "current.json"
ABOUT = "about.json"
ITEMS = "items.jsonl"
VECTORS = "vectors.npy"
_AGAIN = "Remove the collection and index again."
_CHUNK_BYTES = 2**26  # of products at a time


# -- pictures -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Access:
    """What a collection may use outside of itself, whatever it names.

    Attributes:
        run: below the folders of whose own data pictures may be read.
        images: further such folders.
        engine: address of the engine to ask; None searches the collection's own vectors.
    """

    run: RunDirectory | None = None
    images: Sequence[str] = ()
    engine: str | None = None

    @cached_property
    def folders(self) -> list[Path]:
        """All folders below which pictures may be read."""
        from vicinal.retrieval.listing import own_folders  # knows all data sets; see `Pictures`

        own = [] if self.run is None else own_folders(self.run)
        named = [*own, *map(existing, self.images)]
        return [followed(path.parent if path.is_file() else path) for path in named]

    def allows(self, path: Path) -> bool:
        return any(followed(path).is_relative_to(folder) for folder in self.folders)

    def require(self, path: Path) -> None:
        if not self.allows(path):
            raise DataError(
                f"the collection names {path}, which is neither the run's own data nor named here, "
                f"and is not read. Add --images {shlex.quote(str(path))}."
            )


class Pictures:
    """Reads the pictures of items.

    Args:
        places: where the items are from.
        access: says below which folders pictures may be read.
    """

    def __init__(self, places: Sequence[Place], access: Access) -> None:
        self.places = places
        self.access = access
        self._lock = Lock()
        self._data_set = cache(self._open_data_set)  # of a place, opened once

    @property
    def unnamed(self) -> list[str]:
        """Folders that the places name, but nobody who may."""
        roots = {place.root for place in self.places if place.root is not None}
        return sorted(root for root in roots if not self.access.allows(Path(root)))

    def read(self, item: Item) -> Image.Image:
        """Decode a picture, RGB or gray; a DataError where there is none, or its file is gone or
        damaged.

        Never reads a file outside the item's place and the named folders, whatever the path says
        and whatever links point to.
        """
        from vicinal.data.images import read_image

        place = self.places[item.place]
        if (file := place.file(item.path)) is not None:
            self.access.require(Path(str(place.root)))
            return read_image(file)
        if place.description is None:
            raise DataError(
                f"{item.path!r} of {place.path} is a feature vector or text without a picture. If "
                "its name is the path of one, index again with --images FOLDER."
            )
        with self._lock:
            source, rows = self._data_set(item.place)
        if item.path not in rows:
            raise DataError(
                f"{item.path!r} was indexed, but is no longer in {place.path}. Index it again."
            )
        image: Image.Image = source.read(rows[item.path])
        return image

    def file_or_name(self, item: Item) -> Path | str:
        """Return the file of an item's picture, or its name where there is none."""
        return self.places[item.place].file(item.path) or item.path

    def _open_data_set(self, place: int) -> tuple[Any, dict[str, int]]:
        """Return a data set that has pictures in another form than files, and the row of each
        name."""
        from vicinal.data import DATASETS  # all data sets, which most searches need none of

        description = self.places[place].description
        data = build(description, DATASETS)
        if isinstance(description, dict) and "path" in description:
            self.access.require(expanded(data.path))
        source = data.load().source
        return source, {source.name(row): row for row in range(len(source))}


# -- one generation -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Match:
    """An item that a search found, and how far from the query it lies."""

    item: Item
    distance: float


class Snapshot:
    """One generation of a collection; nothing of it changes while it is held. Any thread may ask
    it.

    Args:
        folder: of this generation; derived files (the map) may be put into it, atomically.
        about: all of ``about.json``.
        items: by ascending id.
        vectors: a row for each item, read-only.
        pictures: of the items.
        engine: is asked in the place of ``vectors``.

    Attributes:
        generation: its number, 1 for the first.
        dim: length of the vectors.
        metric: what distances are.
        places: where the items are from.
    """

    def __init__(
        self,
        folder: Path,
        about: Mapping[str, Any],
        items: Sequence[Item],
        vectors: Float[np.ndarray, "n d"],
        pictures: Pictures,
        engine: "MilvusStore | None" = None,
    ) -> None:
        self.folder = folder
        self.about = about
        self.pictures = pictures
        self.generation: int = about["generation"]
        self.dim: int = about["dim"]
        self.metric: Metric = about["metric"]
        self.places = pictures.places
        self._items = items
        self._vectors = vectors
        self._engine = engine
        self._rows = {item.id: row for row, item in enumerate(items)}
        self._rows_of = cache(self._rows_by_value)  # of an attribute when it is first asked for

    @classmethod
    def open(cls, folder: Path, access: Access) -> "Snapshot":
        """Read a generation; an error where it is damaged."""
        about = read_object(folder / ABOUT)
        with decoding(folder, _AGAIN):
            places = [Place(**place) for place in about["places"]]
            items = [Item(**line) for line in read_lines(folder / ITEMS)]
            vectors = read_array(folder / VECTORS, mapped=bool(items))
            if vectors.shape != (len(items), about["dim"]) or vectors.dtype != np.float32:
                raise ValueError(f"{len(items)} items, vectors {vectors.shape} {vectors.dtype}")
            if checksum_of(folder / VECTORS) != about["checksum"]:
                raise ValueError(f"{VECTORS} is not what was written")
            pictures = Pictures(tuple(places), access)
            found = cls(folder, about, tuple(items), vectors, pictures)
        if access.engine is not None:
            from vicinal.retrieval.milvus import open_store

            found._engine = open_store(access.engine, about.get("store"))
        return found

    def __len__(self) -> int:
        return len(self._items)

    def item(self, id: int) -> Item:
        """Return the item with this id; a DataError where there is none in this generation."""
        return self._items[self._row(id)]

    def items(self) -> Sequence[Item]:
        """Return all items by ascending id; item ``i`` of these has row ``i`` of ``vectors()``."""
        return self._items

    def relabeled(self, labels: Mapping[int, str]) -> "Snapshot":
        """Return this generation with other labels for some items, by id. An engine does not know
        these, so the vectors are searched."""
        if not labels:
            return self
        items = tuple(replace(item, label=labels.get(item.id, item.label)) for item in self._items)
        return Snapshot(self.folder, self.about, items, self._vectors, self.pictures)

    def labels(self) -> Mapping[str, int]:
        """Return how many items each label has, by label; items without one are not counted."""
        return {label: len(rows) for label, rows in sorted(self._rows_of("label").items())}

    def labeled(self) -> tuple[Int[np.ndarray, "m"], list[str], Int[np.ndarray, "m"]]:
        """Return the rows that have a label, the labels in order, and the place of each row's."""
        rows = [row for row, item in enumerate(self._items) if item.label is not None]
        names, labels = np.unique(
            [self._items[row].label or "" for row in rows], return_inverse=True
        )
        return np.array(rows, np.int64), names.tolist(), labels.astype(np.int64)

    def rows(self, where: Where) -> Int[np.ndarray, "m"]:
        """Find the rows of the items that have all of these attributes, ascending; a DataError for
        an attribute that no item has."""
        found = np.arange(len(self))
        for name, value in where.items():
            if not self._rows_of(name):
                names = set().union(*(item.attributes for item in self._items))
                raise DataError(unknown("attribute", name, names))
            found = np.intersect1d(found, np.array(self._rows_of(name).get(value, []), int))
        return found

    def _rows_by_value(self, name: str) -> dict[str, list[int]]:
        found = defaultdict[str, list[int]](list)
        for row, item in enumerate(self._items):
            if (value := item.attributes.get(name)) is not None:
                found[value].append(row)
        return found

    def vectors(self) -> Float[np.ndarray, "n d"]:
        """Return all vectors, float32, memory-mapped and read-only, in the order of ``items()``."""
        return self._vectors

    def euclidean_vectors(self) -> Float[np.ndarray, "n d"]:
        """Return `vectors` to whoever compares them by Euclidean distance; an error where the model
        does not."""
        if self.metric != "euclidean":
            raise ConfigError(
                f"groups are made by Euclidean distance, but this collection's is {self.metric}."
            )
        return self._vectors

    def vector(self, id: int) -> Float[np.ndarray, "d"]:
        """Return the vector of one item; a DataError where there is none."""
        return np.array(self._vectors[self._row(id)])

    def image(self, id: int) -> Image.Image:
        """Decode the picture of an item, as `Pictures.read` does."""
        return self.pictures.read(self.item(id))

    def search(
        self, vectors: Queries, k: int, *, where: Where | None = None, exclude: Collection[int] = ()
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
            raise DataError(
                f"queries are vectors [q {self.dim}], as the collection's; got "
                f"{list(vectors.shape)}. Embed them with the run that the collection was indexed "
                "with."
            )
        k = min(k, len(self))
        queries = torch.from_numpy(np.array(vectors, dtype=np.float32))
        require_finite(queries, "queries")
        among = self.rows(where or {})
        if self._engine is not None:
            found = self._engine.search(vectors, k, where=where or {}, exclude=exclude)
            return [[Match(self.item(id), far) for id, far in pairs] for pairs in found]
        if not k:
            return [[] for _ in queries]
        excluded = torch.ones(len(self), dtype=torch.bool)
        excluded[torch.from_numpy(among)] = False
        excluded[[self._rows[id] for id in exclude if id in self._rows]] = True
        hidden = excluded if bool(excluded.any()) else None
        chunks = self._gallery.search(queries, k, excluded=hidden, chunk_bytes=_CHUNK_BYTES)
        near = joined(chunks, queries, k)
        return [
            [Match(self._items[row], far) for row, far in pairs if row >= 0]
            for pairs in map(zip, near.ids.tolist(), near.distances.tolist())
        ]

    @cached_property
    def _gallery(self) -> Gallery:
        """Prepared once and searched often; the vectors stay on the disk where they may."""
        with warnings.catch_warnings():  # torch warns of an array that nobody may write to
            warnings.simplefilter("ignore", UserWarning)
            return Gallery(torch.from_numpy(self._vectors), self.metric, in_place=True)

    def _row(self, id: int) -> int:
        if id not in self._rows:
            raise DataError(
                f"generation {self.generation} of the collection has no item {id} among its "
                f"{len(self)}."
            )
        return self._rows[id]


def checksum_of(path: Path) -> int:
    """Return the CRC-32 of a file: what a damaged disk changes, it shows."""
    found = 0
    with path.open("rb") as file:
        while block := file.read(2**22):
            found = zlib.crc32(block, found)
    return found


# -- all generations ------------------------------------------------------------------------------

_NONE = Access()


class CollectionDirectory:
    """A collection on disk: where ``vicinal index`` writes, what search, serve, cluster and dedupe
    open.

    Args:
        path: its folder.
        access: what it may use outside of it.
    """

    def __init__(self, path: Path | str, access: Access = _NONE) -> None:
        self.path = Path(path)
        self.access = access
        self._lock = Lock()
        self._held: Snapshot | None = None

    @classmethod
    def open(cls, path: Path | str, access: Access = _NONE) -> "CollectionDirectory":
        """Open an existing collection; a RunError says how to make one where there is none, or of
        another format."""
        check_links(Path(path))
        found = cls(path, access)
        if not found.latest_generation():
            raise RunError(
                f"{path} is no collection: no {POINTER} names a generation. `vicinal index "
                "RUN PATH...` makes one."
            )
        return found

    @classmethod
    def of(
        cls,
        run: RunDirectory,
        collection: Path | None = None,
        *,
        images: Sequence[str] = (),
        engine: str | None = None,
    ) -> "CollectionDirectory":
        """Return the collection of an opened run: its own ``RUN/collection``, or what
        ``--collection`` names; further arguments are those of `Access`. Its vectors must be of the
        run's model: distances of others to new ones would mean nothing."""
        found = cls.open(collection or run.path / FOLDER, Access(run, images, engine))
        model = found.snapshot().about.get("model")
        if model is not None and model != model_fingerprint(run):
            raise RunError(
                f"the collection was indexed with another model than {run.path} has now. Update it "
                f"with `vicinal index {shlex.quote(str(run.path))}`, or name another with "
                "--collection."
            )
        return found

    def latest_generation(self) -> int:
        """Return the number of the newest generation, 0 where there is none; costs one small read,
        so it can be asked before each request."""
        try:
            pointer = read_object(self.path / POINTER)
        except FileNotFoundError:
            return 0
        number = pointer.get("generation")
        if pointer.get("format") != FORMAT or not isinstance(number, int):
            raise RunError(
                f"{self.path / POINTER} is not of collection format {FORMAT}. Use the version that "
                "wrote it, or remove the collection and index again."
            )
        return number

    def folder(self, generation: int) -> Path:
        return self.path / f"generation-{generation:08d}"

    def snapshot(self) -> Snapshot:
        """Return the newest generation; cheap to call again, and the same object while the number
        is the same."""
        with self._lock:
            while self._held is None or self._held.generation != self.latest_generation():
                number = self.latest_generation()
                if not number:
                    raise RunError(f"{self.path / POINTER} is gone. `vicinal index` makes it.")
                try:
                    self._held = Snapshot.open(self.folder(number), self.access)
                except FileNotFoundError as error:
                    if number == self.latest_generation():  # else written twice, and so removed
                        raise RunError(f"{self.folder(number)} is not there. {_AGAIN}") from error
            return self._held


def snapshot_of(
    run: RunDirectory,
    collection: Path | None = None,
    *,
    images: Sequence[str] = (),
    engine: str | None = None,
) -> Snapshot:
    """Return the newest generation of a run's collection; see `CollectionDirectory.of`."""
    return CollectionDirectory.of(run, collection, images=images, engine=engine).snapshot()


def model_fingerprint(run: RunDirectory) -> str:
    """Return network, preprocessing and weights of a run's selected model: what its vectors depend
    on."""
    return file_hash(run.model_path)[:32] + file_hash(run.weights_path)[:32]
