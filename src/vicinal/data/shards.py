"""Images in tar shards, as WebDataset keeps them: read in place, and written by ``pack``.

``pack`` writes each image as ``CLASS/00000000.jpg`` and beside it a ``.json`` with what a table's
row would say: ``path``, ``label``, ``split`` and further numbers. The names of its shards,
``part-00000-of-00003.tar``, tell how many there are.
"""

import io
import json
import os
import re
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from PIL import Image

from vicinal.data.folder import existing, is_image
from vicinal.data.loader import in_threads
from vicinal.data.records import ImageFiles, Progress, Records, Source, ends_of
from vicinal.data.splits import SplitByClass, labels_in
from vicinal.data.transforms import ImageTransform, as_image
from vicinal.errors import ConfigError, DataError
from vicinal.files import HEIC, REGION, decode, regular, sync_directory

PART_BYTES = 50 * 10**6
_NO_FOLDER = r"[^\w-]+"  # what of a class's name is not in that of its folder
_BLOCK = 512  # to which tar pads
_END = 20 * _BLOCK  # to which it pads a whole file

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
        except Exception as error:  # decoders raise what a damaged file makes them
            raise DataError(
                f"image {self.names[index]} in {self.files[self.places[index, 0]]} cannot be read: "
                f"{error}. Write or copy that file again."
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
        # in the names that ``pack`` gives
        counts = [int(of[1]) for shard in shards if (of := re.search(r"-of-(\d+)\.", shard.name))]
        if root.is_dir() and len(shards) < max(counts, default=1):
            raise DataError(
                f"{root} should hold {max(counts, default=1)} .tar files, but holds "
                f"{len(shards)}. Name a folder of shards, or copy the missing ones."
            )
        rows = list[Row]()
        places = list[tuple[int, int, int]]()
        begun = [re.match("train|valid|val|test", shard.name) for shard in shards]
        for number, shard in enumerate(shards):
            split = {"split": begun[number][0]} if all(begun) else {}  # type: ignore[index]
            for member, row in self._samples(shard):
                if row.get(self.label) in (None, ""):
                    raise DataError(
                        f"{shard}: {member.name} has no label. Add KEY.cls, or KEY.json with "
                        f"{self.label!r}."
                    )
                rows.append({"path": f"{shard.name}/{member.name}", **row, **split})
                places.append((number, member.offset_data, member.size))
        if not rows:
            raise DataError(
                f"{root} holds no image with a label. A sample is KEY.jpg and KEY.cls, or KEY.json."
            )
        source = TarImages(shards, np.array(places), [str(row["path"]) for row in rows])
        names = [labels_in(row[self.label]) for row in rows]
        splits = [str(row.get("split") or "") for row in rows]
        given = splits if all(splits) else None
        columns = dict[str, np.ndarray]()
        for name in sorted(rows[0].keys() - {"path", "split", self.label}):
            values = [row.get(name) for row in rows]
            if all(type(value) in (int, float) for value in values):  # of each row
                columns[name] = np.array(values)
        return self._records(
            root.stem, source, names, given, lambda row: str(shards[places[row][0]]), columns
        )

    def _samples(self, path: Path) -> Iterator[tuple[tarfile.TarInfo, Row]]:
        """Yield the image of each sample and what is said of it; the files of a sample stand beside
        each other."""
        try:
            with tarfile.open(regular(path), "r:") as archive:
                for _, members in groupby(filter(tarfile.TarInfo.isfile, archive), _key):
                    image = None
                    row: Row = {}
                    for member in members:
                        name = member.name.rpartition("/")[2]
                        ending = name.partition(".")[2]
                        if is_image(name):
                            image = member
                        elif ending in ("cls", "json"):
                            text = archive.extractfile(member).read().decode()  # type: ignore[union-attr]
                            if ending == "cls":
                                row[self.label] = text.strip()
                            else:
                                row = json.loads(text) | row
                    if image is not None:
                        yield image, row
        except (tarfile.TarError, ValueError, TypeError, RecursionError, OSError) as error:
            raise DataError(
                f"{path} cannot be read as a shard: {error}. Shards are uncompressed .tar files."
            ) from error


def _key(member: tarfile.TarInfo) -> str:
    """Return what the files of a sample share: their folder and all before the first dot of their
    names."""
    folder, _, name = member.name.rpartition("/")
    return f"{folder}/{name.partition('.')[0]}"


# -- packing ---------------------------------------------------------------------------------------


def pack(
    records: Records,
    folder: Path,
    *,
    resize: int | None = None,
    part_bytes: int = PART_BYTES,
    progress: Progress = lambda done: None,
) -> tuple[Path, ...]:
    """Write images as shards that ``Shards`` reads, all at once when they are complete; return the
    files.

    Args:
        records: images.
        folder: where to; it must be new or empty.
        resize: length to which the shorter side is brought, as ``ImageTransform`` does it, before
            an image is encoded as JPEG. None keeps image files byte for byte, and images in memory
            as PNG: nothing is lost.
        part_bytes: size that no shard exceeds, unless an image alone does.
        progress: called with the number of images packed.
    """
    if records.source.kind != "images" or records.captions is not None:
        kind = records.source.kind if records.captions is None else "images and texts"
        raise ConfigError(f"only images can be packed, but {records.name} holds {kind}.")
    folder = folder.absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is there and not empty. Remove it, or choose another folder.")
    unfinished = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
    unfinished.mkdir(parents=True)
    try:
        count = _write(_samples(records, resize, progress), unfinished, part_bytes)
        names = [f"part-{number:05d}-of-{count:05d}.tar" for number in range(count)]
        for number, name in enumerate(names):
            (unfinished / f"{number}").rename(unfinished / name)
        if folder.exists():
            folder.rmdir()
        unfinished.replace(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    sync_directory(folder.parent)
    return tuple(folder / name for name in names)


def _write(samples: Iterable[Mapping[str, bytes]], folder: Path, part_bytes: int) -> int:
    """Write the files of samples into numbered shards; return how many. The same images make the
    same bytes."""
    archive: tarfile.TarFile
    count = 0
    with ExitStack() as stack:
        for members in samples:
            # at most; a long name takes two blocks of its own
            size = sum(4 * _BLOCK + len(content) for content in members.values())
            if not count or archive.offset + size > part_bytes - _END:
                stack.close()
                archive = stack.enter_context(tarfile.open(folder / f"{count}", "w"))
                count += 1
            for name, content in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return count


def _samples(
    records: Records, resize: int | None, progress: Progress
) -> Iterator[Mapping[str, bytes]]:
    """Encode each row in threads, a few ahead."""

    def sample(row: int) -> Mapping[str, bytes]:
        source, positions = records.source.origin(np.array([row]))
        position = int(positions[0])
        file = io.BytesIO()
        ending = ".png"
        path = None
        if isinstance(source, ImageFiles) and REGION not in source.paths[position]:
            path = source.root / source.paths[position]
        if resize is not None:
            transform = ImageTransform(size=resize, resize=resize)
            prepared = transform.prepare(source.read(position), source.name(position))
            # Colors at full resolution, not halved as is usual: resized crops enlarge them.
            as_image(prepared).save(file, "JPEG", quality=90, subsampling=0, optimize=True)
            ending = ".jpg"
        elif path is not None and path.suffix.lower() not in HEIC:
            file.write(regular(path).read_bytes())
            ending = path.suffix
        else:
            source.read(position).save(file, "PNG")
        names = records.take(np.array([row])).class_names()[0]
        label = ";".join(names)
        said = {name: column[row].item() for name, column in records.columns.items()}
        said |= {
            "path": records.source.name(row),
            "label": label if records.every is None else names,
            "split": str(records.splits[row]),
        }
        key = f"{re.sub(_NO_FOLDER, '-', label)[:80] or '-'}/{row:08d}"
        return {f"{key}{ending}": file.getvalue(), f"{key}.json": json.dumps(said).encode()}

    rows = range(len(records))
    for row, members in enumerate(in_threads(sample, rows, os.cpu_count() or 1)):
        yield members
        progress(row + 1)
