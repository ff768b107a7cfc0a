"""Packing a data set into parts small enough to carry to another machine, where ``packed.Packed`` reads them."""

import io
import os
import tarfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from PIL import Image

from vicinal.data.packed import COLUMN, FORMAT, MANIFEST, ROWS, Packed, file_hash
from vicinal.data.records import ImageFiles, Records
from vicinal.data.transforms import ImageTransform
from vicinal.description import describe
from vicinal.errors import ConfigError, DataError
from vicinal.files import write_arrays, write_atomically, write_json

PART_BYTES = 48 * 2**20
_BLOCK, _RECORD = 512, 10_240  # tar pads members to the one and files to the other
_IMAGES_AT_ONCE = 256  # encoded ahead of the writing


def pack(
    records: Records,
    folder: Path,
    *,
    transform: ImageTransform | None = None,
    quality: int = 90,
    part_bytes: int = PART_BYTES,
    progress: Callable[[int], None] | None = None,
) -> tuple[Path, ...]:
    """Write records as a packed set and return its files, the manifest last.

    Args:
        records: images.
        folder: where to; made if need be. One that holds a packed set already is refused.
        transform: whose ``prepare`` brings images to a canvas before they are encoded as JPEG; under the same settings
            they come out of ``prepare`` again as they went in, but for the JPEG's loss. None keeps image files byte for
            byte, and images in memory as PNG: nothing is lost.
        quality: of the JPEG; a prepared image is one more generation away from its original.
        part_bytes: size that no part exceeds.
        progress: told how many images are packed.
    """
    if records.source.kind != "images" or not len(records):
        raise ConfigError(f"images are packed, but {records.name} holds {len(records)} {records.source.kind}.")
    if not 1 <= quality <= 100:
        raise ConfigError(f"the quality of a JPEG is 1 to 100, but {quality} came.")
    if Packed.lies_in(folder):
        raise ConfigError(f"{folder} holds a packed set already. Remove it, or choose another folder.")
    parts: list[dict[str, Any]] = []
    places: list[tuple[int, int, int]] = []
    waiting: list[tuple[bytes, str]] = []
    filled = 0

    def write() -> None:
        path = folder / f"part-{len(parts):03d}.tar"
        first_row = len(places)
        write_atomically(path, lambda file: places.extend(_write_part(file, waiting, len(parts), first_row)))
        parts.append({**_identity(path), "images": len(waiting)})
        waiting.clear()

    for row, (encoded, ending) in enumerate(_encoded(records, transform, quality)):
        needed = _BLOCK + -(-len(encoded) // _BLOCK) * _BLOCK
        if waiting and _file_bytes(filled + needed) > part_bytes:
            write()
            filled = 0
        if _file_bytes(needed) > part_bytes:
            raise ConfigError(
                f"{records.source.name(row)} takes {len(encoded)} bytes, which no part of {part_bytes} bytes can hold. "
                f"Raise `part_bytes`, or give a `transform` that makes it smaller."
            )
        waiting.append((encoded, ending))
        filled += needed
        if progress is not None:
            progress(row + 1)
    write()
    rows = {
        "labels": records.labels.astype(np.int64),
        "splits": records.splits.astype(str),
        "names": np.array([records.source.name(row) for row in range(len(records))]),
        "places": np.array(places, dtype=np.int64),
    }
    write_arrays(folder / ROWS, rows | {COLUMN + name: column for name, column in records.columns.items()})
    manifest = {
        "format": FORMAT,
        "name": records.name,
        "images": len(records),
        "fingerprint": records.fingerprint(),
        "prepared": None if transform is None else {"transform": describe(transform), "quality": quality},
        "rows": _identity(folder / ROWS),
        "parts": parts,
        "classes": list(records.classes),
    }
    write_json(folder / MANIFEST, manifest)
    return (*(folder / part["file"] for part in parts), folder / ROWS, folder / MANIFEST)


def _encoded(records: Records, transform: ImageTransform | None, quality: int) -> Iterator[tuple[bytes, str]]:
    """Each row's bytes and the ending of such files, encoded in threads a little ahead."""

    def encode(row: int) -> tuple[bytes, str]:
        source, (position,) = records.source.origin(np.array([row]))
        if transform is None and isinstance(source, ImageFiles):
            path = source.root / source.paths[position]
            if _is_plain(path):
                return path.read_bytes(), path.suffix.lower().removeprefix(".") or "bin"
        image, file = source.read(int(position)), io.BytesIO()
        if transform is None:
            image.save(file, "PNG")
            return file.getvalue(), "png"
        try:
            pixels = transform.prepare(image).permute(1, 2, 0).numpy()
        except DataError as error:
            raise DataError(f"{source.name(int(position))}: {error}") from error
        # Colours at full resolution, not halved as is usual: resized crops enlarge them.
        canvas = Image.fromarray(np.ascontiguousarray(pixels if pixels.shape[2] == 3 else pixels[:, :, 0]))
        canvas.save(file, "JPEG", quality=quality, subsampling=0, optimize=True)
        return file.getvalue(), "jpg"

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for first in range(0, len(records), _IMAGES_AT_ONCE):
            yield from pool.map(encode, range(first, min(first + _IMAGES_AT_ONCE, len(records))))


def _is_plain(path: Path) -> bool:
    """Whether the file decodes to RGB or 8-bit grey as it is; an unreadable one does not."""
    try:
        with Image.open(path) as image:
            return image.mode in ("L", "RGB")
    except Exception:  # decoders raise whatever their parsing of a damaged file runs into
        return False


def _write_part(
    file: BinaryIO, images: Sequence[tuple[bytes, str]], part: int, first_row: int
) -> list[tuple[int, int, int]]:
    """Write one tar and tell where each image lies in it. The same images make the same bytes."""
    places = []
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for row, (encoded, ending) in enumerate(images, first_row):
            member = tarfile.TarInfo(f"{row:08d}.{ending}")
            member.size = len(encoded)
            places.append((part, archive.offset + _BLOCK, len(encoded)))
            archive.addfile(member, io.BytesIO(encoded))
    return places


def _file_bytes(content: int) -> int:
    """Size of a tar whose members take ``content`` bytes: two empty blocks end it, padded to a whole record."""
    return -(-(content + 2 * _BLOCK) // _RECORD) * _RECORD


def _identity(path: Path) -> dict[str, Any]:
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": file_hash(path)}
