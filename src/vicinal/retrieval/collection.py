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
import zlib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int
from PIL import Image

from vicinal.arguments import build, coerce, construct
from vicinal.data.images import read_image
from vicinal.data.location import existing, expanded
from vicinal.distances import Metric
from vicinal.errors import ConfigError, DataError, RunError, unknown
from vicinal.files import check_links, file_hash, followed, read_array, read_lines, read_object
from vicinal.retrieval.store import FlatStore, Item, Place, Queries, Where
from vicinal.run_directory import RunDirectory

if TYPE_CHECKING:
    from vicinal.retrieval.milvus import MilvusStore

FORMAT = 1  # raised when a reader of the old format would misread the new one
FOLDER = "collection"  # where a run keeps its own
POINTER = "current.json"
ABOUT = "about.json"
ITEMS = "items.jsonl"
VECTORS = "vectors.npy"
# to open a generation that a writer may remove under us; each needs two writes in the meantime
_ATTEMPTS = 8
_AGAIN = "Remove the collection and index again."


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
        self.places = tuple(places)
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
        place = self.places[item.place]
        if (file := place.file(item.path)) is not None:
            self.require_named(place)
            if not file.is_file():
                raise DataError(
                    f"the picture {file} was indexed, but is gone. Index {place.path} again."
                )
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

    def require_named(self, place: Place) -> None:
        """Raise a DataError where pictures of a place may not be read."""
        if place.root is not None:
            self.access.require(Path(place.root))

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
        flat: searches the vectors, a row for each item.
        pictures: of the items.
        engine: is asked in the place of ``flat``.
        relabeled: whether labels are other than the engine knows them.

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
        flat: FlatStore,
        pictures: Pictures,
        engine: "MilvusStore | None" = None,
        *,
        relabeled: bool = False,
    ) -> None:
        self.folder = folder
        self.about = about
        self.pictures = pictures
        self.generation = int(about["generation"])
        self.dim = int(about["dim"])
        self.metric = flat.metric
        self.places = pictures.places
        self._items = tuple(items)
        self._ids = {item.id: row for row, item in enumerate(items)}
        self._flat = flat
        self._engine = engine
        self._is_relabeled = relabeled
        self._relabeled: tuple[Mapping[int, str], Snapshot] | None = None
        self._rows_of = cache(self._rows_by_value)  # of an attribute when it is first asked for

    @classmethod
    def open(cls, folder: Path, access: Access) -> "Snapshot":
        """Read a generation; an error where it is damaged."""
        about = read_object(folder / ABOUT)
        try:
            metric = coerce(about["metric"], Metric, "metric")
            places = [construct(Place, place, "places") for place in about["places"]]
            items = [_item(line) for line in read_lines(folder / ITEMS)]
            numbers = [int(about[name]) for name in ("generation", "dim", "checksum")]
        except (AttributeError, ConfigError, LookupError, TypeError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            fault = f"{ABOUT} or {ITEMS} is damaged in {folder}: {type(error).__name__}: {error}"
            raise RunError(f"{fault}. {_AGAIN}") from error
        vectors = read_array(folder / VECTORS, mapped=bool(items))
        wanted = "float32", (len(items), numbers[1]), numbers[2]
        found = str(vectors.dtype), vectors.shape, checksum_of(folder / VECTORS)
        if found != wanted:
            raise RunError(
                f"{folder} is damaged: type, shape and CRC-32 of {VECTORS} are {found}, but "
                f"{ITEMS} and {ABOUT} ask for {wanted}. {_AGAIN}"
            )
        engine = None
        if access.engine is not None:
            from vicinal.retrieval.milvus import open_store

            engine = open_store(access.engine, about.get("store"))
        pictures = Pictures(places, access)
        return cls(folder, about, items, FlatStore(vectors, metric), pictures, engine)

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
        if self._relabeled is None or self._relabeled[0] is not labels:
            items = [replace(item, label=labels.get(item.id, item.label)) for item in self._items]
            parts = self._flat, self.pictures, self._engine
            other = Snapshot(self.folder, self.about, items, *parts, relabeled=True)
            self._relabeled = labels, other
        return self._relabeled[1]

    def labels(self) -> Mapping[str, int]:
        """Return how many items each label has, by label; items without one are not counted."""
        return {label: len(rows) for label, rows in sorted(self._rows_of("label").items())}

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
        return dict(found)

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
        return self._flat.vectors

    def vector(self, id: int) -> Float[np.ndarray, "d"]:
        """Return the vector of one item; a DataError where there is none."""
        return np.array(self._flat.vectors[self._row(id)])

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
        k = min(k, max(1, len(self)))
        among = self.rows(where or {})
        if self._engine is not None and not (self._is_relabeled and "label" in (where or {})):
            found = self._engine.search(vectors, k, where=where or {}, exclude=exclude)
        else:
            among = np.setdiff1d(among, [self._ids.get(id, -1) for id in exclude])
            near = self._flat.search(vectors, k, among=among)
            found = [
                [(self._items[row].id, distance) for row, distance in pairs if row >= 0]
                for pairs in map(zip, near.ids.tolist(), near.distances.tolist())
            ]
        return [[Match(self.item(id), distance) for id, distance in pairs] for pairs in found]

    def _row(self, id: int) -> int:
        row = self._ids.get(id)
        if row is None:
            ids = [*self._ids]
            span = f" with ids from {ids[0]} to {ids[-1]}" if ids else ""
            raise DataError(
                f"generation {self.generation} of the collection has no item {id}; it has "
                f"{len(self)} items{span}."
            )
        return row


def _item(line: Mapping[str, Any]) -> Item:
    item = Item(**line)
    texts = isinstance(item.path, str) and isinstance(item.label, str | None)
    if not texts or not isinstance(item.metadata, dict) or not 0 <= item.id < 2**63:
        raise ValueError(f"an item is {line}")
    return item


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
        return cls(path, access)._existing()

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
        ``--collection`` names; further arguments are those of `Access`."""
        access = Access(run, images, engine)
        if collection is not None:
            return cls.open(collection, access)
        # opening the run has checked its links
        return cls(run.path / FOLDER, access)._existing()

    def _existing(self) -> "CollectionDirectory":
        if not self.latest_generation():
            raise RunError(
                f"{self.path} is no collection: no {POINTER} names a generation. `vicinal index "
                "RUN PATH...` makes one."
            )
        return self

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
            for _ in range(_ATTEMPTS):
                number = self._existing().latest_generation()
                if self._held is not None and self._held.generation == number:
                    return self._held
                try:
                    self._held = Snapshot.open(self.folder(number), self.access)
                except FileNotFoundError:  # written twice since, so already removed
                    continue
                return self._held
        raise RunError(f"{self.path} names generation {number}, but that is not there. {_AGAIN}")


def snapshot_of(
    run: RunDirectory,
    collection: Path | None = None,
    *,
    images: Sequence[str] = (),
    engine: str | None = None,
) -> Snapshot:
    """Return the newest generation of a run's collection, whose vectors the run's model made;
    distances of others to new ones would mean nothing."""
    found = CollectionDirectory.of(run, collection, images=images, engine=engine).snapshot()
    model = found.about.get("model")
    if model is not None and model != model_fingerprint(run):
        raise RunError(
            f"the collection was indexed with another model than {run.path} has now. Update it "
            f"with `vicinal index {shlex.quote(str(run.path))}`, or name another with --collection."
        )
    return found


def model_fingerprint(run: RunDirectory) -> str:
    """Return network, preprocessing and weights of a run's selected model: what its vectors depend
    on."""
    return file_hash(run.model_path)[:32] + file_hash(run.weights_path)[:32]
