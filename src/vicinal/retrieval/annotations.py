"""What a person decides about items: tags, labels and drops, kept in a journal beside the
collection's generations.

Each change is one line: a checksum and JSON. Lines are only ever appended, under a lock and synced,
so a crash can at most cut off the last one, which is then left out. An undo is a line, too, that
names the line it takes back.

A decision belongs to the picture it was made about: a line keeps the id and the content's digest of
each item. A renamed picture keeps its decision, another picture that takes its name or its id does
not get it, and one whose picture is no longer in the collection is lost until it comes back.
"""

import json
import os
import stat
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from vicinal.errors import DataError
from vicinal.files import lock_open_file, naming
from vicinal.retrieval.collection import Snapshot

NAME = "annotations.journal"
Target = int | str  # an item by its id; what is not in the collection by its path
Line = dict[str, Any] | None  # None for one that is damaged


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
        tags = tuple(sorted({*self.tags, *change.get("add", ())} - {*change.get("remove", ())}))
        if change.get("drop"):
            return Annotation(None, True, tags)
        if "label" in change:
            return Annotation(change["label"], False, tags)
        return Annotation(self.label, self.dropped, tags)


@dataclass(frozen=True)
class Decided:
    """All that is decided about the items of one generation.

    Attributes:
        items: decisions by target.
        lost: decisions about pictures that are not in this generation, by the path they had.
        damaged: how many lines of the journal cannot be read and are left out.
        can_undo: whether there is a change to take back.
    """

    items: dict[Target, Annotation] = field(default_factory=dict)
    lost: dict[str, Annotation] = field(default_factory=dict)
    damaged: int = 0
    can_undo: bool = False

    @cached_property
    def labels(self) -> dict[int, str]:
        """The labels that items were given, by id."""
        return {
            target: one.label
            for target, one in self.items.items()
            if isinstance(target, int) and one.label is not None
        }


class Annotations:
    """The annotations of a collection. Any thread and any process may change them.

    Args:
        collection: folder of the collection.
    """

    def __init__(self, collection: Path) -> None:
        self.path = collection / NAME
        self._lock = Lock()
        self._mark: tuple[int, ...] = ()  # of the file that the lines were read from
        self._lines: list[Line] = []
        self._decided: tuple[list[Line], Snapshot, Decided] | None = None

    def read(self, snapshot: Snapshot) -> Decided:
        """Return what is decided now about the items of a generation; the same object while nothing
        changes."""
        with self._lock:
            lines = self._read_lines()
            held = self._decided
            if held is None or held[0] is not lines or held[1] is not snapshot:
                held = self._decided = lines, snapshot, _decided(lines, snapshot)
            return held[2]

    def change(
        self,
        snapshot: Snapshot,
        targets: Sequence[Target],
        *,
        label: str | None = None,
        drop: bool = False,
        add: Sequence[str] = (),
        remove: Sequence[str] = (),
    ) -> None:
        """Give the targets a label, drop them, add or remove tags; when it returns, this survives a
        power cut."""
        given = {"label": label, "drop": drop, "add": [*add], "remove": [*remove]}
        change = {name: value for name, value in given.items() if value not in (None, False, [])}
        if not change or not targets or (drop and label is not None):
            raise DataError(
                "a change names targets, and tags, a label or a drop; not a label and a drop "
                "together."
            )
        tags = [*add, *remove]
        for word in (*tags, *([] if label is None else [label])):
            if not word or word != word.strip() or len(word) > 200 or not word.isprintable():
                rule = "1 to 200 printable characters without space at its ends"
                raise DataError(f"a label or tag is {rule}; got {word[:60]!r}.")
        if wrong := [tag for tag in tags if ";" in tag]:
            raise DataError(
                f"a tag holds no semicolon, which separates tags; got {wrong[0][:60]!r}."
            )
        named = [_named(snapshot, target) for target in targets]
        self._append(lambda _: {"targets": named, **change})

    def undo(self) -> bool:
        """Take back the last change that is not taken back; return whether there was one."""
        return self._append(lambda lines: {"undo": max(_standing(lines), default=None)})

    def _read_lines(self) -> list[Line]:
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            self._mark = ()
            self._lines = []
            return self._lines
        if not stat.S_ISREG(found.st_mode):
            raise DataError(
                f"{NAME} of the collection is a link or no regular file, and is not used. Remove "
                "it."
            )
        mark = (found.st_ino, found.st_size, found.st_mtime_ns)
        if mark != self._mark:
            # What follows the last end of a line was cut off by a crash.
            self._lines = [_decoded(line) for line in self.path.read_bytes().split(b"\n")[:-1]]
            self._mark = mark
        return self._lines

    def _append(self, made: Callable[[list[Line]], dict[str, Any]]) -> bool:
        """Append the line made of those that are there, unless it takes back nothing."""
        with self._lock, naming(self.path):
            self._read_lines()  # no link is opened
            with self.path.open("a+b") as file:
                lock_open_file(file.fileno())
                line = made(self._read_lines())
                if line.get("undo", 0) is None:
                    return False
                body = json.dumps(line, separators=(",", ":")).encode()
                entry = f"{zlib.crc32(body):08x} ".encode() + body + b"\n"
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    # A line that was cut off is ended, and stays damaged.
                    entry = entry if file.read() == b"\n" else b" cut off\n" + entry
                file.write(entry)
                file.flush()
                os.fsync(file.fileno())
        return True


def _named(snapshot: Snapshot, target: Target) -> str | list[Any]:
    """Return a target as a line keeps it."""
    if isinstance(target, str):
        return target
    item = snapshot.item(target)
    return [item.id, item.digest, item.path]


def _standing(lines: list[Line]) -> list[int]:
    """Return the numbers of the changes that are not taken back."""
    undone = {line["undo"] for line in lines if line and "undo" in line}
    changes = (number for number, line in enumerate(lines) if line and "targets" in line)
    return [number for number in changes if number not in undone]


def _decided(lines: list[Line], snapshot: Snapshot) -> Decided:
    """Apply all changes to the items of a generation, in their order."""
    standing = _standing(lines)
    found = Decided(damaged=lines.count(None), can_undo=bool(standing))
    digests = {item.id: item.digest for item in snapshot.items()}
    ids = {item.digest: item.id for item in reversed(snapshot.items()) if item.digest}

    def apply(part: dict[Any, Annotation], key: Target, line: Mapping[str, Any]) -> None:
        part[key] = part.get(key, Annotation()).changed(line)
        if part[key] == Annotation():
            del part[key]

    for line in (lines[number] or {} for number in standing):
        for target in line["targets"]:
            if isinstance(target, str):
                apply(found.items, target, line)
                continue
            id, digest, path = target
            here = id if digests.get(id) == digest else ids.get(digest)
            if here is None:
                apply(found.lost, path, line)
            else:
                apply(found.items, here, line)
    return found


def _decoded(line: bytes) -> Line:
    """Return the change of a line, or None where it is damaged."""
    try:
        found = dict(json.loads(line[9:]))
        sound = all(isinstance(each, str) or len(each) == 3 for each in found.get("targets", ()))
    except (ValueError, TypeError, RecursionError):
        return None
    whole = f"{zlib.crc32(line[9:]):08x} ".encode() == line[:9]
    return found if whole and sound and found else None
