"""Images in tar shards, as WebDataset keeps them: read in place, and written by ``pack``.

``pack`` writes each image as ``CLASS/00000000.jpg`` and beside it a ``.json`` with what a table's row
would say: ``path``, ``label``, ``split`` and further numbers, and the SHA-256 of the image.
``shards.json`` has the sizes of the shards, the classes in their order and a hash of it all, so
that nothing that is missing, cut off or changed is taken for what was packed.
"""

import io
import json
import os
import re
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from jaxtyping import Int
from PIL import Image

from vicinal.data.folder import is_image
from vicinal.data.images import decode
from vicinal.data.location import existing
from vicinal.data.records import ImageFiles, Progress, Records, Source, ends_of, stamps
from vicinal.data.splits import SplitByClass, named_splits
from vicinal.data.transforms import ImageTransform, as_image
from vicinal.errors import ConfigError, DataError
from vicinal.files import (
    decoding,
    open_image,
    read_object,
    sync_directory,
    write_atomically,
    write_json,
)

MANIFEST = "shards.json"
PART_BYTES = 50 * 10**6
_OURS = ("path", "label", "split", "sha256")  # in the JSON of a sample that ``pack`` wrote
_SPLITS = ("train", "validation", "valid", "val", "test")  # how the names of shards may begin
_MOST = 2**20  # bytes of a sample's JSON: more describes no image
_NO_FOLDER = r"[^\w-]+"  # what of a class's name is not in that of its folder
_BLOCK = 512  # to which tar pads
_IMAGES_AT_ONCE = 256  # encoded ahead of the writing

Row = dict[str, Any]  # what the JSON of a sample says


class TarImages(Source):
    """Encoded images inside of tar files. Holds no open file, so any thread or process may read."""

    def __init__(
        self,
        files: Sequence[Path],
        places: Int[np.ndarray, "n 3"],
        names: Sequence[str],
        hashes: Sequence[str] = (),
    ) -> None:
        """``places``: for each image its file, its first byte there and its length; ``hashes``:
        SHA-256 of the images, which ``read`` then compares."""
        super().__init__(names)
        self.files, self.places, self.hashes = list(files), places, list(hashes)

    def read(self, index: int) -> Image.Image:
        try:
            content = self.encoded(index)
            if self.hashes and sha256(content).hexdigest() != self.hashes[index]:
                raise DataError("it is not what was packed")
            return decode(io.BytesIO(content))
        except Exception as error:  # decoders raise whatever a damaged file makes them
            place = f"{self.names[index]} in {self.files[self.places[index, 0]]}"
            raise DataError(
                f"image {place} cannot be read: {error}. Write or copy that file again."
            ) from error

    def encoded(self, index: int) -> bytes:
        shard, first, length = map(int, self.places[index])
        with self.files[shard].open("rb") as file:
            file.seek(first)
            return file.read(length)

    def content(self, index: int) -> bytes:
        shard, first, length = map(int, self.places[index])
        with self.files[shard].open("rb") as file:
            return ends_of(file, first, length)

    def identity(self, positions: np.ndarray) -> str | None:
        if type(self).read is not TarImages.read:  # as of `ImageFiles`
            return None
        if self.hashes:
            return "\n".join(self.hashes[position] for position in positions.tolist())
        files = stamps(file.absolute() for file in self.files)
        return None if files is None else f"{files}\n{self.places[positions].tolist()}"


