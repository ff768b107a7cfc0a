"""What a run shows besides numbers, read from ``artifacts/``: neighbors, map, hard classes.

What the run did not write is None or empty here, and a section that the report leaves out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vicinal.errors import RunError
from vicinal.files import decoding, open_image
from vicinal.reports.series import ACTIVE_CAPTION
from vicinal.run_directory import RunDirectory

_PER_CLASS = 6  # thumbnails that stand for one class
Record = dict[str, Any]  # a test example: ``name``, ``class``, and ``tile`` on the sheet or None
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Thumbnails:
    """The sheet of tiles, ``columns`` per row, as PNG or JPEG."""

    encoded: bytes
    tile: int
    columns: int
    size: tuple[int, int]


@dataclass(frozen=True)
class Artifacts:
    """What a report shows besides numbers.

    Attributes:
        thumbnails: pictures of all records that are shown.
        gallery: queries, each a record with its neighbors ``trained`` and ``untrained``, nearest
            first; these are records with ``right`` and ``distance``.
        gallery_thumbnails: on which they have their tile: the same sheet, or one of larger ones.
        map: records and their positions [m 2] in the plane.
        worst: rows of ``classes.json`` with records as ``examples``.
        confused: the same with two records as ``example``, or none.
        diagnostics: rows of ``diagnostics.json``.
        captions: how to read the charts of the method's scalars, by their keys.
    """

    thumbnails: Thumbnails | None
    gallery: Rows
    gallery_thumbnails: Thumbnails | None
    map: tuple[list[Record], np.ndarray] | None
    worst: Rows
    confused: Rows
    diagnostics: Rows
    captions: dict[str, str]


def read_artifacts(run: RunDirectory) -> Artifacts:
    """All that the report shows besides numbers; a file that contradicts the format is an error."""
    with decoding(run.artifacts_path, "Evaluate the run anew."):
        thumbnails, records = _records(run.document("records"), run.thumbnails_path)
        larger, sought = _records(run.document("retrieval_records"), run.retrieval_thumbnails_path)
        if larger is None:
            larger = thumbnails
            sought = records
        classes = run.document("classes") or {}
        captions = {"active": ACTIVE_CAPTION, **(run.document("captions") or {})}
        return Artifacts(
            thumbnails,
            _gallery(run.arrays("retrieval"), sought),
            larger,
            _map(run.arrays("map"), records),
            _worst(classes.get("worst", []), records),
            [
                {**row, "example": [records[id] for id in row["example"] or () if records]}
                for row in classes.get("confused", [])
            ],
            (run.document("diagnostics") or {"rows": []})["rows"],
            {f"scalar-{group}": str(text) for group, text in captions.items()},
        )


def _records(
    document: Mapping[str, Any] | None, path: Path
) -> tuple[Thumbnails | None, dict[int, Record]]:
    """The records that a document lists, by id, and the sheet at ``path`` that shows them."""
    if document is None:
        return None, {}
    there = path.is_file()
    records = {
        row["id"]: {**row, "tile": row.get("tile") if there else None}
        for row in document["records"]
    }
    if not there:
        return None, records
    encoded = path.read_bytes()
    try:
        with open_image(BytesIO(encoded)) as image:
            image.load()  # all of it: a sheet that was cut off has a sound beginning
            return Thumbnails(encoded, document["tile"], document["columns"], image.size), records
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise RunError(
            f"{path} cannot be read as an image: {error}. Remove it to report without pictures."
        ) from error


def _gallery(arrays: Mapping[str, np.ndarray] | None, records: Mapping[int, Record]) -> Rows:
    if arrays is None or not records:
        return []

    def near(query: Record, ids: Sequence[int], distances: Sequence[float | None]) -> Rows:
        return [
            {
                **records[id],
                "right": records[id]["class"] == query["class"],
                "distance": distance,
            }
            for id, distance in zip(ids, distances, strict=True)
            if id >= 0  # a gallery smaller than k is filled up with -1
        ]

    columns = ("query", "neighbors", "distances", "untrained_neighbors")
    return [
        {
            **records[id],
            "trained": near(records[id], after, distances),
            "untrained": near(records[id], before, [None] * len(before)),
        }
        for id, after, distances, before in zip(
            *(arrays[name].tolist() for name in columns), strict=True
        )
    ]


def _map(
    arrays: Mapping[str, np.ndarray] | None, records: Mapping[int, Record]
) -> tuple[list[Record], np.ndarray] | None:
    if arrays is None or not records or not len(arrays["record"]):
        return None
    shown = [records[id] for id in arrays["record"].tolist()]
    return shown, arrays["position"].astype(np.float64)


def _worst(rows: Rows, records: Mapping[int, Record]) -> Rows:
    """The classes with mistakes, each with some of its records."""
    members: dict[str, list[Record]] = {}
    for record in records.values():
        members.setdefault(record["class"], []).append(record)
    return [
        {**row, "examples": members.get(row["class"], [])[:_PER_CLASS]}
        for row in rows
        if row["recall@1"] < 1
    ]


def unit_square(positions: np.ndarray) -> np.ndarray:
    """Positions [m 2] moved and scaled, both axes alike, to fill the middle of the unit square.

    >>> unit_square(np.array([[0.0, 10.0], [4.0, 12.0]])).tolist()
    [[0.0, 0.25], [1.0, 0.75]]
    """
    if not len(positions):
        return positions
    low = positions.min(axis=0)
    high = positions.max(axis=0)
    extent = float((high - low).max()) or 1.0  # one point, or all at one place, stay in the middle
    scaled: np.ndarray = (positions - (low + high) / 2) / extent + 0.5
    return scaled
