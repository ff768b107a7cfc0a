"""A packed data set: parts that were carried here from another machine, read as they are.

A packed set is a folder: ``part-000.tar``, ``part-001.tar``, ... with the encoded images, ``rows.npz`` with labels,
splits, names and columns, and ``packed.json``, written last, with sizes and hashes of all the others. The images are
read in place; nothing needs to be unpacked, though ``tar`` can. ``packing.pack`` writes it.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from PIL import Image

from vicinal.data.images import upright
from vicinal.data.location import existing
from vicinal.data.records import Kind, Records, Source
from vicinal.errors import DataError
from vicinal.files import read_arrays, read_json

MANIFEST, ROWS = "packed.json", "rows.npz"
FORMAT = 1
_KEYS = {"name", "images", "rows", "parts", "classes"}
COLUMN = "column "  # prefix in rows.npz: a column may be named as it likes


@dataclass(frozen=True)
class Packed:
    """Images that ``pack`` wrote, with the labels, splits, names and columns they had.

    Args:
        path: the folder of the parts; ``$VICINAL_DATA`` and ``~`` are expanded.
    """

    path: str

    @staticmethod
    def lies_in(folder: Path) -> bool:
        return (folder / MANIFEST).is_file()

    def load(self, *, strict: bool = True) -> Records:
        """Check sizes and hashes of all parts. With ``strict=False`` only that they are there."""
        folder = existing(self.path)
        if not self.lies_in(folder):
            raise DataError(f"a packed set was to be read from {folder}, but it has no {MANIFEST}. Carry it there too.")
        manifest = read_json(folder / MANIFEST)
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT or not _KEYS.issubset(manifest):
            raise DataError(f"{folder / MANIFEST} is no packed set of format {FORMAT}. Pack the set anew.")
        _refuse_damage(folder, manifest, strict=strict)
        rows = read_arrays(folder / ROWS)
        if len(rows["labels"]) != manifest["images"]:
            raise DataError(
                f"{folder / ROWS} has {len(rows['labels'])} rows, but {MANIFEST} counts {manifest['images']} images. "
                f"Carry both files again."
            )
        files = [part["file"] for part in manifest["parts"]]
        return Records(
            name=manifest["name"],
            source=PackedImages(folder, files, rows["places"], rows["names"].tolist()),
            labels=rows["labels"],
            classes=tuple(manifest["classes"]),
            splits=rows["splits"],
            columns={name.removeprefix(COLUMN): rows[name] for name in rows if name.startswith(COLUMN)},
        )


class PackedImages(Source):
    """Encoded images inside the parts. Holds no open file, so any thread or process may read."""

    kind: Kind = "images"

    def __init__(
        self, folder: Path, files: Sequence[str], places: Int[np.ndarray, "n 3"], names: Sequence[str]
    ) -> None:
        """``places``: for each image its part, its first byte there and its length."""
        self.folder, self.files, self.places, self.names = folder, list(files), places, list(names)

    def __len__(self) -> int:
        return len(self.places)

    def name(self, index: int) -> str:
        return self.names[index]

    def read(self, index: int) -> Image.Image:
        part, first, length = self.places[index].tolist()
        path = self.folder / self.files[part]
        try:
            with path.open("rb") as file:
                file.seek(first)
                encoded = io.BytesIO(file.read(length))
            with Image.open(encoded) as image:
                image.load()
                return upright(image)
        except Exception as error:  # decoders raise whatever their parsing of a damaged file runs into
            raise DataError(
                f"image {self.names[index]} in {path} cannot be read: {error}. Carry the part again."
            ) from error


def file_hash(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _refuse_damage(folder: Path, manifest: dict[str, Any], *, strict: bool) -> None:
    """Refuse missing files, all by name, then files that are not the ones that were packed."""
    listed = [*manifest["parts"], manifest["rows"]]
    missing = [entry["file"] for entry in listed if not (folder / entry["file"]).is_file()]
    if missing:
        raise DataError(
            f"{folder} should hold {len(listed)} files of {manifest['name']}, but {len(missing)} are missing: "
            f"{', '.join(missing)}. Carry them there too."
        )
    damaged = [
        entry["file"]
        for entry in listed
        if (folder / entry["file"]).stat().st_size != entry["bytes"]
        or (strict and file_hash(folder / entry["file"]) != entry["sha256"])
    ]
    if damaged:
        raise DataError(
            f"in {folder}, {', '.join(damaged)} are not the files that {MANIFEST} lists: size or hash differ. "
            f"Carry them again."
        )
