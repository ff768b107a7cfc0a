"""Data: labelled records and where they come from, transforms, and the loader that makes batches of them."""

import os
from pathlib import Path

from vicinal.data.arrays import Arrays
from vicinal.data.cars import Cars196
from vicinal.data.check import CheckReport, check, load_unchecked
from vicinal.data.columns import parquet_columns
from vicinal.data.corrupted import Corrupted
from vicinal.data.cross_view import CrossView
from vicinal.data.cub import CUB
from vicinal.data.folder import Folder
from vicinal.data.glyphs import Glyphs
from vicinal.data.images import read_image
from vicinal.data.inshop import InShop
from vicinal.data.loader import load, load_all
from vicinal.data.location import data_root, existing, expanded
from vicinal.data.omniglot import Omniglot
from vicinal.data.omniglot_pairs import OmniglotPairs
from vicinal.data.packed import Packed
from vicinal.data.packing import pack
from vicinal.data.records import (
    SPLITS,
    Batch,
    Dataset,
    FeatureArray,
    ImageArray,
    ImageFiles,
    Kind,
    Records,
    Source,
    Split,
)
from vicinal.data.residency import Residency, resident_if_it_fits
from vicinal.data.resident import Resident
from vicinal.data.sop import StanfordOnlineProducts
from vicinal.data.splits import by_class, class_folds, hold_out, overlapping_classes
from vicinal.data.table import Table
from vicinal.data.transforms import (
    TRANSFORMS,
    FeatureTransform,
    ImageTransform,
    OwnTransform,
    TrainingTransform,
    Transform,
)
from vicinal.data.unpacking import unpack
from vicinal.errors import DataError

_PUBLISHED = (CUB, Cars196, StanfordOnlineProducts, InShop, Omniglot)
DATASETS: dict[str, type] = {
    kind.__name__: kind
    for kind in (Glyphs, Folder, Table, CrossView, Arrays, Packed, Corrupted, *_PUBLISHED, OmniglotPairs)
}
DATASETS_BY_NAME: dict[str, type] = {  # names of the slot ``data``
    "glyphs": Glyphs,
    "folder": Folder,
    "table": Table,
    "arrays": Arrays,
    "cross_view": CrossView,
    "packed": Packed,
    "corrupted": Corrupted,
    "cub": CUB,
    "cars196": Cars196,
    "sop": StanfordOnlineProducts,
    "inshop": InShop,
    "omniglot": Omniglot,
    "omniglot_pairs": OmniglotPairs,
}
_BY_NAME: dict[str, type[Dataset]] = {"glyphs": Glyphs, **{kind().path: kind for kind in _PUBLISHED}}


def open_path(path: str | Path) -> Dataset:
    """The data set that lies at ``path``, with default settings; nothing is read but what tells its kind.

    A folder with the lists or archives of a published set is that set, one that ``pack`` wrote is what was packed, any
    other a folder of class folders; ``.csv`` and ``.tsv`` are tables of image paths, or of pairs of them where they
    have a column ``query_path``; ``.npz`` holds feature vectors; ``.parquet`` is a table where it has such columns,
    else vectors. The word ``glyphs`` names the embedded set, and the place where a published set lies by default names
    that set even while nothing lies there, which its ``load`` says. ``$VICINAL_DATA`` and ``~`` stay as they are
    written, any other path becomes an absolute one.
    """
    path = str(path)
    if path in _BY_NAME and not expanded(path).exists():
        return _BY_NAME[path]()
    found = existing(path)
    path = os.path.abspath(path) if found == Path(path) else path  # so that a run knows its data from any folder
    ending = found.suffix.lower()
    if found.is_dir():
        return next((kind(path) for kind in (Packed, *_PUBLISHED) if kind.lies_in(found)), Folder(path))
    if ending in (".csv", ".tsv"):
        return CrossView(path) if CrossView.is_table(found) else Table(path)
    if ending == ".npz":
        return Arrays(path)
    if ending == ".parquet":
        columns = parquet_columns(found)
        if CrossView.is_table(found):
            return CrossView(path)
        if "path" in columns:
            return Table(path)
        if "features" in columns:
            return Arrays(path)
        raise DataError(
            f"{found} should have a column `path` (of images), `query_path` and `gallery_path` (pairs of views) or "
            f"`features` (vectors), but has {', '.join(columns)}."
        )
    raise DataError(
        f"{found} is no data set we know: a folder of class folders, .csv, .tsv or .parquet with `path,label[,split]` "
        f"or `query_path,gallery_path[,angle][,split]`, .npz or .parquet with `features` and `labels`."
    )


__all__ = [
    "CUB",
    "DATASETS",
    "DATASETS_BY_NAME",
    "SPLITS",
    "TRANSFORMS",
    "Arrays",
    "Batch",
    "Cars196",
    "CheckReport",
    "Corrupted",
    "CrossView",
    "Dataset",
    "FeatureArray",
    "FeatureTransform",
    "Folder",
    "Glyphs",
    "ImageArray",
    "ImageFiles",
    "ImageTransform",
    "InShop",
    "Kind",
    "Omniglot",
    "OmniglotPairs",
    "OwnTransform",
    "Packed",
    "Records",
    "Residency",
    "Resident",
    "Source",
    "Split",
    "StanfordOnlineProducts",
    "Table",
    "TrainingTransform",
    "Transform",
    "by_class",
    "check",
    "class_folds",
    "data_root",
    "expanded",
    "hold_out",
    "load",
    "load_all",
    "load_unchecked",
    "open_path",
    "overlapping_classes",
    "pack",
    "read_image",
    "resident_if_it_fits",
    "unpack",
]
