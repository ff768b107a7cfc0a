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

from vicinal.errors import DataError

FORMAT = 2
KEY = ("protocol", "seed", "slots")
Line = dict[str, Any]


def append(path: Path, *lines: Mapping[str, Any]) -> None:
    """Add lines at once and force them to disk; a partial line that a crash left is ended first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(map(written, lines))
    with path.open("ab+") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            text = text if file.read(1) == b"\n" else "\n" + text
        # One write: two processes that append to one file do not mix their lines.
        file.write(text.encode())
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


def read(path: Path) -> tuple[list[Line], list[str]]:
    """The lines of a results file, and a note for each that cannot be read, as a crash leaves
    one."""
    lines: list[Line] = []
    notes: list[str] = []
    texts = (
        path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    )
    for number, text in enumerate(texts, 1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
        except (json.JSONDecodeError, RecursionError):
            line = None
        if not isinstance(line, dict):
            notes.append(f"{path}, line {number}: not a result, ignored (cut off by a crash?).")
        elif line.get("format", FORMAT) != FORMAT:
            raise DataError(
                f"{path}, line {number}: results of format {line.get('format')}, this version "
                f"reads {FORMAT}. "
                f"Use the version that wrote it."
            )
        else:
            lines.append(line)
    return lines, notes


class Store:
    """The results of a folder by what they are results of; the newest of each counts."""

    def __init__(self, folder: Path) -> None:
        self.notes: list[str] = []
        self._lines: dict[tuple[Any, ...], dict[str, Line]] = {}
        for path in sorted(folder.glob("*.jsonl")):
            lines, notes = read(path)
            self.notes += notes
            for line in lines:
                if "slots" in line:
                    self._add(line)

    def _add(self, line: Line) -> None:
        same = self._lines.setdefault(_key(line), {})
        before = same.setdefault(records_of(line), line)
        if line["created"] >= before["created"]:
            same[records_of(line)] = line

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
