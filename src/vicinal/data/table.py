"""Tables of image paths, CSV or Parquet: with a label each, or in pairs of views."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from vicinal.data.columns import Columns, read_columns
from vicinal.data.location import existing, expanded
from vicinal.data.records import GALLERY, QUERY, ImageFiles, Records
from vicinal.data.splits import SplitByClass
from vicinal.errors import DataError

VIEWS = ("query_path", "gallery_path")


@dataclass(frozen=True)
class _ImageTable(SplitByClass):
    """A table of image paths; relative ones start from ``images``, or from the table's own folder."""

    images: str | None = None

    def _paths(self, columns: Columns, names: Sequence[str], *, strict: bool) -> tuple[Path, list[list[str]]]:
        """Return the folder of the images and the named columns; a path may stand in the first of them once."""
        root = expanded(self.images) if self.images is not None else columns.path.parent
        paths = {name: columns.texts(name) for name in names}
        if not len(columns):
            raise DataError(f"{columns.path} has a header but no rows.")
        lines: dict[str, int] = {}
        for row, path in enumerate(paths[names[0]]):
            if path in lines:
                before = f"{columns.unit} {lines[path]}"
                raise DataError(f"{columns.place(row)}: {path} is already in {before}. List it once.")
            lines[path] = columns.lines[row]
        missing = [
            f"{columns.unit} {columns.lines[row]}, `{name}`: {root / path}"
            for name in names
            for row, path in enumerate(paths[name])
            if strict and not (root / path).is_file()
        ]
        if missing:
            raise DataError(
                f"{columns.path} names images that do not exist, {len(missing)} in its {len(columns)} rows: "
                f"{'; '.join(missing[:3])}{'; ...' if len(missing) > 3 else ''}. Relative paths start from "
                f"{root.resolve()}; `data.images` names another folder."
            )
        return root, list(paths.values())


@dataclass(frozen=True)
class Table(_ImageTable):
    """Images named by the columns ``path``, ``label`` and, where the set brings its own, ``split``.

    Splits are ``train``, ``validation`` (or ``val``) and ``test``. Further columns of numbers become columns of the
    records (``camera``, ``angle``, ...); columns of text are left out.

    Args:
        path: the ``.csv``, ``.tsv`` or ``.parquet`` file; ``$VICINAL_DATA`` and ``~`` are expanded.
        test: share of the classes that are for testing, where there is no ``split`` column.
        order: whether those are drawn or the last ones of the sorted labels.
        seed: of the draw.
        images: folder from which relative image paths start; None for the table's own.
    """

    def load(self, *, strict: bool = True) -> Records:
        """Read the table. With ``strict=False`` missing images stay in it, for a check that names each of them."""
        path = existing(self.path)
        columns = read_columns(path)
        if "path" not in columns.cells:
            raise DataError(_without_paths(columns))
        root, (paths,) = self._paths(columns, ("path",), strict=strict)
        given = columns.texts("split") if "split" in columns.cells else None
        numbers = columns.numbers(without=("path", "label", "split"))
        return self._records(path.stem, ImageFiles(root, paths), columns.texts("label"), given, columns.place, numbers)


@dataclass(frozen=True)
class CrossView(_ImageTable):
    """Images named in pairs by the columns ``query_path`` and ``gallery_path``.

    A gallery image is a class: several queries may name the same one, but a query has one. Further columns, where there
    are any: ``angle``, by how many degrees the gallery image is turned counter-clockwise against the query, 0 without
    the column (training turns it at random on top, see HER); ``split``, ``train``, ``validation`` or ``test``.

    The records are first the queries in the table's order, then the gallery; their columns are ``role`` (1 query, 2
    gallery) and ``angle``, how far each image is turned: of a pair, the gallery's angle less the query's is the
    table's.

    Args:
        path: the ``.csv``, ``.tsv`` or ``.parquet`` file; ``$VICINAL_DATA`` and ``~`` are expanded.
        test: share of the gallery images that are for testing, where there is no ``split`` column.
        order: whether those are drawn or the last ones of the sorted names.
        seed: of the draw.
        images: folder from which relative image paths start; None for the table's own.
    """

    def load(self, *, strict: bool = True) -> Records:
        """Read the table. With ``strict=False`` missing images stay in it, for a check that names each of them."""
        path = existing(self.path)
        columns = read_columns(path)
        for name in VIEWS:
            if name not in columns.cells:
                found = ", ".join(columns.cells)
                raise DataError(f"{path}: pairs need the columns {' and '.join(VIEWS)}, got {found}. Add `{name}`.")
        root, (queries, matches) = self._paths(columns, VIEWS, strict=strict)
        angles = _angles(columns)
        given = columns.texts("split") if "split" in columns.cells else None
        asked = self._records(path.stem, ImageFiles(root, queries), matches, given, columns.place)
        first = np.unique(asked.labels, return_index=True)[1]  # the row in which each class comes first
        splits = asked.splits[first]
        for row in np.flatnonzero(asked.splits != splits[asked.labels]):
            before = first[asked.labels[row]]
            raise DataError(
                f"{columns.place(int(row))}: {matches[row]} is a {asked.splits[row]} image here and a "
                f"{asked.splits[before]} image in {columns.unit} {columns.lines[before]}. Give all its rows one split."
            )
        return Records(
            name=path.stem,
            source=ImageFiles(root, [*queries, *(matches[row] for row in first)]),
            labels=np.concatenate([asked.labels, asked.labels[first]]),
            classes=asked.classes,
            splits=np.concatenate([asked.splits, splits]),
            columns={
                "role": np.repeat([QUERY, GALLERY], [len(queries), len(first)]),
                # On the query's side, for a gallery image may be turned differently against each of its queries.
                "angle": np.concatenate([-angles, np.zeros(len(first))]),
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
            advice = "Give every row one, 0 where both views face the same way, or leave the column out."
            raise DataError(f"{columns.place(row)}: `angle` must be a number of degrees, got {cell!r}. {advice}")
    return angles


def _without_paths(columns: Columns) -> str:
    """Explain where a table without paths goes: most often it holds measurements, a sample per row."""
    names = list(columns.cells)
    if any(";" in name for name in names):
        return f"{columns.path}: {names} should be several columns. Separate them by commas."
    named = ", ".join(names[:6]) + (f", ... ({len(names)} in all)" if len(names) > 6 else "")
    return (
        f"{columns.path} must name images in a column `path`, beside `label` and perhaps `split`; got the columns "
        f"{named}. Pairs of views are in `query_path` and `gallery_path`. Measurements in columns are for "
        f"`vicinal.linear`, or are saved as .npz with `features` and `labels`. docs/howto/data.md shows all three."
    )
