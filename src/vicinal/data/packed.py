"""Packed data sets: written in parts small enough to carry to another machine, and read there in
place.

A packed set is a folder: ``part-000.tar``, ``part-001.tar``, ... with the encoded images,
``rows.npz`` with labels, splits, names and columns, and ``packed.json``, written last, with sizes
and hashes of all the others. The images are read in place; nothing needs to be unpacked, though
``unpack`` and ``tar`` can.
"""

import csv
import io
import os
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Int
from PIL import Image

from vicinal.arguments import Settings, describe
from vicinal.data.folder import ENDINGS
from vicinal.data.images import decode
from vicinal.data.location import existing
from vicinal.data.records import ImageFiles, Progress, Records, Source, ends_of, stamps
from vicinal.data.transforms import ImageTransform, as_image
from vicinal.errors import ConfigError, DataError
from vicinal.files import (
    file_hash,
    open_image,
    read_arrays,
    read_json,
    write_arrays,
    write_atomically,
    write_json,
    write_text,
)

FORMAT = 1
PART_BYTES = 48 * 2**20
MANIFEST, ROWS, TABLE = "packed.json", "rows.npz", "records.csv"
_KEYS = {"name", "images", "rows", "parts", "classes"}
_COLUMN = "column "  # prefix in rows.npz: a column may be named as it likes
_BLOCK, _RECORD = 512, 10_240  # tar pads members to the one and files to the other
_IMAGES_AT_ONCE = 256  # encoded ahead of the writing

Encoded = tuple[bytes, str]  # an image file's bytes, and the ending of such files


@dataclass(frozen=True)
class Packed(Settings):
    """Images that ``pack`` wrote, with the labels, splits, names and columns they had.

    Args:
        path: the folder of the parts; ``$VICINAL_DATA`` and ``~`` are expanded.
    """

    slot: ClassVar[str] = "data"
    path: str

    @staticmethod
    def lies_in(folder: Path) -> bool:
        return (folder / MANIFEST).is_file()

    def load(self, *, strict: bool = True) -> Records:
        """Check sizes and hashes of all parts. With ``strict=False`` only that they are there."""
        folder = existing(self.path)
        if not self.lies_in(folder):
            raise DataError(f"{folder} is no packed set: it has no {MANIFEST}. Copy it there too.")
        manifest = read_json(folder / MANIFEST)
        if (
            not isinstance(manifest, dict)
            or manifest.get("format") != FORMAT
            or not _KEYS.issubset(manifest)
        ):
            raise DataError(
                f"{folder / MANIFEST} is no packed set of format {FORMAT}. Pack the set again."
            )
        _check_parts(folder, [*manifest["parts"], manifest["rows"]], strict=strict)
        rows = read_arrays(folder / ROWS)
        if len(rows["labels"]) != manifest["images"]:
            found = f"{len(rows['labels'])} rows, {MANIFEST} {manifest['images']}"
            raise DataError(f"{folder / ROWS} lists {found}. Copy both there again.")
        files, hashes = ([part[key] for part in manifest["parts"]] for key in ("file", "sha256"))
        source = PackedImages(folder, files, rows["places"], rows["names"].tolist(), hashes)
        columns = {
            name.removeprefix(_COLUMN): rows[name] for name in rows if name.startswith(_COLUMN)
        }
        return Records(
            manifest["name"],
            source,
            rows["labels"],
            tuple(manifest["classes"]),
            rows["splits"],
            columns,
        )


def _check_parts(folder: Path, listed: Sequence[dict[str, Any]], *, strict: bool) -> None:
    """Reject files that are missing or not the ones that were packed, all by name."""
    missing, changed = list[str](), list[str]()
    for entry in listed:
        file = folder / entry["file"]
        if not file.is_file():
            missing.append(file.name)
        elif file.stat().st_size != entry["bytes"] or (
            strict and file_hash(file) != entry["sha256"]
        ):
            changed.append(file.name)
    for problem, names in (
        ("are missing", missing),
        (f"differ in size or hash from what {MANIFEST} lists", changed),
    ):
        if names:
            count = f"{len(names)} of {len(listed)} files"
            raise DataError(f"{count} in {folder} {problem}: {', '.join(names)}. Copy them.")


