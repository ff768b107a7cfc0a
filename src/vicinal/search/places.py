"""Where the things of a collection came from, and how their pictures are found again, never outside that place."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Literal

from PIL import Image

from vicinal.data import DATASETS
from vicinal.data.images import read_image
from vicinal.data.records import Records, Source
from vicinal.description import build
from vicinal.errors import DataError

Kind = Literal["folder", "table", "archive", "features", "data set"]


@dataclass(frozen=True)
class Place:
    """A folder, table, archive, array file or data set that was indexed.

    Attributes:
        path: what the user named, absolute; by it a place is known again.
        kind: which of these it is.
        root: folder below which the items' pictures lie, absolute or, for what was unpacked there, below the
            collection; None where there are no picture files.
        split: the part of a data set that was indexed; ``"all"`` for all of it.
        images: what ``--images`` named, so that indexing again needs no second naming.
        description: of a data set that keeps its pictures in another form than files, as ``DATASETS`` build it.
    """

    path: str
    kind: Kind
    root: str | None
    split: str = "all"
    images: str | None = None
    description: Any = None

    def file(self, collection: Path, path: str) -> Path | None:
        """The picture file of an item; None where this place has no files; refused outside the root.

        Links are followed before the check, so that neither ``..`` nor a link leads out.
        """
        if self.root is None:
            return None
        root = (collection / self.root).resolve()
        found = (root / path).resolve()
        if not found.is_relative_to(root):
            raise DataError(f"{path!r} leads out of the indexed folder {root} and is not read. Index that file's own.")
        return found


class Pictures:
    """The pictures of a collection's items. A data set that keeps them in other forms than files is opened once."""

    def __init__(self, collection: Path, places: Sequence[Place]) -> None:
        self._collection, self._places = collection, tuple(places)
        self._lock = Lock()
        self._opened: dict[int, tuple[Source, dict[str, int]]] = {}

    def image(self, place: int, path: str) -> Image.Image:
        """The picture of the item at ``path`` of a place, decoded."""
        here = self._places[place]
        file = here.file(self._collection, path)
        if file is not None:
            if not file.is_file():
                raise DataError(f"the picture {file} was indexed, but is gone. Index {here.path} again.")
            return read_image(file)
        if here.description is None:
            raise DataError(
                f"{path!r} of {here.path} is a feature vector without a picture. "
                f"Index again with --images FOLDER if its name is the path of a picture below a folder."
            )
        source, positions = self._data_set(place, here)
        if path not in positions:
            raise DataError(f"{path!r} was indexed, but is no longer in {here.path}. Index it again.")
        image: Image.Image = source.read(positions[path])
        return image

    def _data_set(self, number: int, place: Place) -> tuple[Source, dict[str, int]]:
        with self._lock:
            if number not in self._opened:
                records: Records = build(place.description, DATASETS).load()
                names = {records.source.name(position): position for position in range(len(records))}
                self._opened[number] = records.source, names
            return self._opened[number]
