"""A searchable collection on disk, and the unchanging snapshot of it that a reader holds.

``RUN/collection`` holds one folder per generation and a small pointer file, ``current.json``, that
names the newest. A generation is written whole beside the old ones, by one writer at a time, and
becomes visible by one rename of the pointer; it never changes afterwards. A reader takes a
``Snapshot`` and answers from it, however often the collection is written meanwhile. ``indexing``
decides what is written.
"""

import json
import mmap
import os
import shlex
import shutil
import sys
import warnings
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from filelock import FileLock, Timeout
from jaxtyping import Bool, Int

from vicinal.arguments import build
from vicinal.errors import ConfigError, DataError, RunError, unknown
from vicinal.files import (
    PARTS,
    check_links,
    decoding,
    read_array,
    read_arrays,
    read_image,
    read_object,
    regular,
    sync_directory,
    write_atomically,
    write_json,
    write_text,
)
from vicinal.retrieval.items import Access, Item, Place, Rows, Vector, Vectors, Where
from vicinal.retrieval.stores import Store, open_store
from vicinal.run_directory import RunDirectory, model_fingerprint

if TYPE_CHECKING:
    from PIL.Image import Image

    from vicinal.distances import Metric
    from vicinal.evaluation.neighbors import Gallery

FORMAT = 2  # raised when a reader of the old format would misread the new one
FOLDER = "collection"  # where a run keeps its own
POINTER = "current.json"
ABOUT = "about.json"
ITEMS = "items.jsonl"
VECTORS = "vectors.npy"
BITS = "bits.npz"
_LOCK = ".lock"
_AGAIN = "Remove the collection and index again."
_BLOCK = 4096  # rows that are written at a time
_PICKED = 128  # rows that are compared at a time; some 100 kB are mapped around each
_CHUNK_BYTES = 2**26  # of products at a time
_LARGE = 200_000  # rows, from which on bits propose
_SAMPLE = 100  # queries by which it is found how many they have to propose
_NEAREST = 10
_ENOUGH = 0.995  # of the nearest that are to be found
_LEAST = 1000  # rows proposed
_MOST = 1 / 20  # of the rows; beyond, all are compared
_BATCH = 16  # queries, from which on one product with all rows takes no longer
_NONE = Access()


def drawn(count: int, most: int) -> Rows:
    """Draw at most so many of ``count`` rows, always the same, in random order."""
    return np.random.default_rng(0).permutation(count)[:most]


# -- one generation -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Match:
    """An item that a search found, and how far from the query it lies."""

    item: Item
    distance: float


class Lines(Sequence[Item]):
    """The items of a file, each decoded when it is first asked for: a search shows few."""

    def __init__(self, file: Path) -> None:
        self._file = file
        *lines, _ = regular(file).read_bytes().split(b"\n")  # not a last one that is cut off
        self._held: list[Any] = lines

    def __len__(self) -> int:
        return len(self._held)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(line := self._held[row], bytes):
            with decoding(self._file, _AGAIN):
                self._held[row] = Item(**json.loads(line))
        return self._held[row]