@dataclass(frozen=True)
class Shards(SplitByClass):
    """Images in tar files as WebDataset keeps them: ``KEY.jpg`` beside ``KEY.cls``, or ``KEY.json``
    with its label.

    Where the names of all shards begin with ``train``, ``validation`` (``val``) or ``test``, these
    are the splits; else ``split`` in the JSON of all samples; otherwise classes are split here.
    Numbers in the JSON of all samples become columns of the records, and ``path`` names an image.
    Shards are read in place, in any order; nothing is unpacked.

    Args:
        path: a ``.tar`` file, or a folder of them; ``$VICINAL_DATA`` and ``~`` are expanded.
        label: the name of the label in ``KEY.json``, where there is no ``KEY.cls``.

    >>> Shards("shards/", label="species", test=0.3)
    Shards(path='shards/', test=0.3, order='random', seed=0, label='species')
    """

    label: str = "label"

    @staticmethod
    def lies_in(folder: Path) -> bool:
        """Whether a folder holds shards and no class folders."""
        return any(folder.glob("*.tar")) and not any(each.is_dir() for each in folder.iterdir())

    def load(self) -> Records:
        root = existing(self.path)
        shards = sorted(root.glob("*.tar")) if root.is_dir() else [root]
        packed = _manifest(root / MANIFEST, shards)
        if not shards:
            raise DataError(f"{root} holds no .tar file. Name a folder of shards, or one shard.")
        begun = [next((s for s in _SPLITS if shard.name.startswith(s)), "") for shard in shards]
        rows = list[Row]()
        places = list[tuple[int, int, int]]()
        for number, shard in enumerate(shards):
            split = {"split": begun[number]} if all(begun) else {}
            for member, row in self._samples(shard):
                if row.get(self.label) in (None, ""):
                    advice = f"Add KEY.cls, or KEY.json with {self.label!r}."
                    raise DataError(f"{shard}: {member.name} has no label. {advice}")
                rows.append({"path": f"{shard.name}/{member.name}", **row, **split})
                places.append((number, member.offset_data, member.size))
        if not rows:
            raise DataError(
                f"{root} holds no image with a label. A sample is KEY.jpg and KEY.cls, or KEY.json."
            )
        source = TarImages(shards, np.array(places), [str(row["path"]) for row in rows])
        names = [str(row[self.label]) for row in rows]
        splits = [str(row.get("split") or "") for row in rows]
        columns = _columns(rows, without=(*_OURS, self.label))

        def place(row: int) -> str:
            return str(shards[places[row][0]])

        if not packed:
            given = splits if all(splits) else None
            return self._records(root.stem, source, names, given, place, columns)
        with decoding(root / MANIFEST, "Copy it again."):
            name, classes = packed["name"], packed["classes"]
            if packed["digest"] != _digest(name, classes, rows):
                raise DataError(
                    f"{root} does not hold what was packed. Copy all of its files again."
                )
            source.hashes = [row["sha256"] for row in rows]
            label_of = {name: label for label, name in enumerate(classes)}
            labels = np.array([label_of[name] for name in names])
            kept = named_splits(splits, place)
            return Records(name, source, labels, tuple(classes), kept, columns)

    def _samples(self, path: Path) -> Iterator[tuple[tarfile.TarInfo, Row]]:
        """Yield the image of each sample and what is said of it; the files of a sample stand beside
        each other."""
        try:
            with tarfile.open(path, "r:") as archive:
                for _, members in groupby(filter(tarfile.TarInfo.isfile, archive), _key):
                    image = None
                    row: Row = {}
                    for member in members:
                        name = member.name.rpartition("/")[2]
                        ending = name.partition(".")[2]
                        if is_image(name):
                            image = member
                        elif ending in ("cls", "json") and member.size <= _MOST:
                            text = archive.extractfile(member).read().decode()  # type: ignore[union-attr]  # a file
                            if ending == "cls":
                                row[self.label] = text.strip()
                            else:
                                row = json.loads(text) | row
                    if image is not None:
                        yield image, row
        except (
            tarfile.TarError,
            UnicodeDecodeError,
            ValueError,
            TypeError,
            EOFError,
            RecursionError,
            OSError,
        ) as error:
            fault = f"{path} cannot be read as a shard: {error}"
            raise DataError(f"{fault}. Shards are uncompressed .tar files.") from error


def _key(member: tarfile.TarInfo) -> str:
    """Return what the files of a sample share: their folder and all before the first dot of their
    names."""
    folder, _, name = member.name.rpartition("/")
    return f"{folder}/{name.partition('.')[0]}"


def _columns(rows: Sequence[Row], without: Iterable[str]) -> dict[str, np.ndarray]:
    """Return what is a number in all rows."""

    def number(value: Any) -> bool:
        return type(value) in (int, float) and abs(value) < 2**63

    return {
        name: np.array([row[name] for row in rows])
        for name in sorted(rows[0].keys() - set(without))
        if all(number(row.get(name)) for row in rows)
    }


def _manifest(path: Path, shards: Sequence[Path]) -> dict[str, Any]:
    """Return what ``pack`` wrote of the shards, nothing of other shards; an error if some are
    missing or cut off."""
    if not path.is_file():
        return {}
    with decoding(path, "Copy it again."):
        packed = read_object(path)
        sizes = {shard.name: shard.stat().st_size for shard in shards}
        listed = packed["shards"].items()
        faulty = [name for name, size in listed if sizes.get(name) != size]
        if faulty:
            count = f"{len(faulty)} of {len(listed)} shards in {path.parent}"
            raise DataError(
                f"{count} are missing or not of their size: {', '.join(faulty)}. Copy them again."
            )
        return packed


def _digest(name: str, classes: Sequence[str], rows: Sequence[Row]) -> str:
    return sha256(json.dumps([name, classes, rows], sort_keys=True).encode()).hexdigest()


# -- packing
# --------------------------------------------------------------------------------------------------------


class _Sample(NamedTuple):
    key: str
    content: bytes
    ending: str
    row: Row

    @property
    def members(self) -> dict[str, bytes]:
        text = json.dumps(self.row).encode()
        return {f"{self.key}.{self.ending}": self.content, f"{self.key}.json": text}

    @property
    def size(self) -> int:
        """How many bytes of a tar it takes at most; a long name takes two blocks of its own."""
        return sum(4 * _BLOCK + len(content) for content in self.members.values())


