"""Decisions on what `vicinal clean` found: a table of ``path,label`` becomes corrected data."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vicinal.data.table import Columns, read_columns, text_names
from vicinal.errors import DataError, unknown
from vicinal.files import read_arrays
from vicinal.retrieval.cleaning import file_or_name
from vicinal.retrieval.collection import Snapshot
from vicinal.retrieval.contact_sheets import as_csv, as_given


@dataclass(frozen=True)
class Corrected:
    """The data after decisions.

    Attributes:
        table: as text; of items that are neither files nor texts a list of names.
        arrays: where the data are an ``.npz``.
        changed: how many items have another label.
        dropped: how many are left out.
        trains: whether a run can be trained on the arrays or, where there are none, on the table.
    """

    table: str
    arrays: Mapping[str, np.ndarray] | None
    changed: int
    dropped: int
    trains: bool


def apply_decisions(snapshot: Snapshot, decisions: Path, *, new_labels: bool = False) -> Corrected:
    """Return the corrected table ``path,label``, and how many items were relabeled and dropped.

    Paths are those of the pictures' files, absolute; of items without files their names. Other
    columns are what the collection knows besides. Items without a label are left out. Of an
    ``.npz`` there are its arrays, too; a table of texts stays one.

    Args:
        snapshot: the collection that was reviewed.
        decisions: a table of ``path,label``. Paths are those of ``findings.csv``. An empty label
            drops the item; any other is a label, whatever it is.
        new_labels: whether a label may be one that no item has.
    """
    items = snapshot.items()
    # As tables hold paths: bytes that are no text are question marks there.
    paths = [item.path.encode(errors="replace").decode().strip() for item in items]
    decided = _read_decisions(decisions, Counter(paths), snapshot.labels(), new_labels)
    labels = [decided.get(path, item.label) for path, item in zip(paths, items, strict=True)]
    before = {path: item.label for path, item in zip(paths, items, strict=True)}
    dropped = sum(label is None for label in decided.values())
    changed = sum(label not in (None, before[path]) for path, label in decided.items())
    others = list(dict.fromkeys(name for item in items for name in item.metadata))
    lines = (
        (file_or_name(snapshot, item), label, *(item.metadata.get(name, "") for name in others))
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
    return Corrected(table, arrays, changed, dropped, trains)


def _read_decisions(
    file: Path, held: Mapping[str, int], classes: Mapping[str, int], new_labels: bool
) -> dict[str, str | None]:
    """Return the label of each path that is decided on, None for a drop; errors name the line.

    Args:
        held: how many items have each path.
        classes: labels that are there.
    """
    columns = read_columns(file)
    paths = [as_given(path) for path in columns.texts("path")]
    if "label" not in columns.cells:
        raise DataError(f"{file}: " + unknown("column", "label", columns.cells))
    decided = dict[str, str | None]()
    for line, (path, cell) in enumerate(zip(paths, columns.cells["label"], strict=True)):
        place = columns.place(line)
        label = "" if cell is None else as_given(str(cell).strip())
        if held.get(path, 0) != 1:
            where = f"it in {held[path]} places" if path in held else "no such"
            raise DataError(
                f"{place}: {path!r} is no path to decide on: the collection has {where}. Use the "
                "paths of findings.csv."
            )
        if path in decided:
            first = columns.lines[paths.index(path)]
            raise DataError(f"{place}: {path!r} is already in {columns.unit} {first}. Decide once.")
        if label and not new_labels and label not in classes:
            raise DataError(
                f"{place}: {unknown('label', label, classes)} --new-labels allows others; an "
                "empty label drops the item."
            )
        decided[path] = label or None
    return decided


def _corrected_arrays(
    arrays: Mapping[str, np.ndarray], decided: Mapping[str, str | None]
) -> Mapping[str, np.ndarray] | None:
    """Return arrays of feature vectors with the labels that rows have now, and without dropped
    ones; None where there are no labels."""
    key = next((key for key in ("labels", "label") if key in arrays), None)
    if key is None:
        return None
    given = arrays[key]
    numbered = given.dtype.kind in "iu"
    classes = arrays.get("classes")
    if numbered and classes is not None:  # as `vicinal embed` writes them
        given = classes[given]
        numbered = False
    unnamed = [f"row {row}" for row in range(len(given))]
    names = [str(name) for name in arrays.get("names", arrays.get("name", unnamed))]
    labels = [
        decided.get(name.strip(), label)
        for name, label in zip(names, given.astype(str).tolist(), strict=True)
    ]
    kept = [row for row, label in enumerate(labels) if label is not None]
    new = np.array([labels[row] for row in kept])
    if numbered:
        # As text, 10 comes before 2, and other classes would be for testing.
        with suppress(ValueError, OverflowError):
            numbers = new.astype(given.dtype)
            new = numbers if numbers.astype(str).tolist() == new.tolist() else new
    found = {
        name: array[kept] if array.shape[:1] == (len(labels),) else array
        for name, array in arrays.items()
        if name != "classes"
    }
    return found | {key: new}


def _corrected_texts(columns: Columns, decided: Mapping[str, str | None]) -> str:
    """Return a table of texts with the labels that rows have now, and without dropped ones."""
    names = text_names(columns, columns.texts("text"))
    cells = dict(columns.cells)
    cells["label"] = [
        decided.get(name.strip(), label) for name, label in zip(names, cells["label"], strict=True)
    ]
    dropped = {row for row, name in enumerate(names) if decided.get(name.strip(), "") is None}
    lines = zip(*cells.values(), strict=True)
    kept = [line for row, line in enumerate(lines) if row not in dropped]
    return as_csv(list(cells), kept, data=True)