@dataclass
class Bits:
    """A bit for each number of each vector: whether it lies above the mean of its dimension. In few
    of them a vector differs from those near to it.

    Attributes:
        mean: of each dimension.
        columns: 64 dimensions of all rows each.
        count: rows proposed, for up to ten neighbors.
        recall: share of the ten nearest of a sample that are among them.
    """

    mean: Vector
    columns: Int[np.ndarray, "w n"]
    count: Any = 0
    recall: Any = 0.0

    @classmethod
    def of(cls, vectors: Vectors) -> "Bits":
        blocks = np.split(vectors, range(_BLOCK, len(vectors), _BLOCK))
        mean = sum(block.sum(axis=0, dtype=np.float64) for block in blocks) / len(vectors)
        return cls(mean, np.concatenate([_packed(block > mean) for block in blocks], axis=1))

    def differing(self, query: Vector) -> Int[np.ndarray, "n"]:
        """Count the bits in which each row differs."""
        found = np.zeros(self.columns.shape[1], np.uint16)
        for column, word in zip(self.columns, _packed(query[None] > self.mean), strict=True):
            found += np.bitwise_count(column ^ word)
        return found

    def proposed(self, query: Vector, k: int, hidden: Bool[np.ndarray, "n"]) -> Rows:
        """Return the rows that may be among the ``k`` nearest, ascending."""
        far = self.differing(query)
        far[hidden] = np.iinfo(far.dtype).max
        count = min(len(far), max(1, k // _NEAREST) * self.count)
        limit = np.partition(far, count - 1)[count - 1]
        less = np.flatnonzero(far < limit)
        equal = np.flatnonzero(far == limit)[: count - len(less)]
        return np.sort(np.concatenate([less, equal]))


def _packed(bits: Bool[np.ndarray, "n d"]) -> Int[np.ndarray, "w n"]:
    octets = np.packbits(bits, axis=1)
    padded = np.pad(octets, ((0, 0), (0, -octets.shape[1] % 8)))
    return np.ascontiguousarray(padded.view(np.uint64).T)


class Snapshot:
    """One generation of a collection; nothing of it changes while it is held. Any thread may ask
    it.

    Args:
        folder: of this generation; derived files (the map) may be put into it, atomically.
        about: all of ``about.json``.
        items: by ascending id.
        vectors: a row for each item, float32, memory-mapped and read-only.
        access: what may be used outside of the collection.
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
        vectors: Vectors,
        access: Access,
        engine: Store | None = None,
    ) -> None:
        self.folder = folder
        self.about = about
        self.access = access
        self.generation: int = about["generation"]
        self.dim: int = about["dim"]
        self.metric: "Metric" = about["metric"]
        self.places = tuple(Place(**place) for place in about["places"])
        self.items = items
        self.vectors = vectors
        self._engine = engine
        self._rows_of = cache(self._rows_by_value)  # of an attribute when it is first asked for
        self._lock = Lock()
        self._data_set = cache(self._open_data_set)  # of a place, opened once

    @classmethod
    def open(cls, folder: Path, access: Access) -> "Snapshot":
        """Read a generation; an error where it is damaged."""
        with decoding(folder, _AGAIN):
            about = read_object(folder / ABOUT)
            items = Lines(folder / ITEMS)
            vectors = read_array(folder / VECTORS, mapped=len(items) > 0)
            if vectors.shape != (len(items), about["dim"]) or vectors.dtype != np.float32:
                raise ValueError(f"{VECTORS} does not fit {ITEMS}")
            engine = access.engine and open_store(access.engine, about.get("store"))
            return cls(folder, about, items, vectors, access, engine or None)

    def __len__(self) -> int:
        return len(self.items)

    def item(self, id: int) -> Item:
        """Return the item with this id; a DataError where there is none in this generation."""
        return self.items[self._row(id)]

    def relabeled(self, labels: Mapping[int, str]) -> "Snapshot":
        """Return this generation with other labels for some items, by id. An engine does not know
        these, so the vectors are searched."""
        if not labels:
            return self
        items = tuple(replace(item, label=labels.get(item.id, item.label)) for item in self.items)
        return Snapshot(self.folder, self.about, items, self.vectors, self.access)

    def labels(self) -> Mapping[str, int]:
        """Return how many items each label has, by label; items without one are not counted."""
        return {label: len(rows) for label, rows in sorted(self._rows_of("label").items())}

    def labeled(self) -> tuple[Rows, list[str], Int[np.ndarray, "m"]]:
        """Return the rows that have a label, the labels in order, and the place of each row's."""
        rows = [row for row, item in enumerate(self.items) if item.label is not None]
        if several := [item for item in self.items if len(self._values(item, "label")) > 1]:
            raise DataError(
                f"this judges one label for each item, but {several[0].path} has several: "
                f"{several[0].label}. Index data of single labels."
            )
        given = [str(self.items[row].label) for row in rows]
        names, labels = np.unique(given, return_inverse=True)
        return np.array(rows, np.int64), names.tolist(), labels

    def rows(self, where: Where) -> Rows:
        """Find the rows of the items that have all of these attributes, ascending; a DataError for
        an attribute that no item has."""
        found = np.arange(len(self))
        for name, value in where.items():
            known = self._rows_of(name)
            if not known:
                names = set().union(*(item.attributes for item in self.items))
                raise DataError(unknown("attribute", name, names))
            found = found[np.isin(found, known.get(value, []))]
        return found

    def _rows_by_value(self, name: str) -> dict[str, list[int]]:
        found = defaultdict[str, list[int]](list)
        for row, item in enumerate(self.items):
            for value in self._values(item, name):
                found[value].append(row)
        return found

    def _values(self, item: Item, name: str) -> list[str]:
        """Return what an item has under this name: one text, several labels, or nothing."""
        given = item.attributes.get(name)
        separator = self.places[item.place].separator if self.places else ""
        if given and separator and name == "label":
            return [label.strip() for label in given.split(separator)]
        return [] if given is None else [given]

    def euclidean_vectors(self) -> Vectors:
        """Return ``vectors`` to whoever compares them as Euclidean; an error where the model
        does not."""
        if self.metric != "euclidean":
            raise ConfigError(
                f"groups are made by Euclidean distance, but this collection's is {self.metric}."
            )
        return self.vectors

    def vector(self, id: int) -> Vector:
        """Return the vector of one item; a DataError where there is none."""
        return np.array(self.vectors[self._row(id)])

    @property
    def unnamed(self) -> list[str]:
        """Folders of pictures that the places name, but nobody who may."""
        roots = {place.root for place in self.places if place.root is not None}
        return sorted(root for root in roots if not self.access.allows(Path(root)))

    def file_or_name(self, item: Item) -> Path | str:
        """Return the file of an item's picture, or its name where there is none."""
        return self.places[item.place].file(item.path) or item.path

    def image(self, id: int) -> "Image":
        """Decode the picture of an item, RGB or gray; a DataError where there is none, or its file
        is gone or damaged.

        Never reads a file outside the item's place and the named folders, even if its path
        or a link leads there.
        """
        item = self.item(id)
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
        return source.read(rows[item.path])

    def _open_data_set(self, place: int) -> tuple[Any, dict[str, int]]:
        """Return a data set that has pictures in another form than files, and the row of each
        name."""
        from vicinal.data import DATASETS
        from vicinal.data.folder import expanded

        description = self.places[place].description
        data = build(description, DATASETS)
        if isinstance(description, dict) and "path" in description:
            self.access.require(expanded(data.path))
        source = data.load().source
        return source, {source.name(row): row for row in range(len(source))}

    def search(
        self, vectors: Vectors, k: int, *, where: Where | None = None, exclude: Collection[int] = ()
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
        queries = np.array(vectors, dtype=np.float32)
        if not np.isfinite(queries).all():
            raise DataError("queries must be finite, but hold NaN or infinity. Check the model.")
        hidden = np.full(len(self), bool(where))
        if where:
            hidden[self.rows(where)] = False
        if self._engine is not None:
            found = self._engine.search(vectors, k, where=where or {}, exclude=exclude)
            return [[Match(self.item(id), far) for id, far in pairs] for pairs in found]
        if not k:
            return [[] for _ in queries]
        hidden[self._rows_with(exclude)] = True
        few = len(queries) < _BATCH
        bits = self._bits if few else None
        plain = few and len(self) < _LARGE and self.metric == "euclidean"
        pairs: Iterable[Iterable[tuple[int, float]]]
        if bits or (plain and "torch" not in sys.modules):
            pairs = [self._nearest(query, k, hidden, bits) for query in queries]
        else:
            import torch

            out = torch.from_numpy(hidden) if hidden.any() else None
            asked = torch.from_numpy(queries)
            near = self._gallery.nearest(asked, k, without=out, chunk_bytes=_CHUNK_BYTES)
            pairs = map(zip, near.ids.tolist(), near.distances.tolist())
        return [
            [Match(self.items[row], far) for row, far in each if far < np.inf] for each in pairs
        ]

    def _nearest(
        self, query: Vector, k: int, hidden: Bool[np.ndarray, "n"], bits: Bits | None
    ) -> list[tuple[int, float]]:
        """Find rows and distances by differences in float64, from all rows that are not hidden or
        those that bits propose; of few queries this takes less time than to import torch."""
        rows = np.flatnonzero(~hidden)
        if bits and len(rows) >= bits.count:
            rows = bits.proposed(query, k, hidden)
            rows = rows[~hidden[rows]]
        mapped: Any = self.vectors.base
        sparse = len(rows) < len(self) / 2 and hasattr(mapped, "madvise")  # not so on Windows
        if sparse:
            mapped.madvise(mmap.MADV_RANDOM)
        far = [np.empty(0)]
        for some in np.split(rows, range(_PICKED, len(rows), _PICKED)):
            far.append(np.linalg.norm(self.vectors[some] - query.astype(np.float64), axis=1))
            if sparse:  # what the system maps around the rows stays in its cache alone
                mapped.madvise(mmap.MADV_DONTNEED)
        if sparse:
            mapped.madvise(mmap.MADV_NORMAL)
        distances = np.concatenate(far).astype(np.float32)
        order = distances.argsort(kind="stable")[:k]
        return list(zip(rows[order].tolist(), distances[order].tolist(), strict=True))

    @cached_property
    def _bits(self) -> Bits | None:
        if not (self.folder / BITS).exists():
            return None
        with decoding(self.folder, _AGAIN):
            found = Bits(**read_arrays(self.folder / BITS))
            if found.columns.shape != (-(-self.dim // 64), len(self)):
                raise ValueError(f"{BITS} does not fit {ITEMS}")
            return found

    def compact(self) -> float | None:
        """Write bits of a large collection, by which a search takes a fraction of its time and
        memory; return the share of the nearest that it finds, None where all rows are compared."""
        if len(self) < _LARGE or self.metric != "euclidean" or self._bits is not None:
            return float(self._bits.recall) if self._bits else None
        del self._bits
        sample = drawn(len(self), _SAMPLE)
        hidden = [self.items[row].id for row in sample]
        queries = np.array(self.vectors[sample])
        exact = self.search(queries, _NEAREST, exclude=hidden)
        bits = Bits.of(self.vectors)
        ranks = list[int]()
        for query, near in zip(queries, exact, strict=True):
            far = bits.differing(query)
            rows = self._rows_with([match.item.id for match in near])
            ranks += [int(np.count_nonzero(far <= far[row])) for row in rows]
        bits.count = max(_LEAST, int(np.quantile(ranks, _ENOUGH, method="higher")))
        if bits.count > _MOST * len(self):
            return None
        bits.recall = np.mean(np.array(ranks) <= bits.count)
        write_atomically(self.folder / BITS, lambda file: np.savez(file, **vars(bits)))
        return float(bits.recall)

    @cached_property
    def _gallery(self) -> "Gallery":
        """Prepared once and searched often; the vectors stay on the disk where they may."""
        import torch

        from vicinal.evaluation.neighbors import Gallery

        with warnings.catch_warnings():  # torch warns of an array that nobody may write to
            warnings.simplefilter("ignore", UserWarning)
            return Gallery(torch.from_numpy(self.vectors), self.metric, in_place=True)

    def _row(self, id: int) -> int:
        if not (found := self._rows_with([id])):
            raise DataError(
                f"generation {self.generation} of the collection has no item {id} among its "
                f"{len(self)}."
            )
        return found[0]

    def _rows_with(self, ids: Collection[int]) -> list[int]:
        """Return the rows of those of some ids that are here."""
        rows = [bisect_left(self.items, id, key=attrgetter("id")) for id in ids]
        return [
            row
            for row, id in zip(rows, ids, strict=True)
            if row < len(self) and self.items[row].id == id
        ]


# -- all generations ------------------------------------------------------------------------------


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
                except (FileNotFoundError, RunError):
                    if number == self.latest_generation():  # else written twice, and so removed
                        raise
            return self._held


# -- writing --------------------------------------------------------------------------------------


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Hold the collection for this process alone; it is made where there is none.

    A folder that holds anything else is rejected: it is not ours to write to. The lock is the
    system's on an open file, which names its holder, so it ends with its holder however that ends.
    """
    path.mkdir(parents=True, exist_ok=True)
    check_links(path)
    foreign = (each.name for each in path.iterdir() if each.name != _LOCK and not each.match(PARTS))
    if not (path / POINTER).exists() and (name := next(foreign, None)) is not None:
        raise ConfigError(
            f"{path} is neither empty nor a collection: it holds {name}. Name another folder with "
            "--collection."
        )
    try:
        with FileLock(path / _LOCK, timeout=0):
            if not (path / POINTER).exists():
                _point_to(path, 0)
            yield
    except Timeout as error:
        raise RunError(
            f"{path} is being written by another process. Wait for it or stop it; search does not "
            "wait."
        ) from error


def publish(
    path: Path,
    items: Sequence[Item],
    vectors: Sequence[np.ndarray] | Vectors,
    *,
    dim: int,
    places: Sequence[Place] = (),
    facts: Mapping[str, Any] | None = None,
) -> int:
    """Write a new generation and make it the newest; return its number.

    The generation before stays, which a reader may just be opening; older ones are removed.

    Args:
        path: the collection's folder, made if need be.
        items: by ascending id.
        vectors: one for each item, in the same order.
        places: what ``Item.place`` counts in.
        facts: further entries of ``about.json``.
    """
    if len(vectors) != len(items):
        raise DataError(f"{len(items)} items need as many vectors; got {len(vectors)}.")
    collection = CollectionDirectory(path)
    number = 1 + collection.latest_generation()
    folder = collection.folder(number)
    part = folder.with_name(folder.name + ".part")
    for left in (folder, part):  # of a writer that ended before it could set the pointer
        shutil.rmtree(left, ignore_errors=True)
    part.mkdir(parents=True)
    write_atomically(part / VECTORS, lambda file: _write_rows(file, vectors, dim))
    lines = (json.dumps(asdict(item), ensure_ascii=False) + "\n" for item in items)
    write_text(part / ITEMS, "".join(lines))
    about = {
        "generation": number,
        "dim": dim,
        "metric": "euclidean",
        "places": [asdict(place) for place in places],
        **(facts or {}),
    }
    write_json(part / ABOUT, about)
    os.replace(part, folder)
    sync_directory(path)
    _point_to(path, number)
    for old in path.glob("generation-*"):
        if old not in (folder, collection.folder(number - 1)):
            shutil.rmtree(old, ignore_errors=True)  # whoever holds a memory map of it keeps that
    return number


def _point_to(path: Path, number: int) -> None:
    write_json(path / POINTER, {"format": FORMAT, "generation": number})


def _write_rows(file: BinaryIO, vectors: Sequence[np.ndarray] | np.ndarray, dim: int) -> None:
    """Write an ``.npy`` a block at a time, for the whole need never be in memory."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (len(vectors), dim)}
    np.lib.format.write_array_header_1_0(file, header)
    for first in range(0, len(vectors), _BLOCK):
        rows = np.asarray(vectors[first : first + _BLOCK], dtype="<f4")
        if rows.shape[1:] != (dim,) or not np.isfinite(rows).all():
            raise DataError(
                f"vectors {first} to {first + len(rows)} must be finite and of length {dim}. "
                "Check the training that made the model."
            )
        file.write(rows.tobytes())
