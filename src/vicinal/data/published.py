"""Published benchmarks in their own layout: CUB-200-2011, Cars196, Stanford Online Products,
In-Shop, Omniglot.

Their lists name every image, and the literature fixes their counts; a set that differs is an error.
"""

import io
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, ClassVar
from zipfile import BadZipFile, ZipFile, ZipInfo

import numpy as np
from jaxtyping import Int, UInt8
from PIL import Image, ImageOps

from vicinal.arguments import Limits, Settings
from vicinal.data.draws import uniform
from vicinal.data.folder import cached, existing
from vicinal.data.records import BOTH, GALLERY, QUERY, ImageArray, ImageFiles, Records
from vicinal.errors import DataError, few
from vicinal.files import decode, regular

Rows = list[dict[str, str]]
Listed = tuple[Path, Rows]  # the folder of images, and what is said of each
_ROLES = {"train": BOTH, "query": QUERY, "gallery": GALLERY}


class Published(Settings, ABC):
    """A set whose parts have published counts: train and test, or train, query and gallery.

    Args:
        path: the set's folder; ``$VICINAL_DATA`` and ``~`` are expanded.
    """

    slot: ClassVar[str] = "data"
    title: ClassVar[str]
    marks: ClassVar[tuple[str, ...]]  # files by which the set is recognized
    counts: ClassVar[Mapping[str, tuple[int, int]]]  # images and classes of each part
    path: str

    @classmethod
    def lies_in(cls, folder: Path) -> bool:
        """Whether a folder holds this set: one of its lists or archives is there."""
        return any((folder / name).is_file() for name in cls.marks)

    def _records(
        self,
        root: Path,
        source: ImageFiles | ImageArray,
        classes: Sequence[str],
        parts: Sequence[str],
        columns: Mapping[str, np.ndarray],
    ) -> Records:
        """Return a set of images with a class and a part each, if it is what was published."""
        labels = _numbered(classes)
        held = {part: labels[np.array(parts) == part] for part in self.counts}
        found = {part: (len(rows), len(np.unique(rows))) for part, rows in held.items()}
        if found != self.counts:
            raise DataError(
                f"{self.title} in {root} is not the published set: images and classes are {found}, "
                f"not {self.counts}. Restore it."
            )
        splits = np.array(["train" if part == "train" else "test" for part in parts])
        if "query" in self.counts:
            columns = {"role": np.array([_ROLES[part] for part in parts]), **columns}
        return Records(self.title, source, labels, tuple(dict.fromkeys(classes)), splits, columns)


class ListedImages(Published):
    """A published set of image files, with a list that has a row for each: its ``path`` below the
    folder of images, its class (``label``), and the part that it is in or the ``number`` of its
    class."""

    @abstractmethod
    def _rows(self, root: Path) -> Listed:
        """Read the set's own lists; return the folder of images and their rows."""

    def load(self, *, strict: bool = True) -> Records:
        """Read the lists. With ``strict=False`` missing images stay in, for a check that names each
        of them."""
        root = existing(self.path)
        folder, rows = self._rows(root)
        source = ImageFiles(folder, [row["path"] for row in rows])
        if strict and (absent := source.absent()):
            raise DataError(
                f"{len(absent):,} of {len(rows):,} listed images of {self.title} are missing in "
                f"{root} ({few([source.paths[row] for row in absent])}). Restore them."
            )
        trained = self.counts["train"][1]
        parts = [
            row.get("part") or ("train" if int(row["number"]) <= trained else "test")
            for row in rows
        ]
        kinds = np.array([int(row.get("kind", 0)) for row in rows])
        columns = {"super_class": kinds} if kinds.any() else {}
        return self._records(root, source, [row["label"] for row in rows], parts, columns)


class CUB(ListedImages):
    """11,788 photographs of 200 species of birds; zero-shot: classes 1-100 train, 101-200 test.

    CUB-200-2011 (Wah et al., 2011) in its own layout: ``images.txt`` and
    ``images/CLASS/NAME.jpg``. The set's ``train_test_split.txt``, which has all classes in both
    parts, is not used.

    Args:
        path: the set's folder; ``$VICINAL_DATA`` and ``~`` are expanded.
    """

    title = "CUB-200-2011"
    marks = ("image_class_labels.txt",)
    counts = {"train": (5_864, 100), "test": (5_924, 100)}  # noqa: RUF012  (Song et al., CVPR 2016)
    path: str = "$VICINAL_DATA/CUB_200_2011"

    def _rows(self, root: Path) -> Listed:
        # a class is named such as 001.Black_footed_Albatross
        pattern = r"\d+ (?P<path>(?P<label>(?P<number>\d+)\.[^/]+)/.+)"
        return root / "images", _fields(root / "images.txt", pattern)


