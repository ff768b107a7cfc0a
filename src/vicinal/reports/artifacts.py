"""What a run shows besides numbers, read from ``artifacts/``: neighbors, map, hard classes, the
method's figures.

What the run did not write is None or empty here, and a section that the report leaves out.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vicinal.errors import ConfigError, RunError
from vicinal.figures import Figure, Scatter, from_json, records_of
from vicinal.files import open_image
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
    """The sheet of tiles, ``columns`` per row, as PNG or JPEG."""

    encoded: bytes
    tile: int
    columns: int
    size: tuple[int, int]

    def image(self) -> Image.Image:
        """The sheet as RGB, transparent pixels on white."""
        with open_image(BytesIO(self.encoded)) as image:
            if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
                above = image.convert("RGBA")
                return Image.alpha_composite(Image.new("RGBA", above.size, "white"), above).convert(
                    "RGB"
                )
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
class MethodFigures:
    """What a method shows of itself.

    Attributes:
        captions: how to read the chart of a group of scalars, by the group's name.
        figures: in the method's order.
        records: the training records that figures name.
        thumbnails: their pictures.
    """

    captions: Mapping[str, str] = field(default_factory=dict)
    figures: tuple[Figure, ...] = ()
    records: Mapping[int, Record] = field(default_factory=dict)
    thumbnails: Thumbnails | None = None


@dataclass(frozen=True)
class Artifacts:
    """What a report shows besides numbers.

    Attributes:
        thumbnails: pictures of all records that are shown.
        gallery: some queries and their neighbors, whose records have their place on
        gallery_thumbnails: the same as ``thumbnails``, or larger ones.
    """

    thumbnails: Thumbnails | None
    gallery: list[Query]
    gallery_thumbnails: Thumbnails | None
    map: EmbeddingMap | None
    worst: list[WorstClass]
    confused: list[Confusion]
    diagnostics: list[dict[str, Any]]


def read_artifacts(run: RunDirectory) -> Artifacts:
    """All that the report shows besides numbers, checked once; a file that contradicts the format
    is an error."""
    thumbnails, records = _records(run, "records", run.thumbnails_path)
    larger, retrieved = _records(run, "retrieval_records", run.retrieval_thumbnails_path)
    if larger is None:
        larger, retrieved = thumbnails, records
    with format_of("retrieval.npz"):
        gallery = _gallery(run, retrieved)
    with format_of("map.npz"):
        embedding_map = _map(run, records)
    with format_of("classes.json"):
        worst, confused = _classes(run, records)
    with format_of("diagnostics.json"):
        document = run.document("diagnostics")
        diagnostics = [] if document is None else [dict(row) for row in document["rows"]]
    return Artifacts(thumbnails, gallery, larger, embedding_map, worst, confused, diagnostics)


def _records(
    run: RunDirectory, name: str, sheet: Path
) -> tuple[Thumbnails | None, dict[int, Record]]:
    document = run.document(name)
    if document is None:
        return None, {}
    with format_of(f"{name}.json"):
        return read_thumbnails(document, sheet, f"{name}.json")


def read_thumbnails(
    document: Mapping[str, Any], path: Path, file: str
) -> tuple[Thumbnails | None, dict[int, Record]]:
    """The records that ``document``, the content of ``file``, lists, and the sheet at ``path`` that
    shows them."""
    records = {r["id"]: Record(r["name"], r["class"], r.get("tile")) for r in document["records"]}
    if (
        min(
            document["tile"],
            document["columns"],
            *(r.tile + 1 for r in records.values() if r.tile is not None),
        )
        < 1
    ):
        raise RunError(
            f"{file} is damaged: tiles and their numbers are not negative. Evaluate the run anew."
        )
    if not path.is_file():
        return None, {id: Record(r.name, r.label, None) for id, r in records.items()}
    encoded = path.read_bytes()
    try:
        with open_image(BytesIO(encoded)) as image:
            image.load()  # all of it: a sheet that was cut off has a sound beginning
            thumbnails = Thumbnails(encoded, document["tile"], document["columns"], image.size)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise RunError(
            f"{path} cannot be read as an image: {error}. Remove it to report without pictures."
        ) from error
    last = max((r.tile for r in records.values() if r.tile is not None), default=0)
    right, bottom = thumbnails.box(last)[2:]
    if bottom > thumbnails.size[1] or right > thumbnails.size[0]:
        size = f"{thumbnails.size[0]} x {thumbnails.size[1]} pixels"
        fault = (
            f"{file} names tile {last}, which ends at pixel {right}, {bottom}, but {path} has "
            f"{size}"
        )
        raise RunError(f"{fault}. Evaluate the run anew.")
    return thumbnails, records


def _gallery(run: RunDirectory, records: Mapping[int, Record]) -> list[Query]:
    arrays = run.arrays("retrieval")
    if arrays is None or not records:
        return []

    def row(query: Record, ids: np.ndarray, distances: np.ndarray | None = None) -> list[Neighbor]:
        far = (
            [None] * len(ids)
            if distances is None
            else [float(distances[place]) for place in range(len(ids))]
        )
        found = [
            (records[id], distance)
            for id, distance in zip(ids.tolist(), far, strict=True)
            if id >= 0
        ]
        return [
            Neighbor(record, record.label == query.label, distance) for record, distance in found
        ]

    untrained = arrays.get("untrained_neighbors")  # a gallery smaller than k is filled up with -1
    queries = []
    for place, query in enumerate(records[id] for id in arrays["query"].tolist()):
        trained = row(query, arrays["neighbors"][place], arrays["distances"][place])
        queries.append(
            Query(query, trained, [] if untrained is None else row(query, untrained[place]))
        )
    return queries


def _map(run: RunDirectory, records: Mapping[int, Record]) -> EmbeddingMap | None:
    arrays = run.arrays("map")
    if arrays is None or not records or not len(arrays["record"]):
        return None
    positions = arrays["position"].astype(np.float64)
    if positions.shape != (len(arrays["record"]), 2) or not np.isfinite(positions).all():
        wanted = (
            "map.npz should hold a finite position [m 2] for each of its "
            f"{len(arrays['record'])} records"
        )
        got = f"{positions.shape} with {np.count_nonzero(~np.isfinite(positions))} not finite"
        raise RunError(f"{wanted}, but holds {got}. Evaluate the run anew.")
    return EmbeddingMap([records[id] for id in arrays["record"].tolist()], positions)


def _classes(
    run: RunDirectory, records: Mapping[int, Record]
) -> tuple[list[WorstClass], list[Confusion]]:
    document = run.document("classes") or {}
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
        pair = [records[id] for id in entry.get("example") or []] if records else []
        example = (pair[0], pair[1]) if len(pair) == 2 else None
        confused.append(
            Confusion(entry["class"], entry["taken_for"], entry["share"], entry["queries"], example)
        )
    return worst, confused


@contextmanager
def format_of(file: str) -> Iterator[None]:
    """Turn what a malformed artifact does to its reader into an error that names the file."""
    try:
        yield
    except KeyError as error:
        fault = (
            f"artifacts/{file} lacks {error}, or names a record of that id which records.json "
            "does not hold"
        )
        raise RunError(f"{fault}. Evaluate the run anew.") from error
    except (TypeError, IndexError, AttributeError) as error:
        raise RunError(
            f"artifacts/{file} is not as run format 1 says: {error}. Evaluate the run anew."
        ) from error


# -- a method's own figures ---------------------------------------------------------------------


def read_method_figures(run: RunDirectory) -> MethodFigures:
    """The figures of a run's method; empty where it has none. What contradicts the format is an
    error."""
    with format_of("captions.json"):
        captions = {
            str(group): str(text) for group, text in (run.document("captions") or {}).items()
        }
    document = run.document("figures")
    if document is None:
        return MethodFigures(captions)
    with format_of("figures.json"):
        try:
            figures = from_json(document["figures"])
        except ConfigError as error:
            fault = f"artifacts/figures.json is not as run format 1 says: {error}"
            raise RunError(f"{fault} Train the run anew.") from error
        thumbnails, records = read_thumbnails(document, run.figure_thumbnails_path, "figures.json")
        for figure in figures:
            for record in records_of([figure]):
                records[record]
            if (
                isinstance(figure, Scatter)
                and not np.isfinite([(point.x, point.y) for point in figure.points]).all()
            ):
                raise TypeError(f"points of {figure.title!r} that are not finite numbers")
    return MethodFigures(captions, figures, records, thumbnails)


def unit_square(positions: np.ndarray) -> np.ndarray:
    """Positions [m 2] moved and scaled, both axes alike, to fill the middle of the unit square.

    >>> unit_square(np.array([[0.0, 10.0], [4.0, 12.0]])).tolist()
    [[0.0, 0.25], [1.0, 0.75]]
    """
    if not len(positions):
        return positions
    low, high = positions.min(axis=0), positions.max(axis=0)
    extent = float((high - low).max()) or 1.0  # one point, or all at one place, stay in the middle
    scaled: np.ndarray = (positions - (low + high) / 2) / extent + 0.5
    return scaled
