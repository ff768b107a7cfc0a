"""How a place is listed that a collection holds: folder, table, arrays or data set."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from vicinal.arguments import describe
from vicinal.data import (
    Arrays,
    Dataset,
    Folder,
    Table,
    given_in_python,
    open_like,
    open_path,
    own_data,
    own_description,
)
from vicinal.data.folder import SPLIT_FOLDERS, existing, expanded, folders_in, images_below
from vicinal.data.records import (
    QUERY,
    FeatureArray,
    ImageFiles,
    Records,
    Source,
    Taken,
    Texts,
)
from vicinal.data.shards import ShardImages
from vicinal.data.table import box_columns, column_names, picture_paths, read_columns
from vicinal.errors import DataError
from vicinal.files import file_hash, parted
from vicinal.retrieval.items import Item, Place, folder_of_pictures
from vicinal.run_directory import RunDirectory


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
                f"{self.place.path} holds nothing to index, of the split {self.place.split!r}. "
                "Name another split, or a place with images or feature vectors."
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
        if isinstance(source, ShardImages):
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
    path = describe(data).get("path")
    return type(data).__name__.lower() if path is None else str(expanded(path).resolve())


def own_place(run: RunDirectory) -> str:
    """Return the place of a run's own data; of data given in Python, which have none, ``""``."""
    return "" if given_in_python(run) else place_path(own_description(run))


def list_again(run: RunDirectory, path: str, split: str, images: str | None) -> Listing:
    """List a place as it is now; the run's own data with the settings and the held-out classes of
    its training."""
    if path != own_place(run):
        return list_place(path, split=split, images=images, data=open_like(path, run))
    own = own_description(run)
    if isinstance(own, Table):
        images = images or folder_of_pictures(own)
    # of a whole folder or table all files count, with or without a class
    if split == "all" and isinstance(own, Folder | Table):
        return list_place(path, images=images, data=own)
    # Of a part, the very classes held out; of all, what is there now.
    records = own.load() if split == "all" else own_data(run)[1]
    return list_data_set(own, split=split, images=images, records=records)


# -- what they hold -------------------------------------------------------------------------------


def list_place(
    path: str, *, split: str = "all", images: str | None = None, data: Dataset | None = None
) -> Listing:
    """List what lies at ``path``, by what it is.

    Args:
        data: what it is, where that is known.
        path: folder, table (.csv, .tsv, .parquet), vectors (.npz, .parquet) or data set.
        split: the part to take of a data set, table or arrays that have splits.
        images: folder of the pictures that a table's paths, or the names of feature vectors, start
            from; for vectors also the data set whose images they were made of, row by row.
    """
    found = expanded(path)
    data = data or open_path(path)
    if isinstance(data, Folder) and split == "all":
        return _list_folder(data, found.resolve())
    if isinstance(data, Table):
        return _list_table(data, split, images)
    if isinstance(data, Arrays) and split == "all":
        if {"label", "labels"}.isdisjoint(column_names(found)):
            source = data.unlabeled()
            root = images and str(existing(images).resolve())
            items = [Item(0, name, None) for name in source.names]
            return Listing(Place(str(found.resolve()), root), items, source)
        data = replace(data, test=1.0)  # nothing is split, so one class is enough
    return list_data_set(data, split=split, images=images)


def _list_folder(data: Folder, folder: Path) -> Listing:
    """List all images below a folder, without hidden ones and links to folders; the first folder of
    a path is its label, after those of a split and of a hierarchy."""
    paths = images_below(folder, "")
    with_splits = {"train", "test"} <= set(folders_in(folder)) <= SPLIT_FOLDERS
    entries = []
    for path in paths:
        *parents, _ = path.split("/")
        levels = ("split",) * with_splits + data.hierarchy
        above = dict(zip(levels, parents, strict=False))
        entries.append(Item(0, path, next(iter(parents[len(levels) :]), None), above))
    place = Place(str(folder), str(folder), separator=data.separator)
    return Listing(place, entries, ImageFiles(folder, paths))


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
    place = Place(str(path.resolve()), str(root), split, images, separator=table.separator)
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
        loaded = loaded.take(np.flatnonzero(loaded.splits == split))
    if "role" in loaded.columns:  # a collection is a gallery: what only asks is not to be found
        loaded = loaded.take(np.flatnonzero(loaded.columns["role"] != QUERY))
    source, positions = loaded.source.origin(np.arange(len(loaded)))
    names = loaded.names()
    labels = [";".join(names) for names in loaded.class_names()]
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
    separator = ";" if loaded.every is not None else ""
    place = Place(place_path(data), root, split, images, description, separator)
    columns = {name: column.tolist() for name, column in loaded.columns.items()}
    for name, groups in loaded.levels.items():
        columns[name] = [groups[group] for group in columns[name]]
    entries = [
        Item(0, path, label, {name: str(column[row]) for name, column in columns.items()})
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
