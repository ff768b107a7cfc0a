"""Omniglot: handwritten characters (Lake et al., Science 2015), by character or across drawers."""

import io
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple
from zipfile import BadZipFile, ZipFile

import numpy as np
from jaxtyping import Float, Int, UInt8
from PIL import Image

from vicinal.arguments import Limits, Settings
from vicinal.data.draws import uniform
from vicinal.data.location import cached
from vicinal.data.published import Missing, Published
from vicinal.data.records import GALLERY, QUERY, ImageArray, Records, Source
from vicinal.errors import DataError

_ARCHIVES = {"train": "images_background", "test": "images_evaluation"}
_SIDE = 105  # pixels of a drawing, in both directions
_VERSION = 1  # raised whenever the same archives would give other pixels: it keys the cache
_WHITE = 255


@dataclass(frozen=True)
class Omniglot(Published):
    """32,460 drawings of 1,623 characters of 50 alphabets; the background set trains, the evaluation set tests.

    Read from its own two archives, ``images_background.zip`` and ``images_evaluation.zip``. Drawings are gray, black on
    white; pad them with 255. They are decoded on first use, in seconds, and then kept in the user's cache. Classes are
    named ``Alphabet/character01``; the columns of the records are ``alphabet`` (0-49, background first) and ``drawer``
    (1-20, the last number of a drawing's name).

    >>> Omniglot("~/data/omniglot", size=28).counts["test"]  # drawings and characters that it must have
    (13180, 659)

    Args:
        path: the folder of the archives; ``$VICINAL_DATA`` and ``~`` are expanded.
        missing: whether a set that lacks drawings is an error or used; its name then says what it lacks.
        size: side to which the drawings are reduced, just as ``ImageTransform(resize=size)`` would do every time.
        turned: add each training character turned by 90, 180 and 270 degrees, as three more characters, as the few-shot
            literature does (Santoro et al. 2016; Vinyals et al. 2016). A character and its turned ones are one ``kin``:
            they are held out for validation together.
    """

    marks = tuple(f"{name}.zip" for name in _ARCHIVES.values())
    # 30 alphabets of background and 20 of evaluation, each character by 20 drawers.
    counts = {"train": (19_280, 964), "test": (13_180, 659)}  # noqa: RUF012
    path: str = "$VICINAL_DATA/omniglot"
    size: Annotated[int, Limits("[8, 105]")] = _SIDE
    turned: bool = False

    def load(self, *, strict: bool = True) -> Records:
        """Decode the drawings. With ``strict=False`` they stay in the archives, for a check that reads each of them."""
        records = super().load(strict=strict)
        if not strict or not isinstance(records.source, ArchivedDrawings):
            return records
        drawings = self._in_memory(records.source)
        return with_turned(records, drawings) if self.turned else replace(records, source=drawings)

    def _listed(self, root: Path) -> Records:
        required = self.missing != "use"
        parts = {split: _drawings(root / f"{name}.zip", required=required) for split, name in _ARCHIVES.items()}
        rows = [drawing for part in parts.values() for drawing in part]
        alphabets, labels = _numbered([row.alphabet for row in rows]), _numbered([row.character for row in rows])
        classes = tuple(dict.fromkeys(row.character for row in rows))
        splits = np.repeat(list(parts), [*map(len, parts.values())])
        columns = {"alphabet": alphabets, "drawer": np.array([row.drawer for row in rows], dtype=np.int64)}
        source = ArchivedDrawings(root, [row.member for row in rows], [row.checksum for row in rows])
        return Records("Omniglot", source, labels, classes, splits, columns)

    def _in_memory(self, source: "ArchivedDrawings") -> ImageArray:
        content = "\n".join(map("{} {}".format, source.names, source.checksums))
        key = sha256(f"{_VERSION} {self.size}\n{content}".encode()).hexdigest()[:16]
        shape = (len(source), self.size, self.size)
        arrays = cached(
            f"omniglot-{key}",
            lambda: {"pixels": source.decoded(self.size)},
            lambda kept: kept["pixels"].shape == shape and kept["pixels"].dtype == np.uint8,
        )
        return ImageArray(arrays["pixels"], source.names)


