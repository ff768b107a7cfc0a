"""What a collection holds: items, and the places they are from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from vicinal.errors import DataError
from vicinal.files import followed

Queries = Float[np.ndarray, "q d"]
Where = Mapping[str, str]  # attributes that what is found must have


@dataclass(frozen=True)
class Place:
    """A folder, table, array file or data set that was indexed.

    Attributes:
        path: what the user named, absolute; by it a place is known again.
        root: folder below which the items' pictures lie, absolute; None where there are no picture
            files.
        split: the part of a data set that was indexed; ``"all"`` for all of it.
        images: what ``--images`` named, so that indexing again need not name it again.
        description: of a data set that keeps its pictures in another form than files, as
            ``DATASETS`` build it.
    """

    path: str
    root: str | None
    split: str = "all"
    images: str | None = None
    description: Any = None

    def file(self, path: str) -> Path | None:
        """Return the picture file of an item; None where this place has no files; a DataError
        outside the root.

        Links are followed before the check, so that neither ``..`` nor a link leads out.
        """
        if self.root is None:
            return None
        root = followed(Path(self.root))
        found = followed(root / path)
        if not found.is_relative_to(root):
            raise DataError(
                f"{path!r} leads out of the indexed folder {root} and is not read. Index that "
                "file's own."
            )
        return found


@dataclass(frozen=True)
class Item:
    """One item in a collection.

    Attributes:
        id: stays with the item through all generations, also when its content changes; never used
            again.
        path: where it lies below its place (``Snapshot.places``), ``/`` between parts; for feature
            vectors their name.
        label: its class, where one is known.
        metadata: further facts by which a search can be narrowed.
        place: position of the folder, table or array file it is from in ``Snapshot.places``.
        digest: SHA-256 of its content, by which a change is detected.
    """

    id: int
    path: str
    label: str | None
    metadata: Mapping[str, str] = field(default_factory=dict)
    place: int = 0
    digest: str = ""

    @property
    def attributes(self) -> dict[str, str]:
        """What a search can be narrowed by: metadata, ``label`` and ``path``."""
        label = {} if self.label is None else {"label": self.label}
        return {**self.metadata, "path": self.path, **label}

    @property
    def document(self) -> dict[str, Any]:
        """What is told of it, as JSON."""
        return {
            "id": self.id,
            "path": self.path,
            "label": self.label,
            "metadata": dict(self.metadata),
        }
