"""Decisions on what `vicinal clean` found: a table of ``path,label`` becomes corrected data."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vicinal.data.table import Columns, read_columns, text_names
from vicinal.errors import DataError, unknown
from vicinal.files import read_arrays, write_arrays
from vicinal.retrieval.collection import Snapshot
from vicinal.retrieval.pages import as_csv, as_given, write_shown

Decided = Mapping[str, str | None]  # label by path; None for a drop


@dataclass(frozen=True)
class Corrected:
    """The data after decisions.

    Attributes:
        table: as text; of items that are neither files nor texts a list of names.
        arrays: where the data are an ``.npz``.
        changed: how many items have another label.
        dropped: how many are left out.
        added: labels that no item had.
        trains: whether a run can be trained on the arrays or, where there are none, on the table.
    """

    table: str
    arrays: Mapping[str, np.ndarray] | None
    changed: int
    dropped: int
    added: list[str]
    trains: bool

    def write(self, folder: Path) -> Path:
        """Write ``labels.csv``, of arrays also ``labels.npz``; return what to train on."""
        table = folder / "labels.csv"
        write_shown(table, self.table)
        if self.arrays is None:
            return table
        write_arrays(folder / "labels.npz", self.arrays)
        return folder / "labels.npz"


def apply_decisions(snapshot: Snapshot, decisions: Path) -> Corrected:
    """Return the corrected table ``path,label``, and how many items were relabeled and dropped.

    Paths are those of the pictures' files, absolute; of items without files their names. Other
    columns are what the collection knows besides. Items without a label are left out. Of an
    ``.npz`` there are its arrays, too; a table of texts stays one.

    Args:
        snapshot: the collection that was reviewed.
        decisions: a table of ``path,label``. Paths are those of ``findings.csv``. An empty label
            drops the item; any other is a label, whatever it is.
    """
    items = snapshot.items()
    # As tables hold paths: bytes that are no text are question marks there.
    paths = [item.path.encode(errors="replace").decode().strip() for item in items]
    decided = _read_decisions(decisions, Counter(paths))
    labels = [decided.get(path, item.label) for path, item in zip(paths, items, strict=True)]
    changed = sum(
        label not in (None, item.label) for label, item in zip(labels, items, strict=True)
    )
    others = list(dict.fromkeys(name for item in items for name in item.metadata))
    lines = (
        (
            snapshot.pictures.file_or_name(item),
            label,
            *(item.metadata.get(name, "") for name in others),
        )
        for item, label in zip(items, labels, strict=True)
        if label is not None
    )
    table = as_csv(("path", "label", *others), lines, data=True)
    arrays = None
    trains = all(place.root is not None for place in snapshot.places)
    file = Path(snapshot.places[0].path if len(snapshot.places) == 1 else "")
    if not trains and file.is_file() and snapshot.pictures.access.allows(file):
        if file.suffix.lower() == ".npz":
            arrays = _corrected_arrays(read_arrays(file), decided)
            trains = arrays is not None
        elif file.suffix.lower() != ".parquet":  # a table of texts
            table = _corrected_texts(read_columns(file), decided)
            trains = True
    dropped = sum(label is None for label in decided.values())
    added = sorted({*decided.values()} - {None} - snapshot.labels().keys(), key=str)
    return Corrected(table, arrays, changed, dropped, [*map(str, added)], trains)


def _read_decisions(file: Path, held: Mapping[str, int]) -> Decided:
    """Return the label of each path that is decided on; errors name the line.

    Args:
        held: how many items have each path.
    """
    columns = read_columns(file)
    paths = [as_given(path) for path in columns.texts("path")]
    if "label" not in columns.cells:
        raise DataError(f"{file}: " + unknown("column", "label", columns.cells))
    for line, (path, times) in enumerate(zip(paths, map(paths.count, paths), strict=True)):
        if held.get(path, 0) != 1 or times != 1:
            raise DataError(
                f"{columns.place(line)}: {path!r} is no path to decide on: the collection has it "
                f"{held.get(path, 0)} times, this table {times} times. Use the paths of "
                "findings.csv, each once."
            )
    cells = ("" if cell is None else str(cell).strip() for cell in columns.cells["label"])
    labels = map(as_given, cells)
    return {path: label or None for path, label in zip(paths, labels, strict=True)}


def _corrected_arrays(
    arrays: Mapping[str, np.ndarray], decided: Decided
) -> Mapping[str, np.ndarray] | None:
    """Return arrays of feature vectors with the labels that rows have now, and without dropped
    ones; None where there are no labels."""
    key = next((key for key in ("labels", "label") if key in arrays), None)
    if key is None:
        return None
    given = arrays[key]
    numbered = given.dtype.kind in "iu"
    if numbered and "classes" in arrays:  # as `vicinal embed` writes them
        given = arrays["classes"][given]
        numbered = False
    unnamed = [f"row {row}" for row in range(len(given))]
    names = [str(name).strip() for name in arrays.get("names", arrays.get("name", unnamed))]
    labels = [
        decided.get(name, label) for name, label in zip(names, given.astype(str), strict=True)
    ]
    kept = [row for row, label in enumerate(labels) if label is not None]
    new = np.array([labels[row] for row in kept])
    if numbered:
        # As text, 10 comes before 2, and other classes would be for testing.
        with suppress(ValueError, OverflowError):
            numbers = new.astype(given.dtype)
            new = numbers if (numbers.astype(str) == new).all() else new
    found = {
        name: array[kept] if array.shape[:1] == (len(labels),) else array
        for name, array in arrays.items()
        if name != "classes"
    }
    return found | {key: new}


def _corrected_texts(columns: Columns, decided: Decided) -> str:
    """Return a table of texts with the labels that rows have now, and without dropped ones."""
    names = [name.strip() for name in text_names(columns, columns.texts("text"))]
    kept = [row for row, name in enumerate(names) if decided.get(name, "") is not None]
    cells = dict(columns.cells)
    cells["label"] = [
        decided.get(name, label) for name, label in zip(names, cells["label"], strict=True)
    ]
    rows = ([column[row] for column in cells.values()] for row in kept)
    return as_csv(list(cells), rows, data=True)
