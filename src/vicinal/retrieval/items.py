"""What a collection holds: items, and the places they are from.

A collection can come from somebody else. Pictures are read below the folders of the run's own data
and those that the user names in the same call, and an engine is asked where the user names it.
Data sets, and with them torch, are imported only where pictures are asked for.
"""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from vicinal.arguments import describe
from vicinal.errors import DataError, VicinalError
from vicinal.files import followed
from vicinal.run_directory import RunDirectory

if TYPE_CHECKING:
    from vicinal.data import Table

Vectors = Float[np.ndarray, "n d"]
Vector = Float[np.ndarray, "d"]
Rows = Int[np.ndarray, "m"]  # places of items in a snapshot
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
        separator: what stands between the labels of an item that has several.
        description: of a data set that keeps its pictures in another form than files, as
            ``DATASETS`` build it.
    """

    path: str
    root: str | None
    split: str = "all"
    images: str | None = None
    description: Any = None
    separator: str = ""

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
        return {name: getattr(self, name) for name in ("id", "path", "label", "metadata")}


# -- whose pictures may be read -------------------------------------------------------------------


def own_folders(run: RunDirectory) -> list[Path]:
    """Return the files and folders of a run's own data, whose pictures its collections may show."""
    from vicinal.data import Table, own_description
    from vicinal.data.folder import expanded

    try:
        data = own_description(run)
    except (KeyError, VicinalError):  # given in Python, so there are none
        return []
    named = [describe(data).get(name) for name in ("path", "images")]
    if isinstance(data, Table) and expanded(data.path).is_file():
        named.append(folder_of_pictures(data))
    return [expanded(path) for path in named if path is not None]


def folder_of_pictures(table: "Table") -> str | None:
    """Return the folder of the pictures of a run's own table; where they lie elsewhere, the one
    that holds all.

    Training has read them there. A table that somebody names is held to its own folder, or to
    `--images`.
    """
    from vicinal.data.folder import existing
    from vicinal.data.table import read_columns

    columns = read_columns(existing(table.path))
    folder = columns.path.parent if table.images is None else existing(table.images)
    named = columns.texts(table.image)
    paths = [Path(os.path.normpath(folder.resolve() / path)) for path in named]
    inside = all(path.is_relative_to(folder.resolve()) for path in paths)
    return table.images if inside else os.path.commonpath([path.parent for path in paths])


@dataclass(frozen=True)
class Access:
    """What a collection may use outside of itself, for all that it names.

    Attributes:
        run: below the folders of whose own data pictures may be read.
        images: further such folders.
        engine: address of the engine to ask; None searches the collection's own vectors.
    """

    run: RunDirectory | None = None
    images: Sequence[str] = ()
    engine: str | None = None

    @cached_property
    def folders(self) -> list[Path]:
        """All folders below which pictures may be read."""
        from vicinal.data.folder import existing

        own = [] if self.run is None else own_folders(self.run)
        named = [*own, *map(existing, self.images)]
        return [followed(path.parent if path.is_file() else path) for path in named]

    def allows(self, path: Path) -> bool:
        return any(followed(path).is_relative_to(folder) for folder in self.folders)

    def require(self, path: Path) -> None:
        if not self.allows(path):
            raise DataError(
                f"the collection names {path}, which is neither the run's own data nor named here, "
                f"and is not read. Add --images {shlex.quote(str(path))}."
            )
