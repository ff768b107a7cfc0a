"""What a collection holds: items, the places they are from, and how a place is listed: folder,
table, arrays or data set.

A collection can come from somebody else. Pictures are read below the folders of the run's own data
and those that the user names in the same call, and an engine is asked where the user names it.
"""

import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from vicinal.arguments import describe
from vicinal.data import Arrays, Dataset, Folder, Table, open_path, own_data, own_description
from vicinal.data.folder import SPLIT_FOLDERS, existing, expanded, folders_in, images_below
from vicinal.data.records import (
    QUERY,
    SPLITS,
    FeatureArray,
    ImageFiles,
    Records,
    Source,
    Taken,
    Texts,
    parted,
)
from vicinal.data.shards import TarImages
from vicinal.data.table import box_columns, column_names, picture_paths, read_columns
from vicinal.errors import ConfigError, DataError, VicinalError, unknown
from vicinal.files import file_hash, followed
from vicinal.run_directory import RunDirectory

Queries = Float[np.ndarray, "q d"]
Where = Mapping[str, str]  # attributes that what is found must have


@dataclass(frozen=True)
class Place:
    """A folder, table, array file or data set that was indexed.

    Attributes:
        path: what the user named, absolute; by it a place is known again.
        root: folder below which the items' pictures lie, absolute; None where there are no picture
            files.
        split: the part of a data set that was indexed; ``"all"`` for all of it.
        images: what ``--images`` named, so that indexing again need not name it again.
        description: of a data set that keeps its pictures in another form than files, as
            ``DATASETS`` build it.
    """

    path: str
    root: str | None
    split: str = "all"
    images: str | None = None
    description: Any = None

    def file(self, path: str) -> Path | None:
        """Return the picture file of an item; None where this place has no files; a DataError
        outside the root.

        Links are followed before the check, so that neither ``..`` nor a link leads out.
        """
        if self.root is None:
            return None
        root = followed(Path(self.root))
        found = followed(root / path)
        if not found.is_relative_to(root):
            raise DataError(
                f"{path!r} leads out of the indexed folder {root} and is not read. Index that "
                "file's own."
            )
        return found


@dataclass(frozen=True)
class Item:
    """One item in a collection.

    Attributes:
        id: stays with the item through all generations, also when its content changes; never used
            again.
        path: where it lies below its place (``Snapshot.places``), ``/`` between parts; for feature
            vectors their name.
        label: its class, where one is known.
        metadata: further facts by which a search can be narrowed.
        place: position of the folder, table or array file it is from in ``Snapshot.places``.
        digest: SHA-256 of its content, by which a change is detected.
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
        label = {} if self.label is None else {"label": self.label}
        return {**self.metadata, "path": self.path, **label}

    @property
    def document(self) -> dict[str, Any]:
        """What is told of it, as JSON."""
        return {name: getattr(self, name) for name in ("id", "path", "label", "metadata")}


# -- whose pictures may be read -------------------------------------------------------------------


def settings_of(data: Dataset) -> dict[str, str]:
    """Return the settings of a data set that are texts."""
    described = describe(data)
    return {name: value for name, value in described.items() if isinstance(value, str)}


def own_folders(run: RunDirectory) -> list[Path]:
    """Return the files and folders of a run's own data, whose pictures its collections may show."""
    try:
        data = own_description(run)
    except (KeyError, VicinalError):  # given in Python, so there are none
        return []
    named = [settings_of(data).get(name) for name in ("path", "images")]
    if isinstance(data, Table) and expanded(data.path).is_file():
        named.append(folder_of_pictures(data))
    return [expanded(path) for path in named if path is not None]


def folder_of_pictures(table: Table) -> str | None:
    """Return the folder of the pictures of a run's own table; where they lie elsewhere, the one
    that holds all.

    Training has read them there. A table that somebody names is held to its own folder, or to
    `--images`.
    """
    columns = read_columns(existing(table.path))
    folder = columns.path.parent if table.images is None else existing(table.images)
    named = columns.texts(table.image)
    paths = [Path(os.path.normpath(folder.resolve() / path)) for path in named]
    inside = all(path.is_relative_to(folder.resolve()) for path in paths)
    return table.images if inside else os.path.commonpath([path.parent for path in paths])