def with_turned(records: Records, drawings: ImageArray) -> Records:
    """Append the training rows turned by one, two and three quarters as classes of their own.

    ``drawings`` are the pictures of the records; the ``kin`` of a row is the class that it was before it was turned.
    """
    rows, quarters, classes = np.flatnonzero(records.splits == "train"), (1, 2, 3), len(records.classes)

    def appended(column: np.ndarray) -> np.ndarray:
        return np.concatenate([column, *(column[rows],) * len(quarters)])

    pixels = [drawings.pixels, *(np.rot90(drawings.pixels[rows], quarter, axes=(1, 2)) for quarter in quarters)]
    names = [*drawings.names, *(f"{drawings.names[row]} turned {90 * quarter}" for quarter in quarters for row in rows)]
    known, place = np.unique(records.labels[rows], return_inverse=True)
    labels = [classes + (quarter - 1) * len(known) + place for quarter in quarters]
    titles = [f"{records.classes[label]} turned {90 * quarter}" for quarter in quarters for label in known]
    columns = {name: appended(column) for name, column in {**records.columns, "kin": records.labels}.items()}
    source, all_labels = ImageArray(np.concatenate(pixels), names), np.concatenate([records.labels, *labels])
    return Records(records.name, source, all_labels, (*records.classes, *titles), appended(records.splits), columns)


@dataclass(frozen=True)
class OmniglotPairs(Settings):
    """A stand-in for two views of a place: drawers 1 to 10 ask, upright; drawers 11 to 20 answer, turned.

    Of every character the first ten drawers' drawings are queries. The other ten's are the gallery, each turned
    counter-clockwise by an angle of its own between 0 and 360 degrees, which is the column ``angle`` (0 for queries).
    The alphabets of the background set train and those of the evaluation set test, so test alphabets are unseen. So
    they are in validation: whole alphabets are held out, for a character's ``kin`` is its alphabet. The test gallery
    holds ``galleries`` drawings of each character, 1 by default: then each query has one answer, as a ground view has
    one aerial view. Validation characters, cut from the training ones, keep all ten.

    >>> OmniglotPairs("~/data/omniglot", galleries=2).drawers  # of each character, that ask
    10

    Args:
        path: the folder of the archives; ``$VICINAL_DATA`` and ``~`` are expanded.
        missing: whether a set that lacks drawings is an error or used; its name then says what it lacks.
        size: side of the pictures.
        galleries: gallery drawings of each test character, 1 to 10.
        seed: of the angles.
    """

    slot: ClassVar[str] = "data"
    drawers: ClassVar[int] = 10  # that ask; the other ten answer
    path: str = "$VICINAL_DATA/omniglot"
    missing: Missing = "raise"
    size: Annotated[int, Limits("[8, 105]")] = 32
    galleries: Annotated[int, Limits("[1, 10]")] = 1
    seed: int = 0

    def load(self, *, strict: bool = True) -> Records:
        """Decode, turn and reduce the drawings. With ``strict=False`` it is Omniglot's own check that reads them."""
        fine = min(_SIDE, 2 * self.size)  # turned at twice the final size, so that strokes stay sharp
        whole = Omniglot(self.path, self.missing, fine).load(strict=strict)
        kept = np.flatnonzero((whole.splits != "test") | (whole.columns["drawer"] <= self.drawers + self.galleries))
        records = whole.take(kept)
        roles = np.where(records.columns["drawer"] <= self.drawers, QUERY, GALLERY).astype(np.int64)
        # By a drawing's place in the whole set: `galleries` changes which are there, not how they are turned.
        angles = np.where(roles == GALLERY, 360 * uniform(self.seed, 0, kept, 1)[:, 0], 0.0)
        source, name = records.source, whole.name.replace("Omniglot", "Omniglot pairs", 1)
        if isinstance(whole.source, ImageArray):
            names = [whole.source.names[row] for row in kept]
            source = ImageArray(_turned(whole.source.pixels, kept, angles, self.size), names)
        columns = {**records.columns, "kin": records.columns["alphabet"], "role": roles, "angle": angles}
        return replace(records, name=name, source=source, columns=columns)


