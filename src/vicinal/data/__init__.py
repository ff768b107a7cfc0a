"""Data: labeled records and where they come from, transforms, and the loader that makes batches of
them."""

import os
from dataclasses import replace
from pathlib import Path

from vicinal.arguments import build
from vicinal.data.check import check, records_of
from vicinal.data.folder import Folder, existing, expanded, without_labels
from vicinal.data.glyphs import Glyphs
from vicinal.data.memory import InMemory
from vicinal.data.published import (
    CUB,
    Cars196,
    InShop,
    Omniglot,
    OmniglotPairs,
    StanfordOnlineProducts,
)
from vicinal.data.records import (
    Batch,
    Dataset,
    FeatureArray,
    ImageArray,
    ImageFiles,
    Records,
    Source,
    Texts,
)
from vicinal.data.shards import Shards
from vicinal.data.splits import Labeled, SplitByClass, hold_out
from vicinal.data.table import (
    TABLES,
    VIEWS,
    Arrays,
    CrossView,
    Embeddings,
    Sentences,
    Table,
    column_names,
)
from vicinal.data.transforms import TRANSFORMS, FeatureTransform, ImageTransform, TextTransform
from vicinal.errors import DataError
from vicinal.files import read_image
from vicinal.run_directory import RunDirectory

# Names of the slot ``data``: the embedded set, data of one's own, and published sets.
DATASETS_BY_NAME: dict[str, type] = {
    "glyphs": Glyphs,
    "folder": Folder,
    "table": Table,
    "arrays": Arrays,
    "embeddings": Embeddings,
    "sentences": Sentences,
    "cross_view": CrossView,
    "shards": Shards,
    "cub": CUB,
    "cars196": Cars196,
    "sop": StanfordOnlineProducts,
    "inshop": InShop,
    "omniglot": Omniglot,
    "omniglot_pairs": OmniglotPairs,
}
DATASETS: dict[str, type] = {
    kind.__name__: kind for kind in DATASETS_BY_NAME.values()
}  # names in run.json
_PUBLISHED = (CUB, Cars196, StanfordOnlineProducts, InShop, Omniglot)


def open_like(path: str, run: RunDirectory) -> Dataset:
    """Return the data set at ``path``; its labels are separated as those that a run was trained
    on."""
    found = open_path(path)
    own = run.info.get("data", {}).get("description")
    separator = own.get("separator", "") if isinstance(own, dict) else ""
    return replace(found, separator=separator) if isinstance(found, Labeled) else found


def records_at(path: str, run: RunDirectory) -> Records:
    """Read what lies at ``path`` to embed all of it by a run; a single class is enough."""
    if (records := without_labels(path)) is not None:
        return records
    found = open_like(path, run)
    if isinstance(found, SplitByClass):
        found = replace(found, test=1.0)
    return found.load()


def open_path(path: str | Path, *, image: str = "path") -> Dataset:
    """Return the data set that lies at ``path``, with default settings; only what tells its kind is
    read.

    A folder with the lists or archives of a published set is that set, one of ``.tar`` files
    WebDataset's shards (or of ``.parquet`` with encoded images), one that ``vicinal embed`` wrote
    embeddings, any other a folder of class folders; ``.csv`` and ``.tsv`` are tables of
    image paths, or of pairs of them where they have a column ``query_path``; others, and ``.npz``,
    hold feature vectors. Where there is a column ``text``, pictures or vectors are trained beside
    their texts; texts without ``path`` are sentences. The word ``glyphs`` names the embedded set,
    and the place where a published set lies by default names that set even while nothing lies
    there, which its ``load`` reports. ``$VICINAL_DATA`` and ``~`` stay as they are written, any
    other path becomes an absolute one.

    Args:
        path: of a file or folder.
        image: the column of image paths in a table.
    """
    path = str(path)
    if not expanded(path).exists():
        by_path: dict[str, Dataset] = {
            "glyphs": Glyphs(),
            **{kind.path: kind() for kind in _PUBLISHED},
        }
        if path in by_path:
            return by_path[path]
    found = existing(path)
    # So that a run knows its data from any folder.
    path = os.path.abspath(path) if found == Path(path) else path
    ending = found.suffix.lower()
    if found.is_dir():
        return next(
            (kind(path) for kind in (*_PUBLISHED, Embeddings, Shards) if kind.lies_in(found)),
            Folder(path),
        )
    if Shards.lies_in(found):
        return Shards(path)
    if ending in (".csv", ".tsv", ".parquet", ".npz"):
        columns = column_names(found)
        text: str | None = "texts" if ending == ".npz" else "text"
        if text not in columns:
            text = None
        if not set(VIEWS).isdisjoint(columns):
            return CrossView(path)
        if image in columns or image != "path":
            return Table(path, image=image, text=text)
        if text == "text" and "features" not in columns:
            return Sentences(path)
        return Arrays(path, text=text)
    raise DataError(
        f"{found} is not a known data set: a folder of class folders, .csv, .tsv, .parquet, .npz "
        f"with `features` and `labels`, or .tar shards. {TABLES}"
    )


def own_description(run: RunDirectory) -> Dataset:
    """Return the data set that a run was trained on, not yet read."""
    if given_in_python(run):
        raise DataError(
            f"{run.path} was trained on data given in Python, which it does not hold. Name data "
            "with --data, or after `vicinal index RUN`."
        )
    return build(run.info["data"]["description"], DATASETS)


def given_in_python(run: RunDirectory) -> bool:
    """Whether a run was trained on data that lie nowhere."""
    description = run.info["data"]["description"]
    return isinstance(description, dict) and description.get("class") == "InMemory"


def own_data(run: RunDirectory) -> tuple[Dataset, Records]:
    """Return a run's data set, and its records split as in training; an error if they changed
    since."""
    data = own_description(run)
    return data, records_of(run, data.load())


__all__ = [
    "CUB",
    "DATASETS",
    "DATASETS_BY_NAME",
    "TRANSFORMS",
    "Arrays",
    "Batch",
    "Cars196",
    "CrossView",
    "Dataset",
    "Embeddings",
    "FeatureArray",
    "FeatureTransform",
    "Folder",
    "Glyphs",
    "ImageArray",
    "ImageFiles",
    "ImageTransform",
    "InMemory",
    "InShop",
    "Omniglot",
    "OmniglotPairs",
    "Records",
    "Sentences",
    "Shards",
    "Source",
    "StanfordOnlineProducts",
    "Table",
    "TextTransform",
    "Texts",
    "check",
    "hold_out",
    "open_path",
    "read_image",
]
