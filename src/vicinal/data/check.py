"""Read a whole set before it is trusted: what is in it, and what is wrong with it."""

import inspect
import os
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from vicinal.data.kept import contents
from vicinal.data.records import QUERY, Dataset, Progress, Records, Taken
from vicinal.data.splits import overlapping_classes
from vicinal.errors import DataError

_ENOUGH = 4  # rows of a class: fewer make hardly more than one pair
TITLES = {  # of findings; the last three are notes, the others faults
    "unusable": "cannot be used",
    "leaks": "in train and test with equal content",
    "conflicts": "equal content, different classes",
    "empty_classes": "classes without a row",
    "duplicates": "equal content within a part",
    "small_classes": "classes with fewer than 2 rows",
    "overlapping_classes": "classes both trained and tested on",
}
_NOTES = ("duplicates", "small_classes", "overlapping_classes")


@dataclass(frozen=True)
class CheckReport:
    """What a set holds and what is wrong with it.

    Attributes:
        name: of the set.
        kind: ``"images"``, ``"features"`` or ``"text"``.
        rows: how many there are.
        classes: how many have rows.
        splits: rows and classes of each split that has any.
        sizes: smallest, median and largest ``width`` and ``height`` of images, ``dimension`` of
            vectors or number of ``characters``, and ``rows per class`` of a set without roles.
        findings: by their key in ``TITLES``, the names of the rows, groups of rows or classes.
    """

    name: str
    kind: str
    rows: int
    classes: int
    splits: dict[str, dict[str, int]]
    sizes: dict[str, tuple[float, float, float]]
    findings: dict[str, list[str]]

    @property
    def ok(self) -> bool:
        """Whether a model trained on this and its scores can be trusted; small classes and the like
        are only notes."""
        return not self.findings.keys() - {*_NOTES}

    def as_json(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}

    def lines(self, most: int = 20) -> list[str]:
        """Return the report in words; of each list, at most ``most`` entries."""
        lines = [f"{self.name}: {self.rows} {self.kind} of {self.classes} classes"]
        for split, counts in self.splits.items():
            lines.append(f"  {split}: {counts['rows']} rows, {counts['classes']} classes")
        for side, (low, mid, high) in self.sizes.items():
            lines.append(f"  {side}: {low:g} / {mid:g} / {high:g} (least, median, most)")
        for key, found in self.findings.items():
            lines.append(f"  {TITLES[key]}: {len(found)}")
            lines += [f"    {entry}" for entry in found[:most]]
            lines += [f"    ... and {len(found) - most} more"] * (len(found) > most)
        if not self.ok:
            return [*lines, "something is wrong: see above"]
        if self.sizes.get("rows per class", (_ENOUGH,) * 3)[1] >= _ENOUGH:
            return [*lines, "nothing wrong found"]
        few = f"half of the classes have fewer than {_ENOUGH} rows"
        return [*lines, f"no faults found, but {few}, which is little to learn from: add more"]


def load_unchecked(dataset: Dataset) -> Records:
    """Load a data set with the rows and classes that its ``load`` rejects one by one, for ``check``
    to list."""
    load: Callable[..., Records] = dataset.load
    return load(strict=False) if "strict" in inspect.signature(load).parameters else load()


def check(data: Records | Dataset, *, progress: Progress = lambda _: None) -> CheckReport:
    """Read every row of a set and report.

    Args:
        data: records, or a data set; what its ``load`` would reject for one row's sake is then
            listed instead.
        progress: called with the number of rows read.
    """
    records = data if isinstance(data, Records) else load_unchecked(data)
    names = [records.source.name(row) for row in range(len(records))]
    sizes = defaultdict[str, list[int]](list)
    findings: dict[str, list[str]] = {key: [] for key in TITLES}
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # decoding releases the interpreter's lock
        for row, (size, problem) in enumerate(
            pool.map(partial(_examined, records), range(len(names)))
        ):
            for side, length in size.items():
                sizes[side].append(length)
            if problem:
                findings["unusable"].append(f"{names[row]}: {problem}")
            progress(row + 1)
    digests, equal, counts = np.unique(contents(records), return_inverse=True, return_counts=True)
    tested = records.splits == "test"
    for each in np.flatnonzero((counts > 1) & (digests != 0)):
        group = np.flatnonzero(equal == each)
        alike = " = ".join(names[row] for row in group)
        both = 0 < tested[group].sum() < len(group)
        findings["leaks" if both else "duplicates"].append(alike)
        if len(np.unique(records.labels[group])) > 1:
            findings["conflicts"].append(alike)
    filled, members = np.unique(records.labels, return_counts=True)
    if len(names) and "role" not in records.columns:
        sizes["rows per class"] = members.tolist()
    if not isinstance(records.source, Taken):  # a part of a set need not have every class
        findings["empty_classes"] = np.delete(records.classes, filled).tolist()
    for split in records.counts():
        labels, members = np.unique(records.labels[records.splits == split], return_counts=True)
        findings["small_classes"] += [
            f"{records.classes[label]} ({split})" for label in labels[members < 2]
        ]
    findings["overlapping_classes"] += overlapping_classes(records)
    return CheckReport(
        name=records.name,
        kind=records.source.kind,
        rows=len(records),
        classes=len(filled),
        splits={
            name: {"rows": rows, "classes": held}
            for name, (rows, held) in records.counts().items()
            if rows
        },
        sizes={
            side: (float(min(one)), float(np.median(one)), float(max(one)))
            for side, one in sizes.items()
        },
        findings={key: found for key, found in findings.items() if found},
    )


def _examined(records: Records, row: int) -> tuple[dict[str, int], str]:
    """Read one row; return its size, and why it cannot be used."""
    if records.captions is not None and records.columns["role"][row] == QUERY:
        return {"characters": len(records.source.name(row))}, ""
    try:
        read = records.source.read(row)
    except DataError as error:
        # the error itself repeats the name and says: check
        return {}, str(error.__cause__ or error)
    if isinstance(read, str):
        return {"characters": len(read)}, ""
    if not isinstance(read, np.ndarray):
        return {"width": read.width, "height": read.height}, ""
    if not np.isfinite(read).all():
        return {"dimension": len(read)}, "holds NaN or infinite numbers"
    return {"dimension": len(read)}, "" if read.any() else "all zeros, which have no direction"
