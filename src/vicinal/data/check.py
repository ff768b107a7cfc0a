"""Reading a whole set before it is trusted: what is in it, and what is wrong with it."""

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
from PIL import Image

from vicinal.data.arrays import Arrays
from vicinal.data.cars import Cars196
from vicinal.data.cross_view import CrossView
from vicinal.data.cub import CUB
from vicinal.data.folder import Folder
from vicinal.data.inshop import InShop
from vicinal.data.omniglot import Omniglot
from vicinal.data.omniglot_pairs import OmniglotPairs
from vicinal.data.packed import Packed
from vicinal.data.records import SPLITS, Dataset, ImageFiles, Records, Taken
from vicinal.data.sop import StanfordOnlineProducts
from vicinal.data.splits import overlapping_classes
from vicinal.data.table import Table
from vicinal.errors import DataError

Progress = Callable[[int], None]  # told how many rows are read


@dataclass(frozen=True)
class CheckReport:
    """What a set holds and what is wrong with it.

    Attributes:
        name: of the set.
        kind: ``"images"`` or ``"features"``.
        rows: how many there are.
        classes: how many have rows.
        splits: rows and classes of each split that has any.
        small_classes: class, split and count where a split has fewer than 2 rows of a class: nothing to retrieve.
        empty_classes: names of classes that have a place but no row; of a part of a set, which need not have all, none.
        overlapping_classes: names of classes with rows both to train on and to test on.
        unreadable: name and reason for each image that cannot be read or is truncated, and for each vector that holds
            NaN or infinite numbers.
        leaks: groups of rows with equal content, of which some are tested and some are not; their names.
        duplicates: further groups of rows with equal content.
        conflicts: those groups of either kind whose rows differ in class.
        sizes: smallest, median and largest ``width`` and ``height`` of images, or the ``dimension`` of vectors.
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
        """Whether a model trained on this and its scores can be trusted; small classes and the like are only notes."""
        return not (self.unreadable or self.leaks or self.conflicts or self.zero_vectors or self.empty_classes)

    def as_json(self) -> dict[str, Any]:
        """The report as JSON takes it."""
        return {"ok": self.ok, **asdict(self)}

    def lines(self, most: int = 20) -> list[str]:
        """The report in words; of each list, at most ``most`` entries."""
        lines = [f"{self.name}: {self.rows} {self.kind} of {self.classes} classes"]
        lines += [
            f"  {split}: {counts['rows']} rows, {counts['classes']} classes" for split, counts in self.splits.items()
        ]
        lines += [
            f"  {side}: {low:g} / {mid:g} / {high:g} (least, median, most)"
            for side, (low, mid, high) in self.sizes.items()
        ]
        for title, entries in (
            ("cannot be read", [f"{name}: {reason}" for name, reason in self.unreadable]),
            ("in train and test with equal content", [" = ".join(group) for group in self.leaks]),
            ("equal content, different classes", [" = ".join(group) for group in self.conflicts]),
            ("equal content within a part", [" = ".join(group) for group in self.duplicates]),
            ("vectors of zeros", list(self.zero_vectors)),
            ("classes without a row", list(self.empty_classes)),
            (
                "classes with fewer than 2 rows",
                [f"{name} ({split}: {count})" for name, split, count in self.small_classes],
            ),
            ("classes both trained and tested on", list(self.overlapping_classes)),
        ):
            if entries:
                lines.append(f"  {title}: {len(entries)}")
                lines += [f"    {entry}" for entry in entries[:most]]
                lines += [f"    ... and {len(entries) - most} more"] * (len(entries) > most)
        return [*lines, "nothing wrong found" if self.ok else "something is wrong: see above"]


def load_unchecked(dataset: Dataset) -> Records:
    """The records of a data set with what its ``load`` refuses for one row's or class's sake, for ``check`` to list."""
    published = (CUB, Cars196, StanfordOnlineProducts, InShop, Omniglot, OmniglotPairs)
    if isinstance(dataset, (Folder, Table, Arrays, CrossView, Packed, *published)):
        return dataset.load(strict=False)
    return dataset.load()


def check(data: Records | Dataset, *, workers: int | None = None, progress: Progress | None = None) -> CheckReport:
    """Read every row of a set and report.

    Args:
        data: records, or a data set; what its ``load`` would refuse for one row's sake is then listed instead.
        workers: threads that read; None for as many as there are processors.
        progress: told from time to time, and at the end, how many rows are read.
    """
    records = data if isinstance(data, Records) else load_unchecked(data)
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:  # decoding and hashing release the interpreter's lock
        findings = list(
            _counted(pool.map(lambda row: _examined(records, row), range(len(records))), len(records), progress)
        )
    names = [records.source.name(row) for row in range(len(records))]
    groups = _equal_groups([finding.digest for finding in findings])
    tested = records.splits == "test"
    leaking = [group for group in groups if len(set(tested[group].tolist())) == 2]
    return CheckReport(
        name=records.name,
        kind=records.source.kind,
        rows=len(records),
        classes=len(np.unique(records.labels)),
        splits=_split_counts(records),
        small_classes=_small_classes(records),
        empty_classes=_empty_classes(records),
        overlapping_classes=overlapping_classes(records),
        unreadable=tuple((name, found.problem) for name, found in zip(names, findings, strict=True) if found.problem),
        leaks=_named(names, leaking),
        duplicates=_named(names, [group for group in groups if group not in leaking]),
        conflicts=_named(names, [group for group in groups if len(set(records.labels[group].tolist())) > 1]),
        sizes=_sizes([finding.size for finding in findings if finding.size]),
        zero_vectors=tuple(name for name, found in zip(names, findings, strict=True) if found.zero),
    )


@dataclass(frozen=True)
class _Finding:
    """What reading one row brought: a hash of its content, its size, or why it cannot be used."""

    digest: str = ""
    size: dict[str, int] = field(default_factory=dict)
    problem: str = ""
    zero: bool = False


def _examined(records: Records, row: int) -> _Finding:
    try:
        content = records.source.read(row)
    except DataError as error:
        return _Finding(problem=str(error.__cause__ or error))  # the error itself repeats the name and says: check
    if isinstance(content, np.ndarray):
        if not np.isfinite(content).all():
            return _Finding(problem="holds NaN or infinite numbers", size={"dimension": len(content)})
        digest = sha256(content.tobytes()).hexdigest()
        return _Finding(digest, size={"dimension": len(content)}, zero=not content.any())
    return _Finding(_image_digest(records, row, content), size={"width": content.width, "height": content.height})


def _image_digest(records: Records, row: int, image: Image.Image) -> str:
    """Of the file's bytes where there is a file, else of the pixels."""
    source, positions = records.source.origin(np.array([row]))
    if isinstance(source, ImageFiles):
        return sha256((source.root / source.paths[int(positions[0])]).read_bytes()).hexdigest()
    return sha256(f"{image.mode} {image.size}".encode() + image.tobytes()).hexdigest()


