"""Labeled examples as columns, the sources that read them, and the batch a method sees."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from textwrap import wrap
from typing import Any, BinaryIO, Literal, Protocol

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt8
from PIL import Image, ImageDraw
from torch import Tensor

from vicinal.errors import DataError, unknown
from vicinal.files import REGION, parted, read_image, regular
from vicinal.tuples import SizedLabels

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
Kind = Literal["images", "features", "text"]
Progress = Callable[[int], None]  # called with the number of records done
BOTH = 0  # values of the column ``role`` of records
QUERY = 1
GALLERY = 2


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Return a host tensor on a device. From pinned memory a copy to a GPU does not make the host
    wait."""
    if device.type == "cuda" and values.device.type == "cpu":
        values = values.pin_memory()
    return values.to(device, non_blocking=True)


def as_text(name: str) -> str:
    """Return a name that UTF-8 can hold: bytes of a file's name that are no text are escaped."""
    if name.isascii():
        return name
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")


@dataclass(frozen=True)
class Decoded:
    """Images of a source that were prepared before and lie in memory, on a device or in a file.

    Attributes:
        pixels: one prepared image per slot.
        preparation: how they were prepared; see ``ImageTransform.preparation``.
        slots: for each position in the source the place in ``pixels``, or -1.
        unreadable: positions that could not be read, with the reason; their slots are black.
    """

    pixels: UInt8[Tensor, "m h w c"]
    preparation: tuple[object, ...]
    slots: Int[np.ndarray, "p"]
    unreadable: Mapping[int, str]


class Source(ABC):
    """Reads one example at a time by its position, and names it in an error or a caption.

    >>> class Squares(Source):
    ...     def read(self, index: int) -> Image.Image:
    ...         return Image.new("L", (8, 8), 80 * index)
    >>> source = Squares(["black", "gray"])
    >>> source.name(1), source.read(1).getpixel((0, 0))
    ('gray', 80)
    """

    kind: Kind = "images"
    in_memory: bool = False  # reading costs nothing, so processes that read ahead would not pay
    decoded: Decoded | None = None  # what a `Loader` takes instead of reading and preparing again
    contents: np.ndarray | None = None  # of each position what `loader.contents` tells, where known

    def __init__(self, names: Sequence[str]) -> None:
        """``names``: a path or title of each example that a person recognizes; never used to find
        anything."""
        self.names = [as_text(name) for name in names]

    def __getstate__(self) -> dict[str, Any]:
        """Leave decoded images out of what other processes get."""
        return {**vars(self), "decoded": None}

    def __len__(self) -> int:
        return len(self.names)

    def name(self, index: int) -> str:
        return self.names[index]

    @abstractmethod
    def read(self, index: int) -> Any:
        """Return an RGB or gray ``PIL.Image``, a float32 vector (features) or a text; DataError if
        unreadable."""

    def read_all(self, positions: np.ndarray) -> Any:
        """Return the examples at some positions."""
        return [self.read(position) for position in positions.tolist()]

    def origin(self, positions: np.ndarray) -> tuple["Source", np.ndarray]:
        """Return the source that holds these positions, and where they are in it."""
        return self, positions

    def content(self, index: int) -> bytes | None:
        """Return bytes that are others when an example is another, wherever it lies; None if
        nothing tells."""
        return None


_TICK = 2 * 10**9  # nanoseconds of the coarsest clock of a file system
END = 2**16  # bytes at each end of a file that stand for its content


def ends_of(file: BinaryIO, first: int, length: int) -> bytes:
    """Return the length and both ends of a part of a file: encoded images that differ differ
    there, and large ones need not be read whole."""
    file.seek(first)
    head = file.read(min(length, END))
    file.seek(first + max(len(head), length - END))
    return b"%d " % length + head + file.read(min(length - len(head), END))


