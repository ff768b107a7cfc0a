"""What a person decides about items: tags, labels and drops, kept in a journal beside the
collection's generations.

Each change is one line: a checksum and JSON. Lines are only ever appended, under a lock and synced,
so a crash can at most cut off the last one, which is then left out. An undo is a line, too, that
names the line it takes back.
"""

import errno
import json
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from vicinal.errors import DataError
from vicinal.files import lock_open_file, naming

NAME = "annotations.journal"
Target = int | str  # an item by its id; what is not in the collection by its path
Targets = Sequence[Target]
Words = Iterable[str]
_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC if os.name == "posix" else 0
_WRITING = os.O_RDWR | os.O_CREAT | os.O_APPEND


@dataclass(frozen=True)
class Annotation:
    """What was decided about one item.

    Attributes:
        label: its class from now on; None where that of the data stands.
        dropped: whether it is to be left out of the data.
        tags: words by which it is found again, in alphabetical order.
    """

    label: str | None = None
    dropped: bool = False
    tags: tuple[str, ...] = ()

    def changed(self, change: Mapping[str, Any]) -> "Annotation":
        """Return the annotation after a change: ``label``, ``drop``, ``add`` and ``remove``, each
        where given."""
        tags = (set(self.tags) | set(change.get("add", ()))) - set(change.get("remove", ()))
        label, dropped = (
            (change["label"], False) if "label" in change else (self.label, self.dropped)
        )
        if change.get("drop"):
            label, dropped = None, True
        return Annotation(label, dropped, tuple(sorted(tags)))


