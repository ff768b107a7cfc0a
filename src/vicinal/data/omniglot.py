"""Omniglot: handwritten characters (Lake et al., Science 2015)."""

import io
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from vicinal.data.cache import cached
from vicinal.data.location import existing
from vicinal.data.published import Missing, Part, held_to
from vicinal.data.records import ImageArray, Kind, Records, Source
from vicinal.errors import ConfigError, DataError

# Lake et al., Science 2015: 30 alphabets of background and 20 of evaluation, each character by 20 drawers.
_PUBLISHED = {"train": Part(images=19_280, classes=964), "test": Part(images=13_180, classes=659)}
_ARCHIVES = {"train": "images_background", "test": "images_evaluation"}
_SIDE = 105  # pixels of a drawing, in both directions
_VERSION = 1  # raised whenever the same archives would give other pixels: it keys the cache


@dataclass(frozen=True)
class Omniglot:
    """32,460 drawings of 1,623 characters of 50 alphabets; the background set trains, the evaluation set tests.

    Read from its own two archives, ``images_background.zip`` and ``images_evaluation.zip``. Drawings are grey, black on
    white; pad them with 255. They are decoded on first use, in seconds, and then kept in the user's cache. Classes are
    named ``Alphabet/character01``; the columns of the records are ``alphabet`` (0-49, background first) and ``drawer``
    (1-20, the last number of a drawing's name).

    Args:
        path: the folder of the archives; ``$VICINAL_DATA`` and ``~`` are expanded.
        missing: whether a set that lacks drawings is refused or used; its name then says what it lacks.
        size: side to which the drawings are reduced, just as ``ImageTransform(resize=size)`` would do every time.
        turned: add each training character turned by 90, 180 and 270 degrees, as three more characters, as the few-shot
            literature does (Santoro et al. 2016; Vinyals et al. 2016). A character and its turned ones are one ``kin``:
            they are held out for validation together.
    """

    path: str = "$VICINAL_DATA/omniglot"
    missing: Missing = "refuse"
    size: int = _SIDE
    turned: bool = False

    def __post_init__(self) -> None:
        if not 8 <= self.size <= _SIDE:
            raise ConfigError(f"drawings have {_SIDE} pixels a side; `size` is 8 to {_SIDE}, but {self.size} came.")

    @staticmethod
    def lies_in(folder: Path) -> bool:
        return any((folder / f"{name}.zip").is_file() for name in _ARCHIVES.values())

    def load(self, *, strict: bool = True) -> Records:
        """Decode the drawings. With ``strict=False`` they stay in the archives, for a check that reads each of them."""
        root = existing(self.path)
        required = self.missing == "refuse"
        parts = {split: _listed(root / f"{name}.zip", required) for split, name in _ARCHIVES.items()}
        rows = [drawing for part in parts.values() for drawing in part]
        alphabets, characters = _numbered([row.alphabet for row in rows]), _numbered([row.character for row in rows])
        source = ArchivedDrawings(root, [row.member for row in rows])
        records = Records(
            name="Omniglot",
            source=source,
            labels=np.array([characters[row.character] for row in rows], dtype=np.int64),
            classes=tuple(characters),
            splits=np.repeat(list(parts), [len(part) for part in parts.values()]),
            columns={
                "alphabet": np.array([alphabets[row.alphabet] for row in rows], dtype=np.int64),
                "drawer": np.array([row.drawer for row in rows], dtype=np.int64),
            },
        )
        records = held_to(_PUBLISHED, records, self.missing, place=root, strict=strict)
        if not strict:
            return records
        drawings = self._in_memory(source, rows)
        return with_turned(records, drawings) if self.turned else replace(records, source=drawings)

    def _in_memory(self, source: "ArchivedDrawings", rows: Sequence["_Drawing"]) -> ImageArray:
        content = "\n".join(f"{row.member} {row.checksum}" for row in rows)
        key = sha256(f"{_VERSION} {self.size}\n{content}".encode()).hexdigest()[:16]
        shape = (len(rows), self.size, self.size)
        arrays = cached(
            f"omniglot-{key}",
            lambda: {"pixels": source.decoded(self.size)},
            lambda kept: kept["pixels"].shape == shape and kept["pixels"].dtype == np.uint8,
        )
        return ImageArray(arrays["pixels"], source.members)