class TarImages(Source):
    """Encoded images inside of tar files. Holds no open file, so any thread or process may read."""

    def __init__(
        self,
        folder: Path,
        files: Sequence[str],
        places: Int[np.ndarray, "n 3"],
        names: Sequence[str],
        hashes: Sequence[str] = (),
    ) -> None:
        """``places``: for each image its file, its first byte there and its length; ``hashes``:
        SHA-256 of files."""
        super().__init__(names)
        self.folder, self.files, self.places, self.hashes = (
            folder,
            list(files),
            places,
            list(hashes),
        )

    def read(self, index: int) -> Image.Image:
        try:
            return decode(io.BytesIO(self.encoded(index)))
        except (
            Exception
        ) as error:  # decoders raise whatever their parsing of a damaged file runs into
            place = f"{self.names[index]} in {self.folder / self.files[self.places[index, 0]]}"
            raise DataError(
                f"image {place} cannot be read: {error}. Write or copy that file again."
            ) from error

    def encoded(self, index: int) -> bytes:
        part, first, length = map(int, self.places[index])
        with (self.folder / self.files[part]).open("rb") as file:
            file.seek(first)
            return file.read(length)

    def content(self, index: int) -> bytes:
        part, first, length = map(int, self.places[index])
        with (self.folder / self.files[part]).open("rb") as file:
            return ends_of(file, first, length)

    def identity(self, positions: np.ndarray) -> str | None:
        if type(self).read is not TarImages.read:  # as of `ImageFiles`
            return None
        folder = self.folder.absolute()
        files = "\n".join(self.hashes) or stamps(folder / file for file in self.files)
        return None if files is None else f"{files}\n{self.places[positions].tolist()}"


class PackedImages(TarImages):
    """The images of a packed set, which can be unpacked."""


# -- packing
# --------------------------------------------------------------------------------------------------------


def pack(
    records: Records,
    folder: Path,
    *,
    transform: ImageTransform | None = None,
    quality: int = 90,
    part_bytes: int = PART_BYTES,
    progress: Progress = lambda done: None,
) -> tuple[Path, ...]:
    """Write records as a packed set and return its files, the manifest last.

    Args:
        records: images.
        folder: where to; created if need be. One that holds a packed set already is an error.
        transform: whose ``prepare`` brings images to a canvas before they are encoded as JPEG;
            under the same settings they come out of ``prepare`` again as they went in, but for the
            JPEG's loss. None keeps image files byte for
            byte, and images in memory as PNG: nothing is lost.
        quality: of the JPEG; a prepared image is one more generation away from its original.
        part_bytes: size that no part exceeds.
        progress: called with the number of images packed.
    """
    if records.source.kind != "images" or records.captions is not None or not len(records):
        held = f"{len(records)} {records.source.kind}" + (
            " and texts" if records.captions is not None else ""
        )
        raise ConfigError(f"only images can be packed, but {records.name} holds {held}.")
    if not 1 <= quality <= 100:
        raise ConfigError(f"the quality of a JPEG is 1 to 100, got {quality}.")
    if Packed.lies_in(folder):
        raise ConfigError(
            f"{folder} holds a packed set already. Remove it, or choose another folder."
        )
    parts, places = list[dict[str, Any]](), list[tuple[int, int, int]]()
    for images in _grouped(records, _encoded(records, transform, quality), part_bytes, progress):
        path = folder / f"part-{len(parts):03d}.tar"
        places += _write_part(path, images, len(parts), len(places))
        parts.append({**_identity(path), "images": len(images)})
    rows = {
        "labels": records.labels.astype(np.int64),
        "splits": records.splits.astype(str),
        "names": np.array([records.source.name(row) for row in range(len(records))]),
        "places": np.array(places, dtype=np.int64),
    }
    write_arrays(
        folder / ROWS, rows | {_COLUMN + name: column for name, column in records.columns.items()}
    )
    manifest = {
        "format": FORMAT,
        "name": records.name,
        "images": len(records),
        "fingerprint": records.fingerprint(),
        "prepared": None
        if transform is None
        else {"transform": describe(transform), "quality": quality},
        "rows": _identity(folder / ROWS),
        "parts": parts,
        "classes": list(records.classes),
    }
    write_json(folder / MANIFEST, manifest)
    return (*(folder / part["file"] for part in parts), folder / ROWS, folder / MANIFEST)