def _turned(
    drawings: UInt8[np.ndarray, "all s s"], rows: Int[np.ndarray, "n"], angles: Float[np.ndarray, "n"], size: int
) -> UInt8[np.ndarray, "n size size"]:
    """Turn drawings by their angles, within a margin of an eighth in which strokes may move, and reduce them."""
    side = drawings.shape[1]
    margin = side // 8
    pixels = np.empty((len(rows), size, size), dtype=np.uint8)
    for place, (row, angle) in enumerate(zip(rows.tolist(), angles.tolist(), strict=True)):
        sheet = Image.new("L", (side + 2 * margin,) * 2, _WHITE)
        sheet.paste(Image.fromarray(drawings[row]), (margin, margin))
        if angle:
            sheet = sheet.rotate(angle, Image.Resampling.BILINEAR, fillcolor=_WHITE)
        pixels[place] = np.asarray(sheet.resize((size, size), Image.Resampling.BILINEAR))
    return pixels


class ArchivedDrawings(Source):
    """Drawings inside the archives, which are not unpacked."""

    def __init__(self, root: Path, names: Sequence[str], checksums: Sequence[int] = ()) -> None:
        super().__init__(names)
        self.root, self.checksums = root, checksums

    def read(self, index: int) -> Image.Image:
        member = self.names[index]
        path = self.root / f"{member.split('/')[0]}.zip"
        archive = _kept_open(path, os.getpid())
        try:
            with Image.open(io.BytesIO(archive.read(member))) as image:
                return image.convert("L")
        except Exception as error:  # decoders raise whatever their parsing of a damaged file runs into
            raise DataError(f"drawing {member} of {path} cannot be read: {error}. Restore the archive.") from error

    def decoded(self, size: int) -> UInt8[np.ndarray, "n size size"]:
        """Decode all drawings, reduced as ``ImageTransform`` reduces."""
        pixels = np.empty((len(self), size, size), dtype=np.uint8)
        for row in range(len(self)):
            pixels[row] = np.asarray(self.read(row).resize((size, size), Image.Resampling.BILINEAR))
        return pixels


class _Drawing(NamedTuple):
    """One entry of an archive's table of contents; rows stand in the order of these fields."""

    alphabet: str
    character: str
    drawer: int
    member: str
    checksum: int


def _drawings(path: Path, *, required: bool) -> list[_Drawing]:
    if not path.is_file():
        if required:
            raise DataError(f"{path} does not exist. Name the folder of Omniglot's two archives.")
        return []
    layout = re.compile(rf"{path.stem}/([^/]+)/(character\d+)/\d+_(\d+)\.png")  # the last: who drew it
    with _opened(path) as archive:
        found = [(layout.fullmatch(entry.filename), entry.CRC) for entry in archive.infolist()]
    known = ((match, checksum) for match, checksum in found if match)
    return sorted(_Drawing(m[1], f"{m[1]}/{m[2]}", int(m[3]), m[0], checksum) for m, checksum in known)


def _opened(path: Path) -> ZipFile:
    try:
        return ZipFile(path)
    except (BadZipFile, OSError) as error:
        raise DataError(f"{path} is no zip archive that opens: {error}. It may be cut off; fetch it again.") from error


@lru_cache(maxsize=len(_ARCHIVES))
def _kept_open(path: Path, process: int) -> ZipFile:
    """Open an archive once in each process: one that came through a fork would share its place in the file."""
    return _opened(path)


def _numbered(names: Sequence[str]) -> Int[np.ndarray, "n"]:
    """Number names in the order in which they first come."""
    number = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return np.array([number[name] for name in names], dtype=np.int64)
