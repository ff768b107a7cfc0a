"""Published benchmarks in their own layout: CUB-200-2011, Cars196, Stanford Online Products,
In-Shop, Omniglot.

Their lists name every image, and the literature fixes their counts; a set that differs is an error,
or says so in its name.
"""

import io
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple
from zipfile import BadZipFile, ZipFile

import numpy as np
from jaxtyping import Float, Int, UInt8
from PIL import Image, ImageOps

from vicinal.arguments import Limits, Settings
from vicinal.data.draws import uniform
from vicinal.data.images import decode
from vicinal.data.location import cached, existing
from vicinal.data.records import BOTH, GALLERY, QUERY, ImageArray, ImageFiles, Records
from vicinal.data.splits import classes_of
from vicinal.data.table import Columns
from vicinal.errors import DataError, few, unknown

Missing = Literal["raise", "use"]
Counts = Mapping[
    str, tuple[int, int]
]  # images and classes that the literature has in each part of a set


@dataclass(frozen=True)
class Published(Settings, ABC):
    """A set whose parts have published counts: by split, or by role where ``counts`` has query and
    gallery."""

    slot: ClassVar[str] = "data"
    marks: ClassVar[tuple[str, ...]]  # files by which the set is recognized
    counts: ClassVar[Counts]
    path: str
    missing: Missing = "raise"

    @classmethod
    def lies_in(cls, folder: Path) -> bool:
        """Whether a folder holds this set: one of its lists or archives is there."""
        return any((folder / name).is_file() for name in cls.marks)

    @abstractmethod
    def _listed(self, root: Path) -> Records:
        """Return the set as its own lists have it, under its plain name."""

    def load(self, *, strict: bool = True) -> Records:
        """Read the lists. With ``strict=False`` missing images stay in, for a check that names each
        of them."""
        root = existing(self.path)
        records = self._listed(root)
        source = records.source
        absent = _absent(source) if strict and isinstance(source, ImageFiles) else []
        if self.missing == "use":
            records = records.take(np.setdiff1d(np.arange(len(records)), absent))
            absent = []
        found = self._differences(records)
        if absent:
            named = few([source.name(row) for row in absent])
            found.append(f"{len(absent):,} of {len(records):,} listed images are missing ({named})")
        if found and self.missing != "use":
            advice = "Restore it, or set `data.missing=use` to go on with what is there."
            raise DataError(
                f"{records.name} in {root} is not the published set: {'; '.join(found)}. {advice}"
            )
        if not len(records):
            raise DataError(f"nothing of {records.name} is in {root}. Restore it.")
        return replace(records, name=f"{records.name} ({'; '.join(found)})") if found else records

    def _differences(self, records: Records) -> list[str]:
        parts = records.splits
        if "query" in self.counts:
            parts = np.array(["train", "query", "gallery"])[
                records.columns["role"]
            ]  # by BOTH, QUERY, GALLERY
        found = list[str]()
        for part, (images, classes) in self.counts.items():
            labels = records.labels[parts == part]
            counted = {
                "images": (len(labels), images),
                "classes": (len(np.unique(labels)), classes),
            }
            found += [
                f"{n:,} {part} {noun}, not {known:,}"
                for noun, (n, known) in counted.items()
                if n != known
            ]
        return found


@dataclass(frozen=True)
class CUB(Published):
    """11,788 photographs of 200 species of birds; zero-shot: classes 1-100 train, 101-200 test.

    CUB-200-2011 (Wah et al., 2011) in its own layout: ``images.txt``, ``image_class_labels.txt``,
    ``classes.txt`` and ``images/CLASS/NAME.jpg``. The set's ``train_test_split.txt``, which has all
    classes in both parts, is not used.

    Args:
        path: the set's folder; ``$VICINAL_DATA`` and ``~`` are expanded.
        missing: whether a set that lacks images is an error or used; its name then says what it
            lacks.
    """

    marks = ("image_class_labels.txt",)
    counts = {"train": (5_864, 100), "test": (5_924, 100)}  # noqa: RUF012  (Song et al., CVPR 2016)
    path: str = "$VICINAL_DATA/CUB_200_2011"

    def _listed(self, root: Path) -> Records:
        classes = read_list(root / "classes.txt", ("class", "name")).texts("name")
        images = read_list(root / "images.txt", ("image", "path"))
        labels = read_list(root / "image_class_labels.txt", ("image", "class"))
        known = dict(zip(labels.texts("image"), labels.numbers("class"), strict=True))
        numbers = np.array([known.get(image, 0) for image in images.texts("image")], np.int64)
        source = ImageFiles(root / "images", images.texts("path"))
        return _zero_shot("CUB-200-2011", source, numbers, classes, self.counts, images.place)


