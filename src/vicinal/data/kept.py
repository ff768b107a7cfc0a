"""What a run keeps of its data, and what has changed in them since: names, classes, splits and
content of all rows."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np
from jaxtyping import UInt64

from vicinal.data.records import FeatureArray, Records
from vicinal.errors import DataError, RunError, few
from vicinal.files import decoding, read_arrays
from vicinal.run_directory import RunDirectory

NAMES = "classes", "name", "label", "split", "content"
_READERS = 8
Rows = dict[str, np.ndarray]


def contents(records: Records) -> UInt64[np.ndarray, "n"]:
    """Return 64 bits of each row's content; 0 where its source tells none, or it cannot be read."""
    source, positions = records.source.origin(np.arange(len(records)))
    if isinstance(source, FeatureArray) and source.contents is not None:
        return np.asarray(source.contents[positions])

    def digest(position: int) -> int:
        with suppress(OSError, DataError):
            if (content := source.content(position)) is not None:
                return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")
        return 0

    with ThreadPoolExecutor(_READERS) as pool:
        return np.fromiter(pool.map(digest, positions.tolist()), np.uint64, len(positions))


def rows_of(records: Records) -> Rows:
    """Return what a run keeps of its records."""
    names = np.array([records.source.name(row) for row in range(len(records))])
    columns = np.array(records.classes), names, records.labels, records.splits, contents(records)
    return dict(zip(NAMES, columns, strict=True))


def records_of(run: RunDirectory, records: Records) -> Records:
    """Return a run's own data, which must not have changed, split as in its training."""
    kept = kept_rows(run)
    now = rows_of(records)
    split = kept.pop("split")
    del now["split"]
    check_unchanged(run, kept, now)
    return replace(records, splits=split)


def kept_rows(run: RunDirectory) -> Rows:
    """Return what a run kept of its records."""
    if not run.rows_path.is_file():
        raise RunError(f"{run.rows_path}, which says how its data were split, is missing.")
    with decoding(run.rows_path):
        return {name: kept[name] for kept in [read_arrays(run.rows_path)] for name in NAMES}


def check_unchanged(run: RunDirectory, kept: Rows, now: Rows) -> None:
    """Raise a RunError that says what has changed since a run began."""
    if any(not np.array_equal(kept[name], now[name]) for name in kept):
        raise RunError(
            f"the data of {run.path} changed since it began: {_changes(kept, now)}. Restore them; "
            "or start a new run, or name other data with `vicinal evaluate --data`."
        )


def _changes(kept: Rows, now: Rows) -> str:
    before = _by_name(kept)
    after = _by_name(now)
    facts = {
        "added": after.keys() - before.keys(),
        "gone": before.keys() - after.keys(),
        "of another class, content or split": {
            name for name in before.keys() & after.keys() if before[name] != after[name]
        },
    }
    found = [
        f"{len(names):,} records {fact} ({few(sorted(names))})"
        for fact, names in facts.items()
        if names
    ]
    return "; ".join(found) or "the records stand in another order"


def _by_name(rows: Rows) -> dict[str, tuple[Any, ...]]:
    """Return class, content and split of each record; a split that is made anew is left out."""
    facts = rows["classes"][rows["label"]], rows["content"], rows.get("split", rows["label"] * 0)
    columns = zip(*(column.tolist() for column in facts), strict=True)
    return dict(zip(rows["name"].tolist(), columns, strict=True))


def unseen(run: RunDirectory, records: Records) -> Records:
    """Return the records whose content a run's training and selection never saw: other data are all
    of that kind."""
    kept = kept_rows(run)
    seen = kept["content"][(kept["split"] != "test") & (kept["content"] != 0)]
    return records.take(np.flatnonzero(~np.isin(contents(records), seen)))
