"""Published benchmarks in their own layout: CUB-200-2011, Cars196, Stanford Online Products, In-Shop.

Their lists name every image, and the literature fixes their counts; a set that differs is an error, or says so in its
name.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Int

from vicinal.arguments import Settings
from vicinal.data.location import existing
from vicinal.data.records import BOTH, GALLERY, QUERY, ImageFiles, Records
from vicinal.data.splits import classes_of
from vicinal.data.table import Columns
from vicinal.errors import DataError, few, unknown

Missing = Literal["raise", "use", "refuse"]  # the last is what version 0.1 wrote for the first
Counts = Mapping[str, tuple[int, int]]  # images and classes that the literature has in each part of a set


@dataclass(frozen=True)
class Published(Settings, ABC):
    """A set whose parts have published counts: by split, or by role where ``counts`` has query and gallery."""

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
        """Read the lists. With ``strict=False`` missing images stay in, for a check that names each of them."""
        root = existing(self.path)
        records = self._listed(root)
        found, source = self._differences(records), records.source
        absent = _absent(source) if strict and isinstance(source, ImageFiles) else []
        if absent:
            named = few([source.name(row) for row in absent])
            found.append(f"{len(absent):,} of {len(records):,} listed images are missing ({named})")
        if found and self.missing != "use":
            advice = "Restore it, or set `data.missing=use` to go on with what is there."
            raise DataError(f"{records.name} in {root} is not the published set: {'; '.join(found)}. {advice}")
        if absent:
            records = records.take(np.setdiff1d(np.arange(len(records)), absent))
        if not len(records):
            raise DataError(f"nothing of {records.name} is in {root}. Restore it.")
        found = self._differences(records)
        return replace(records, name=f"{records.name} ({'; '.join(found)})") if found else records

    def _differences(self, records: Records) -> list[str]:
        parts = records.splits
        if "query" in self.counts:
            parts = np.array(["train", "query", "gallery"])[records.columns["role"]]  # by BOTH, QUERY, GALLERY
        found = list[str]()
        for part, (images, classes) in self.counts.items():
            labels = records.labels[parts == part]
            counted = {"images": (len(labels), images), "classes": (len(np.unique(labels)), classes)}
            found += [f"{n:,} {part} {noun}, not {known:,}" for noun, (n, known) in counted.items() if n != known]
        return found


@dataclass(frozen=True)
class CUB(Published):
    """11,788 photographs of 200 species of birds; zero-shot: classes 1-100 train, 101-200 test.

    CUB-200-2011 (Wah et al., 2011) in its own layout: ``images.txt``, ``image_class_labels.txt``, ``classes.txt`` and
    ``images/CLASS/NAME.jpg``. The set's ``train_test_split.txt``, which has all classes in both parts, is not used.

    Args:
        path: the set's folder; ``$VICINAL_DATA`` and ``~`` are expanded.
        missing: whether a set that lacks images is an error or used; its name then says what it lacks.
    """

    marks = ("image_class_labels.txt",)
    counts = {"train": (5_864, 100), "test": (5_924, 100)}  # noqa: RUF012  (Song et al., CVPR 2016)
    path: str = "$VICINAL_DATA/CUB_200_2011"

    def _listed(self, root: Path) -> Records:
        classes = read_list(root / "classes.txt", ("class", "name")).texts("name")
        images = read_list(root / "images.txt", ("image", "path"))
        labels = read_list(root / "image_class_labels.txt", ("image", "class"))
        row_of = {image: row for row, image in enumerate(labels.texts("image"))}
        for row, image in enumerate(images.texts("image")):
            if image not in row_of:
                raise DataError(f"{images.place(row)}: image {image} has no class in {labels.path}. Restore the lists.")
        rows = [row_of[image] for image in images.texts("image")]
        numbers = labels.numbers("class", whole=True)[rows]
        source = ImageFiles(root / "images", images.texts("path"))
        return _zero_shot("CUB-200-2011", source, numbers, classes, self.counts, lambda row: labels.place(rows[row]))


@dataclass(frozen=True)
class Cars196(Published):
    """16,185 photographs of 196 models of cars; zero-shot: classes 1-98 train, 99-196 test.

    Cars196 (Krause et al., 3dRR 2013) in its own layout: ``cars_annos.mat`` and ``car_ims/000001.jpg``. The split that
    the annotations bring, which has all classes in both parts, is not used.

    >>> Cars196("~/data/cars196").counts["train"]  # images and classes that it must have
    (8054, 98)

    Args:
        path: the set's folder; ``$VICINAL_DATA`` and ``~`` are expanded.
        missing: whether a set that lacks images is an error or used; its name then says what it lacks.
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
        except Exception as error:  # the reader raises whatever its parsing of a damaged file runs into
            raise DataError(
                f"{path} is not readable as MATLAB annotations with `relative_im_path`, `class` and `class_names`: "
                f"{type(error).__name__}: {error}. Restore it."
            ) from error
        source = ImageFiles(root, paths)
        return _zero_shot("Cars196", source, numbers, classes, self.counts, lambda row: f"{path}, image {paths[row]}")