@dataclass(frozen=True)
class Cars196(Published):
    """16,185 photographs of 196 models of cars; zero-shot: classes 1-98 train, 99-196 test.

    Cars196 (Krause et al., 3dRR 2013) in its own layout: ``cars_annos.mat`` and
    ``car_ims/000001.jpg``. The split that the annotations bring, which has all classes in both
    parts, is not used.

    >>> Cars196("~/data/cars196").counts["train"]  # images and classes that it must have
    (8054, 98)

    Args:
        path: the set's folder; ``$VICINAL_DATA`` and ``~`` are expanded.
        missing: whether a set that lacks images is an error or used; its name then says what it
            lacks.
    """

    marks = ("cars_annos.mat",)
    counts = {"train": (8_054, 98), "test": (8_131, 98)}  # noqa: RUF012  (Song et al., CVPR 2016)
    path: str = "$VICINAL_DATA/cars196"

    def _listed(self, root: Path) -> Records:
        from scipy.io import loadmat  # here, for only this set needs it

        path = root / "cars_annos.mat"
        if not path.is_file():
            raise DataError(f"{path} does not exist. Name the folder that holds it and car_ims.")
        try:
            content = loadmat(path, squeeze_me=True, variable_names=("annotations", "class_names"))
            annotations = np.atleast_1d(content["annotations"])
            paths = [str(path) for path in annotations["relative_im_path"]]
            numbers = annotations["class"].astype(np.int64)
            classes = [str(name) for name in np.atleast_1d(content["class_names"])]
        # The reader raises whatever its parsing of a damaged file runs into.
        except Exception as error:
            raise DataError(
                f"{path} is not readable as MATLAB annotations with `relative_im_path`, `class` "
                f"and `class_names`: {type(error).__name__}: {error}. Restore it."
            ) from error

        def place(row: int) -> str:
            return f"{path}, image {paths[row]}"

        return _zero_shot("Cars196", ImageFiles(root, paths), numbers, classes, self.counts, place)


@dataclass(frozen=True)
class StanfordOnlineProducts(Published):
    """120,053 photographs of 22,634 products from online shops, in 12 kinds; split by product as
    published.

    Stanford Online Products (Song et al., CVPR 2016) in its own layout: ``Ebay_train.txt``,
    ``Ebay_test.txt`` and ``KIND_final/NAME.JPG``. The column ``super_class`` of the records is the
    number of the kind, 1-12.

    >>> products = StanfordOnlineProducts("~/data/Stanford_Online_Products")
    >>> products.counts["test"]  # images and classes that it must have
    (60502, 11316)

    Args:
        path: the set's folder; ``$VICINAL_DATA`` and ``~`` are expanded.
        missing: whether a set that lacks images is an error or used; its name then says what it
            lacks.
    """

    marks = ("Ebay_train.txt", "Ebay_test.txt")
    counts = {"train": (59_551, 11_318), "test": (60_502, 11_316)}  # noqa: RUF012
    path: str = "$VICINAL_DATA/Stanford_Online_Products"

    def _listed(self, root: Path) -> Records:
        fields = ("image_id", "class_id", "super_class_id", "path")
        lists = {
            split: read_list(root / f"Ebay_{split}.txt", fields, header=1)
            for split in ("train", "test")
        }
        paths = [path for rows in lists.values() for path in rows.texts("path")]
        products, kinds = (
            np.concatenate([rows.numbers(name) for rows in lists.values()])
            for name in ("class_id", "super_class_id")
        )
        numbers, first, labels = np.unique(products, return_index=True, return_inverse=True)
        folders = [paths[row].split("/")[0].removesuffix("_final") for row in first]
        classes = tuple(
            f"{folder}/{number}" for folder, number in zip(folders, numbers, strict=True)
        )
        splits = np.repeat(list(lists), [*map(len, lists.values())])
        columns = {"super_class": kinds}
        source = ImageFiles(root, paths)
        return Records("Stanford Online Products", source, labels, classes, splits, columns)


