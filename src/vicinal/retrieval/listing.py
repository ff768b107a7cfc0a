"""From what a user names to a list of items that can be embedded: folder, table, arrays or data
set."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch

from vicinal.arguments import describe
from vicinal.data import Arrays, Dataset, Folder, Table, open_path, own_description
from vicinal.data.folder import is_image
from vicinal.data.location import existing, expanded
from vicinal.data.records import QUERY, SPLITS, FeatureArray, ImageFiles, Records, Source, Texts
from vicinal.data.shards import TarImages
from vicinal.data.table import Columns, read_columns
from vicinal.errors import ConfigError, DataError, VicinalError, unknown
from vicinal.evaluation.neighbors import require_finite
from vicinal.files import file_hash, read_arrays
from vicinal.retrieval.store import Kind, Place
from vicinal.run_directory import RunDirectory

_SPLIT_FOLDERS = {"train", "test", "validation", "val"}


@dataclass(frozen=True)
class Entry:
    """One item that may be embedded: where it lies in its place, and what is known of it."""

    path: str
    label: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Listing:
    """What a place holds now.

    Attributes:
        place: where these items lie.
        entries: the items, each path once.
        source: reads entry ``i``.
    """

    place: Place
    entries: Sequence[Entry]
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

    def digest(self, index: int) -> str:
        """SHA-256 of what the item holds; DataError where it cannot be read."""
        source, positions = self.source.origin(np.array([index]))
        position = int(positions[0])
        if isinstance(source, ImageFiles):
            return _file_digest(self.place, source.paths[position])
        if isinstance(source, FeatureArray):
            return sha256(source.read(position).tobytes()).hexdigest()
        if isinstance(source, TarImages):
            return sha256(source.encoded(position)).hexdigest()
        pixels = np.asarray(source.read(position))
        return sha256(repr(pixels.shape).encode() + pixels.tobytes()).hexdigest()


def list_place(path: str, *, split: str = "all", images: str | None = None) -> Listing:
    """List what lies at ``path``, by what it is.

    Args:
        path: folder, table (.csv, .tsv, .parquet), vectors (.npz, .parquet) or data set.
        split: the part to take of a data set, table or arrays that have splits.
        images: folder of the pictures that a table's paths, or the names of feature vectors, start
            from; for vectors also the data set whose images they were made of, row by row.
    """
    found = expanded(path)
    if found.is_file() and is_image(found.name):
        raise ConfigError(
            f"a collection is made of folders; got the image {found}. Name its folder."
        )
    data = open_path(path)
    if isinstance(data, Folder) and split == "all":
        return _list_folder(found.resolve())
    if isinstance(data, Table):
        return _list_table(found, split, images)
    if isinstance(data, Arrays) and split == "all":
        if found.suffix.lower() == ".npz" and (unlabeled := _unlabeled(found)) is not None:
            place = Place(
                str(found.resolve()),
                "features",
                None if images is None else str(existing(images).resolve()),
            )
            return Listing(place, [Entry(name) for name in unlabeled.names], unlabeled)
        data = replace(data, test=1.0)  # nothing is split, so one class is enough
    return list_data_set(data, split=split, images=images)


def _unlabeled(path: Path) -> FeatureArray | None:
    """Return the vectors of an ``.npz`` that has no labels, which a collection or a pool does not
    need."""
    arrays = read_arrays(path)
    features = arrays.get("features", arrays.get("embeddings"))
    if features is None or features.ndim != 2 or not {"labels", "label"}.isdisjoint(arrays):
        return None
    require_finite(torch.from_numpy(np.asarray(features, np.float32)), str(path))
    names = arrays.get("names", [f"row {row}" for row in range(len(features))])
    if len(names) != len(features):
        raise DataError(
            f"{path}: {len(features)} vectors, but {len(names)} names. Give every row one."
        )
    return FeatureArray(np.asarray(features, np.float32), [str(name) for name in names])


def place_path(data: Dataset) -> str:
    """Return the name by which the place of a data set is known: absolute, or the word of an
    embedded one."""
    named = getattr(data, "path", None)
    return type(data).__name__.lower() if named is None else str(expanded(named).resolve())


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
    names = [loaded.source.name(row) for row in range(len(loaded))]
    labels = [loaded.classes[label] for label in loaded.labels]
    features, root = isinstance(source, FeatureArray | Texts), None
    if isinstance(source, ImageFiles):
        elsewhere = isinstance(data, Table) and images is not None
        root = str((existing(str(images)) if elsewhere else source.root).resolve())
        names = (
            [os.path.relpath(source.root / name, root) for name in names] if elsewhere else names
        )
    elif isinstance(source, FeatureArray) and images is not None:
        root, names, labels = _pictured(images, loaded, positions, len(source), names, labels)
    kind: Kind = "features" if features else "data set"
    description = None if root is not None or features else describe(data)
    place = Place(place_path(data), kind, root, split, images, description)
    columns = loaded.columns.items()
    entries = [
        Entry(path, label, {name: str(column[row].item()) for name, column in columns})
        for row, (path, label) in enumerate(zip(names, labels, strict=True))
    ]
    return Listing(place, entries, loaded.source)


def _pictured(
    images: str,
    features: Records,
    positions: np.ndarray,
    rows: int,
    names: list[str],
    labels: list[str],
) -> tuple[str, list[str], list[str]]:
    """Return folder, paths and labels of feature vectors that were made of a data set's images, row
    by row.

    In a plain folder the vectors' own names name the files. A data set must have as many images as
    there are vectors, and the same of them must be of one class: another order would show wrong
    pictures.
    """
    data = open_path(images)
    if isinstance(data, Folder):
        return str(existing(images).resolve()), names, labels
    records = data.load()
    source = records.source
    if not isinstance(source, ImageFiles) or len(records) != rows:
        wanted = (
            f"--images {images} should hold the {rows} images that the vectors were made of, "
            "as files"
        )
        got = f"{records.name} with {len(records)} records"
        raise DataError(f"{wanted}; got {got}. Name the data set or folder that they are of.")
    pairs = set(zip(features.labels.tolist(), records.labels[positions].tolist(), strict=True))
    if not len(pairs) == len({one for one, _ in pairs}) == len({other for _, other in pairs}):
        raise DataError(
            f"the vectors and the images of {images} differ in their classes, so in their order."
        )
    paths = [source.paths[position] for position in positions]
    return (
        str(source.root.resolve()),
        paths,
        [records.classes[records.labels[position]] for position in positions],
    )


def _list_folder(folder: Path) -> Listing:
    """List all images below a folder; the first folder of a path is its label, or the second, after
    a split."""
    tops = {
        entry.name
        for entry in folder.iterdir()
        if entry.is_dir() and not entry.name.startswith(".")
    }
    with_splits = {"train", "test"} <= tops <= _SPLIT_FOLDERS
    paths, entries = _images(folder), []
    for path in paths:
        parents = PurePosixPath(path).parts[:-1]
        split, below = (
            ({"split": parents[0]}, parents[1:]) if with_splits and parents else ({}, parents)
        )
        entries.append(Entry(path, below[0] if below else None, split))
    place = Place(str(folder), "folder", str(folder))
    return Listing(place, entries, ImageFiles(folder, paths))


def _images(root: Path) -> list[str]:
    """List images below a folder as sorted paths; hidden files and folders are left out, and links
    to folders."""
    found = []
    for here, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [
            (Path(here) / name).relative_to(root).as_posix() for name in files if is_image(name)
        ]
    return sorted(found)


def own_folders(run: RunDirectory) -> list[Path]:
    """Return the files and folders of a run's own data, whose pictures its collections may show."""
    try:
        data = own_description(run)
    except (KeyError, VicinalError):  # given in Python, so there are none
        return []
    named = [getattr(data, "path", None), getattr(data, "images", None)]
    if isinstance(data, Table) and expanded(data.path).is_file():
        named.append(images_of(data))
    return [expanded(path) for path in named if isinstance(path, str)]


