"""Images in tar shards, as WebDataset keeps them: read in place, and written by ``pack``.

``pack`` writes each image as ``CLASS/00000000.jpg`` and beside it a ``.json`` with what a table's
row would say: ``path``, ``label``, ``split`` and further numbers. ``shards.json`` has the sizes of
the shards and the classes in their order, so that nothing that is missing or cut off is taken for
what was packed.
"""

import io
import json
import os
import re
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

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
from vicinal.files import decoding, open_image, read_object, sync_directory, write_json

MANIFEST = "shards.json"
PART_BYTES = 50 * 10**6
_OURS = ("path", "label", "split")  # in the JSON of a sample that ``pack`` wrote
_SPLITS = ("train", "validation", "valid", "val", "test")  # how the names of shards may begin
_MOST = 2**20  # bytes of a sample's JSON: more describes no image
_NO_FOLDER = r"[^\w-]+"  # what of a class's name is not in that of its folder
_BLOCK = 512  # to which tar pads
_IMAGES_AT_ONCE = 256  # encoded ahead of the writing

Row = dict[str, Any]  # what the JSON of a sample says


class TarImages(Source):
    """Encoded images inside of tar files. Holds no open file, so any thread or process may read."""

    def __init__(
        self, files: Sequence[Path], places: Int[np.ndarray, "n 3"], names: Sequence[str]
    ) -> None:
        """``places``: for each image its file, its first byte there and its length."""
        super().__init__(names)
        self.files = list(files)
        self.places = places

    def read(self, index: int) -> Image.Image:
        try:
            return decode(io.BytesIO(self.encoded(index)))
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
            label_of = {name: label for label, name in enumerate(packed["classes"])}
            labels = np.array([label_of[name] for name in names])
            kept = named_splits(splits, place)
            return Records(packed["name"], source, labels, tuple(label_of), kept, columns)

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
                            text = archive.extractfile(member).read().decode()  # type: ignore[union-attr]
                            if ending == "cls":
                                row[self.label] = text.strip()
                            else:
                                row = json.loads(text) | row
                    if image is not None:
                        yield image, row
        except (
            tarfile.TarError,
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
    columns: dict[str, list[Any]] = {
        name: [row.get(name) for row in rows] for name in sorted(rows[0].keys() - {*without})
    }
    return {
        name: np.array(column)
        for name, column in columns.items()
        if all(type(value) in (int, float) and abs(value) < 2**63 for value in column)
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


# -- packing ---------------------------------------------------------------------------------------


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
        texts = "" if records.captions is None else " and texts"
        held = f"{len(records)} {records.source.kind}{texts}"
        raise ConfigError(f"only images can be packed, but {records.name} holds {held}.")
    if len(set(records.classes)) < len(records.classes) or records.columns.keys() & set(_OURS):
        rule = f"needs classes of different names, and no column named {', '.join(_OURS)}"
        raise ConfigError(f"a shard {rule}; got {', '.join(records.columns)}. Rename them.")
    folder = folder.absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is there and not empty. Remove it, or choose another folder.")
    unfinished = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
    unfinished.mkdir(parents=True)
    try:
        shards = _write(_samples(records, transform, quality, progress), unfinished, part_bytes)
        sizes = {shard.name: shard.stat().st_size for shard in shards}
        manifest = {"name": records.name, "shards": sizes, "classes": records.classes}
        write_json(unfinished / MANIFEST, manifest)
        if folder.exists():
            folder.rmdir()
        unfinished.replace(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    sync_directory(folder.parent)
    return tuple(folder / name for name in (*sizes, MANIFEST))


def _write(samples: Iterable[Mapping[str, bytes]], folder: Path, part_bytes: int) -> Sequence[Path]:
    """Write the files of samples into shards. The same images make the same bytes."""
    archive: tarfile.TarFile
    shards = list[Path]()
    most = part_bytes - 20 * _BLOCK  # to which tar pads a file
    with ExitStack() as stack:
        for members in samples:
            # at most; a long name takes two blocks of its own
            size = sum(4 * _BLOCK + len(content) for content in members.values())
            if not shards or archive.offset + size > most:
                stack.close()
                shards.append(folder / f"part-{len(shards):05d}.tar")
                archive = stack.enter_context(_shard(shards[-1]))
            for name, content in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return shards


@contextmanager
def _shard(path: Path) -> Iterator[tarfile.TarFile]:
    """Open a new tar, which is synced in the end."""
    with path.open("wb") as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            yield archive
        file.flush()
        os.fsync(file.fileno())


def _samples(
    records: Records, transform: ImageTransform | None, quality: int, progress: Progress
) -> Iterator[Mapping[str, bytes]]:
    """Encode each row in threads, a little ahead."""

    def sample(row: int) -> Mapping[str, bytes]:
        content, ending = _encoded(records, row, transform, quality)
        label = records.classes[records.labels[row]]
        said = {name: column[row].item() for name, column in records.columns.items()}
        said |= {
            "path": records.source.name(row),
            "label": label,
            "split": str(records.splits[row]),
        }
        key = f"{re.sub(_NO_FOLDER, '-', label)[:80] or '-'}/{row:08d}"
        return {f"{key}.{ending}": content, f"{key}.json": json.dumps(said).encode()}

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
    file = io.BytesIO()
    if transform is not None:
        name = source.name(int(position))
        canvas = as_image(transform.prepare(source.read(int(position)), name))
        # Colors at full resolution, not halved as is usual: resized crops enlarge them.
        canvas.save(file, "JPEG", quality=quality, subsampling=0, optimize=True)
        return file.getvalue(), "jpg"
    if isinstance(source, ImageFiles):
        path = source.root / source.paths[position]
        with suppress(Exception), open_image(path) as image:  # whatever damage makes decoders raise
            if image.mode in ("L", "RGB"):  # which are decoded as they are
                ending = str(image.format).lower()
                return path.read_bytes(), {"jpeg": "jpg", "mpo": "jpg"}.get(ending, ending)
    source.read(int(position)).save(file, "PNG")
    return file.getvalue(), "png"