@dataclass(frozen=True)
class InShop(Published):
    """52,712 photographs of 7,982 items of clothing; items to train on, and others to query a
    gallery for.

    In-Shop Clothes Retrieval, a benchmark of DeepFashion (Liu et al., CVPR 2016), in its own
    layout: ``list_eval_partition.txt`` and ``img/``, or ``Eval/list_eval_partition.txt`` and
        ``Img/img/`` as the archive of all
    of DeepFashion has them. Query and gallery are both split ``test``; the column ``role`` of the
    records parts them.

    >>> InShop("~/data/inshop").counts["query"]  # images and classes that it must have
    (14218, 3985)

    Args:
        path: the set's folder; ``$VICINAL_DATA`` and ``~`` are expanded.
        missing: whether a set that lacks images is an error or used; its name then says what it
            lacks.
    """

    marks = ("list_eval_partition.txt", "Eval/list_eval_partition.txt")
    counts = {"train": (25_882, 3_997), "query": (14_218, 3_985), "gallery": (12_612, 3_985)}  # noqa: RUF012
    path: str = "$VICINAL_DATA/inshop"

    def _listed(self, root: Path) -> Records:
        whole = (root / self.marks[1]).is_file()
        fields = ("image_name", "item_id", "evaluation_status")
        rows = read_list(root / self.marks[whole], fields, header=2)
        roles = {"train": BOTH, "query": QUERY, "gallery": GALLERY}
        parts = rows.texts("evaluation_status")
        for row, part in enumerate(parts):
            if part not in roles:
                raise DataError(f"{rows.place(row)}: " + unknown("evaluation status", part, roles))
        classes, labels = classes_of(rows.texts("item_id"))
        source = ImageFiles(root / "Img" if whole else root, rows.texts("image_name"))
        splits = np.array(["train" if part == "train" else "test" for part in parts], dtype=str)
        columns = {"role": np.array([roles[part] for part in parts], dtype=np.int64)}
        return Records("In-Shop", source, labels, classes, splits, columns)


def read_list(path: Path, columns: Sequence[str], *, header: int = 0) -> Columns:
    """Read a text file with fields between spaces, as published sets list their images.

    Args:
        path: the file.
        columns: names of the fields; a line with more or fewer is an error.
        header: how many lines stand above the rows.
    """
    if not path.is_file():
        raise DataError(f"{path} does not exist. Name the folder that holds the set's lists.")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    rows = {number: line.split() for number, line in enumerate(lines, 1) if number > header}
    rows = {number: fields for number, fields in rows.items() if fields}
    for number, fields in rows.items():
        if len(fields) != len(columns):
            expected = f"{len(columns)} fields ({', '.join(columns)})"
            raise DataError(
                f"{path}, line {number}: expected {expected}, got {len(fields)}. Restore the file."
            )
    cells = {name: [row[place] for row in rows.values()] for place, name in enumerate(columns)}
    return Columns(path, cells, [*rows], "line")


def _zero_shot(
    name: str,
    source: ImageFiles,
    numbers: Int[np.ndarray, "n"],
    classes: Sequence[str],
    counts: Counts,
    place: Callable[[int], str],
) -> Records:
    """Return records of classes numbered from 1, of which the first train and the others test."""
    for row in np.flatnonzero((numbers < 1) | (numbers > len(classes))):
        raise DataError(
            f"{place(int(row))}: classes are numbered from 1 to {len(classes)}, got {numbers[row]}."
        )
    splits = np.where(numbers <= counts["train"][1], "train", "test")
    return Records(name, source, numbers - 1, tuple(classes), splits)


