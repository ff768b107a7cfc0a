"""What a run shows besides its table: neighbors, map and hard classes from ``artifacts/``, and its
curves, thinned so that a million steps make a page no larger than a hundred do.

What the run did not write is None or empty here, and a section that the report leaves out.
"""

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from colorsys import hls_to_rgb
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vicinal.errors import RunError
from vicinal.files import decoding, open_image
from vicinal.reports.tables import metric_title
from vicinal.run_directory import RunDirectory

_PER_CLASS = 6  # thumbnails that stand for one class
Record = dict[str, Any]  # a test example: ``name``, ``class``, and ``tile`` on the sheet or None
Rows = list[dict[str, Any]]
POINTS = 200  # of one curve: about two per millimetre on paper, and enough to see a spike
# Steps and values, packed: eight bytes each, so that a million of them take some megabytes.
Series = tuple["array[int]", "array[float]"]
ACTIVE_CAPTION = (
    "Tuples of a batch that still have something to learn: near 0 the examples have become too "
    "easy, stuck near 100 % nothing is being learned."
)


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
        recalls: rows of ``diagnostics.json`` that have Recall@1.
        captions: how to read the charts of the method's scalars, by their keys.
        thresholds: the chart of pairs within each distance.
    """

    thumbnails: Thumbnails | None
    gallery: Rows
    gallery_thumbnails: Thumbnails | None
    map: tuple[list[Record], np.ndarray] | None
    worst: Rows
    confused: Rows
    recalls: Rows
    captions: dict[str, str]
    thresholds: dict[str, Any] | None


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
            [
                row
                for row in (run.document("diagnostics") or {"rows": []})["rows"]
                if row.get("recall@1") is not None
            ],
            {f"scalar-{group}": str(text) for group, text in captions.items()},
            _thresholds(run.arrays("thresholds")),
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
    members = defaultdict[str, Rows](list)
    for record in records.values():
        members[record["class"]].append(record)
    return [
        {**row, "examples": members[row["class"]][:_PER_CLASS]}
        for row in rows
        if row["recall@1"] < 1
    ]


# Okabe and Ito, "Color universal design" (2008), yellow (too pale on white) replaced by a violet.
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6a51a3", "#6b7280")


def class_colors(count: int) -> list[str]:
    """One color per class: the palette while it lasts, then hues that stay as far apart as many
    hues can.

    >>> class_colors(2), len(set(class_colors(200)))
    (['#0072b2', '#d55e00'], 200)
    """
    if count <= len(LINES):
        return list(LINES[:count])
    # Successive multiples of the golden angle never come close to one another.
    hues = [(0.381966 * i % 1, (0.45, 0.6, 0.35)[i % 3], 0.6) for i in range(count)]
    colors = (hls_to_rgb(*hue) for hue in hues)
    return ["#" + "".join(f"{round(255 * part):02x}" for part in color) for color in colors]


def map_columns(labels: Sequence[str | None], positions: np.ndarray) -> dict[str, Any]:
    """Return a map as columns, one entry for each point: places from 0 to 1, rightwards and
    downwards, and numbers of classes, -1 for a point without one."""
    classes = sorted({label for label in labels if label is not None})
    number = {label: place for place, label in enumerate(classes)}
    places = unit_square(positions)
    return {
        "classes": classes,
        "colors": class_colors(len(classes)),
        "class": [-1 if label is None else number[label] for label in labels],
        "x": places[:, 0].round(5).tolist(),
        "y": (1 - places[:, 1]).round(5).tolist(),
    }


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
    return (positions - (low + high) / 2) / extent + 0.5


# -- curves ---------------------------------------------------------------------------------------


def read_progress(lines: Iterable[Mapping[str, Any]]) -> tuple[Rows, Rows]:
    """Read the lines of a run's ``metrics.jsonl`` in one pass.

    A chart has a key, a title, a unit (``number``, or ``share`` for per cent) and lines, as
    ``charts.js`` draws them. There is one for each group of scalars (the losses first) and one for
    each evaluated split. A name's group stands before its slash; ``loss`` and what ends in
    ``_loss`` are one group, any other bare name is a group of its own, because its scale is its
    own. Groups named ``..._share`` hold fractions.

    Returns:
        the charts, and the events, oldest first.
    """
    charts = defaultdict[str, dict[str, Series]](dict)
    events = []
    for line in lines:
        match line.get("kind"):
            case "step":
                for name, value in line.items():
                    group, slash, rest = name.partition("/")
                    group = "loss" if not slash and name.endswith("_loss") else group
                    if name not in ("kind", "step", "epoch"):
                        _add(charts[f"scalar-{group}"], rest or name, line["step"], value)
            case "evaluation":
                chart = charts[f"evaluation-{line['split']}"]
                for name, value in line["metrics"].items():
                    _add(chart, metric_title(name), line["step"], value)
            case "event":
                events.append({"epoch": None, **line})
    drawn = [_chart(key, lines) for key, lines in charts.items() if lines]
    drawn.sort(key=lambda one: (one["key"] != "scalar-loss", not one["key"].startswith("eval")))
    return drawn, events


def _add(lines: dict[str, Series], name: str, step: int, value: Any) -> None:
    # A diverged run's NaN has no place on an axis; the run's status and events tell of it.
    if isinstance(value, (int, float)) and math.isfinite(value):
        steps, values = lines.setdefault(name, (array("q"), array("d")))
        steps.append(step)
        values.append(value)


def _chart(key: str, lines: Mapping[str, Series]) -> dict[str, Any]:
    kind, _, group = key.partition("-")
    title = metric_title(group) + (" metrics" if kind == "evaluation" else "")
    shares = kind == "evaluation" or group == "active" or group.endswith("_share")
    title = "Share of active tuples" if group == "active" else title
    unit = "share" if shares else "number"
    thinned = [{"name": name, **thin(*series)} for name, series in lines.items()]
    return {"key": key, "title": title, "unit": unit, "axis": "step", "lines": thinned}


def _thresholds(arrays: Mapping[str, np.ndarray] | None) -> dict[str, Any] | None:
    """The share of pairs of one class, and of two, within each distance."""
    if arrays is None:
        return None
    x = _short(arrays["distance"])
    names = {"same": "one class", "different": "two classes"}
    lines = [{"name": name, "x": x, "y": _short(arrays[key])} for key, name in names.items()]
    shown = {"title": "Pairs within a distance", "unit": "share", "axis": "distance"}
    return {"key": "thresholds", **shown, "mark": None, "lines": lines}


def thin(steps: Sequence[int], values: Sequence[float]) -> dict[str, list[float]]:
    """Put values into buckets of equal width in steps, the least power of two that makes at most
    ``POINTS`` of them; return mean step and mean, lowest and highest value of each."""
    at = np.array(steps)
    numbers = np.array(values)
    width = 1
    while len(starts := np.unique(at // width, return_index=True)[1]) > POINTS:
        width *= 2
    counts = np.diff(starts, append=len(at))
    low, high = (ufunc.reduceat(numbers, starts) for ufunc in (np.minimum, np.maximum))
    x = (np.add.reduceat(at, starts) / counts).round(1).tolist()
    columns = {"x": x, "y": _short(np.add.reduceat(numbers, starts) / counts)}
    if (low != high).any():
        columns |= {"low": _short(low), "high": _short(high)}
    return columns


def _short(values: np.ndarray) -> list[float]:
    """Five digits are more than a screen can show, and half the bytes of a double."""
    return [float(f"{value:.5g}") for value in values]
