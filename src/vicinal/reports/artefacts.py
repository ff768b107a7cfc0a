"""What a run shows besides numbers, read from ``artefacts/``: neighbors, the map, hard classes, diagnostics.

What the run did not write is None or empty here, and a section that the report leaves out.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vicinal.errors import RunError
from vicinal.run_directory import RunDirectory

_PER_CLASS = 6  # thumbnails that stand for one class


@dataclass(frozen=True)
class Record:
    """One test example: what it is called, its class's name, and its place in the thumbnails."""

    name: str
    label: str
    tile: int | None


@dataclass(frozen=True)
class Thumbnails:
    """The sheet of tiles, ``columns`` per row."""

    png: bytes
    tile: int
    columns: int
    size: tuple[int, int]

    def image(self) -> Image.Image:
        """The sheet as RGB, transparent pixels on white."""
        with Image.open(BytesIO(self.png)) as image:
            if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
                above = image.convert("RGBA")
                return Image.alpha_composite(Image.new("RGBA", above.size, "white"), above).convert("RGB")
            return image.convert("RGB")

    def box(self, tile: int) -> tuple[int, int, int, int]:
        """The pixels of a tile: left, top, right, bottom."""
        left, top = tile % self.columns * self.tile, tile // self.columns * self.tile
        return left, top, left + self.tile, top + self.tile


@dataclass(frozen=True)
class Neighbor:
    record: Record
    right: bool
    distance: float | None


@dataclass(frozen=True)
class Query:
    """A query and whom the trained and the untrained model take for its neighbors, nearest first."""

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
    """``share`` of the ``queries`` of class ``label`` have a first neighbor of class ``taken_for``."""

    label: str
    taken_for: str
    share: float
    queries: int
    example: tuple[Record, Record] | None


@dataclass(frozen=True)
class Artefacts:
    thumbnails: Thumbnails | None
    gallery: list[Query]
    map: EmbeddingMap | None
    worst: list[WorstClass]
    confused: list[Confusion]
    diagnostics: list[dict[str, Any]]


def read_artefacts(run: RunDirectory) -> Artefacts:
    """All that the report shows besides numbers, checked once; a file that contradicts the format is an error."""
    thumbnails, records = _records(run)
    with format_of("retrieval.npz"):
        gallery = _gallery(run, records)
    with format_of("map.npz"):
        embedding_map = _map(run, records)
    with format_of("classes.json"):
        worst, confused = _classes(run, records)
    with format_of("diagnostics.json"):
        document = run.document("diagnostics")
        diagnostics = [] if document is None else [dict(row) for row in document["rows"]]
    return Artefacts(thumbnails, gallery, embedding_map, worst, confused, diagnostics)


def _records(run: RunDirectory) -> tuple[Thumbnails | None, dict[int, Record]]:
    document = run.document("records")
    if document is None:
        return None, {}
    with format_of("records.json"):
        return read_thumbnails(document, run.thumbnails_path, "records.json")


def read_thumbnails(document: Mapping[str, Any], path: Path, file: str) -> tuple[Thumbnails | None, dict[int, Record]]:
    """The records that ``document``, the content of ``file``, lists, and the sheet at ``path`` that shows them."""
    records = {r["id"]: Record(r["name"], r["class"], r.get("tile")) for r in document["records"]}
    if not path.is_file():
        return None, {id: Record(r.name, r.label, None) for id, r in records.items()}
    png = path.read_bytes()
    try:
        with Image.open(BytesIO(png)) as image:
            thumbnails = Thumbnails(png, document["tile"], document["columns"], image.size)
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise RunError(f"{path} cannot be read as an image: {error}. Evaluate the run anew.") from error
    last = max((r.tile for r in records.values() if r.tile is not None), default=0)
    right, bottom = thumbnails.box(last)[2:]
    if bottom > thumbnails.size[1] or right > thumbnails.size[0]:
        raise RunError(
            f"{file} names tile {last}, which ends at pixel {right}, {bottom}, and {path} has "
            f"{thumbnails.size[0]} x {thumbnails.size[1]} pixels. Evaluate the run anew."
        )
    return thumbnails, records


def _gallery(run: RunDirectory, records: Mapping[int, Record]) -> list[Query]:
    arrays = run.arrays("retrieval")
    if arrays is None or not records:
        return []

    def row(query: Record, ids: np.ndarray, distances: np.ndarray | None) -> list[Neighbor]:
        found = []
        for place, id in enumerate(ids.tolist()):
            if id >= 0:  # a gallery smaller than k is filled up with -1
                record = records[id]
                distance = None if distances is None else float(distances[place])
                found.append(Neighbor(record, record.label == query.label, distance))
        return found

    untrained = arrays.get("untrained_neighbours")
    queries = []
    for place, id in enumerate(arrays["query"].tolist()):
        query = records[id]
        trained = row(query, arrays["neighbours"][place], arrays["distances"][place])
        queries.append(Query(query, trained, [] if untrained is None else row(query, untrained[place], None)))
    return queries


def _map(run: RunDirectory, records: Mapping[int, Record]) -> EmbeddingMap | None:
    arrays = run.arrays("map")
    if arrays is None or not records or not len(arrays["record"]):
        return None
    positions = arrays["position"].astype(np.float64)
    if positions.shape != (len(arrays["record"]), 2) or not np.isfinite(positions).all():
        raise RunError(
            f"map.npz should hold a finite position [m 2] for each of its {len(arrays['record'])} records, "
            f"but holds {positions.shape} with {np.count_nonzero(~np.isfinite(positions))} not finite. "
            f"Evaluate the run anew."
        )
    return EmbeddingMap([records[id] for id in arrays["record"].tolist()], positions)


def _classes(run: RunDirectory, records: Mapping[int, Record]) -> tuple[list[WorstClass], list[Confusion]]:
    document = run.document("classes") or {}
    members: dict[str, list[Record]] = {}
    for record in records.values():
        members.setdefault(record.label, []).append(record)
    worst = [
        WorstClass(entry["class"], entry["records"], entry["recall@1"], members.get(entry["class"], [])[:_PER_CLASS])
        for entry in document.get("worst", [])
    ]
    confused = []
    for entry in document.get("confused", []):
        pair = [records[id] for id in entry.get("example") or []] if records else []
        example = (pair[0], pair[1]) if len(pair) == 2 else None
        confused.append(Confusion(entry["class"], entry["taken_for"], entry["share"], entry["queries"], example))
    return worst, confused


@contextmanager
def format_of(file: str) -> Iterator[None]:
    """Turn what a malformed artefact does to its reader into an error that names the file."""
    try:
        yield
    except KeyError as error:
        raise RunError(
            f"artefacts/{file} lacks {error}, or names a record of that id which records.json does not hold. "
            f"Evaluate the run anew."
        ) from error
    except (TypeError, IndexError, AttributeError) as error:
        raise RunError(f"artefacts/{file} is not as run format 1 says: {error}. Evaluate the run anew.") from error
