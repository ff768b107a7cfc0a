"""Results as JSON lines, one for each row and seed: appended whole, found again by what was
computed.

A result is used for every row, of any table, that has its protocol, its seed, the same slots
(``slots_hash``) and the same records. The commit is recorded and shown.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    whole = {"format": FORMAT, **line}
    return json.dumps(whole, allow_nan=False, ensure_ascii=False, separators=(",", ":")) + "\n"


class Store:
    """The results in the files of a folder by what they are results of; the newest of each
    counts."""

    def __init__(self, folder: Path, files: str = "*.jsonl") -> None:
        self._lines: dict[tuple[Any, ...], dict[str, Line]] = {}
        found = (line for path in sorted(folder.glob(files)) for line in read_lines(path))
        own = (line for line in found if "protocol" in line)
        self.add(*sorted(own, key=lambda line: str(line["created"])))

    def add(self, *lines: Line) -> None:
        for line in lines:
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
    own = (line[name] for name in KEY)
    return (*own, *line.get("fold", ()), line["row"] if untrained else "")
