"""What a person decides about items: other labels and drops.

``vicinal serve`` keeps them in ``annotations.json`` beside the collection's generations: a list of
changes, oldest first, written anew as a whole by each; an undo takes the last off. A decision
belongs to the picture it was made about: a change keeps the id and the content's digest of each
item. A renamed picture keeps its decision, another picture that takes its name or its id does not
get it, and one whose picture is no longer in the collection is lost until it comes back.

``vicinal clean --apply`` makes new data of a table of ``path,label``.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from vicinal.data.table import Columns, read_columns, text_names
from vicinal.errors import DataError, unknown
from vicinal.files import (
    decoding,
    read_arrays,
    read_json,
    write_arrays,
    write_json,
)
from vicinal.retrieval.collection import Snapshot
from vicinal.retrieval.pages import as_csv, as_given, as_shown, write_shown

NAME = "annotations.json"
Target = int | str  # an item by its id; what is not in the collection by its path
Change = Mapping[str, Any]
Labels = Mapping[str, str | None]  # by path; None for a drop


# -- annotations ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Decided:
    """All that is decided about the items of one generation: new labels, empty for a drop.

    Attributes:
        indexed: this generation.
        items: labels by target.
        lost: labels of pictures that are not in this generation, by the path they had.
        can_undo: whether there is a change to take back.
    """

    indexed: Snapshot
    items: dict[Target, str] = field(default_factory=dict)
    lost: dict[Target, str] = field(default_factory=dict)
    can_undo: bool = False

    @cached_property
    def snapshot(self) -> Snapshot:
        """The generation with the labels that items were given."""
        given = self.items.items()
        labels = {id: label for id, label in given if isinstance(id, int) and label}
        return self.indexed.relabeled(labels)


class Annotations:
    """The annotations of a collection. Any thread and any process may change them.

    Args:
        collection: folder of the collection.
    """

    def __init__(self, collection: Path) -> None:
        self.path = collection / NAME
        self._held: tuple[object, Decided] | None = None

    def read(self, snapshot: Snapshot) -> Decided:
        """Return what is decided now about the items of a generation; the same object while nothing
        changes."""
        known = self.path.stat() if self.path.exists() else None
        state = snapshot, known and (known.st_ino, known.st_mtime_ns)
        held = self._held
        if held is None or held[0] != state:
            with decoding(self.path):
                held = self._held = state, _decided(self._changes(), snapshot)
        return held[1]

    def change(self, snapshot: Snapshot, targets: Sequence[Target], label: str) -> None:
        """Give the targets a label, or drop them by an empty one; when it returns, this survives a
        power cut."""
        if label != label.strip() or not label.isprintable():
            raise DataError(
                f"a label is printable and without space at its ends; got {label[:60]!r}."
            )
        items = [snapshot.item(one) if isinstance(one, int) else one for one in targets]
        named = [  # id, digest and path
            (None, None, item) if isinstance(item, str) else (item.id, item.digest, item.path)
            for item in items
        ]
        with self._writing() as changes:
            write_json(self.path, [*changes, {"targets": named, "label": label}])

    def undo(self) -> None:
        """Take back the last change that is not taken back."""
        with self._writing() as changes:
            write_json(self.path, changes[:-1])

    def _changes(self) -> list[Change]:
        return list(read_json(self.path)) if self.path.exists() else []

    @contextmanager
    def _writing(self) -> Iterator[list[Change]]:
        with FileLock(self.path.with_suffix(".lock")):
            yield self._changes()


def _decided(changes: Sequence[Change], snapshot: Snapshot) -> Decided:
    """Apply all changes to the items of a generation, in their order."""
    found = Decided(snapshot, can_undo=bool(changes))
    digests = {item.id: item.digest for item in snapshot.items}
    ids = {item.digest: item.id for item in reversed(snapshot.items) if item.digest}
    for change in changes:
        for id, digest, path in change["targets"]:
            here = id if digests.get(id) == digest else ids.get(digest)
            part = found.items if here is not None or id is None else found.lost
            part[path if here is None else here] = change["label"]
    return found


# -- corrected data -------------------------------------------------------------------------------


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
            drops the item; any other is a label.
    """
    items = snapshot.items
    paths = [as_shown(item.path).strip() for item in items]  # as tables hold them
    decided = _read_decisions(decisions, Counter(paths))
    others = list(dict.fromkeys(name for item in items for name in item.metadata))
    lines = []
    changed = 0
    for path, item in zip(paths, items, strict=True):
        label = decided.get(path, item.label)
        if label is not None:
            changed += label != item.label
            facts = (item.metadata.get(name, "") for name in others)
            lines.append((snapshot.file_or_name(item), label, *facts))
    table = as_csv(("path", "label", *others), lines, data=True)
    arrays = None
    trains = all(place.root is not None for place in snapshot.places)
    file = Path(snapshot.places[0].path if len(snapshot.places) == 1 else "")
    if not trains and file.is_file() and snapshot.access.allows(file):
        if file.suffix.lower() == ".npz":
            arrays = _corrected_arrays(read_arrays(file), decided)
            trains = arrays is not None
        elif file.suffix.lower() != ".parquet":  # a table of texts
            table = _corrected_texts(read_columns(file), decided)
            trains = True
    labels = [label for label in decided.values() if label is not None]
    added = sorted(set(labels) - snapshot.labels().keys())
    return Corrected(table, arrays, changed, len(decided) - len(labels), added, trains)


def _read_decisions(file: Path, held: Mapping[str, int]) -> Labels:
    """Return the label of each path that is decided on; errors name the line.

    Args:
        held: how many items have each path.
    """
    columns = read_columns(file)
    paths = [as_given(path) for path in columns.texts("path")]
    if "label" not in columns.cells:
        raise DataError(f"{file}: " + unknown("column", "label", columns.cells))
    named = Counter(paths)
    for line, path in enumerate(paths):
        if held.get(path) != 1 or named[path] != 1:
            raise DataError(
                f"{columns.place(line)}: {path!r} is no path to decide on: the collection has it "
                f"{held.get(path, 0)} times, this table {named[path]} times. Use the paths of "
                "findings.csv, each once."
            )
    labels = (as_given(str(cell or "").strip()) for cell in columns.cells["label"])
    return {path: label or None for path, label in zip(paths, labels, strict=True)}


def _corrected_arrays(
    arrays: Mapping[str, np.ndarray], decided: Labels
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
    names = (str(name).strip() for name in arrays.get("names", arrays.get("name", unnamed)))
    rows = zip(names, given.astype(str), strict=True)
    labels = [decided.get(name, label) for name, label in rows]
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


def _corrected_texts(columns: Columns, decided: Labels) -> str:
    """Return a table of texts with the labels that rows have now, and without dropped ones."""
    named = zip(text_names(columns, columns.texts("text")), columns.cells["label"], strict=True)
    labels = [decided.get(name.strip(), label or "") for name, label in named]
    cells = columns.cells | {"label": labels}
    lines = zip(*cells.values(), strict=True)
    kept = (line for line, label in zip(lines, labels, strict=True) if label is not None)
    return as_csv([*cells], kept, data=True)
