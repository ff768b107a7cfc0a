"""Pairs of views from a table: a query, from the ground, and its match in the gallery, from the air."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from vicinal.data.columns import Columns, parquet_columns, read_columns
from vicinal.data.location import existing, expanded
from vicinal.data.records import GALLERY, QUERY, ImageFiles, Records
from vicinal.data.splits import Order, by_class, classes_of, named_splits
from vicinal.errors import DataError

_SEPARATORS = {".csv": ",", ".tsv": "\t"}


@dataclass(frozen=True)
class CrossView:
    """Images named in pairs by the columns ``query_path`` and ``gallery_path``.

    A gallery image is a class: several queries may name the same one. Further columns, where there are any: ``angle``,
    by how many degrees the gallery image is turned counter-clockwise against the query, 0 where there is none (training
    then turns it at random, see ``methods/her.py``); ``split``, ``train``, ``validation`` or ``test``.

    The records are first the queries in the table's order, then the gallery; their columns are ``role`` (1 query, 2
    gallery) and ``angle``, how far each image is turned: of a pair, the gallery's angle less the query's is the
    table's.

    Args:
        path: the ``.csv``, ``.tsv`` or ``.parquet`` file; ``$VICINAL_DATA`` and ``~`` are expanded.
        images: folder from which relative image paths start; None for the table's own.
        test: share of the gallery images that are for testing, where there is no ``split`` column.
        order: whether those are drawn or the last ones of the sorted names.
        seed: of the draw.
    """

    path: str
    images: str | None = None
    test: float = 0.5
    order: Order = "random"
    seed: int = 0

    @staticmethod
    def is_table(path: Path) -> bool:
        """Whether the columns of a table are those of pairs."""
        if path.suffix.lower() == ".parquet":
            return "query_path" in parquet_columns(path)
        separator = _SEPARATORS.get(path.suffix.lower())
        if separator is None:
            return False
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            return "query_path" in [name.strip() for name in file.readline().split(separator)]

    def load(self, *, strict: bool = True) -> Records:
        """Read the table. With ``strict=False`` missing images stay in it, for a check that names each of them."""
        path = existing(self.path)
        columns = read_columns(path)
        queries, matches = columns.texts("query_path"), columns.texts("gallery_path")
        if not queries:
            raise DataError(f"{path} has a header but no rows.")
        _refuse_repeated(columns, queries)
        root = expanded(self.images) if self.images is not None else path.parent
        if strict:
            _refuse_missing(columns, root, {"query_path": queries, "gallery_path": matches})
        classes, labels = classes_of(matches)
        if "split" in columns.cells:
            splits = named_splits(columns.texts("split"), columns.place)
        else:
            splits = by_class(labels, classes, self.test, self.order, self.seed)
        first = _first_rows(labels)
        _refuse_torn(columns, matches, labels, splits, first)
        gallery = len(first)
        return Records(
            name=path.stem,
            source=ImageFiles(root, [*queries, *(matches[row] for row in first)]),
            labels=np.concatenate([labels, labels[first]]),
            classes=classes,
            splits=np.concatenate([splits, splits[first]]),
            columns={
                "role": np.repeat([QUERY, GALLERY], [len(queries), gallery]),
                # On the query's side, for a gallery image may be turned differently against each of its queries.
                "angle": np.concatenate([-_angles(columns), np.zeros(gallery)]),
            },
        )


def _angles(columns: Columns) -> np.ndarray:
    if "angle" not in columns.cells:
        return np.zeros(len(columns))
    others = [name for name in columns.cells if name != "angle"]
    found = columns.numbers(without=others)
    if "angle" not in found:
        raise DataError(f"{columns.place(0)}: `angle` is a number of degrees, but {columns.cells['angle'][0]!r} came.")
    return found["angle"].astype(np.float64)


def _first_rows(labels: Int[np.ndarray, "n"]) -> Int[np.ndarray, "c"]:
    """The row in which each class comes first, by growing label."""
    return np.unique(labels, return_index=True)[1]


def _refuse_torn(columns: Columns, names: list[str], labels: np.ndarray, splits: np.ndarray, first: np.ndarray) -> None:
    for row in np.flatnonzero(splits != splits[first][labels]):
        raise DataError(
            f"{columns.place(int(row))}: {names[row]} is a {splits[row]} image here and a {splits[first[labels[row]]]} "
            f"image in {columns.unit} {columns.lines[first[labels[row]]]}. Give all its rows one split."
        )


def _refuse_repeated(columns: Columns, queries: list[str]) -> None:
    path, count = Counter(queries).most_common(1)[0]
    if count > 1:
        first, second = [row for row, other in enumerate(queries) if other == path][:2]
        raise DataError(
            f"{columns.place(second)}: the query {path} is already in {columns.unit} {columns.lines[first]}. "
            f"List every query once."
        )


def _refuse_missing(columns: Columns, root: Path, named: dict[str, list[str]]) -> None:
    missing = [
        f"{columns.unit} {columns.lines[row]}, `{name}`: {root / path}"
        for name, paths in named.items()
        for row, path in enumerate(paths)
        if not (root / path).is_file()
    ]
    if missing:
        raise DataError(
            f"{columns.path} names {len(columns)} pairs of images, of which {len(missing)} images do not exist: "
            f"{'; '.join(missing[:3])}{'; ...' if len(missing) > 3 else ''}. Relative paths start from {root}; "
            f"`images` names another folder."
        )
