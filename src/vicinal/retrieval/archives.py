"""The images of a zip or tar archive as files: nothing leaves the folder, nothing explodes."""

import lzma
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from vicinal.data.folder import ENDINGS
from vicinal.errors import DataError
from vicinal.files import file_hash, sync_directory

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
FOLDER = "archives"  # below the collection
_BLOCK = 2**20
# What an archive may unfold to. Images hardly shrink, so one that grows a hundred times is a bomb.
_FILES, _BYTES, _RATIO = 1_000_000, 64 * 2**30, 100.0
_DAMAGED = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    RuntimeError,
)


def is_archive(path: Path) -> bool:
    return path.name.lower().endswith(SUFFIXES) and path.is_file()


def unpack(archive: Path, collection: Path) -> str:
    """Unpack an archive's images below the collection; return that folder, relative to the
    collection.

    The folder is named by the archive's content and gets its name when it is whole, so an unchanged
    archive is unpacked once. An archive with a name that leads out, a link or a device is rejected.
    """
    name = f"{FOLDER}/{file_hash(archive)[:16]}"
    folder = collection / name
    if folder.is_dir():
        return name
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        _unpack(archive, part)
    except DataError:
        shutil.rmtree(part, ignore_errors=True)
        raise
    except _DAMAGED as error:
        shutil.rmtree(part, ignore_errors=True)
        raise DataError(
            f"{archive} cannot be unpacked: {error}. Create it again, or unpack it yourself."
        ) from error
    os.replace(part, folder)
    sync_directory(folder.parent)
    return name


def _unpack(archive: Path, folder: Path) -> None:
    allowed = min(
        _BYTES, _RATIO * max(archive.stat().st_size, _BLOCK)
    )  # a small file may unfold a little
    total = 0
    for count, (name, size, content) in enumerate(_members(archive), 1):
        if count > _FILES:
            raise DataError(
                f"{archive} holds more than {_FILES} files. Unpack it yourself and index the "
                "folder."
            )
        target = folder / _inside(archive, name)
        if content is None or target.suffix.lower() not in ENDINGS or target.name.startswith("."):
            total += size  # in a tar, what is passed over is unfolded all the same
            _check_size(archive, total, allowed)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        with content, target.open("xb") as file:
            while block := content.read(_BLOCK):
                total += len(block)  # what is really read: a header may say anything
                _check_size(archive, total, allowed)
                file.write(block)


def _check_size(archive: Path, total: int, allowed: float) -> None:
    if total > allowed:
        fault = (
            f"{archive} has {archive.stat().st_size} bytes, but unfolds to more than {allowed:.0f}"
        )
        raise DataError(f"{fault}. If you trust it, unpack it yourself and index the folder.")


def _inside(archive: Path, name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or not path.parts:
        raise DataError(
            f"{archive} holds {name!r}, which leads out of its folder. Create it again without "
            "that."
        )
    return path


def _members(archive: Path) -> Iterator[tuple[str, int, IO[bytes] | None]]:
    """Yield name, size that the archive states, and content of every entry; None for the content of
    a folder."""
    if archive.name.lower().endswith(".zip"):
        with zipfile.ZipFile(archive) as opened:
            for entry in opened.infolist():
                if stat.S_ISLNK(entry.external_attr >> 16):
                    raise DataError(
                        f"{archive} holds the link {entry.filename!r}. Create it again with plain "
                        "files."
                    )
                # A folder has no content, and what is not an image is not opened, so neither costs
                # anything.
                wanted = (
                    not entry.is_dir() and PurePosixPath(entry.filename).suffix.lower() in ENDINGS
                )
                yield entry.filename, 0, opened.open(entry) if wanted else None
        return
    with tarfile.open(archive, "r|*") as stream:
        for member in stream:
            if not (member.isfile() or member.isdir()):
                raise DataError(
                    f"{archive} holds {member.name!r}, a link or device. Create it again with "
                    "plain files."
                )
            yield member.name, member.size, stream.extractfile(member) if member.isfile() else None