def images_of(table: Table) -> str | None:
    """Return the folder of the pictures of a run's own table; where they lie elsewhere, the one
    that holds all.

    Training has read them there. A table that somebody names is held to its own folder, or to
    `--images`.
    """
    columns = read_columns(existing(table.path))
    folder = columns.path.parent if table.images is None else existing(table.images)
    paths = [Path(os.path.normpath(folder.resolve() / path)) for path in columns.texts("path")]
    inside = all(path.is_relative_to(folder.resolve()) for path in paths)
    return table.images if inside else os.path.commonpath([path.parent for path in paths])


def _list_table(path: Path, split: str, images: str | None) -> Listing:
    """List the images that a table names; all its other columns are metadata."""
    columns = read_columns(path)
    paths = columns.texts("path")
    root = (existing(images) if images is not None else path.parent).resolve()
    rows = list(range(len(paths)))
    if split != "all":
        splits = columns.texts("split")
        rows = [row for row in rows if splits[row].lower() == split]
        if not rows:
            raise ConfigError(
                f"{path} has no row of the split {split!r}; it has "
                f"{', '.join(sorted(set(splits)))}."
            )
    if "text" in columns.cells:  # a picture may have several; the first stands beside it
        rows = sorted({paths[row]: row for row in reversed(rows)}.values())

    def entry(row: int) -> Entry:
        texts = {
            name: text
            for name, column in columns.cells.items()
            if (text := _text(column[row])) is not None
        }
        path, label = _below(root, texts.pop("path"), columns, row), texts.pop("label", None)
        return Entry(path, label, texts)

    entries = [entry(row) for row in rows]
    place = Place(str(path.resolve()), "table", str(root), split=split, images=images)
    return Listing(place, entries, ImageFiles(root, [entry.path for entry in entries]))


def _below(root: Path, path: str, columns: Columns, row: int) -> str:
    """Return a table's path relative to the root; a DataError where it leads out of it."""
    inside = os.path.relpath(root / path, root)
    if Path(inside).parts[:1] == ("..",):
        fault = f"{columns.place(row)}: {path} lies outside {root}, where pictures may be read"
        raise DataError(f"{fault}. Name the folder that holds all of them with --images.")
    return Path(inside).as_posix()


def _text(cell: Any) -> str | None:
    text = "" if cell is None else str(cell).strip()
    return text or None


def _file_digest(place: Place, path: str) -> str:
    file = place.file(path)
    if file is None or not file.is_file():
        raise DataError(f"image {path} of {place.path} is missing.")
    try:
        return file_hash(file)
    except OSError as error:
        raise DataError(f"image {file} cannot be read: {error}.") from error
