"""Results as JSON lines, one for each row and seed: appended whole, found again by what was
computed.

A result is used for every row, of any table, that has its protocol, its seed, the same slots
(``slots_hash``) and the same records. The commit is recorded and shown.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vicinal.errors import DataError
from vicinal.files import lock_open_file, read_lines

FORMAT = 2
KEY = ("protocol", "seed", "slots")
Line = dict[str, Any]


def append(path: Path, *lines: Mapping[str, Any]) -> None:
    """Add lines at once and force them to disk; a partial line that a crash left is cut off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        lock_open_file(file.fileno())  # what another process is just writing is no crash's
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write("".join(map(written, lines)).encode())
        file.flush()
        os.fsync(file.fileno())


def written(line: Mapping[str, Any]) -> str:
    """A line as its file has it."""
    return (
        json.dumps(
            {"format": FORMAT, **line}, allow_nan=False, ensure_ascii=False, separators=(",", ":")
        )
        + "\n"
    )


def read(path: Path) -> Iterator[Line]:
    """The lines of a results file, without a last one that a crash cut off."""
    for line in read_lines(path):
        if line.get("format", FORMAT) != FORMAT:
            raise DataError(
                f"{path} holds results of format {line['format']}, this version reads {FORMAT}. "
                "Use the version that wrote it."
            )
        yield line


class Store:
    """The results of a folder by what they are results of; the newest of each counts."""

    def __init__(self, folder: Path) -> None:
        self._lines: dict[tuple[Any, ...], dict[str, Line]] = {}
        found = (line for path in sorted(folder.glob("*.jsonl")) for line in read(path))
        own = (line for line in found if "slots" in line)
        for line in sorted(own, key=lambda line: str(line["created"])):
            self._lines.setdefault(_key(line), {})[records_of(line)] = line

    def find(self, wanted: Mapping[str, Any]) -> dict[str, Line]:
        """The newest results of a job by the fingerprints of their records; ``row`` counts only for
        rows without training."""
        return self._lines.get(_key(wanted), {})


def records_of(line: Mapping[str, Any]) -> str:
    """The fingerprint of the whole data that a result is of; empty in results of before 0.3, and
    without the content in those soon after."""
    return str(line.get("records", ""))


def _key(line: Mapping[str, Any]) -> tuple[Any, ...]:
    untrained = line.get("kind") == "untrained"
    return (*(line[name] for name in KEY), line["row"] if untrained else "")
