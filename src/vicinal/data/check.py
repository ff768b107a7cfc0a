"""Read a whole set before it is trusted: what is in it, and what is wrong with it."""

import inspect
import os
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from vicinal.data.records import Captioned, Dataset, ImageFiles, Progress, Records, Taken, Texts
from vicinal.data.splits import overlapping_classes
from vicinal.errors import DataError

Names = tuple[str, ...]
_ENOUGH = 4  # rows of a class: fewer make hardly more than one pair


@dataclass(frozen=True)
class CheckReport:
    """What a set holds and what is wrong with it.

    Attributes:
        name: of the set.
        kind: ``"images"`` or ``"features"``.
        rows: how many there are.
        classes: how many have rows.
        splits: rows and classes of each split that has any.
        small_classes: class, split and count where a split has fewer than 2 rows of a class:
            nothing to retrieve.
        empty_classes: names of classes that have a place but no row; of a part of a set, which need
            not have all, none.
        overlapping_classes: names of classes with rows both to train on and to test on.
        unreadable: name and reason for each image that cannot be read or is truncated, and for each
            vector that holds NaN or infinite numbers.
        leaks: groups of rows with equal content, of which some are tested and some are not; their
            names.
        duplicates: further groups of rows with equal content.
        conflicts: those groups of either kind whose rows differ in class.
        sizes: smallest, median and largest ``width`` and ``height`` of images, or the ``dimension``
            of vectors, and ``rows per class`` of a set without roles.
        zero_vectors: names of vectors that are all zeros: no direction, so no cosine.
    """

    name: str
    kind: str
    rows: int
    classes: int
    splits: dict[str, dict[str, int]]
    small_classes: tuple[tuple[str, str, int], ...]
    empty_classes: tuple[str, ...]
    overlapping_classes: tuple[str, ...]
    unreadable: tuple[tuple[str, str], ...]
    leaks: tuple[tuple[str, ...], ...]
    duplicates: tuple[tuple[str, ...], ...]
    conflicts: tuple[tuple[str, ...], ...]
    sizes: dict[str, tuple[float, float, float]]
    zero_vectors: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether a model trained on this and its scores can be trusted; small classes and the like
        are only notes."""
        return not any((self.unreadable, self.leaks, self.conflicts, self.zero_vectors)) and (
            not self.empty_classes
        )

    def as_json(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}

    def lines(self, most: int = 20) -> list[str]:
        """Return the report in words; of each list, at most ``most`` entries."""
        lines = [f"{self.name}: {self.rows} {self.kind} of {self.classes} classes"]
        for split, counts in self.splits.items():
            lines.append(f"  {split}: {counts['rows']} rows, {counts['classes']} classes")
        for side, (low, mid, high) in self.sizes.items():
            lines.append(f"  {side}: {low:g} / {mid:g} / {high:g} (least, median, most)")
        for title, entries in {
            "cannot be read": [": ".join(entry) for entry in self.unreadable],
            "in train and test with equal content": map(" = ".join, self.leaks),
            "equal content, different classes": map(" = ".join, self.conflicts),
            "equal content within a part": map(" = ".join, self.duplicates),
            "vectors of zeros": self.zero_vectors,
            "classes without a row": self.empty_classes,
            "classes with fewer than 2 rows": [
                f"{name} ({split}: {count})" for name, split, count in self.small_classes
            ],
            "classes both trained and tested on": self.overlapping_classes,
        }.items():
            if found := [*entries]:
                lines.append(f"  {title}: {len(found)}")
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
        progress: called from time to time, and at the end, with the number of rows read.
    """
    records = data if isinstance(data, Records) else load_unchecked(data)
    names = [records.source.name(row) for row in range(len(records))]
    equal = defaultdict[str, list[int]](list)
    sizes = defaultdict[str, list[int]](list)
    unreadable = list[tuple[str, str]]()
    zeros = list[str]()
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # decoding releases the interpreter's lock
        for row, found in enumerate(pool.map(partial(_examined, records), range(len(records)))):
            for side, length in found.size.items():
                sizes[side].append(length)
            if found.problem:
                unreadable.append((names[row], found.problem))
            else:
                equal[found.digest].append(row)
                zeros += [names[row]] * found.zero
            if (row + 1) % 100 == 0 or row + 1 == len(records):
                progress(row + 1)
    if len(records) and "role" not in records.columns:
        sizes["rows per class"] = np.unique(records.labels, return_counts=True)[1].tolist()
    tested = records.splits == "test"
    leaks = list[Names]()
    duplicates = list[Names]()
    conflicts = list[Names]()
    for group in equal.values():
        if len(group) > 1:
            alike = tuple(names[row] for row in group)
            (leaks if 0 < tested[group].sum() < len(group) else duplicates).append(alike)
            if len(np.unique(records.labels[group])) > 1:
                conflicts.append(alike)
    counts = Counter(zip(records.labels.tolist(), records.splits.tolist(), strict=True))
    filled = np.unique(records.labels).tolist()
    # A part of a set need not have every class.
    classes = () if isinstance(records.source, Taken) else enumerate(records.classes)
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
        small_classes=tuple(
            (records.classes[label], split, count)
            for (label, split), count in sorted(counts.items())
            if count < 2
        ),
        empty_classes=tuple(name for label, name in classes if label not in filled),
        overlapping_classes=overlapping_classes(records),
        unreadable=tuple(unreadable),
        leaks=tuple(leaks),
        duplicates=tuple(duplicates),
        conflicts=tuple(conflicts),
        sizes={
            side: (float(min(one)), float(np.median(one)), float(max(one)))
            for side, one in sizes.items()
        },
        zero_vectors=tuple(zeros),
    )


class _Finding(NamedTuple):
    """What reading one row found: a hash of its content, its size, or why it cannot be used."""

    digest: str
    size: dict[str, int]
    problem: str = ""
    zero: bool = False


def _examined(records: Records, row: int) -> _Finding:
    try:
        read = records.source.read(row)
    except DataError as error:
        # the error itself repeats the name and says: check
        return _Finding("", {}, str(error.__cause__ or error))
    source, (position,) = records.source.origin(np.array([row]))
    if isinstance(read, np.ndarray):
        content = read.tobytes()
        size = {"dimension": len(read)}
        if not np.isfinite(read).all():
            return _Finding("", size, "holds NaN or infinite numbers")
    elif isinstance(source, Texts | Captioned):
        text = records.source.name(row) if isinstance(source, Captioned) else str(read)
        content = text.encode()
        size = {"characters": len(text)}
    else:
        size = {"width": read.width, "height": read.height}
        content = f"{read.mode} {read.size}".encode() + read.tobytes()
        if isinstance(source, ImageFiles):
            content = (source.root / source.paths[position]).read_bytes()
    zero = isinstance(read, np.ndarray) and not read.any()
    return _Finding(sha256(content).hexdigest(), size, zero=zero)
