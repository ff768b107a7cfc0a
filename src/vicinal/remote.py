"""Data behind a URL: their mirror in the user's cache, whose files are read when they are asked
for, or in parts and not kept."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from vicinal.errors import ConfigError, DataError


def cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/vicinal`` or ``~/.cache/vicinal``."""
    named = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(named) / "vicinal"


def mirrored(url: str) -> Path:
    """Return the place of a URL in the mirror; an error for one that would lead out of it."""
    protocol, _, rest = url.partition("://")
    if ".." in (protocol, *rest.split("/")) or not rest.strip("/"):
        raise ConfigError(f"{url} names no folder or file. Write it without `..`.")
    return cache_folder() / "remote" / protocol / rest.strip("/")


def _far(path: Path) -> bool:
    """Whether a file of the mirror is not here."""
    return not path.stat().st_size and path.is_relative_to(cache_folder() / "remote")


@contextmanager
def _reaching(path: Path, done: str) -> Iterator[tuple[Any, str]]:
    """Give the file system that a path of the mirror stands for, and its name there; what goes
    wrong says that it cannot be ``done``."""
    import fsspec

    protocol, *parts = path.relative_to(cache_folder() / "remote").parts
    url = f"{protocol}://{'/' * (protocol == 'file')}{'/'.join(parts)}"
    try:
        system, name = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:  # a client that is not installed, or none for it
        raise ConfigError(f"{url} cannot be reached: {error}.") from error
    try:
        yield system, name
    except (DataError, ConfigError):
        raise
    except Exception as error:  # of any client, and of whoever reads
        raise DataError(f"{url} cannot be {done}: {error}") from error


_AHEAD = 2**22  # bytes read at once of a file that is read from its beginning


def laid_out(path: Path) -> Path:
    """Return a path; of the mirror, lay out first what is there now: files that are new or another
    are empty until ``fetched`` is asked for them, with the time of theirs."""
    if not path.is_relative_to(cache_folder() / "remote"):
        return path
    with _reaching(path, "listed") as (system, name):
        found = system.find(name, detail=True)
    laid_out = set()
    for remote, about in found.items():
        inside = PurePosixPath(remote[len(name) :].lstrip("/"))
        file = path / inside
        if ".." in inside.parts or remote.endswith("/"):
            continue
        laid_out.add(file)
        changed = _changed(about) or about["size"] or 0  # what tells another file, at least
        if file.is_file():
            known = file.stat()
            same = known.st_size in (0, about["size"] or known.st_size)  # some clients know none
            if same and int(known.st_mtime) == changed:
                continue
            file.unlink()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()  # without emptying what another process may have fetched since
        os.utime(file, (changed, changed))
    for each in sorted(path.rglob("[!.]*"), reverse=True):  # what is in a folder comes before it
        if each.is_file() and each not in laid_out:
            each.unlink()
        elif each.is_dir() and not any(each.iterdir()):
            each.rmdir()
    return path


listed = cache(laid_out)  # once in a process


def _changed(about: Mapping[str, Any]) -> int:
    """Return when a file last changed, in seconds; 0 where its client does not say."""
    names = ("LastModified", "mtime", "last_modified", "updated", "created")
    time = next((about[name] for name in names if about.get(name)), 0)
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
    return int(time.timestamp() if isinstance(time, datetime) else time)


@contextmanager
def streaming(path: Path) -> Iterator[BinaryIO]:
    """Open a file; one of the mirror that is not here is read where it lies, as far as is asked
    for, and not kept."""
    if not _far(path):
        with path.open("rb") as file:
            yield file
        return
    with (
        _reaching(path, "read") as (system, name),
        system.open(name, "rb", block_size=_AHEAD, cache_type="readahead") as remote,
    ):
        yield remote


def part_of(path: Path, first: int, length: int) -> bytes:
    """Return some bytes of a file; of one of the mirror that is not here only these are read."""
    if _far(path):
        with _reaching(path, "read") as (system, name):
            return bytes(system.cat_file(name, start=first, end=first + length))
    with path.open("rb") as file:
        file.seek(first)
        return file.read(length)


def sent(path: Path) -> None:
    """Send a file of the mirror, whole or not at all, to where it stands for; it is then read from
    there. Any other stays as it is."""
    if not path.is_relative_to(cache_folder() / "remote"):
        return
    try:
        with _reaching(path, "written") as (system, name):
            system.makedirs(name.rpartition("/")[0], exist_ok=True)
            system.put_file(str(path), name)
    finally:
        path.unlink()
    listed.cache_clear()


def fetched(path: Path) -> Path:
    """Return a path; an empty file of the mirror is read from where it comes, whole or not at
    all."""
    if not _far(path):
        return path
    time = path.stat().st_mtime
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    try:
        with _reaching(path, "read") as (system, name):
            system.get_file(name, part)
        os.utime(part, (time, time))
        os.replace(part, path)
    finally:
        Path(part).unlink(missing_ok=True)
    return path
