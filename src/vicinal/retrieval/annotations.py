"""What a person decides about items: tags, labels and drops, kept in a file beside the
collection's generations.

``annotations.json`` is a list of changes, oldest first, written anew as a whole by each; an undo
takes the last off.

A decision belongs to the picture it was made about: a change keeps the id and the content's digest
of each item. A renamed picture keeps its decision, another picture that takes its name or its id
does not get it, and one whose picture is no longer in the collection is lost until it comes back.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from vicinal.errors import DataError
from vicinal.files import decoding, lock_open_file, read_json, write_json
from vicinal.retrieval.collection import Snapshot

NAME = "annotations.json"
Target = int | str  # an item by its id; what is not in the collection by its path
Change = Mapping[str, Any]


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

    def changed(self, change: Change) -> "Annotation":
        """Return the annotation after a change: ``label``, ``drop``, ``add`` and ``remove``."""
        tags = tuple(sorted({*self.tags, *change["add"]} - {*change["remove"]}))
        if change["drop"]:
            return Annotation(None, True, tags)
        if change["label"] is not None:
            return Annotation(change["label"], False, tags)
        return Annotation(self.label, self.dropped, tags)


@dataclass(frozen=True)
class Decided:
    """All that is decided about the items of one generation.

    Attributes:
        items: decisions by target.
        lost: decisions about pictures that are not in this generation, by the path they had.
        can_undo: whether there is a change to take back.
    """

    items: dict[Target, Annotation] = field(default_factory=dict)
    lost: dict[Target, Annotation] = field(default_factory=dict)
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
        for word in (*add, *remove, label or "-"):
            if word != word.strip() or not word.isprintable() or not word or ";" in word:
                raise DataError(
                    "a label or tag is printable, without space at its ends and without "
                    f"semicolons; got {word[:60]!r}."
                )
        named = [_named(snapshot, target) for target in targets]
        change = {"label": label, "drop": drop, "add": [*add], "remove": [*remove]}
        with self._writing() as changes:
            write_json(self.path, [*changes, {"targets": named, **change}])

    def undo(self) -> None:
        """Take back the last change that is not taken back."""
        with self._writing() as changes:
            write_json(self.path, changes[:-1])

    def _changes(self) -> list[Change]:
        return list(read_json(self.path)) if self.path.exists() else []

    @contextmanager
    def _writing(self) -> Iterator[list[Change]]:
        with self.path.with_suffix(".lock").open("w") as lock:
            lock_open_file(lock.fileno())
            yield self._changes()


def _named(snapshot: Snapshot, target: Target) -> Sequence[Any]:
    """Return a target as a change keeps it: id, digest and path."""
    if isinstance(target, str):
        return None, None, target
    item = snapshot.item(target)
    return item.id, item.digest, item.path


def _decided(changes: Sequence[Change], snapshot: Snapshot) -> Decided:
    """Apply all changes to the items of a generation, in their order."""
    found = Decided(can_undo=bool(changes))
    digests = {item.id: item.digest for item in snapshot.items()}
    ids = {item.digest: item.id for item in reversed(snapshot.items()) if item.digest}
    for change in changes:
        for id, digest, path in change["targets"]:
            here = id if digests.get(id) == digest else ids.get(digest)
            part = found.items if here is not None or id is None else found.lost
            target: Target = path if here is None else here
            made = part.pop(target, Annotation()).changed(change)
            if made != Annotation():
                part[target] = made
    return found
