"""A table of image paths with labels: CSV or Parquet."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from vicinal.data.columns import Columns, read_columns
from vicinal.data.location import existing, expanded
from vicinal.data.records import ImageFiles, Records
from vicinal.data.splits import Order, by_class, classes_of, named_splits
from vicinal.errors import DataError


@dataclass(frozen=True)
class Table:
    """Images named by the columns ``path``, ``label`` and, where the set brings its own, ``split``.

    Splits are ``train``, ``validation`` (or ``val``) and ``test``. Further columns of numbers become columns of the
    records (``camera``, ``angle``, ...); columns of text are left out.

    Args:
        path: the ``.csv``, ``.tsv`` or ``.parquet`` file; ``$VICINAL_DATA`` and ``~`` are expanded.
        images: folder from which relative image paths start; None for the table's own.
        test: share of the classes that are for testing, where there is no ``split`` column.
        order: whether those are drawn or the last ones of the sorted labels.
        seed: of the draw.
    """

    path: str
    images: str | None = None
    test: float = 0.5
    order: Order = "random"
    seed: int = 0

    def load(self, *, strict: bool = True) -> Records:
        """Read the table. With ``strict=False`` missing images stay in it, for a check that names each of them."""
        path = existing(self.path)
        columns = read_columns(path)
        _refuse_numbers(columns)
        paths, names = columns.texts("path"), columns.texts("label")
        if not paths:
            raise DataError(f"{path} has a header but no rows.")
        _refuse_repeated(columns, paths)
        root = expanded(self.images) if self.images is not None else path.parent
        if strict:
            _refuse_missing(columns, root, paths)
        classes, labels = classes_of(names)
        if "split" in columns.cells:
            splits = named_splits(columns.texts("split"), columns.place)
        else:
            splits = by_class(labels, classes, self.test, self.order, self.seed)
        return Records(
            name=path.stem,
            source=ImageFiles(root, paths),
            labels=labels,
            classes=classes,
            splits=splits,
            columns=columns.numbers(without=("path", "label", "split")),
        )


def _refuse_numbers(columns: Columns) -> None:
    """A table without paths is most often one of measurements, a sample per row; say where those go."""
    if "path" not in columns.cells:
        names = list(columns.cells)
        if any(";" in name for name in names):
            raise DataError(f"{columns.path}: {names} should be several columns. Separate them by commas.")
        named = ", ".join(names[:6]) + (f", ... ({len(names)} in all)" if len(names) > 6 else "")
        raise DataError(
            f"{columns.path} should name images in a column `path`, beside `label` and perhaps `split`, but its "
            f"columns are {named}. Pairs of views are in `query_path` and `gallery_path`. Measurements in columns are "
            f"for `vicinal.linear`, or are saved as .npz with `features` and `labels`. docs/data.md shows all three."
        )


def _refuse_repeated(columns: Columns, paths: list[str]) -> None:
    path, count = Counter(paths).most_common(1)[0]
    if count > 1:
        first, second = [row for row, other in enumerate(paths) if other == path][:2]
        raise DataError(
            f"{columns.place(second)}: {path} is already in {columns.unit} {columns.lines[first]}. "
            f"List every image once."
        )


def _refuse_missing(columns: Columns, root: Path, paths: list[str]) -> None:
    missing = [row for row, path in enumerate(paths) if not (root / path).is_file()]
    if missing:
        named = "; ".join(f"{columns.unit} {columns.lines[row]}: {root / paths[row]}" for row in missing[:3])
        raise DataError(
            f"{columns.path} names {len(paths)} images, of which {len(missing)} do not exist: {named}"
            f"{'; ...' if len(missing) > 3 else ''}. Relative paths start from {root}; `images` names another folder."
        )