def with_turned(records: Records, drawings: ImageArray) -> Records:
    """The records, and behind them the training rows turned by one, two and three quarters as classes of their own.

    ``drawings`` are the pictures of the records; the ``kin`` of a row is the class that it was before it was turned.
    """
    rows, quarters, classes = np.flatnonzero(records.splits == "train"), (1, 2, 3), len(records.classes)
    pixels = [drawings.pixels, *(np.rot90(drawings.pixels[rows], quarter, axes=(1, 2)) for quarter in quarters)]
    names = [*drawings.names, *(f"{drawings.names[row]} turned {90 * quarter}" for quarter in quarters for row in rows)]
    known = np.unique(records.labels[rows])
    place = np.zeros(classes, dtype=np.int64)
    place[known] = np.arange(len(known))
    labels = [classes + (quarter - 1) * len(known) + place[records.labels[rows]] for quarter in quarters]
    titles = [f"{records.classes[label]} turned {90 * quarter}" for quarter in quarters for label in known]
    columns = {name: np.concatenate([column, *(column[rows],) * 3]) for name, column in records.columns.items()}
    return replace(
        records,
        source=ImageArray(np.concatenate(pixels), names),
        labels=np.concatenate([records.labels, *labels]),
        classes=(*records.classes, *titles),
        splits=np.concatenate([records.splits, *(records.splits[rows],) * 3]),
        columns=columns | {"kin": np.concatenate([records.labels, *(records.labels[rows],) * 3])},
    )


class ArchivedDrawings(Source):
    """Drawings inside the archives, which are not unpacked.

    Every process opens the archives for itself: one that comes through a fork would share its place in the file with
    the parent's, and none can be sent to another process.
    """

    kind: Kind = "images"

    def __init__(self, root: Path, members: Sequence[str]) -> None:
        self.root, self.members = root, list(members)
        self._archives: dict[tuple[int, Path], ZipFile] = {}

    def __len__(self) -> int:
        return len(self.members)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.root, self.members)

    def name(self, index: int) -> str:
        return self.members[index]

    def read(self, index: int) -> Image.Image:
        member = self.members[index]
        path = self.root / f"{member.split('/')[0]}.zip"
        archive = self._archive(path)
        try:
            with Image.open(io.BytesIO(archive.read(member))) as image:
                return image.convert("L")
        except Exception as error:  # decoders raise whatever their parsing of a damaged file runs into
            raise DataError(f"drawing {member} of {path} cannot be read: {error}. Restore the archive.") from error

    def decoded(self, size: int) -> UInt8[np.ndarray, "n size size"]:
        """All drawings in memory, reduced as ``ImageTransform`` reduces."""
        pixels = np.empty((len(self), size, size), dtype=np.uint8)
        for row in range(len(self)):
            image = self.read(row)
            if image.size != (size, size):
                image = image.resize((size, size), Image.Resampling.BILINEAR)
            pixels[row] = np.asarray(image)
        return pixels

    def _archive(self, path: Path) -> ZipFile:
        key = os.getpid(), path
        if key not in self._archives:
            self._archives[key] = _opened(path)
        return self._archives[key]


@dataclass(frozen=True, order=True)
class _Drawing:
    """What the archive's table of contents tells; rows stand in the order of these fields."""

    alphabet: str
    character: str
    drawer: int
    member: str
    checksum: int


def _listed(path: Path, required: bool) -> list[_Drawing]:
    if not path.is_file():
        if required:
            raise DataError(f"{path} was to be read, but does not exist. Name the folder of Omniglot's two archives.")
        return []
    layout = re.compile(rf"{path.stem}/([^/]+)/(character\d+)/\d+_(\d+)\.png")  # the last: who drew it
    with _opened(path) as archive:
        found = [(layout.fullmatch(entry.filename), entry.CRC) for entry in archive.infolist()]
    return sorted(
        _Drawing(match[1], f"{match[1]}/{match[2]}", int(match[3]), match[0], checksum)
        for match, checksum in found
        if match
    )


def _opened(path: Path) -> ZipFile:
    try:
        return ZipFile(path)
    except (BadZipFile, OSError) as error:
        raise DataError(f"{path} is no zip archive that opens: {error}. It may be cut off; fetch it again.") from error


def _numbered(names: Sequence[str]) -> dict[str, int]:
    """The place of each name among the different ones, in the order in which they come."""
    return {name: number for number, name in enumerate(dict.fromkeys(names))}
