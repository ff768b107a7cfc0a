"""Image files out of a packed set, for programs that want files; ``packed.Packed`` reads the parts as they are."""

import csv
import io
import re
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal

from vicinal.data.folder import ENDINGS
from vicinal.data.packed import PackedImages
from vicinal.data.records import Records
from vicinal.errors import ConfigError, DataError, unknown
from vicinal.files import write_text

By = Literal["name", "class"]
TABLE = "records.csv"
_MEMBER = re.compile(r"\d{8}\.([^/\0]+)")  # as `pack` names them


def unpack(records: Records, folder: Path, *, by: By = "name", progress: Callable[[int], None] | None = None) -> Path:
    """Write the images of a packed set as files, with a table of what is known of them; return the table.

    The bytes are those in the parts: of a set that was packed without a transform, the original files. The table,
    ``records.csv``, is one that ``Table`` reads, with path, label, split and all columns.

    Args:
        records: as ``Packed`` loaded them, all of them.
        folder: where to; made if need be. One that holds anything is refused, so nothing is overwritten.
        by: ``"name"`` gives each image the name that it was packed with, folders included, and the ending of what it is
            now; ``"class"`` numbers the images in one folder per class.
        progress: told how many images are written.
    """
    source = records.source
    if not isinstance(source, PackedImages):
        raise ConfigError(f"a whole packed set is unpacked, but {records.name} is read as {type(source).__name__}.")
    if by not in ("name", "class"):
        raise ConfigError(unknown("layout", by, ("name", "class")))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"images were to be unpacked into {folder}, but it is not empty. Choose another folder.")
    endings = [ending for file in source.files for ending, _ in _members(source.folder / file)]
    if len(endings) != len(records):
        raise DataError(f"{source.folder} counts {len(records)} images, but its parts hold {len(endings)}. Pack anew.")
    paths = _by_name(source.names, endings) if by == "name" else _by_class(records, endings)
    _refuse_collisions(paths)
    row = 0
    for file in source.files:
        for _, encoded in _members(source.folder / file, content=True):
            target = folder / paths[row]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(encoded)
            row += 1
            if progress is not None:
                progress(row)
    write_text(folder / TABLE, _table(records, paths))
    return folder / TABLE


def _members(path: Path, *, content: bool = False) -> Iterator[tuple[str, bytes]]:
    """The ending of each image of a part, and its bytes where they are asked for, in the order of the rows."""
    with tarfile.open(path) as archive:
        for member in archive:
            match = _MEMBER.fullmatch(member.name)
            file = archive.extractfile(member) if member.isfile() else None  # a link would lead elsewhere
            if match is None or file is None:
                raise DataError(
                    f"{path} holds {member.name!r}, which is no image that `pack` wrote. Pack the set anew."
                )
            yield match[1], file.read() if content else b""


def _by_name(names: Sequence[str], endings: Sequence[str]) -> list[PurePosixPath]:
    """The names as paths below a folder; one that would lead out of it is refused."""
    paths = []
    for name, ending in zip(names, endings, strict=True):
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.name or "\0" in name:
            raise DataError(
                f"images were to be unpacked below one folder, but {name!r} leads out of it. Unpack by class instead."
            )
        named = path.suffix.lower().removeprefix(".")
        if named != ending and path.suffix.lower() in ENDINGS:
            path = path.with_suffix(f".{ending}")  # prepared images are JPEG, whatever they were
        elif named != ending and (named or ending != "bin"):
            path = path.with_name(f"{path.name}.{ending}")
        paths.append(path)
    return paths


def _by_class(records: Records, endings: Sequence[str]) -> list[PurePosixPath]:
    """``class/00000017.jpg``, with ``-`` for the slashes that a class's name may have."""
    folders = [name.replace("/", "-") for name in records.classes]
    for name, folder in zip(records.classes, folders, strict=True):
        if not folder or folder.startswith(".") or "\0" in folder:
            raise DataError(f"the class {name!r} cannot name a folder. Unpack by name instead.")
    name, count = Counter(folders).most_common(1)[0]
    if count > 1:
        raise DataError(f"{count} classes would share the folder {name!r}. Unpack by name instead.")
    return [
        PurePosixPath(folders[label], f"{row:08d}.{ending}")
        for row, (label, ending) in enumerate(zip(records.labels, endings, strict=True))
    ]


def _refuse_collisions(paths: Sequence[PurePosixPath]) -> None:
    """One file must not overwrite another, nor stand where a folder has to be."""
    path, count = Counter([*paths, PurePosixPath(TABLE)]).most_common(1)[0]
    if count > 1:
        raise DataError(f"{count} files would be named {path}. Unpack by class instead.")
    blocked = set(paths) & {parent for path in paths for parent in path.parents}
    if blocked:
        raise DataError(f"{min(blocked)} would be an image and a folder. Unpack by class instead.")


def _table(records: Records, paths: Sequence[PurePosixPath]) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    columns = {name: column for name, column in records.columns.items() if name not in ("path", "label", "split")}
    rows.writerow(["path", "label", "split", *columns])
    known = zip(paths, records.labels, records.splits, *columns.values(), strict=True)
    rows.writerows([str(path), records.classes[label], split, *rest] for path, label, split, *rest in known)
    return text.getvalue()
