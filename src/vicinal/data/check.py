"""Read a whole set before it is trusted: what is in it, and what is wrong with it."""

import inspect
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from vicinal.data.records import Captioned, Dataset, ImageFiles, Progress, Records, Taken, Texts
from vicinal.data.splits import overlapping_classes
from vicinal.errors import DataError

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
        return not (
            self.unreadable
            or self.leaks
            or self.conflicts
            or self.zero_vectors
            or self.empty_classes
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
        small = [f"{name} ({split}: {count})" for name, split, count in self.small_classes]
        for title, entries in (
            ("cannot be read", [f"{name}: {reason}" for name, reason in self.unreadable]),
            ("in train and test with equal content", [" = ".join(group) for group in self.leaks]),
            ("equal content, different classes", [" = ".join(group) for group in self.conflicts]),
            ("equal content within a part", [" = ".join(group) for group in self.duplicates]),
            ("vectors of zeros", self.zero_vectors),
            ("classes without a row", self.empty_classes),
            ("classes with fewer than 2 rows", small),
            ("classes both trained and tested on", self.overlapping_classes),
        ):
            if entries:
                lines.append(f"  {title}: {len(entries)}")
                lines += [f"    {entry}" for entry in entries[:most]]
                lines += [f"    ... and {len(entries) - most} more"] * (len(entries) > most)
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


def check(
    data: Records | Dataset, *, workers: int | None = None, progress: Progress = lambda _: None
) -> CheckReport:
    """Read every row of a set and report.

    Args:
        data: records, or a data set; what its ``load`` would reject for one row's sake is then
            listed instead.
        workers: threads that read; None for as many as there are processors.
        progress: called from time to time, and at the end, with the number of rows read.
    """
    records = data if isinstance(data, Records) else load_unchecked(data)
    names = [records.source.name(row) for row in range(len(records))]
    equal, sizes = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    unreadable, zeros = list[tuple[str, str]](), list[str]()
    with ThreadPoolExecutor(
        workers or os.cpu_count()
    ) as pool:  # decoding and hashing release the interpreter's lock
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
    groups = [group for group in equal.values() if len(group) > 1]
    if len(records) and "role" not in records.columns:
        sizes["rows per class"] = np.unique(records.labels, return_counts=True)[1].tolist()
    tested = records.splits == "test"
    leaking = [group for group in groups if 0 < tested[group].sum() < len(group)]
    counts = Counter(zip(records.labels.tolist(), records.splits.tolist(), strict=True))
    # A part of a set need not have every class.
    classes = () if isinstance(records.source, Taken) else enumerate(records.classes)

    def named(groups: Iterable[Sequence[int]]) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(names[row] for row in group) for group in groups)

    return CheckReport(
        name=records.name,
        kind=records.source.kind,
        rows=len(records),
        classes=len(np.unique(records.labels)),
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
        empty_classes=tuple(name for label, name in classes if label not in records.labels),
        overlapping_classes=overlapping_classes(records),
        unreadable=tuple(unreadable),
        leaks=named(leaking),
        duplicates=named(group for group in groups if group not in leaking),
        conflicts=named(group for group in groups if len(np.unique(records.labels[group])) > 1),
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
        content = records.source.read(row)
    except DataError as error:
        return _Finding(
            "", {}, str(error.__cause__ or error)
        )  # the error itself repeats the name and says: check
    if isinstance(content, np.ndarray):
        size = {"dimension": len(content)}
        if not np.isfinite(content).all():
            return _Finding("", size, "holds NaN or infinite numbers")
        return _Finding(sha256(content.tobytes()).hexdigest(), size, zero=not content.any())
    source, (position,) = records.source.origin(np.array([row]))
    if isinstance(source, Texts | Captioned):
        text = records.source.name(row) if isinstance(source, Captioned) else str(content)
        return _Finding(sha256(text.encode()).hexdigest(), {"characters": len(text)})
    if isinstance(source, ImageFiles):
        data = (source.root / source.paths[position]).read_bytes()
    else:
        data = f"{content.mode} {content.size}".encode() + content.tobytes()
    return _Finding(sha256(data).hexdigest(), {"width": content.width, "height": content.height})