def stamp_of(path: Path | str) -> bytes | None:
    """Return size and times of a file; None of one so new that another write may bear the same
    time."""
    found = os.stat(path)
    if time.time_ns() - found.st_ctime_ns < _TICK:
        return None
    return b"\0%d %d %d" % (found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class ImageFiles(Source):
    """Image files below a folder, or regions of them (``birds.jpg#xywh=10,0,32,48``)."""

    def __init__(self, root: Path, paths: Sequence[str]) -> None:
        super().__init__(paths)
        self.root = root
        self.paths = list(paths)

    def absent(self) -> list[int]:
        """Return the positions of the files that are not there."""
        return [
            row for row, path in enumerate(self.paths) if not parted(self.root / path)[0].is_file()
        ]

    def read(self, index: int) -> Image.Image:
        return read_image(self.root / self.paths[index])

    def content(self, index: int) -> bytes:
        path, box = parted(self.root / self.paths[index])
        with regular(path).open("rb") as file:
            return ends_of(file, 0, path.stat().st_size) + (repr(box).encode() if box else b"")

    def stamp(self, index: int) -> bytes | None:
        """Return bytes that are others when ``content`` may be, without reading it; None where
        nothing tells."""
        path = f"{self.root}/{self.paths[index]}"
        stamp = stamp_of(parted(path)[0] if REGION in path else path)
        return stamp and os.fsencode(path) + stamp


class ImageArray(Source):
    """Images held in memory as one uint8 array."""

    in_memory = True

    def __init__(self, pixels: np.ndarray, names: Sequence[str]) -> None:
        super().__init__(names)
        if pixels.dtype != np.uint8 or pixels.ndim not in (3, 4):
            raise DataError(
                f"images in memory must be uint8 [n h w] or [n h w 3], got {pixels.dtype} "
                f"{pixels.shape}."
            )
        self.pixels = pixels

    def read(self, index: int) -> Image.Image:
        return Image.fromarray(self.pixels[index])

    def content(self, index: int) -> bytes:
        return self.pixels[index].tobytes()


class FeatureArray(Source):
    """Feature vectors held in memory; a backbone has already run.

    Attributes:
        model: fingerprint of the model whose embeddings these are; None for other vectors.
    """

    kind: Kind = "features"
    in_memory = True
    model: str | None = None

    def __init__(self, features: np.ndarray, names: Sequence[str]) -> None:
        super().__init__(names)
        if features.ndim != 2 or not features.shape[1] or features.dtype.kind != "f":
            raise DataError(
                f"features must be a float array [n d], got {features.dtype} {features.shape}."
            )
        self.features = features

    def read(self, index: int) -> np.ndarray:
        return np.array(self.features[index], dtype=np.float32)

    def read_all(self, positions: np.ndarray) -> np.ndarray:
        # At once; no Python per row.
        return self.features[positions]

    def content(self, index: int) -> bytes:
        return self.features[index].tobytes()


class Texts(Source):
    """Texts held in memory; names that differ from them tell equal ones apart.

    >>> Texts(["a wren", "a robin"]).read(1)
    'a robin'
    """

    kind: Kind = "text"
    in_memory = True

    def __init__(self, texts: Sequence[str], names: Sequence[str] | None = None) -> None:
        super().__init__(texts if names is None else names)
        self.texts = list(texts)

    def read(self, index: int) -> str:
        return self.texts[index]

    def content(self, index: int) -> bytes:
        return self.texts[index].encode(errors="surrogatepass")


class Captioned(Source):
    """Pictures, or feature vectors of them, and after them the texts that describe them."""

    def __init__(self, pictures: Source, texts: Sequence[str]) -> None:
        super().__init__([*map(pictures.name, range(len(pictures))), *texts])
        self.pictures = pictures
        self.texts = list(texts)
        self.kind = pictures.kind
        self.in_memory = pictures.in_memory

    def text(self, index: int) -> str | None:
        """Return the text at a position; None where a picture is."""
        return None if index < len(self.pictures) else self.texts[index - len(self.pictures)]

    def read(self, index: int) -> Any:
        """Return the picture at a position; of a text a picture of it, for thumbnails."""
        text = self.text(index)
        if text is None:
            return self.pictures.read(index)
        picture = Image.new("L", (128, 128), 255)
        # Pillow's own font may lack a letter; the name beside a thumbnail has all of them.
        ImageDraw.Draw(picture).multiline_text((6, 6), "\n".join(wrap(text[:400], 19)), fill=0)
        return picture

    def content(self, index: int) -> bytes | None:
        text = self.text(index)
        return self.pictures.content(index) if text is None else text.encode()

    def origin(self, positions: np.ndarray) -> tuple[Source, np.ndarray]:
        texts = (positions >= len(self.pictures)).any()
        return (self, positions) if texts else self.pictures.origin(positions)


class Taken(Source):
    """Some positions of another source, in a given order."""

    def __init__(self, source: Source, positions: np.ndarray) -> None:
        # One deep, however often a part is taken of a part.
        self.source, self.positions = source.origin(positions)
        self.kind = source.kind
        self.in_memory = source.in_memory

    def __len__(self) -> int:
        return len(self.positions)

    def origin(self, positions: np.ndarray) -> tuple[Source, np.ndarray]:
        return self.source.origin(self.positions[positions])

    def name(self, index: int) -> str:
        return self.source.name(int(self.positions[index]))

    def read(self, index: int) -> Any:
        return self.source.read(int(self.positions[index]))

    def content(self, index: int) -> bytes | None:
        return self.source.content(int(self.positions[index]))


@dataclass(frozen=True)
class Records:
    """A labeled set: one row per example, held as columns.

    Attributes:
        name: what reports call the set.
        source: reads row i.
        labels: class of each row, an index into ``classes``; of several the rarest.
        classes: the classes' names.
        splits: ``"train"``, ``"validation"`` or ``"test"`` for each row.
        every: which classes each row has, where rows have several; None where each has one.
        levels: of a given hierarchy of classes, the names of each level's groups, which the column
            of that name counts; from the widest level to the narrowest.
        columns: further integer or float columns that a protocol or method asks for (``camera``,
            ``angle``, ``role`` 0 = query and gallery, 1 = query only, 2 = gallery only).
    """

    name: str
    source: Source
    labels: np.ndarray
    classes: tuple[str, ...]
    splits: np.ndarray
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    every: Bool[np.ndarray, "n c"] | None = None
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows = {"source": len(self.source), "labels": len(self.labels), "splits": len(self.splits)}
        rows |= {name: len(column) for name, column in self.columns.items()}
        if len(set(rows.values())) != 1:
            raise DataError(f"the columns of {self.name} differ in length: {rows}.")
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < len(self.classes):
            raise DataError(
                f"labels of {self.name} run from {self.labels.min()} to {self.labels.max()}, but "
                f"there are {len(self.classes)} classes."
            )

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, positions: np.ndarray) -> "Records":
        """Return the rows at ``positions``; labels and class names stay as they are."""
        return replace(
            self,
            source=Taken(self.source, positions),
            labels=self.labels[positions],
            splits=self.splits[positions],
            columns={name: column[positions] for name, column in self.columns.items()},
            every=None if self.every is None else self.every[positions],
        )

    @property
    def targets(self) -> Int[np.ndarray, "n"] | Bool[np.ndarray, "n c"]:
        """What says which rows belong together: ``labels``, or ``every``: rows that share one."""
        return self.labels.astype(np.int64, copy=False) if self.every is None else self.every

    def sizes(self) -> Int[np.ndarray, "c"]:
        """Return how many rows each class has."""
        if self.every is not None:
            return np.asarray(self.every.sum(axis=0))
        return np.bincount(self.labels, minlength=len(self.classes))

    def members(self, label: int) -> Int[np.ndarray, "m"]:
        """Return the rows of a class."""
        return np.flatnonzero(self.labels == label if self.every is None else self.every[:, label])

    def class_names(self) -> list[list[str]]:
        """Return the names of each row's classes."""
        if self.every is None:
            return [[self.classes[label]] for label in self.labels.tolist()]
        return [[self.classes[label] for label in np.flatnonzero(row)] for row in self.every]

    def title(self, row: int) -> str:
        """Return the classes of a row as one text."""
        return ";".join(self.take(np.array([row])).class_names()[0])

    def names(self) -> list[str]:
        """Return what tells each row from the others."""
        source, positions = self.source.origin(np.arange(len(self)))
        return [*map(source.name, positions.tolist())]

    def part(self, split: Split) -> "Records":
        if split not in SPLITS:
            raise DataError(unknown("split", split, SPLITS))
        return self.take(np.flatnonzero(self.splits == split))

    def counts(self) -> dict[Split, tuple[int, int]]:
        """Return the number of rows, and of classes that have any, in each split."""
        parts = {split: self.part(split) for split in SPLITS}
        return {split: (len(part), int((part.sizes() > 0).sum())) for split, part in parts.items()}

    @property
    def captions(self) -> Captioned | None:
        """The source of pictures and texts, where rows are of both kinds or texts alone; None of
        any other rows."""
        source = self.source.source if isinstance(self.source, Taken) else self.source
        return source if isinstance(source, Captioned) else None

    def texts_among(self, rows: np.ndarray) -> Bool[np.ndarray, "n"]:
        """Return which of some rows are texts that describe pictures."""
        if self.captions is None:
            return np.zeros(len(rows), dtype=bool)
        return self.columns["role"][rows] == QUERY

    def captioned(self, texts: Sequence[str]) -> "Records":
        """Return pictures with their texts as further rows: texts ask (role 1), pictures are found
        (role 2).

        A picture or text that several rows of a class name is one row.

        Args:
            texts: what describes each row.

        >>> source = FeatureArray(np.eye(3, dtype=np.float32), ["a.png", "b.png", "c.png"])
        >>> splits = np.array(["train", "train", "test"])
        >>> records = Records("birds", source, np.array([0, 0, 1]), ("wren", "robin"), splits)
        >>> both = records.captioned(["a wren", "a wren", "a robin"])
        >>> both.source.name(3), both.labels.tolist(), both.columns["role"].tolist()
        ('a wren', [0, 0, 1, 0, 1], [2, 2, 2, 1, 1])
        """

        def first(column: Sequence[str]) -> list[int]:
            """Return the rows in which each picture, or each text, comes first."""
            keys = [*zip(column, self.labels.tolist(), self.splits.tolist(), strict=True)]
            return sorted({key: row for row, key in reversed([*enumerate(keys)])}.values())

        pictures = first(self.names())
        told = first(texts)
        rows = self.take(np.array(pictures + told, dtype=np.int64))
        source = Captioned(
            Taken(self.source, np.array(pictures, dtype=np.int64)), [texts[row] for row in told]
        )
        role = np.repeat([GALLERY, QUERY], [len(pictures), len(told)])
        return replace(rows, source=source, columns={**rows.columns, "role": role})

    def pictures(self) -> "Records":
        """Return what ``captioned`` was given: the rows that are no texts, without roles."""
        shown = self.take(np.flatnonzero(self.columns["role"] != QUERY))
        columns = {name: column for name, column in shown.columns.items() if name != "role"}
        return replace(shown, columns=columns)

    def fingerprint(self) -> str:
        """Return a short hash of names, labels and splits: a resumed run must have the same
        rows."""
        digest = sha256()
        rows = zip(self.names(), self.class_names(), self.splits.tolist(), strict=True)
        for name, classes, split in rows:
            digest.update(f"{name}\0{';'.join(classes)}\0{split}\n".encode())
        return digest.hexdigest()[:16]