@dataclass(frozen=True)
class Access:
    """What a collection may use outside of itself, for all that it names.

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


# -- listing --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Listing:
    """What a place holds now.

    Attributes:
        place: where these items lie.
        entries: the items, each path once; their ids are given when they are indexed.
        source: reads entry ``i``.
    """

    place: Place
    entries: Sequence[Item]
    source: Source

    def __post_init__(self) -> None:
        if not self.entries:
            raise DataError(
                f"{self.place.path} holds nothing to index. Name a place with images or feature "
                "vectors."
            )
        path, count = Counter(entry.path for entry in self.entries).most_common(1)[0]
        if count > 1:
            raise DataError(
                f"{self.place.path} names {path!r} {count} times. Give every entry a name of its "
                "own."
            )

    def records(self, rows: np.ndarray) -> Records:
        """Return some entries as records of one class, to be embedded."""
        source = Taken(self.source, rows)
        labels = np.zeros(len(rows), np.int64)
        return Records(self.place.path, source, labels, ("",), np.full(len(rows), "test"))

    def digest(self, index: int) -> str:
        """SHA-256 of what the item holds; DataError where it cannot be read."""
        source, positions = self.source.origin(np.array([index]))
        position = int(positions[0])
        if isinstance(source, ImageFiles):
            path = self.entries[index].path
            file, box = parted(self.place.file(path) or path)
            try:
                digest = file_hash(file)
                return sha256(repr((digest, box)).encode()).hexdigest() if box else digest
            except OSError as error:
                raise DataError(f"image {path} cannot be read: {error.strerror}.") from error
        if isinstance(source, TarImages):
            return sha256(source.encoded(position)).hexdigest()
        pixels = np.asarray(source.read(position))
        return sha256(repr(pixels.shape).encode() + pixels.tobytes()).hexdigest()


# -- which places ---------------------------------------------------------------------------------


def absolute_place(path: str) -> str:
    """Return the name by which a place is known: absolute, or the word of an embedded data set."""
    found = expanded(path)
    return str(found.resolve()) if found.exists() or "/" in path else path


def place_path(data: Dataset) -> str:
    """Return the name by which the place of a data set is known: absolute, or the word of an
    embedded one."""
    path = settings_of(data).get("path")
    return type(data).__name__.lower() if path is None else str(expanded(path).resolve())


def list_again(run: RunDirectory, path: str, split: str, images: str | None) -> Listing:
    """List a place as it is now; the run's own data with the settings and the held-out classes of
    its training."""
    own = own_description(run)
    if path == place_path(own):
        if isinstance(own, Table):
            images = images or folder_of_pictures(own)
            if split == "all":
                return _list_table(own, split, images)
        # of a whole folder or table all files count, with or without a class
        if not (isinstance(own, Folder) and split == "all"):
            # Of a part, the very classes held out; of all, what is there now.
            data, records = (own, own.load()) if split == "all" else own_data(run)
            return list_data_set(data, split=split, images=images, records=records)
    return list_place(path, split=split, images=images)


# -- what they hold -------------------------------------------------------------------------------


def list_place(path: str, *, split: str = "all", images: str | None = None) -> Listing:
    """List what lies at ``path``, by what it is.

    Args:
        path: folder, table (.csv, .tsv, .parquet), vectors (.npz, .parquet) or data set.
        split: the part to take of a data set, table or arrays that have splits.
        images: folder of the pictures that a table's paths, or the names of feature vectors, start
            from; for vectors also the data set whose images they were made of, row by row.
    """
    found = expanded(path)
    data = open_path(path)
    if isinstance(data, Folder) and split == "all":
        return _list_folder(found.resolve())
    if isinstance(data, Table):
        return _list_table(data, split, images)
    if isinstance(data, Arrays) and split == "all":
        if {"label", "labels"}.isdisjoint(column_names(found)):
            source = data.unlabeled()
            root = None if images is None else str(existing(images).resolve())
            items = [Item(0, name, None) for name in source.names]
            return Listing(Place(str(found.resolve()), root), items, source)
        data = replace(data, test=1.0)  # nothing is split, so one class is enough
    return list_data_set(data, split=split, images=images)


def _list_folder(folder: Path) -> Listing:
    """List all images below a folder, without hidden ones and links to folders; the first folder of
    a path is its label, or the second, after a split."""
    paths = images_below(folder, "")
    with_splits = {"train", "test"} <= set(folders_in(folder)) <= SPLIT_FOLDERS
    entries = []
    for path in paths:
        *parents, _ = path.split("/")
        split = {"split": parents.pop(0)} if with_splits and parents else {}
        entries.append(Item(0, path, next(iter(parents), None), split))
    return Listing(Place(str(folder), str(folder)), entries, ImageFiles(folder, paths))


def _list_table(table: Table, split: str, images: str | None) -> Listing:
    """List the images that a table names; all its other columns are metadata."""
    path = expanded(table.path)
    columns = read_columns(path)
    paths = picture_paths(columns, table.image, table.margin)
    root = (path.parent if images is None else existing(images)).resolve()
    rows = list(range(len(paths)))
    if split != "all":
        splits = columns.texts("split")
        rows = [row for row in rows if splits[row].lower() == split]
        if not rows:
            has = ", ".join(sorted(set(splits)))
            raise ConfigError(f"{path} has no row of the split {split!r}; it has {has}.")
    if "text" in columns.cells:  # a picture may have several; the first stands beside it
        rows = sorted({paths[row]: row for row in reversed(rows)}.values())
    entries = []
    used = (table.image, *box_columns(columns))  # paths have the boxes
    for row in rows:
        inside = Path(os.path.relpath(root / paths[row], root)).as_posix()
        if inside.startswith("../"):
            raise DataError(
                f"{columns.place(row)}: {paths[row]} lies outside {root}, where pictures may be "
                "read. Name the folder that holds all of them with --images."
            )
        cells = {name: column[row] for name, column in columns.cells.items() if name not in used}
        texts = {name: str(cell).strip() for name, cell in cells.items() if cell is not None}
        label = texts.pop(table.label, None) or None
        known = {name: text for name, text in texts.items() if text}
        entries.append(Item(0, inside, label, known))
    place = Place(str(path.resolve()), str(root), split, images)
    return Listing(place, entries, ImageFiles(root, [entry.path for entry in entries]))


def list_data_set(
    data: Dataset, *, split: str = "all", images: str | None = None, records: Records | None = None
) -> Listing:
    """List the records of a data set, or one split of them, without those that are queries only.

    Args:
        records: where they are already loaded, with splits of the caller's own.
    """
    loaded = data.load() if records is None else records
    if split != "all":
        if split not in SPLITS:
            raise ConfigError(unknown("split", split, ("all", *SPLITS)))
        loaded = loaded.part(split)
        if not len(loaded):
            raise ConfigError(
                f"{loaded.name} has no {split} records. Choose another --split, or `all`."
            )
    if "role" in loaded.columns:  # a collection is a gallery: what only asks is not to be found
        loaded = loaded.take(np.flatnonzero(loaded.columns["role"] != QUERY))
    source, positions = loaded.source.origin(np.arange(len(loaded)))
    names = loaded.names()
    labels = [loaded.classes[label] for label in loaded.labels]
    features = isinstance(source, FeatureArray | Texts)
    root = None
    if isinstance(source, ImageFiles):
        root = str(source.root.resolve())
        if isinstance(data, Table) and images is not None:
            root = str(existing(images).resolve())
            names = [os.path.relpath(source.root / name, root) for name in names]
    elif isinstance(source, FeatureArray) and images is not None:
        pictures = open_path(images)
        if isinstance(pictures, Folder):  # the vectors' own names name the files
            root = str(existing(images).resolve())
        else:
            root, names, labels = _pictured(pictures.load(), loaded, positions, len(source))
    description = None if root is not None or features else describe(data)
    place = Place(place_path(data), root, split, images, description)
    columns = loaded.columns.items()
    entries = [
        Item(0, path, label, {name: str(column[row].item()) for name, column in columns})
        for row, (path, label) in enumerate(zip(names, labels, strict=True))
    ]
    return Listing(place, entries, loaded.source)


def _pictured(
    pictures: Records, features: Records, positions: np.ndarray, count: int
) -> tuple[str, list[str], list[str]]:
    """Return folder, paths and labels of feature vectors that were made of a data set's images, row
    by row.

    There must be as many images as vectors, and the same of them must be of one class: another
    order would show wrong pictures.
    """
    source = pictures.source
    if not isinstance(source, ImageFiles) or len(pictures) != count:
        raise DataError(
            f"--images should hold the {count} images that the vectors were made of, as files; got "
            f"{pictures.name} with {len(pictures)} records. Name the data set or folder that they "
            "are of."
        )
    theirs = pictures.labels[positions].tolist()
    pairs = set(zip(features.labels.tolist(), theirs, strict=True))
    if not len(pairs) == len({one for one, _ in pairs}) == len({other for _, other in pairs}):
        raise DataError(
            f"the vectors and the images of {pictures.name} differ in their classes, so in their "
            "order."
        )
    paths = [source.paths[position] for position in positions]
    return str(source.root.resolve()), paths, [pictures.classes[label] for label in theirs]
