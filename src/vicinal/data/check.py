"""Read a whole set before it is trusted: what is in it, what is wrong with it, and what has changed
since a run kept its names, classes, splits and content."""

import inspect
import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from vicinal.data.loader import contents, in_threads
from vicinal.data.records import Dataset, Progress, Records, Split, Taken
from vicinal.data.splits import overlapping_classes
from vicinal.errors import DataError, RunError, few
from vicinal.files import decoding, read_arrays
from vicinal.run_directory import RunDirectory

NAMES = "classes", "name", "label", "split", "content"  # of what a run keeps
Rows = dict[str, np.ndarray]
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
    splits: dict[Split, dict[str, int]]
    sizes: dict[str, tuple[float, ...]]
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
        if 0 < (trained := self.splits.get("train", {}).get("classes", 0)) < 2 <= self.classes:
            few = f"{trained} training class is too few: set data.test=0, or add classes"
            return [*lines, f"no faults found, but {few}"]
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
    names = records.names()
    sizes = defaultdict[str, list[int]](list)
    findings: dict[str, list[str]] = {key: [] for key in TITLES}
    examined = in_threads(partial(_examined, records), range(len(names)), os.cpu_count() or 1)
    for row, (size, problem) in enumerate(examined):
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
        if len(np.unique(records.targets[group], axis=0)) > 1:
            findings["conflicts"].append(alike)
    members = records.sizes()
    filled = np.flatnonzero(members)
    if len(names) and "role" not in records.columns:
        sizes["rows per class"] = members[filled].tolist()
    if not isinstance(records.source, Taken):  # a part of a set need not have every class
        findings["empty_classes"] = np.delete(records.classes, filled).tolist()
    parts = {}
    for split, (rows, classes) in records.counts().items():
        if rows:
            parts[split] = {"rows": rows, "classes": classes}
        for label in np.flatnonzero(records.part(split).sizes() == 1):
            findings["small_classes"].append(f"{records.classes[label]} ({split})")
    findings["overlapping_classes"] += overlapping_classes(records)
    return CheckReport(
        name=records.name,
        kind=records.source.kind,
        rows=len(records),
        classes=len(filled),
        splits=parts,
        sizes={side: tuple(np.quantile(one, [0, 0.5, 1])) for side, one in sizes.items()},
        findings={key: found for key, found in findings.items() if found},
    )


def _examined(records: Records, row: int) -> tuple[dict[str, int], str]:
    """Read one row; return its size, and why it cannot be used."""
    try:
        text = records.texts_among(np.array([row]))[0]
        read = records.source.name(row) if text else records.source.read(row)
    except DataError as error:
        # the error itself repeats the name and says: check
        return {}, str(error.__cause__ or error)
    if isinstance(read, str):
        return {"characters": len(read)}, ""
    if not isinstance(read, np.ndarray):
        return {"width": read.width, "height": read.height}, ""
    problem = "" if read.any() else "all zeros, which have no direction"
    if not np.isfinite(read).all():
        problem = "holds NaN or infinite numbers"
    return {"dimension": len(read)}, problem


# -- content, and what a run keeps of it ----------------------------------------------------------


def rows_of(records: Records, progress: Progress = lambda done: None) -> Rows:
    """Return what a run keeps of its records.

    Args:
        progress: called with the number of rows whose content is known, while files are read.
    """
    classes = np.array(records.classes)
    labels = records.labels
    if records.every is not None:
        named = [";".join(names) for names in records.class_names()]
        classes, labels = np.unique(named, return_inverse=True)
    return {
        "classes": classes,
        "name": np.array(records.names()),
        "label": labels,
        "split": records.splits,
        "content": contents(records, progress),
    }


def kept_rows(run: RunDirectory) -> Rows:
    """Return what a run kept of its records."""
    if not run.rows_path.is_file():
        raise RunError(f"{run.rows_path}, which says how its data were split, is missing.")
    with decoding(run.rows_path):
        return {name: kept[name] for kept in [read_arrays(run.rows_path)] for name in NAMES}


def records_of(run: RunDirectory, records: Records) -> Records:
    """Return a run's own data, which must not have changed, split as in its training."""
    kept = kept_rows(run)
    now = rows_of(records)
    splits = kept["split"]
    for rows in (kept, now):
        rows["split"] = np.zeros(len(rows["label"]))  # it is made anew
    check_unchanged(run, kept, now)
    return replace(records, splits=splits)


def check_unchanged(run: RunDirectory, kept: Rows, now: Rows) -> None:
    """Raise a RunError that says what has changed since a run began."""
    if all(np.array_equal(kept[name], now[name]) for name in kept):
        return
    before, after = map(_by_name, (kept, now))
    facts = {
        "added": after.keys() - before.keys(),
        "gone": before.keys() - after.keys(),
        "of another class, content or split": {
            name for name in before if before[name] != after.get(name, before[name])
        },
    }
    found = [
        f"{len(names):,} records {fact} ({few(sorted(names))})"
        for fact, names in facts.items()
        if names
    ]
    raise RunError(
        f"the data of {run.path} changed since it began: "
        f"{'; '.join(found) or 'the records stand in another order'}. Restore them; "
        "or start a new run, or name other data with `vicinal evaluate --data`."
    )


def _by_name(rows: Rows) -> dict[str, tuple[Any, ...]]:
    """Return class, content and split of each record."""
    facts = zip(rows["classes"][rows["label"]], rows["content"], rows["split"], strict=True)
    return dict(zip(rows["name"].tolist(), facts, strict=True))


def unseen(run: RunDirectory, records: Records) -> Records:
    """Return the records whose content a run's training and selection never saw: other data are all
    of that kind."""
    kept = kept_rows(run)
    seen = kept["content"][(kept["split"] != "test") & (kept["content"] != 0)]
    return records.take(np.flatnonzero(~np.isin(contents(records), seen)))