def _absent(source: ImageFiles) -> list[int]:
    """Return the rows without a file; one listing per folder, for on a network disk each look is a
    round trip."""
    folders = {os.path.dirname(path) for path in source.paths}
    there = {
        os.path.join(folder, name)
        for folder in folders
        if (source.root / folder).is_dir()
        for name in os.listdir(source.root / folder)
    }
    return [row for row, path in enumerate(source.paths) if path not in there]


# -- Omniglot: handwritten characters (Lake et al., Science 2015), by character or across drawers --

_SIDE = 105  # pixels of a drawing, in both directions
_VERSION = 1  # raised whenever the same archives would give other pixels: it keys the cache
_WHITE = 255


@dataclass(frozen=True)
class Omniglot(Published):
    """32,460 drawings of 1,623 characters of 50 alphabets; the background set trains, the
    evaluation set tests.

    Read from its own two archives, ``images_background.zip`` and ``images_evaluation.zip``.
    Drawings are gray, black on white; pad them with 255. They are decoded on first use, in seconds,
    and then kept in the user's cache. Classes are named ``Alphabet/character01``; the columns of
    the records are ``alphabet`` (0-49, background first) and ``drawer`` (1-20, the last number of a
    drawing's name).

    >>> Omniglot("~/data/omniglot", size=28).counts["test"]  # drawings and characters
    (13180, 659)

    Args:
        path: the folder of the archives; ``$VICINAL_DATA`` and ``~`` are expanded.
        missing: whether a set that lacks drawings is an error or used; its name then says what it
            lacks.
        size: side to which the drawings are reduced, just as ``ImageTransform(resize=size)`` would
            do every time.
    """

    marks = ("images_background.zip", "images_evaluation.zip")
    # 30 alphabets of background and 20 of evaluation, each character by 20 drawers.
    counts = {"train": (19_280, 964), "test": (13_180, 659)}  # noqa: RUF012
    path: str = "$VICINAL_DATA/omniglot"
    size: Annotated[int, Limits("[8, 105]")] = _SIDE

    def _listed(self, root: Path) -> Records:
        parts = [_drawings(root / mark) for mark in self.marks]
        rows = [drawing for part in parts for drawing in part]
        content = "\n".join(f"{row.member} {row.checksum}" for row in rows)
        key = sha256(f"{_VERSION} {self.size}\n{content}".encode()).hexdigest()[:16]
        decoded = cached(f"omniglot-{key}", lambda: {"pixels": _decoded(root, rows, self.size)})
        source = ImageArray(decoded["pixels"], [row.member for row in rows])
        columns = {
            "alphabet": _numbered([row.alphabet for row in rows]),
            "drawer": np.array([row.drawer for row in rows], dtype=np.int64),
        }
        characters = [row.character for row in rows]
        classes = tuple(dict.fromkeys(characters))
        splits = np.repeat(["train", "test"], [*map(len, parts)])
        return Records("Omniglot", source, _numbered(characters), classes, splits, columns)


@dataclass(frozen=True)
class OmniglotPairs(Settings):
    """A stand-in for two views of a place: drawers 1 to 10 ask, upright; drawers 11 to 20 answer,
    turned.

    Of every character the first ten drawers' drawings are queries. The other ten's are the gallery,
    each turned counter-clockwise by an angle of its own between 0 and 360 degrees, which is the
    column ``angle`` (0 for queries). The alphabets of the background set train and those of the
    evaluation set test. In validation whole alphabets are held out, too, for a character's ``kin``
    is its alphabet. The test gallery holds one drawing of each character: each query has one
    answer, as a ground view has one aerial view. Validation characters keep all ten.

    >>> OmniglotPairs("~/data/omniglot").drawers  # of each character, that ask
    10

    Args:
        path: the folder of the archives; ``$VICINAL_DATA`` and ``~`` are expanded.
        missing: whether a set that lacks drawings is an error or used; its name then says what it
            lacks.
        size: side of the pictures.
        seed: of the angles.
    """

    slot: ClassVar[str] = "data"
    drawers: ClassVar[int] = 10  # that ask; the other ten answer
    path: str = "$VICINAL_DATA/omniglot"
    missing: Missing = "raise"
    size: Annotated[int, Limits("[8, 105]")] = 32
    seed: int = 0

    def load(self) -> Records:
        # turned at twice the final size, so that strokes stay sharp
        whole = Omniglot(self.path, self.missing, min(_SIDE, 2 * self.size)).load()
        drawers = whole.columns["drawer"]
        kept = np.flatnonzero((whole.splits != "test") | (drawers <= self.drawers + 1))
        records = whole.take(kept)
        roles = np.where(drawers[kept] <= self.drawers, QUERY, GALLERY).astype(np.int64)
        angles = np.where(roles == GALLERY, 360 * uniform(self.seed, 0, kept, 1)[:, 0], 0.0)
        drawings = [records.source.read(row) for row in range(len(kept))]
        pixels = _turned(drawings, angles, self.size)
        names = [records.source.name(row) for row in range(len(kept))]
        alphabet = {"kin": records.columns["alphabet"], "role": roles, "angle": angles}
        return replace(
            records,
            name=whole.name.replace("Omniglot", "Omniglot pairs", 1),
            source=ImageArray(pixels, names),
            columns={**records.columns, **alphabet},
        )