class Cars196(ListedImages):
    """16,185 photographs of 196 models of cars; zero-shot: classes 1-98 train, 99-196 test.

    Cars196 (Krause et al., 3dRR 2013) in its own layout: ``cars_annos.mat`` and
    ``car_ims/000001.jpg``. The split that the annotations bring, which has all classes in both
    parts, is not used.

    >>> Cars196("~/data/cars196").counts["train"]  # images and classes that it must have
    (8054, 98)

    Args:
        path: the set's folder; ``$VICINAL_DATA`` and ``~`` are expanded.
    """

    title = "Cars196"
    marks = ("cars_annos.mat",)
    counts = {"train": (8_054, 98), "test": (8_131, 98)}  # noqa: RUF012  (Song et al., CVPR 2016)
    path: str = "$VICINAL_DATA/cars196"

    def _rows(self, root: Path) -> Listed:
        from scipy.io import loadmat  # here, for only this set needs it

        path = root / "cars_annos.mat"
        try:
            content = loadmat(regular(path), squeeze_me=True)
            names = content["class_names"]
            return root, [
                {"path": str(image), "label": str(names[number - 1]), "number": number}
                for image, number in content["annotations"][["relative_im_path", "class"]].tolist()
            ]
        # The reader raises what its parsing of a damaged file runs into.
        except Exception as error:
            raise DataError(
                f"{path} is not readable as MATLAB annotations with `relative_im_path`, `class` "
                f"and `class_names`: {type(error).__name__}: {error}. Restore it."
            ) from error