def _encoded(records: Records, transform: ImageTransform | None, quality: int) -> Iterator[Encoded]:
    """Encode each row in threads, a little ahead."""

    def encode(row: int) -> Encoded:
        source, (position,) = records.source.origin(np.array([row]))
        if transform is None and isinstance(source, ImageFiles):
            path = source.root / source.paths[position]
            if _is_plain(path):
                return path.read_bytes(), path.suffix.lower().removeprefix(".") or "bin"
        image, file = source.read(int(position)), io.BytesIO()
        if transform is None:
            image.save(file, "PNG")
            return file.getvalue(), "png"
        canvas = as_image(transform.prepare(image, source.name(int(position))))
        # Colors at full resolution, not halved as is usual: resized crops enlarge them.
        canvas.save(file, "JPEG", quality=quality, subsampling=0, optimize=True)
        return file.getvalue(), "jpg"

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for first in range(0, len(records), _IMAGES_AT_ONCE):
            yield from pool.map(encode, range(first, min(first + _IMAGES_AT_ONCE, len(records))))


def _is_plain(path: Path) -> bool:
    """Whether the file decodes to RGB or 8-bit gray as it is; an unreadable one does not."""
    with (
        suppress(Exception),
        open_image(path) as image,
    ):  # decoders raise whatever a damaged file makes them
        return image.mode in ("L", "RGB")
    return False


