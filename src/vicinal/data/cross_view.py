"""Pairs of views from a table: a query, from the ground, and its match in the gallery, from the air."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from vicinal.data.columns import Columns, parquet_columns, read_columns
from vicinal.data.location import existing, expanded
from vicinal.data.records import GALLERY, QUERY, ImageFiles, Records
from vicinal.data.splits import Order, by_class, classes_of, named_splits
from vicinal.errors import DataError

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_VIEWS = ("query_path", "gallery_path")


@dataclass(frozen=True)
class CrossView:
    """Images named in pairs by the columns ``query_path`` and ``gallery_path``.

    A gallery image is a class: several queries may name the same one, but a query has one. Further columns, where there
    are any: ``angle``, by how many degrees the gallery image is turned counter-clockwise against the query, 0 without
    the column (training turns it at random on top, see ``methods/her.py``); ``split``, ``train``, ``validation`` or
    ``test``.

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
        """Whether a table has a column of pairs; one of the two will do, for ``load`` names the other."""
        if path.suffix.lower() == ".parquet":
            return not set(_VIEWS).isdisjoint(parquet_columns(path))
        separator = _SEPARATORS.get(path.suffix.lower())
        if separator is None:
            return False
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            return not set(_VIEWS).isdisjoint(name.strip() for name in file.readline().split(separator))

    def load(self, *, strict: bool = True) -> Records:
        """Read the table. With ``strict=False`` missing images stay in it, for a check that names each of them."""
        path = existing(self.path)
        columns = read_columns(path)
        for name in _VIEWS:
            if name not in columns.cells:
                raise DataError(
                    f"{path}: a table of pairs has the columns {' and '.join(_VIEWS)}, but it has "
                    f"{', '.join(columns.cells)}. Name the column {name}, or add it."
                )
        queries, matches = (columns.texts(name) for name in _VIEWS)
        if not queries:
            raise DataError(f"{path} has a header but no rows.")
        angles = _angles(columns)
        _refuse_repeated(columns, queries, matches)
        root = expanded(self.images) if self.images is not None else path.parent
        if strict:
            _refuse_missing(columns, root, dict(zip(_VIEWS, (queries, matches), strict=True)))
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
                "angle": np.concatenate([-angles, np.zeros(gallery)]),
            },
        )


def _angles(columns: Columns) -> Float[np.ndarray, "n"]:
    angles = np.zeros(len(columns))
    for row, cell in enumerate(columns.cells.get("angle", ())):
        try:
            angles[row] = float(cell)
        except (TypeError, ValueError):
            angles[row] = math.nan
        if not math.isfinite(angles[row]):
            raise DataError(
                f"{columns.place(row)}: `angle` is a number of degrees, but {cell!r} came. Give every row one, 0 where "
                f"both views face the same way, or leave the column out."
            )
    return angles


def _first_rows(labels: Int[np.ndarray, "n"]) -> Int[np.ndarray, "c"]:
    """The row in which each class comes first, by growing label."""
    return np.unique(labels, return_index=True)[1]


def _refuse_torn(columns: Columns, names: list[str], labels: np.ndarray, splits: np.ndarray, first: np.ndarray) -> None:
    for row in np.flatnonzero(splits != splits[first][labels]):
        raise DataError(
            f"{columns.place(int(row))}: {names[row]} is a {splits[row]} image here and a {splits[first[labels[row]]]} "
            f"image in {columns.unit} {columns.lines[first[labels[row]]]}. Give all its rows one split."
        )


def _refuse_repeated(columns: Columns, queries: list[str], matches: list[str]) -> None:
    first: dict[str, int] = {}
    for row, query in enumerate(queries):
        before = first.setdefault(query, row)
        if before != row:
            other = "" if matches[row] == matches[before] else f", with {matches[before]} instead of {matches[row]}"
            raise DataError(
                f"{columns.place(row)}: the query {query} is already in {columns.unit} {columns.lines[before]}{other}. "
                f"List every query once, with one gallery image."
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
            f"{columns.path} names images that do not exist, {len(missing)} in its {len(columns)} pairs: "
            f"{'; '.join(missing[:3])}{'; ...' if len(missing) > 3 else ''}. Relative paths start from "
            f"{root.resolve()}; `images` names another folder."
        )
