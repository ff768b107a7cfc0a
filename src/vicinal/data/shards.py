"""Images in shards, tar as WebDataset keeps them or Parquet: read in place, and written by
``pack``.

``pack`` writes each image as ``CLASS/00000000.jpg`` and beside it a ``.json`` with what a table's
row would say: ``path``, ``label``, ``split`` and further numbers. The names of its shards,
``part-00000-of-00003.tar``, tell how many there are.
"""

import io
import json
import logging
import os
import re
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from hashlib import blake2b, sha256
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from PIL import Image

from vicinal.data.folder import cached, existing, is_image
from vicinal.data.loader import in_threads
from vicinal.data.records import ImageFiles, Progress, Records, Source, ends_of
from vicinal.data.splits import Labeled, grouped, labels_in
from vicinal.data.table import parquet, pyarrow_module
from vicinal.data.transforms import ImageTransform, as_image
from vicinal.errors import ConfigError, DataError, unknown
from vicinal.files import HEIC, REGION, decode, regular, sync_directory, write_atomically
from vicinal.remote import cache_folder, part_of, streaming

PART_BYTES = 50 * 10**6
_NO_FOLDER = r"[^\w-]+"  # what of a class's name is not in that of its folder
_BLOCK = 512  # to which tar pads
_END = 20 * _BLOCK  # to which it pads a whole file
_WORTH_SAYING = 20  # shards: fewer are indexed in seconds
_LOG = logging.getLogger("vicinal.data")

Row = dict[str, Any]  # what the JSON of a sample says


class ShardImages(Source):
    """Encoded images inside of tar or Parquet files. Holds no open file, so any thread or process
    may read."""

    def __init__(
        self, files: Sequence[Path], places: Int[np.ndarray, "n 3"], names: Sequence[str]
    ) -> None:
        """``places``: for each image its file and, of tar, its first byte there and its length; of
        Parquet, its row group and its row there."""
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
        path = self.files[shard]
        return (_unpacked if path.suffix == ".parquet" else part_of)(path, first, length)