def _grouped(
    records: Records, encoded: Iterator[Encoded], part_bytes: int, progress: Progress
) -> Iterator[list[Encoded]]:
    """Gather images into parts of at most ``part_bytes``."""
    waiting, filled = list[Encoded](), 0
    for row, (content, ending) in enumerate(encoded):
        needed = _BLOCK + -(-len(content) // _BLOCK) * _BLOCK
        if waiting and _tar_bytes(filled + needed) > part_bytes:
            yield waiting
            waiting, filled = [], 0
        if _tar_bytes(needed) > part_bytes:
            raise ConfigError(
                f"{records.source.name(row)} takes {len(content)} bytes, more than a part of "
                f"{part_bytes} bytes can "
                f"hold. Raise `part_bytes`, or give a `transform` that makes it smaller."
            )
        waiting.append((content, ending))
        filled += needed
        progress(row + 1)
    yield waiting


def _tar_bytes(content: int) -> int:
    """Return the size of a tar whose members take ``content`` bytes: two empty blocks end it, in
    whole records."""
    return -(-(content + 2 * _BLOCK) // _RECORD) * _RECORD


def _write_part(
    path: Path, images: Sequence[Encoded], part: int, first_row: int
) -> list[tuple[int, int, int]]:
    """Write one tar and return where each image lies in it. The same images make the same bytes."""
    places = []

    def write(file: Any) -> None:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for row, (content, ending) in enumerate(images, first_row):
                member = tarfile.TarInfo(f"{row:08d}.{ending}")
                member.size = len(content)
                places.append((part, archive.offset + _BLOCK, len(content)))
                archive.addfile(member, io.BytesIO(content))

    write_atomically(path, write)
    return places


def _identity(path: Path) -> dict[str, Any]:
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": file_hash(path)}


# -- unpacking
# ------------------------------------------------------------------------------------------------------


def unpack(
    records: Records,
    folder: Path,
    *,
    by: Literal["name", "class"] = "name",
    progress: Progress = lambda done: None,
) -> Path:
    """Write the images of a packed set as files, with a table of what is known of them; return the
    table.

    The bytes are those in the parts: of a set that was packed without a transform, the original
        files. The table,
    ``records.csv``, is one that ``Table`` reads, with path, label, split and all columns.

    Args:
        records: as ``Packed`` loaded them, all of them.
        folder: where to; created if need be. It must be empty, so nothing is overwritten.
        by: ``"name"`` gives each image the name that it was packed with, folders included, and the
            ending of what it is now; ``"class"`` numbers the images in one folder per class.
        progress: called with the number of images written.
    """
    source = records.source
    if not isinstance(source, PackedImages):
        raise ConfigError(
            f"only a whole packed set can be unpacked, got {records.name} as "
            f"{type(source).__name__}."
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"cannot unpack into {folder}: it is not empty. Choose another folder.")
    endings = list[str]()
    for file in source.files:
        with tarfile.open(source.folder / file) as archive:
            endings += [PurePosixPath(name).suffix.removeprefix(".") for name in archive.getnames()]
    paths = _by_name(source.names, endings) if by == "name" else _by_class(records, endings)
    # One file must not overwrite another, nor stand where a folder has to be.
    path, count = Counter([*paths, PurePosixPath(TABLE)]).most_common(1)[0]
    blocked = set(paths) & {parent for path in paths for parent in path.parents}
    if count > 1 or blocked:
        clash = (
            f"{count} files would be named {path}"
            if count > 1
            else f"{min(blocked)} would be a file and a folder"
        )
        raise DataError(f"{clash}. Unpack by {'class' if by == 'name' else 'name'} instead.")
    for row, path in enumerate(paths):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(source.encoded(row))
        progress(row + 1)
    write_text(folder / TABLE, _table(records, paths))
    return folder / TABLE


def _by_name(names: Sequence[str], endings: Sequence[str]) -> list[PurePosixPath]:
    """Return the names as paths below a folder; one that leads out of it is an error."""
    paths = []
    for name, ending in zip(names, endings, strict=True):
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.name or "\0" in name:
            raise DataError(
                f"the name {name!r} leads out of the folder to unpack into. Unpack by class "
                "instead."
            )
        named = path.suffix.lower().removeprefix(".")
        if named != ending and path.suffix.lower() in ENDINGS:
            path = path.with_suffix(f".{ending}")  # prepared images are JPEG, whatever they were
        elif named != ending and (named or ending != "bin"):
            path = path.with_name(f"{path.name}.{ending}")
        paths.append(path)
    return paths


def _by_class(records: Records, endings: Sequence[str]) -> list[PurePosixPath]:
    """Return ``class/00000017.jpg``, with ``-`` for the slashes that a class's name may have."""
    folders = [name.replace("/", "-") for name in records.classes]
    shared = Counter(folders)
    for name in folders:
        if not name or name.startswith(".") or "\0" in name or shared[name] > 1:
            raise DataError(
                f"the class {name!r} cannot name a folder of its own. Unpack by name instead."
            )
    named = enumerate(zip(records.labels, endings, strict=True))
    return [PurePosixPath(folders[label], f"{row:08d}.{ending}") for row, (label, ending) in named]


def _table(records: Records, paths: Sequence[PurePosixPath]) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    columns = {
        name: column
        for name, column in records.columns.items()
        if name not in ("path", "label", "split")
    }
    rows.writerow(["path", "label", "split", *columns])
    known = zip(paths, records.labels, records.splits, *columns.values(), strict=True)
    rows.writerows(
        [str(path), records.classes[label], split, *rest] for path, label, split, *rest in known
    )
    return text.getvalue()