class Dataset(Protocol):
    """Where records come from: a small frozen dataclass of settings (a path, a seed) that can be
    written as JSON.

    ``load`` may take ``strict=False``, for ``check``, to keep rows that it would reject. A set of
    feature vectors says so in a class attribute, ``kind = "features"``.

    >>> @dataclass(frozen=True)
    ... class Corners:
    ...     kind = "features"
    ...
    ...     def load(self) -> Records:
    ...         source = FeatureArray(np.eye(4, dtype=np.float32), ["a0", "a1", "b0", "b1"])
    ...         splits = np.array(["train", "train", "test", "test"])
    ...         return Records("corners", source, np.array([0, 0, 1, 1]), ("a", "b"), splits)
    >>> data: Dataset = Corners()
    >>> data.load().classes
    ('a', 'b')
    """

    def load(self) -> Records: ...


@dataclass(frozen=True)
class Batch:
    """What one step of a method sees. Rows stand in the order in which the method asked for them.

    Attributes:
        inputs: images ``[n c h w]`` or features ``[n d]``, preprocessed.
        labels: class of each row, or a matrix of their several; they know ``largest_class``.
        indices: position of each row in the training records (names files, keys memories).
        extras: further columns of those rows (``angle``, ...).
        skipped: positions that could not be read and were replaced by another of their class.
        largest_class: rows of the class that has most of them, in the whole batch of all processes,
            where the host knows it; see ``tuples.one_batch``.
        texts: of the rows with role 1, as UTF-8 that zeros fill up, where rows are pictures and
            texts; ``inputs`` are then the other rows alone.
    """

    inputs: Tensor
    labels: Int[Tensor, "n"] | Bool[Tensor, "n c"]
    indices: Int[Tensor, "n"]
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    skipped: tuple[int, ...] = ()
    largest_class: int | None = None
    texts: UInt8[Tensor, "t bytes"] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", SizedLabels.of(self.labels, self.largest_class))

    def to(self, device: torch.device) -> "Batch":
        """Return the same on a device, without waiting for it."""
        return replace(
            self,
            inputs=to_device(self.inputs, device),
            labels=to_device(self.labels, device),
            extras={name: to_device(column, device) for name, column in self.extras.items()},
            texts=None if self.texts is None else to_device(self.texts, device),
        )