class Shards(Labeled):
    """Images in tar files as WebDataset keeps them: ``KEY.jpg`` beside ``KEY.cls``, or ``KEY.json``
    with its label; or in a Parquet file's column of encoded images, as Hugging Face writes them.

    Where the names of all shards begin with ``train``, ``validation`` (``val``) or ``test``, these
    are the splits; else ``split`` in the JSON of all samples; otherwise classes are split here.
    Numbers in the JSON of all samples become columns of the records, and ``path`` names an image.

    Shards are read in place, in any order, also behind a URL. The first time they are read through
    for an index of labels and offsets, which stays in the user's cache; then images alone are read.
    A row group of Parquet, which is compressed as one, is read when its first image is, and kept
    there unpacked.

    Args:
        path: a ``.tar`` or ``.parquet`` file, or a folder of them; ``$VICINAL_DATA`` and ``~`` are
            expanded.
        label: the name of the label in ``KEY.json``, where there is no ``KEY.cls``, or the column.

    >>> Shards("shards/", label="species", test=0.3)  # doctest: +ELLIPSIS
    Shards(path='shards/', test=0.3, ..., separator='', hierarchy=(), label='species')
    """

    label: str = "label"

    @staticmethod
    def lies_in(path: Path) -> bool:
        """Whether a folder holds shards and no class folders, or a file is such a shard."""
        if path.is_file():
            return path.suffix == ".tar" or (path.suffix == ".parquet" and any(_images_in(path)))
        shards = _shards_in(path)
        flat = bool(shards) and not any(each.is_dir() for each in path.iterdir())
        return flat and Shards.lies_in(shards[0])

    def load(self) -> Records:
        root = existing(self.path)
        shards = _shards_in(root) if root.is_dir() else [root]
        # in the names that ``pack`` gives
        counts = [int(of[1]) for shard in shards if (of := re.search(r"-of-(\d+)\.", shard.name))]
        if root.is_dir() and len(shards) < max(counts, default=1):
            raise DataError(
                f"{root} should hold {max(counts, default=1)} .tar files, but holds "
                f"{len(shards)}. Name a folder of shards, or copy the missing ones."
            )
        begun = [re.match("train|valid|val|test", shard.name) for shard in shards]
        columns = dict[str, list[Any]]()
        places = [np.zeros((0, 3), np.int64)]
        contents = [np.zeros(0, np.uint64)]
        count = 0
        for number, index in enumerate(_indexes(shards)):
            size = len(index["places"])
            found = json.loads(index["rows"].tobytes())
            places_named = [f"{shards[number].name}/{name}" for name in found.pop("name")]
            paths = found.get("path", places_named)
            found["path"] = [path or place for path, place in zip(paths, places_named, strict=True)]
            classes = found.pop("cls", [None] * size)
            labels = found.get(self.label, classes)
            found[self.label] = [
                label if named is None else named
                for named, label in zip(classes, labels, strict=True)
            ]
            if all(begun):
                found["split"] = [begun[number][0]] * size  # type: ignore[index]
            for row, label in enumerate(found[self.label]):
                if label in (None, ""):
                    raise DataError(
                        f"{places_named[row]} in {root} has no label. Add KEY.cls, KEY.json with "
                        f"{self.label!r}, or that column; data.label=NAME names another."
                    )
            for name in columns.keys() | found.keys():
                column = columns.setdefault(name, [None] * count)
                column += found.get(name, [None] * size)
            places.append(np.insert(index["places"], 0, number, axis=1))
            contents.append(index["contents"])
            count += size
        if not count:
            raise DataError(
                f"{root} holds no image with a label. A sample is KEY.jpg and KEY.cls, or KEY.json."
            )
        splits = ["" if split is None else str(split) for split in columns.pop("split", [""])]
        names = [labels_in(cell, self.separator) for cell in columns.pop(self.label)]
        if missing := set(self.hierarchy) - columns.keys():
            raise DataError(f"{root}: {unknown('column', min(missing), columns)}")
        above = {level: [*map(str, columns.pop(level))] for level in self.hierarchy}
        source = ShardImages(shards, np.concatenate(places), [*map(str, columns.pop("path"))])
        source.contents = np.concatenate(contents)
        numbers = {
            name: np.array(values)
            for name, values in sorted(columns.items())
            if all(type(value) in (int, float) for value in values)  # of each row
        }
        records = self._records(
            root.stem,
            source,
            names,
            splits if all(splits) else None,
            lambda row: str(shards[source.places[row, 0]]),
            numbers,
        )
        return grouped(records, above)


# -- their index, which is made once ---------------------------------------------------------------


