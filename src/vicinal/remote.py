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


def _source(path: Path) -> tuple[Any, str] | None:
    """Return the file system that a path of the mirror stands for, and its name there; None of
    other paths."""
    mirror = cache_folder() / "remote"
    if not path.is_relative_to(mirror):
        return None
    import fsspec

    protocol, *parts = path.relative_to(mirror).parts
    url = f"{protocol}://{'/' * (protocol == 'file')}{'/'.join(parts)}"
    try:
        system, name = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:  # a client that is not installed, or none for it
        raise ConfigError(f"{url} cannot be reached: {error}.") from error
    return system, name


def _url(system: Any, name: str) -> str:
    return str(system.unstrip_protocol(name))


_AHEAD = 2**22  # bytes read at once of a file that is read from its beginning


def laid_out(path: Path) -> Path:
    """Return a path; of the mirror, lay out first what is there now: files that are new or another
    are empty until ``fetched`` is asked for them, with the time of theirs."""
    source = _source(path)
    if source is None:
        return path
    system, name = source
    try:
        found = system.find(name, detail=True)
    except Exception as error:  # of any client
        raise DataError(f"{_url(system, name)} cannot be listed: {error}") from error
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
    source = None if path.stat().st_size else _source(path)
    if source is None:
        with path.open("rb") as file:
            yield file
        return
    system, name = source
    try:
        with system.open(name, "rb", block_size=_AHEAD, cache_type="readahead") as remote:
            yield remote
    except (DataError, ConfigError):
        raise
    except Exception as error:  # of any client, and of whoever reads
        raise DataError(f"{_url(system, name)} cannot be read: {error}") from error


def part_of(path: Path, first: int, length: int) -> bytes:
    """Return some bytes of a file; of one of the mirror that is not here only these are read."""
    source = None if path.stat().st_size else _source(path)
    if source is None:
        with path.open("rb") as file:
            file.seek(first)
            return file.read(length)
    system, name = source
    try:
        return bytes(system.cat_file(name, start=first, end=first + length))
    except Exception as error:  # of any client
        raise DataError(f"{_url(system, name)} cannot be read: {error}") from error


def sent(path: Path) -> None:
    """Send a file of the mirror, whole or not at all, to where it stands for; it is then read from
    there. Any other stays as it is."""
    source = _source(path)
    if source is None:
        return
    system, name = source
    try:
        system.makedirs(name.rpartition("/")[0], exist_ok=True)
        system.put_file(str(path), name)
    except Exception as error:  # of any client
        raise DataError(f"{_url(system, name)} cannot be written: {error}") from error
    finally:
        path.unlink()
    listed.cache_clear()


def fetched(path: Path) -> Path:
    """Return a path; an empty file of the mirror is read from where it comes, whole or not at
    all."""
    known = path.stat()
    if known.st_size or (source := _source(path)) is None:
        return path
    system, name = source
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    try:
        system.get_file(name, part)
        os.utime(part, (known.st_mtime, known.st_mtime))
        os.replace(part, path)
    except Exception as error:  # of any client
        Path(part).unlink(missing_ok=True)
        raise DataError(f"{_url(system, name)} cannot be read: {error}") from error
    return path