def _counted(findings: Iterator[_Finding], total: int, progress: Progress | None) -> Iterator[_Finding]:
    for done, finding in enumerate(findings, 1):
        if progress and (done % 100 == 0 or done == total):
            progress(done)
        yield finding


def _equal_groups(digests: Sequence[str]) -> list[list[int]]:
    rows = defaultdict(list)
    for row, digest in enumerate(digests):
        if digest:
            rows[digest].append(row)
    return [group for group in rows.values() if len(group) > 1]


def _named(names: Sequence[str], groups: Sequence[Sequence[int]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(names[row] for row in group) for group in groups)


def _split_counts(records: Records) -> dict[str, dict[str, int]]:
    labels = {split: records.labels[records.splits == split] for split in SPLITS}
    return {split: {"rows": len(own), "classes": len(np.unique(own))} for split, own in labels.items() if len(own)}


def _small_classes(records: Records) -> tuple[tuple[str, str, int], ...]:
    counts = Counter(zip(records.labels.tolist(), records.splits.tolist(), strict=True))
    return tuple(
        (records.classes[label], split, count) for (label, split), count in sorted(counts.items()) if count < 2
    )


def _empty_classes(records: Records) -> tuple[str, ...]:
    if isinstance(records.source, Taken):
        return ()
    held = set(records.labels.tolist())
    return tuple(name for label, name in enumerate(records.classes) if label not in held)


def _sizes(found: Sequence[dict[str, int]]) -> dict[str, tuple[float, float, float]]:
    sides = {side: np.array([size[side] for size in found]) for side in (found[0] if found else ())}
    return {
        side: (float(lengths.min()), float(np.median(lengths)), float(lengths.max())) for side, lengths in sides.items()
    }