class StanfordOnlineProducts(ListedImages):
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
    """

    title = "Stanford Online Products"
    marks = ("Ebay_train.txt", "Ebay_test.txt")
    counts = {"train": (59_551, 11_318), "test": (60_502, 11_316)}  # noqa: RUF012
    path: str = "$VICINAL_DATA/Stanford_Online_Products"

    def _rows(self, root: Path) -> Listed:
        pattern = r"\d+ (?P<product>\d+) (?P<kind>\d+) (?P<path>(?P<folder>.+)_final/.+)"
        return root, [
            {**row, "label": f"{row['folder']}/{row['product']}", "part": part}
            for part in ("train", "test")
            for row in _fields(root / f"Ebay_{part}.txt", pattern, header=1)
        ]


class InShop(ListedImages):
    """52,712 photographs of 7,982 items of clothing; items to train on, and others to query a
    gallery for.

    In-Shop Clothes Retrieval, a benchmark of DeepFashion (Liu et al., CVPR 2016), in its own
    layout: ``list_eval_partition.txt`` and ``img/``, or ``Eval/list_eval_partition.txt`` and
    ``Img/img/``. Query and gallery are both split ``test``; the column ``role`` of the records
    parts them.

    >>> InShop("~/data/inshop").counts["query"]  # images and classes that it must have
    (14218, 3985)

    Args:
        path: the set's folder; ``$VICINAL_DATA`` and ``~`` are expanded.
    """

    title = "In-Shop"
    marks = ("list_eval_partition.txt", "Eval/list_eval_partition.txt")
    counts = {"train": (25_882, 3_997), "query": (14_218, 3_985), "gallery": (12_612, 3_985)}  # noqa: RUF012
    path: str = "$VICINAL_DATA/inshop"

    def _rows(self, root: Path) -> Listed:
        pattern = r"(?P<path>\S+) +(?P<label>\S+) +(?P<part>train|query|gallery)"
        whole = (root / self.marks[1]).is_file()
        rows = _fields(root / self.marks[whole], pattern, header=2)
        return root / "Img" if whole else root, rows


def _fields(path: Path, pattern: str, *, header: int = 0) -> Rows:
    """Read the groups of a pattern from each line of a list, after the lines of its header."""
    if not path.is_file():
        raise DataError(f"{path} does not exist. Name the folder that holds the set's lists.")
    rows = []
    for number, line in enumerate(regular(path).read_text(encoding="utf-8").splitlines(), 1):
        if number > header and line.strip():
            found = re.fullmatch(pattern, line.strip())
            if found is None:
                raise DataError(
                    f"{path}, line {number}: {line:.60} is no row of the list. Restore it."
                )
            rows.append(found.groupdict())
    return rows


# -- Omniglot: handwritten characters (Lake et al., Science 2015), by character or across drawers --

_SIDE = 105  # pixels of a drawing, in both directions
_VERSION = 1  # raised whenever the same archives would give other pixels: it keys the cache
_WHITE = 255


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
        size: side to which the drawings are reduced, just as ``ImageTransform(resize=size)`` would
            do every time.
    """

    title = "Omniglot"
    marks = ("images_background.zip", "images_evaluation.zip")
    # 30 alphabets of background and 20 of evaluation, each character by 20 drawers.
    counts = {"train": (19_280, 964), "test": (13_180, 659)}  # noqa: RUF012
    path: str = "$VICINAL_DATA/omniglot"
    size: Annotated[int, Limits("[8, 105]")] = _SIDE

    def load(self) -> Records:
        root = existing(self.path)
        entries = [entry for name in self.marks for entry in _drawings(root / name)]
        names = [entry.filename for entry in entries]
        content = "\n".join(f"{entry.filename} {entry.CRC}" for entry in entries)
        key = sha256(f"{_VERSION} {self.size}\n{content}".encode()).hexdigest()[:16]
        decoded = cached(f"omniglot-{key}", lambda: {"pixels": _decoded(root, names, self.size)})
        folders = [name.split("/") for name in names]
        columns = {
            "alphabet": _numbered([alphabet for _, alphabet, _, _ in folders]),
            "drawer": np.array([int(file[-6:-4]) for *_, file in folders], dtype=np.int64),
        }
        return self._records(
            root,
            ImageArray(decoded["pixels"], names),
            [f"{alphabet}/{character}" for _, alphabet, character, _ in folders],
            ["train" if top == "images_background" else "test" for top, *_ in folders],
            columns,
        )


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
        size: side of the pictures.
        seed: of the angles.
    """

    slot: ClassVar[str] = "data"
    drawers: ClassVar[int] = 10  # that ask; the other ten answer
    path: str = "$VICINAL_DATA/omniglot"
    size: Annotated[int, Limits("[8, 105]")] = 32
    seed: int = 0

    def load(self) -> Records:
        # turned at twice the final size, so that strokes stay sharp
        whole = Omniglot(self.path, min(_SIDE, 2 * self.size)).load()
        drawers = whole.columns["drawer"]
        kept = np.flatnonzero((whole.splits != "test") | (drawers <= self.drawers + 1))
        records = whole.take(kept)
        roles = np.where(drawers[kept] <= self.drawers, QUERY, GALLERY).astype(np.int64)
        angles = np.where(roles == GALLERY, 360 * uniform(self.seed, 0, kept, 1)[:, 0], 0.0)
        pixels = np.empty((len(kept), self.size, self.size), dtype=np.uint8)
        for row, angle in enumerate(angles.tolist()):
            # within a margin of an eighth, in which strokes may move
            drawing = records.source.read(row)
            sheet = ImageOps.expand(drawing, drawing.width // 8, fill=_WHITE)
            if angle:
                sheet = sheet.rotate(angle, Image.Resampling.BILINEAR, fillcolor=_WHITE)
            pixels[row] = np.asarray(sheet.resize(pixels.shape[1:], Image.Resampling.BILINEAR))
        alphabet = {"kin": records.columns["alphabet"], "role": roles, "angle": angles}
        return replace(
            records,
            name="Omniglot pairs",
            source=ImageArray(pixels, records.names()),
            columns={**records.columns, **alphabet},
        )


def _drawings(path: Path) -> list[ZipInfo]:
    """List the drawings of an archive, by alphabet, character and drawer."""
    layout = re.compile(rf"{path.stem}/[^/]+/character\d+/\d+_\d\d\.png")
    try:
        with ZipFile(regular(path)) as archive:
            found = [entry for entry in archive.infolist() if layout.fullmatch(entry.filename)]
    except (BadZipFile, OSError) as error:
        raise DataError(
            f"{path} is no zip archive that opens: {error}. Name the folder of Omniglot's two "
            "archives, or fetch it again."
        ) from error
    return sorted(found, key=lambda entry: entry.filename.split("/"))


def _decoded(root: Path, names: Sequence[str], size: int) -> UInt8[np.ndarray, "n size size"]:
    """Decode drawings, reduced as ``ImageTransform`` reduces."""
    pixels = np.empty((len(names), size, size), dtype=np.uint8)
    archives = {mark.removesuffix(".zip"): ZipFile(root / mark) for mark in Omniglot.marks}
    for place, name in enumerate(names):
        archive = archives[name.partition("/")[0]]
        try:
            drawing = decode(io.BytesIO(archive.read(name))).convert("L")
        except Exception as error:  # decoders raise what a damaged file makes them
            raise DataError(
                f"drawing {name} of {archive.filename} cannot be read: {error}. Restore the "
                "archive."
            ) from error
        pixels[place] = np.asarray(drawing.resize((size, size), Image.Resampling.BILINEAR))
    return pixels


def _numbered(names: Sequence[str]) -> Int[np.ndarray, "n"]:
    """Number names in the order in which they first come."""
    number = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return np.array([number[name] for name in names], dtype=np.int64)
