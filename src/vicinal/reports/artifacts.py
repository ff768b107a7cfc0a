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
ANEW = "Evaluate the run anew."


@dataclass(frozen=True)
class Record:
    """One test example: what it is called, its class's name, and its place in the thumbnails."""

    name: str
    label: str
    tile: int | None


@dataclass(frozen=True)
class Thumbnails:
    """The sheet of tiles, ``columns`` per row, as PNG or JPEG."""

    encoded: bytes
    tile: int
    columns: int
    size: tuple[int, int]

    def box(self, tile: int) -> tuple[int, int, int, int]:
        """The pixels of a tile: left, top, right, bottom."""
        left = tile % self.columns * self.tile
        top = tile // self.columns * self.tile
        return left, top, left + self.tile, top + self.tile


@dataclass(frozen=True)
class Neighbor:
    record: Record
    right: bool
    distance: float | None


@dataclass(frozen=True)
class Query:
    """A query and whom the trained and the untrained model take for its neighbors, nearest
    first."""

    record: Record
    trained: list[Neighbor]
    untrained: list[Neighbor]


@dataclass(frozen=True)
class EmbeddingMap:
    """Records and their positions [m 2] in the plane."""

    records: list[Record]
    positions: np.ndarray


@dataclass(frozen=True)
class WorstClass:
    label: str
    count: int
    recall: float
    examples: list[Record]


@dataclass(frozen=True)
class Confusion:
    """``share`` of the ``queries`` of class ``label`` have a first neighbor of class
    ``taken_for``."""

    label: str
    taken_for: str
    share: float
    queries: int
    example: tuple[Record, Record] | None


@dataclass(frozen=True)
class Artifacts:
    """What a report shows besides numbers.

    Attributes:
        thumbnails: pictures of all records that are shown.
        gallery: some queries and their neighbors, whose records have their place on
        gallery_thumbnails: the same as ``thumbnails``, or larger ones.
        captions: how to read the charts of the method's scalars, by their keys.
    """

    thumbnails: Thumbnails | None
    gallery: list[Query]
    gallery_thumbnails: Thumbnails | None
    map: EmbeddingMap | None
    worst: list[WorstClass]
    confused: list[Confusion]
    diagnostics: list[dict[str, Any]]
    captions: dict[str, str]


def read_artifacts(run: RunDirectory) -> Artifacts:
    """All that the report shows besides numbers; a file that contradicts the format is an error."""
    with decoding(run.artifacts_path, ANEW):
        thumbnails, records = _records(run.document("records"), run.thumbnails_path)
        larger, retrieved = _records(
            run.document("retrieval_records"), run.retrieval_thumbnails_path
        )
        if larger is None:
            larger = thumbnails
            retrieved = records
        worst, confused = _classes(run.document("classes") or {}, records)
        diagnostics = [dict(row) for row in (run.document("diagnostics") or {"rows": []})["rows"]]
        gallery = _gallery(run, retrieved)
        embedding_map = _map(run, records)
        captions = {"active": ACTIVE_CAPTION} | (run.document("captions") or {})
        said = {f"scalar-{group}": str(text) for group, text in captions.items()}
    return Artifacts(thumbnails, gallery, larger, embedding_map, worst, confused, diagnostics, said)


def _records(
    document: Mapping[str, Any] | None, path: Path
) -> tuple[Thumbnails | None, dict[int, Record]]:
    """The records that a document lists, by id, and the sheet at ``path`` that shows them."""
    if document is None:
        return None, {}
    there = path.is_file()
    records = {
        row["id"]: Record(row["name"], row["class"], row.get("tile") if there else None)
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


def _gallery(run: RunDirectory, records: Mapping[int, Record]) -> list[Query]:
    arrays = run.arrays("retrieval")
    if arrays is None or not records:
        return []

    def row(query: Record, ids: Sequence[int], distances: Sequence[float | None]) -> list[Neighbor]:
        return [
            Neighbor(records[id], records[id].label == query.label, distance)
            for id, distance in zip(ids, distances, strict=True)
            if id >= 0  # a gallery smaller than k is filled up with -1
        ]

    columns = ("query", "neighbors", "distances", "untrained_neighbors")
    rows = zip(*(arrays[name].tolist() for name in columns), strict=True)
    return [
        Query(
            records[id],
            row(records[id], after, distances),
            row(records[id], before, [None] * len(before)),
        )
        for id, after, distances, before in rows
    ]


def _map(run: RunDirectory, records: Mapping[int, Record]) -> EmbeddingMap | None:
    arrays = run.arrays("map")
    if arrays is None or not records or not len(arrays["record"]):
        return None
    shown = [records[id] for id in arrays["record"].tolist()]
    return EmbeddingMap(shown, arrays["position"].astype(np.float64))


def _classes(
    document: Mapping[str, Any], records: Mapping[int, Record]
) -> tuple[list[WorstClass], list[Confusion]]:
    members: dict[str, list[Record]] = {}
    for record in records.values():
        members.setdefault(record.label, []).append(record)
    worst = [
        WorstClass(
            entry["class"],
            entry["records"],
            entry["recall@1"],
            members.get(entry["class"], [])[:_PER_CLASS],
        )
        for entry in document.get("worst", [])
        if entry["recall@1"] < 1
    ]
    confused = []
    for entry in document.get("confused", []):
        pair = [records[id] for id in entry["example"] or () if records]
        example = (pair[0], pair[1]) if pair else None
        confused.append(
            Confusion(entry["class"], entry["taken_for"], entry["share"], entry["queries"], example)
        )
    return worst, confused


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