def _shards_in(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.tar")] or folder.glob("*.parquet"))


def _cached_as(path: Path) -> str:
    """Name what the cache keeps of a file, as it is now."""
    found = path.stat()
    # The mirror of a URL holds nothing, with the time of what is there.
    times = (found.st_mtime_ns, found.st_ctime_ns if found.st_size else 0)
    told = f"{path.resolve()} {found.st_size} {times}"
    return f"shards/{sha256(told.encode(errors='surrogateescape')).hexdigest()[:24]}"


def _indexes(shards: Sequence[Path]) -> Iterator[Mapping[str, np.ndarray]]:
    """Yield what each shard holds: its columns as JSON, and for each image its place and
    content."""
    new = sum(not (cache_folder() / f"{_cached_as(shard)}.npz").is_file() for shard in shards)
    if new > _WORTH_SAYING:
        _LOG.warning("indexing %d shards, once: reading them through for labels and places", new)

    def index(shard: Path) -> Mapping[str, np.ndarray]:
        make = _parquet_index if shard.suffix == ".parquet" else _tar_index
        return cached(_cached_as(shard), lambda: make(shard))

    return in_threads(index, shards, 8)


def _index(
    rows: Mapping[str, Sequence[Any]], places: Sequence[Any], contents: Sequence[bytes]
) -> Mapping[str, np.ndarray]:
    digests = b"".join(blake2b(content, digest_size=8).digest() for content in contents)
    return {
        "rows": np.frombuffer(json.dumps(rows).encode(), np.uint8),
        "places": np.array(places, np.int64).reshape(-1, 2),
        "contents": np.frombuffer(digests, "<u8"),
    }


def _tar_index(path: Path) -> Mapping[str, np.ndarray]:
    """Read the headers, labels and JSON of a tar file, and the ends of its images; the files of a
    sample stand beside each other."""
    rows = list[Row]()
    places = list[tuple[int, int]]()
    contents = list[bytes]()
    try:
        with streaming(path) as file, tarfile.open(fileobj=file, mode="r:") as archive:
            for _, members in groupby(filter(tarfile.TarInfo.isfile, archive), _key):
                image = None
                row: Row = {}
                for member in members:
                    name = member.name.rpartition("/")[2]
                    ending = name.partition(".")[2]
                    if is_image(name):
                        image = member
                        content = ends_of(file, member.offset_data, member.size)
                    elif ending in ("cls", "json"):
                        text = archive.extractfile(member).read().decode()  # type: ignore[union-attr]
                        row |= {"cls": text.strip()} if ending == "cls" else json.loads(text)
                if image is not None:
                    rows.append({**row, "name": image.name})
                    places.append((image.offset_data, image.size))
                    contents.append(content)
    except (tarfile.TarError, ValueError, TypeError, RecursionError, OSError) as error:
        raise DataError(
            f"{path} cannot be read as a shard: {error}. Shards are uncompressed .tar files."
        ) from error
    names = {name for row in rows for name in row} | {"name"}
    return _index({name: [row.get(name) for row in rows] for name in names}, places, contents)


def _parquet_index(path: Path) -> Mapping[str, np.ndarray]:
    """Read all columns of numbers and texts but the images; these are known by where they are."""
    types = pyarrow_module().types
    kinds = (types.is_integer, types.is_floating, types.is_string, types.is_large_string)
    image, named = _images_in(path)
    if not image:
        raise DataError(f"{path} has no column of encoded images. Name a table, or shards.")
    with parquet(path) as file:
        plain = [it.name for it in file.schema_arrow if any(is_(it.type) for is_ in kinds)]
        table = file.read(columns=[*plain, *([named] if named else [])])
        rows = {name: table.column(name).to_pylist() for name in plain}
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        about = json.loads((file.schema_arrow.metadata or {}).get(b"huggingface", "{}"))
    for name, feature in about.get("info", {}).get("features", {}).items():
        if name in rows and feature.get("names"):  # of the classes that are numbered here
            rows[name] = [feature["names"][number] for number in rows[name]]
    count = table.num_rows
    rows["name"] = [f"row {row}" for row in range(count)]
    if named:
        given = table.column(named.partition(".")[0]).to_pylist()
        rows["path"] = [it and it["path"] for it in given]
    places = [(group, row) for group, size in enumerate(sizes) for row in range(size)]
    return _index(rows, places, [f"{_cached_as(path)} {row}".encode() for row in range(count)])


def _images_in(path: Path) -> tuple[str, str]:
    """Return the column of encoded images in a Parquet file, and that of their paths; empty where
    there is none."""
    types = pyarrow_module().types
    with parquet(path) as file:
        for field in file.schema_arrow:
            if types.is_binary(field.type) or types.is_large_binary(field.type):
                return field.name, ""
            inside = [part.name for part in field.type] if types.is_struct(field.type) else []
            if "bytes" in inside:
                return f"{field.name}.bytes", f"{field.name}.path" if "path" in inside else ""
    return "", ""


def _unpacked(path: Path, group: int, row: int) -> bytes:
    """Return an image of a Parquet file from its row group in the cache: where each image begins
    there, and all of them."""
    unpacked = cache_folder() / f"{_cached_as(path)}-{group}.images"
    if not unpacked.is_file():
        image, _ = _images_in(path)
        with parquet(path) as file:
            found = file.read_row_group(group, columns=[image]).column(0).to_pylist()
        images = [(it["bytes"] if isinstance(it, dict) else it) or b"" for it in found]
        begin = accumulate(map(len, images), initial=8 * (len(images) + 1))
        content = b"".join([np.array([*begin], "<i8").tobytes(), *images])
        write_atomically(unpacked, lambda file: file.write(content))
    first, end = np.frombuffer(part_of(unpacked, 8 * row, 16), "<i8").tolist()
    return part_of(unpacked, first, end - first)


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