@dataclass(frozen=True)
class StanfordOnlineProducts(Published):
    """120,053 photographs of 22,634 products from online shops, in 12 kinds; split by product as published.

    Stanford Online Products (Song et al., CVPR 2016) in its own layout: ``Ebay_train.txt``, ``Ebay_test.txt`` and
    ``KIND_final/NAME.JPG``. The column ``super_class`` of the records is the number of the kind, 1-12.

    >>> StanfordOnlineProducts("~/data/Stanford_Online_Products").counts["test"]  # images and classes that it must have
    (60502, 11316)

    Args:
        path: the set's folder; ``$VICINAL_DATA`` and ``~`` are expanded.
        missing: whether a set that lacks images is an error or used; its name then says what it lacks.
    """

    marks = ("Ebay_train.txt", "Ebay_test.txt")
    counts = {"train": (59_551, 11_318), "test": (60_502, 11_316)}  # noqa: RUF012
    path: str = "$VICINAL_DATA/Stanford_Online_Products"

    def _listed(self, root: Path) -> Records:
        fields = ("image_id", "class_id", "super_class_id", "path")
        lists = {split: read_list(root / f"Ebay_{split}.txt", fields, header=1) for split in ("train", "test")}
        paths = [path for rows in lists.values() for path in rows.texts("path")]
        products, kinds = (
            np.concatenate([rows.numbers(name, whole=True) for rows in lists.values()])
            for name in ("class_id", "super_class_id")
        )
        numbers, first, labels = np.unique(products, return_index=True, return_inverse=True)
        folders = [paths[row].split("/")[0].removesuffix("_final") for row in first]
        classes = tuple(f"{folder}/{number}" for folder, number in zip(folders, numbers, strict=True))
        splits, source = np.repeat(list(lists), [*map(len, lists.values())]), ImageFiles(root, paths)
        return Records("Stanford Online Products", source, labels, classes, splits, {"super_class": kinds})


@dataclass(frozen=True)
class InShop(Published):
    """52,712 photographs of 7,982 items of clothing; items to train on, and others to query a gallery for.

    In-Shop Clothes Retrieval, a benchmark of DeepFashion (Liu et al., CVPR 2016), in its own layout:
    ``list_eval_partition.txt`` and ``img/``, or ``Eval/list_eval_partition.txt`` and ``Img/img/`` as the archive of all
    of DeepFashion has them. Query and gallery are both split ``test``; the column ``role`` of the records parts them.

    >>> InShop("~/data/inshop").counts["query"]  # images and classes that it must have
    (14218, 3985)

    Args:
        path: the set's folder; ``$VICINAL_DATA`` and ``~`` are expanded.
        missing: whether a set that lacks images is an error or used; its name then says what it lacks.
    """

    counts = {"train": (25_882, 3_997), "query": (14_218, 3_985), "gallery": (12_612, 3_985)}  # noqa: RUF012
    path: str = "$VICINAL_DATA/inshop"

    @classmethod
    def lies_in(cls, folder: Path) -> bool:
        path = _partition(folder)
        if not path.is_file():
            return False
        with path.open("rb") as file:  # CelebA, of the same authors, has a list of this name, but no such header
            return b"item_id" in file.read(200)

    def _listed(self, root: Path) -> Records:
        rows = read_list(_partition(root), ("image_name", "item_id", "evaluation_status"), header=2)
        roles = {"train": BOTH, "query": QUERY, "gallery": GALLERY}
        parts = rows.texts("evaluation_status")
        for row, part in enumerate(parts):
            if part not in roles:
                raise DataError(f"{rows.place(row)}: " + unknown("evaluation status", part, roles))
        classes, labels = classes_of(rows.texts("item_id"))
        folder = root / "Img" if (root / "Img" / "img").is_dir() else root
        splits = np.array(["train" if part == "train" else "test" for part in parts], dtype=str)
        columns = {"role": np.array([roles[part] for part in parts], dtype=np.int64)}
        return Records("In-Shop", ImageFiles(folder, rows.texts("image_name")), labels, classes, splits, columns)


def _partition(folder: Path) -> Path:
    beside = folder / "Eval" / "list_eval_partition.txt"
    return beside if beside.is_file() else folder / "list_eval_partition.txt"


def read_list(path: Path, columns: Sequence[str], *, header: int = 0) -> Columns:
    """Read a text file with fields between spaces, as published sets list their images.

    Args:
        path: the file.
        columns: names of the fields; a line with more or fewer is an error.
        header: line on which exactly these names stand, and after which the rows begin; 0 where there is none.
    """
    if not path.is_file():
        raise DataError(f"{path} does not exist. Name the folder that holds the set's lists.")
    try:
        lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error}. Restore it.") from error
    if header and lines[header - 1 : header] != [list(columns)]:
        raise DataError(f"{path}, line {header}: the header should be `{' '.join(columns)}`. Restore the file.")
    numbered = [(number, fields) for number, fields in enumerate(lines, 1) if number > header and fields]
    for number, fields in numbered:
        if len(fields) != len(columns):
            expected = f"{len(columns)} fields ({', '.join(columns)})"
            raise DataError(f"{path}, line {number}: expected {expected}, got {len(fields)}. Restore the file.")
    cells = {name: [fields[place] for _, fields in numbered] for place, name in enumerate(columns)}
    return Columns(path, cells, [number for number, _ in numbered], "line")


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
        raise DataError(f"{place(int(row))}: classes are numbered from 1 to {len(classes)}, got {numbers[row]}.")
    splits = np.where(numbers <= counts["train"][1], "train", "test")
    return Records(name, source, numbers - 1, tuple(classes), splits)


def _absent(source: ImageFiles) -> list[int]:
    """Return the rows without a file; one listing per folder, for on a network disk each look is a round trip."""
    listed: dict[str, set[str]] = {}
    absent = []
    for row, path in enumerate(source.paths):
        folder, _, name = path.rpartition("/")
        if folder not in listed:
            here = source.root / folder
            listed[folder] = set(os.listdir(here)) if here.is_dir() else set()
        if name not in listed[folder]:
            absent.append(row)
    return absent