def _turned(
    drawings: Sequence[Image.Image], angles: Float[np.ndarray, "n"], size: int
) -> UInt8[np.ndarray, "n size size"]:
    """Turn drawings by their angles, within a margin of an eighth in which strokes may move, and
    reduce them."""
    pixels = np.empty((len(drawings), size, size), dtype=np.uint8)
    for row, (drawing, angle) in enumerate(zip(drawings, angles.tolist(), strict=True)):
        sheet = ImageOps.expand(drawing, drawing.width // 8, fill=_WHITE)
        if angle:
            sheet = sheet.rotate(angle, Image.Resampling.BILINEAR, fillcolor=_WHITE)
        pixels[row] = np.asarray(sheet.resize((size, size), Image.Resampling.BILINEAR))
    return pixels


class _Drawing(NamedTuple):
    """One entry of an archive's table of contents; rows stand in the order of these fields."""

    alphabet: str
    character: str
    drawer: int
    member: str
    checksum: int


def _drawings(path: Path) -> list[_Drawing]:
    """List the drawings of an archive."""
    if not path.is_file():
        raise DataError(f"{path} does not exist. Name the folder of Omniglot's two archives.")
    # the last number: who drew it
    layout = re.compile(rf"{path.stem}/([^/]+)/(character\d+)/\d+_(\d+)\.png")
    try:
        with ZipFile(path) as archive:
            entries = archive.infolist()
    except (BadZipFile, OSError) as error:
        raise DataError(
            f"{path} is no zip archive that opens: {error}. It may be cut off; fetch it again."
        ) from error
    found = [(layout.fullmatch(entry.filename), entry.CRC) for entry in entries]
    return sorted(
        _Drawing(m[1], f"{m[1]}/{m[2]}", int(m[3]), m[0], checksum) for m, checksum in found if m
    )


def _decoded(root: Path, rows: Sequence[_Drawing], size: int) -> UInt8[np.ndarray, "n size size"]:
    """Decode drawings, reduced as ``ImageTransform`` reduces."""
    pixels = np.empty((len(rows), size, size), dtype=np.uint8)
    with ExitStack() as stack:
        archives = {mark: stack.enter_context(ZipFile(root / mark)) for mark in Omniglot.marks}
        for place, row in enumerate(rows):
            archive = archives[f"{row.member.split('/')[0]}.zip"]
            try:
                drawing = decode(io.BytesIO(archive.read(row.member))).convert("L")
            except Exception as error:  # decoders raise whatever a damaged file makes them
                raise DataError(
                    f"drawing {row.member} of {archive.filename} cannot be read: {error}. Restore "
                    "the archive."
                ) from error
            pixels[place] = np.asarray(drawing.resize((size, size), Image.Resampling.BILINEAR))
    return pixels


def _numbered(names: Sequence[str]) -> Int[np.ndarray, "n"]:
    """Number names in the order in which they first come."""
    number = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return np.array([number[name] for name in names], dtype=np.int64)