class Annotations:
    """The annotations of a collection. Any thread and any process may change them.

    Args:
        collection: folder of the collection.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     annotations = Annotations(Path(folder))
    ...     annotations.change([4, 7], add=["blurred"])
    ...     annotations.change([7], label="wren")
    ...     annotations.undo()
    ...     annotations.read()[7]
    True
    Annotation(label=None, dropped=False, tags=('blurred',))
    """

    def __init__(self, collection: Path) -> None:
        self.path, self._lock = collection / NAME, Lock()
        self._forget()

    def _forget(self) -> None:
        self._lines: list[dict[str, Any] | None] = []  # None for one that is damaged
        self._read, self._file = 0, (0, 0)  # bytes, and the file that they are of
        self._state: dict[Target, Annotation] = {}
        self._labels: dict[int, str] | None = {}

    @property
    def damaged(self) -> int:
        """How many lines could not be read and are left out."""
        return self._lines.count(None)

    @property
    def last(self) -> int | None:
        """Number of the line that an undo would take back; None where there is none."""
        undone = self._undone()
        changes = (number for number, line in enumerate(self._lines) if line and "undo" not in line)
        return max((number for number in changes if number not in undone), default=None)

    def _undone(self) -> set[int]:
        return {line["undo"] for line in self._lines if line and "undo" in line}

    def read(self) -> dict[Target, Annotation]:
        """Return what is decided now, by target; items about which nothing is decided are left
        out."""
        with suppress(FileNotFoundError), self._opened(os.O_RDONLY):
            return dict(self._state)
        return {}

    def labels(self) -> Mapping[int, str]:
        """Return the labels that items were given, by id; the same object while nothing changes."""
        with suppress(FileNotFoundError), self._opened(os.O_RDONLY):
            if self._labels is None:
                given = (
                    (target, one.label)
                    for target, one in self._state.items()
                    if isinstance(target, int)
                )
                self._labels = {target: label for target, label in given if label is not None}
            return self._labels
        return {}

    def change(
        self,
        targets: Targets,
        *,
        label: str | None = None,
        drop: bool = False,
        add: Words = (),
        remove: Words = (),
    ) -> None:
        """Give the targets a label, drop them, add or remove tags; when it returns, this survives a
        power cut."""
        given: dict[str, Any] = {
            "label": label,
            "drop": drop,
            "add": sorted(set(add)),
            "remove": sorted(set(remove)),
        }
        change = {name: value for name, value in given.items() if value not in (None, False, [])}
        if not change or not targets or (drop and label is not None):
            raise DataError(
                "a change names targets, and tags, a label or a drop; not a label and a drop "
                "together."
            )
        tags = [*change.get("add", ()), *change.get("remove", ())]
        for word in (*tags, *([] if label is None else [label])):
            if not word or word != word.strip() or len(word) > 200 or not word.isprintable():
                rule = "1 to 200 printable characters without space at its ends"
                raise DataError(f"a label or tag is {rule}; got {word[:60]!r}.")
        if wrong := [tag for tag in tags if ";" in tag]:
            raise DataError(
                f"a tag holds no semicolon, which separates tags; got {wrong[0][:60]!r}."
            )
        with self._opened(_WRITING) as append:
            append({"time": round(time.time(), 3), "targets": list(targets), **change})

    def undo(self) -> bool:
        """Take back the last change that is not taken back; return whether there was one."""
        with self._opened(_WRITING) as append:
            last = self.last
            if last is not None:
                append({"time": round(time.time(), 3), "undo": last})
            return last is not None

    @contextmanager
    def _opened(self, mode: int) -> Iterator[Callable[[dict[str, Any]], None]]:
        """Hold the journal alone, brought up to date; yield what appends a line."""
        with self._lock, naming(self.path):
            try:
                handle = os.open(self.path, mode | _FLAGS, 0o666)
            except OSError as error:
                self._forget()  # it may have been removed
                if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                    raise _irregular() from error
                raise
            try:
                found = os.fstat(handle)
                if not stat.S_ISREG(found.st_mode):
                    raise _irregular()
                lock_open_file(handle)
                size = os.fstat(handle).st_size
                if (found.st_dev, found.st_ino) != self._file or size < self._read:
                    self._forget()  # another file, put in its place
                    self._file = found.st_dev, found.st_ino
                self._update(os.pread(handle, size - self._read, self._read))
                yield lambda line: self._append(handle, line)
            finally:
                os.close(handle)

    def _update(self, data: bytes) -> None:
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        new = [_decoded(line) for line in whole.split(b"\n")[:-1]]
        self._lines += new
        self._labels = None if new else self._labels
        if any(line and "undo" in line for line in new):
            undone = self._undone()
            self._state, new = (
                {},
                [line for number, line in enumerate(self._lines) if number not in undone],
            )
        for line in filter(None, new):
            for target in line.get("targets", ()):
                self._state[target] = self._state.get(target, Annotation()).changed(line)
        for target in [
            target for target, annotation in self._state.items() if annotation == Annotation()
        ]:
            del self._state[target]

    def _append(self, handle: int, line: dict[str, Any]) -> None:
        body = json.dumps(line, separators=(",", ":")).encode()
        entry = f"{zlib.crc32(body):08x} ".encode() + body + b"\n"
        size = os.fstat(handle).st_size
        # A line that a crash cut off is ended first, and stays damaged even where all of it but the
        # end is there.
        data = entry if size == self._read else b" cut off\n" + entry
        while data:
            data = data[os.write(handle, data) :]
        os.fsync(handle)
        self._update(os.pread(handle, os.fstat(handle).st_size - self._read, self._read))


def _decoded(line: bytes) -> dict[str, Any] | None:
    """Return the change of a line, or None where it is damaged."""
    try:
        if f"{zlib.crc32(line[9:]):08x} ".encode() != line[:9]:
            return None
        found = dict(json.loads(line[9:]))
        words = [*found.get("add", ()), *found.get("remove", ()), found.get("label", "")]
        sound = isinstance(found.get("undo"), int) or all(
            isinstance(target, (int, str)) for target in found["targets"]
        )
        return found if sound and all(isinstance(word, str) for word in words) else None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _irregular() -> DataError:
    return DataError(
        f"{NAME} of the collection is a link or no regular file, and is not used. Remove it."
    )
