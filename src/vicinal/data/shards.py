"""Images in shards, tar as WebDataset keeps them or Parquet, which are read in place."""

import io
import json
import logging
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b, sha256
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from jaxtyping import Int
from PIL import Image

from vicinal.data.folder import cached, existing, is_image
from vicinal.data.loader import in_threads
from vicinal.data.records import Records, Source, ends_of
from vicinal.data.splits import Labeled, grouped, labels_in
from vicinal.data.table import parquet, pyarrow_module
from vicinal.errors import DataError, unknown
from vicinal.files import decode, write_atomically
from vicinal.remote import cache_folder, part_of, streaming

_VERSION = 2  # raised whenever an index would say something else: it keys the cache
_WORTH_SAYING = 20  # shards: fewer are indexed in seconds
_LOG = logging.getLogger("vicinal.data")

Row = dict[str, Any]  # what is said of an image; ``name`` is where it lies in its shard
Index = Mapping[str, np.ndarray]  # rows as JSON, and for each image its place and content


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
    """Images in tar files, such as ``tar`` makes of class folders; or as WebDataset keeps them,
    ``KEY.jpg`` beside ``KEY.cls``, or ``KEY.json`` with its label; or in a Parquet file's column of
    encoded images, as Hugging Face writes them.

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
        # in names such as data-00000-of-00002.parquet
        counts = [int(of[1]) for shard in shards if (of := re.search(r"-of-(\d+)\.", shard.name))]
        if root.is_dir() and len(shards) < max(counts, default=1):
            raise DataError(
                f"{root} should hold {max(counts, default=1)} shards, but holds {len(shards)}. "
                "Name a folder of shards, or copy the missing ones."
            )
        indexes = [*_indexes(shards)]
        rows: list[Row] = [row for index in indexes for row in json.loads(index["rows"].tobytes())]
        if not rows:
            raise DataError(
                f"{root} holds no image. Shards are .tar files of images, or Parquet with a column "
                "of them."
            )
        held = np.repeat(np.arange(len(shards)), [len(index["places"]) for index in indexes])
        places = np.concatenate([index["places"] for index in indexes])
        begun = [re.match("train|valid|val|test", shard.name) for shard in shards]
        names = []
        labels = []
        splits = []
        for row, shard in zip(rows, held.tolist(), strict=True):
            place = f"{shards[shard].name}/{row.pop('name')}"
            names.append(str(row.pop("path", None) or place))
            label = row.pop(self.label, None)
            label = row.pop("cls", label)
            if label in (None, ""):
                raise DataError(
                    f"{place} in {root} has no label. Add a folder of its class, KEY.cls, KEY.json "
                    f"with {self.label!r}, or that column; data.label=NAME names another."
                )
            labels.append(labels_in(label, self.separator))
            said = row.pop("split", None)
            splits.append(begun[shard][0] if all(begun) else said and str(said))  # type: ignore[index]
        common = sorted(set(rows[0]).intersection(*rows))
        if missing := set(self.hierarchy).difference(common):
            raise DataError(f"{root}: {unknown('column', min(missing), common)}")
        columns = {name: [row[name] for row in rows] for name in common}
        above = {level: [*map(str, columns.pop(level))] for level in self.hierarchy}
        numbers = {
            name: np.array(values)
            for name, values in columns.items()
            if all(type(value) in (int, float) for value in values)
        }
        source = ShardImages(shards, np.column_stack([held, places]), names)
        source.contents = np.concatenate([index["contents"] for index in indexes])
        given = splits if all(splits) else None
        where = [*map(str, shards)]
        return grouped(
            self._records(root.stem, source, labels, given, lambda row: where[held[row]], numbers),
            above,
        )


# -- their index, which is made once ---------------------------------------------------------------


def _shards_in(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.tar")] or folder.glob("*.parquet"))


def _cached_as(path: Path) -> str:
    """Name what the cache keeps of a file, as it is now."""
    found = path.stat()
    # The mirror of a URL holds nothing, with the time of what is there.
    times = (found.st_mtime_ns, found.st_ctime_ns if found.st_size else 0)
    told = f"{_VERSION} {path.resolve()} {found.st_size} {times}"
    return f"shards/{sha256(told.encode(errors='surrogateescape')).hexdigest()[:24]}"


def _indexes(shards: Sequence[Path]) -> Iterator[Index]:
    """Yield what each shard holds."""
    new = sum(not (cache_folder() / f"{_cached_as(shard)}.npz").is_file() for shard in shards)
    if new > _WORTH_SAYING:
        _LOG.warning("indexing %d shards, once: reading them through for labels and places", new)

    def index(shard: Path) -> Index:
        make = _parquet_index if shard.suffix == ".parquet" else _tar_index
        return cached(_cached_as(shard), lambda: make(shard))

    return in_threads(index, shards, 8)


def _index(rows: Sequence[Row], places: Sequence[Any], contents: Sequence[bytes]) -> Index:
    digests = b"".join(blake2b(content, digest_size=8).digest() for content in contents)
    return {
        "rows": np.frombuffer(json.dumps(rows).encode(), np.uint8),
        "places": np.array(places, np.int64).reshape(-1, 2),
        "contents": np.frombuffer(digests, "<u8"),
    }


def _tar_index(path: Path) -> Index:
    """Read the headers, labels and JSON of a tar file, and the ends of its images. What belongs to
    an image has its folder and all before the first dot of its name."""
    said = dict[str, Row]()
    images = list[tuple[str, tarfile.TarInfo]]()
    contents = list[bytes]()
    try:
        with streaming(path) as file, tarfile.open(fileobj=file, mode="r:") as archive:
            for member in filter(tarfile.TarInfo.isfile, archive):
                folder, _, name = member.name.rpartition("/")
                stem, _, ending = name.partition(".")
                key = f"{folder}/{stem}"
                if is_image(name):
                    images.append((key, member))
                    contents.append(ends_of(file, member.offset_data, member.size))
                elif ending in ("cls", "json"):
                    text = archive.extractfile(member).read().decode()  # type: ignore[union-attr]
                    row = said.setdefault(key, {})
                    row |= {"cls": text.strip()} if ending == "cls" else json.loads(text)
    except (tarfile.TarError, ValueError, TypeError, RecursionError, OSError) as error:
        raise DataError(
            f"{path} cannot be read as a shard: {error}. Shards are uncompressed .tar files."
        ) from error
    rows = [
        {**said.get(key, {"cls": PurePosixPath(key).parent.name}), "name": member.name}
        for key, member in images
    ]
    return _index(rows, [(member.offset_data, member.size) for _, member in images], contents)


def _parquet_index(path: Path) -> Index:
    """Read all columns of numbers and texts but the images; these are known by where they are."""
    types = pyarrow_module().types
    kinds = (types.is_integer, types.is_floating, types.is_string, types.is_large_string)
    image, named = _images_in(path)
    if not image:
        raise DataError(f"{path} has no column of encoded images. Name a table, or shards.")
    with parquet(path) as file:
        plain = [it.name for it in file.schema_arrow if any(is_(it.type) for is_ in kinds)]
        rows = file.read(columns=[*plain, *named]).to_pylist()
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        about = json.loads((file.schema_arrow.metadata or {}).get(b"huggingface", "{}"))
    features = about.get("info", {}).get("features", {}).items()
    classes = {name: each["names"] for name, each in features if each.get("names")}
    for number, row in enumerate(rows):
        for name in classes.keys() & row.keys():
            row[name] = classes[name][row[name]]
        row["path"] = (row.pop(image.partition(".")[0], None) or row).get("path")
        row["name"] = f"row {number}"
    places = [(group, row) for group, size in enumerate(sizes) for row in range(size)]
    return _index(rows, places, [f"{_cached_as(path)} {row}".encode() for row in range(len(rows))])


def _images_in(path: Path) -> tuple[str, list[str]]:
    """Return the column of encoded images in a Parquet file, and that of their paths; empty where
    there is none."""
    types = pyarrow_module().types
    with parquet(path) as file:
        for field in file.schema_arrow:
            if types.is_binary(field.type) or types.is_large_binary(field.type):
                return field.name, []
            inside = [part.name for part in field.type] if types.is_struct(field.type) else []
            if "bytes" in inside:
                return f"{field.name}.bytes", [f"{field.name}.path"] * ("path" in inside)
    return "", []


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
