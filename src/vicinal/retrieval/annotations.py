"""What a person decides about items: other labels and drops, kept in a file beside the
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


@dataclass(frozen=True, eq=False)
class Decided:
    """All that is decided about the items of one generation: new labels, empty for a drop.

    Attributes:
        items: labels by target.
        lost: labels of pictures that are not in this generation, by the path they had.
        can_undo: whether there is a change to take back.
    """

    items: dict[Target, str] = field(default_factory=dict)
    lost: dict[Target, str] = field(default_factory=dict)
    can_undo: bool = False

    @cached_property
    def labels(self) -> dict[int, str]:
        """The labels that items were given, by id."""
        return {
            target: label
            for target, label in self.items.items()
            if isinstance(target, int) and label
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

    def change(self, snapshot: Snapshot, targets: Sequence[Target], label: str) -> None:
        """Give the targets a label, or drop them by an empty one; when it returns, this survives a
        power cut."""
        if label != label.strip() or not label.isprintable():
            raise DataError(
                f"a label is printable and without space at its ends; got {label[:60]!r}."
            )
        named = [_named(snapshot, target) for target in targets]
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
            part[path if here is None else here] = change["label"]
    return found
