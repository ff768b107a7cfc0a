"""Results as JSON lines, one for each row and seed: appended whole, never changed, found again by what was computed.

A result is reused for a job if recipe, kind, protocol and seed are the same and no setting that both know differs.
Spelling of overrides and settings added since do not matter. Commit and code are recorded and shown; the code
(``code.py``) is compared only where asked for. So a row recorded for one table, or on another machine, serves every
other.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vicinal.errors import DataError

FORMAT = 1
# Settings that change how fast a run is and what its report shows, not what it computes.
_NO_MATTER = frozenset(
    {"device", "workers", "batch_size", "checkpoint_seconds", "resident", "compile", "record", "artefacts"}
)

Line = dict[str, Any]


def append(path: Path, line: Mapping[str, Any]) -> None:
    """Add a line and force it to disk; a part of a line that a crash left is ended first, so that it harms nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"format": FORMAT, **line}, allow_nan=False, ensure_ascii=False) + "\n"
    with path.open("ab+") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            text = text if file.read(1) == b"\n" else "\n" + text
        file.write(text.encode())  # one write: two benches that append to one file do not mix their lines
        file.flush()
        os.fsync(file.fileno())


def read(path: Path) -> tuple[list[Line], list[str]]:
    """The lines of a results file, and what a person should know of those that cannot be read.

    A crash leaves at most a part of a line. Anything that is no JSON object is left out and said; a file of a later
    format is refused, for its numbers might mean something else.
    """
    lines: list[Line] = []
    notes: list[str] = []
    if not path.is_file():
        return lines, notes
    for number, text in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            line = None
        if not isinstance(line, dict):
            notes.append(f"{path}, line {number}: not a result, left out (cut off by a crash?).")
        elif line.get("format", FORMAT) != FORMAT:
            raise DataError(
                f"{path}, line {number}: results of format {line.get('format')}, this vicinal reads {FORMAT}. "
                f"Use the version that wrote it."
            )
        else:
            lines.append(line)
    return lines, notes


def read_folder(folder: Path) -> tuple[list[Line], list[str]]:
    """All results of a folder: a row recorded for one table serves the others."""
    lines: list[Line] = []
    notes: list[str] = []
    for path in sorted(folder.glob("*.jsonl")):
        found, said = read(path)
        lines += [line for line in found if "settings" in line]  # results of other programs may lie here too
        notes += said
    return lines, notes


def find(lines: Iterable[Line], wanted: Mapping[str, Any], *, code: str | None = None) -> Line | None:
    """The newest result of what ``wanted`` describes (``Job.identity``; baselines with their row), or None.

    Args:
        code: accept results of this code alone (``code.fingerprint``).
    """
    found = None
    for line in lines:
        if any(line.get(key) != value for key, value in wanted.items() if key != "settings"):
            continue
        if code is not None and line.get("code") != code:
            continue
        if agree(line["settings"], wanted["settings"]) and (found is None or line["created"] >= found["created"]):
            found = line
    return found


def agree(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two descriptions of settings are the same wherever both say something.

    >>> agree({"epochs": 3, "data": {"class": "Glyphs", "seed": 0}}, {"data": {"class": "Glyphs"}, "new": 1})
    True
    >>> agree({"epochs": 3}, {"epochs": 4})
    False
    """
    for key in one.keys() & other.keys() - _NO_MATTER:
        left, right = one[key], other[key]
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            if not agree(left, right):
                return False
        elif left != right:
            return False
    return True