def pack(
    records: Records,
    folder: Path,
    *,
    transform: ImageTransform | None = None,
    quality: int = 90,
    part_bytes: int = PART_BYTES,
    progress: Progress = lambda done: None,
) -> tuple[Path, ...]:
    """Write images as shards that ``Shards`` reads, all at once when they are complete; return the
    files.

    Args:
        records: images.
        folder: where to; it must be new or empty.
        transform: whose ``prepare`` brings images to a canvas before they are encoded as JPEG;
            under the same settings they come out of ``prepare`` again as they went in, but for the
            JPEG's loss. None keeps image files byte for byte, and images in memory as PNG: nothing
            is lost.
        quality: of the JPEG; a prepared image is one more generation away from its original.
        part_bytes: size that no shard exceeds, unless an image alone does.
        progress: called with the number of images packed.
    """
    if records.source.kind != "images" or records.captions is not None or not len(records):
        held = f"{len(records)} {records.source.kind}" + (
            " and texts" if records.captions is not None else ""
        )
        raise ConfigError(f"only images can be packed, but {records.name} holds {held}.")
    if not 1 <= quality <= 100:
        raise ConfigError(f"the quality of a JPEG is 1 to 100, got {quality}.")
    if len(set(records.classes)) < len(records.classes) or records.columns.keys() & set(_OURS):
        rule = f"needs classes of different names, and no column named {', '.join(_OURS)}"
        raise ConfigError(f"a shard {rule}; got {', '.join(records.columns)}. Rename them.")
    folder = folder.absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is there and not empty. Remove it, or choose another folder.")
    unfinished = folder.with_name(f".{folder.name}.part")
    if unfinished.exists():  # of a process that was killed
        shutil.rmtree(unfinished)
    try:
        files = _write(
            records, unfinished, _samples(records, transform, quality, progress), part_bytes
        )
        if folder.exists():
            folder.rmdir()
        unfinished.replace(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    sync_directory(folder.parent)
    return tuple(folder / name for name in files)


def _write(
    records: Records, folder: Path, samples: Iterable[_Sample], part_bytes: int
) -> tuple[str, ...]:
    shards = dict[str, int]()
    rows = list[Row]()
    for part in _parts(samples, part_bytes - 20 * _BLOCK):  # to which tar pads a file
        path = folder / f"part-{len(shards):05d}.tar"
        write_atomically(path, partial(_write_shard, part))
        shards[path.name] = path.stat().st_size
        rows += [sample.row for sample in part]
    manifest = {
        "name": records.name,
        "digest": _digest(records.name, records.classes, rows),
        "shards": shards,
        "classes": records.classes,
    }
    write_json(folder / MANIFEST, manifest)
    return (*shards, MANIFEST)


def _samples(
    records: Records, transform: ImageTransform | None, quality: int, progress: Progress
) -> Iterator[_Sample]:
    """Encode each row in threads, a little ahead."""

    def sample(row: int) -> _Sample:
        content, ending = _encoded(records, row, transform, quality)
        label = records.classes[records.labels[row]]
        said = {
            **{name: column[row].item() for name, column in records.columns.items()},
            "path": records.source.name(row),
            "label": label,
            "split": str(records.splits[row]),
            "sha256": sha256(content).hexdigest(),
        }
        key = f"{re.sub(_NO_FOLDER, '-', label)[:80] or '-'}/{row:08d}"
        return _Sample(key, content, ending, said)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for first in range(0, len(records), _IMAGES_AT_ONCE):
            last = min(first + _IMAGES_AT_ONCE, len(records))
            yield from pool.map(sample, range(first, last))
            progress(last)


def _encoded(
    records: Records, row: int, transform: ImageTransform | None, quality: int
) -> tuple[bytes, str]:
    """Return an image file and the ending of its name."""
    source, (position,) = records.source.origin(np.array([row]))
    if transform is None and isinstance(source, ImageFiles):
        path = source.root / source.paths[position]
        if ending := _plain_format(path):
            return path.read_bytes(), ending
    image = source.read(int(position))
    file = io.BytesIO()
    if transform is None:
        image.save(file, "PNG")
        return file.getvalue(), "png"
    canvas = as_image(transform.prepare(image, source.name(int(position))))
    # Colors at full resolution, not halved as is usual: resized crops enlarge them.
    canvas.save(file, "JPEG", quality=quality, subsampling=0, optimize=True)
    return file.getvalue(), "jpg"


def _plain_format(path: Path) -> str:
    """Return the ending of a file that decodes to RGB or 8-bit gray as it is; nothing of another."""
    with (
        suppress(Exception),
        open_image(path) as image,
    ):  # decoders raise whatever damage makes them
        if image.mode in ("L", "RGB"):
            return {"JPEG": "jpg", "MPO": "jpg"}.get(str(image.format), str(image.format).lower())
    return ""


def _parts(samples: Iterable[_Sample], most: int) -> Iterator[list[_Sample]]:
    part = list[_Sample]()
    filled = 0
    for sample in samples:
        if part and filled + sample.size > most:
            yield part
            part = []
            filled = 0
        part.append(sample)
        filled += sample.size
    yield part


def _write_shard(samples: Iterable[_Sample], file: BinaryIO) -> None:
    """Write one tar. The same images make the same bytes."""
    with tarfile.open(fileobj=file, mode="w") as archive:
        for sample in samples:
            for name, content in sample.members.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
