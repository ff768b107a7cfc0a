"""What published sets share: lists that name every image, and counts that the literature fixes."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Int

from vicinal.data.columns import Columns
from vicinal.data.records import ImageFiles, Records
from vicinal.errors import ConfigError, DataError, unknown

Missing = Literal["refuse", "use"]


@dataclass(frozen=True)
class Part:
    """How many images, of how many classes, the literature has in one part of a set."""

    images: int
    classes: int


def held_to(
    published: Mapping[str, Part],
    records: Records,
    missing: Missing,
    *,
    place: Path,
    parts: np.ndarray | None = None,
    strict: bool = True,
) -> Records:
    """The records, once their counts are the published ones and every image file is there.

    Args:
        published: the parts by name.
        records: a set as its own lists have it, under its plain name.
        missing: ``"refuse"`` every difference, or ``"use"`` what is there: missing images are then left out, and the
            name of the records says in what they differ from the published set.
        place: the set's folder, for messages.
        parts: name of each row's part; None where the splits are the parts.
        strict: False leaves missing images in, for a check that names each; other differences are refused all the same.
    """
    if missing not in ("refuse", "use"):
        raise ConfigError(unknown("value of `missing`", missing, ("refuse", "use")))
    parts = records.splits if parts is None else parts
    if missing == "refuse" and (found := _differences(published, parts, records.labels)):
        raise DataError(
            f"{records.name} in {place} is not the published set: {'; '.join(found)}. "
            f'Restore it, or set `missing` to "use" to go on with what is there.'
        )
    if strict and isinstance(records.source, ImageFiles):
        absent = _absent(records.source)
        if len(absent) and (missing == "refuse" or len(absent) == len(records)):
            raise DataError(_refusal(records.name, records.source, absent))
        kept = np.setdiff1d(np.arange(len(records)), absent)
        records, parts = (records.take(kept), parts[kept]) if len(absent) else (records, parts)
    if not len(records):
        raise DataError(f"{records.name} was to be read from {place}, but nothing of it is there. Restore it.")
    found = _differences(published, parts, records.labels)
    return replace(records, name=f"{records.name} ({'; '.join(found)})") if found else records


def read_list(path: Path, columns: Sequence[str], *, header: int = 0) -> Columns:
    """A text file with fields between spaces, as published sets list their images.

    Args:
        path: the file.
        columns: names of the fields; a line with more or fewer is refused.
        header: line on which exactly these names stand, and after which the rows begin; 0 where there is none.
    """
    if not path.is_file():
        raise DataError(f"{path} was to be read, but does not exist. Name the folder that holds the set's lists.")
    try:
        lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error}. Restore it.") from error
    if header and lines[header - 1 : header] != [list(columns)]:
        raise DataError(f"{path}, line {header}: the header should be `{' '.join(columns)}`. Restore the file.")
    numbered = [(number, fields) for number, fields in enumerate(lines, 1) if number > header and fields]
    for number, fields in numbered:
        if len(fields) != len(columns):
            raise DataError(
                f"{path}, line {number}: {len(columns)} fields ({', '.join(columns)}) should stand here, "
                f"but {len(fields)} came. Restore the file."
            )
    cells = {name: [fields[place] for _, fields in numbered] for place, name in enumerate(columns)}
    return Columns(path, cells, [number for number, _ in numbered], "line")


def whole_numbers(columns: Columns, name: str) -> Int[np.ndarray, "n"]:
    """A column of numbers that count something."""
    texts = columns.texts(name)
    for row, text in enumerate(texts):
        if not text.isdecimal():
            raise DataError(f"{columns.place(row)}: `{name}` should be a whole number, but {text!r} came.")
    return np.array([int(text) for text in texts], dtype=np.int64)


def numbered_from_one(
    numbers: Int[np.ndarray, "n"], classes: Sequence[str], place: Callable[[int], str]
) -> Int[np.ndarray, "n"]:
    """Labels from the classes' numbers as such sets have them; ``place`` names a row in the refusal of a wrong one."""
    wrong = np.flatnonzero((numbers < 1) | (numbers > len(classes)))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(f"{place(row)}: classes are numbered from 1 to {len(classes)}, but {numbers[row]} came.")
    return numbers - 1


def first_classes_train(labels: Int[np.ndarray, "n"], published: Mapping[str, Part]) -> np.ndarray:
    """``"train"`` for the first classes, as many as are published for it, and ``"test"`` for the others."""
    return np.where(labels < published["train"].classes, "train", "test")


def _differences(published: Mapping[str, Part], parts: np.ndarray, labels: np.ndarray) -> list[str]:
    found = []
    for name, part in published.items():
        own = labels[parts == name]
        for noun, count, expected in (
            ("images", len(own), part.images),
            ("classes", len(np.unique(own)), part.classes),
        ):
            if count != expected:
                found.append(f"{count:,} {name} {noun}, not {expected:,}")
    return found


def _absent(source: ImageFiles) -> Int[np.ndarray, "m"]:
    """Rows whose file is not there; one listing per folder, for on a network disk each look costs a round trip."""
    listed: dict[str, set[str]] = {}
    absent = []
    for row, path in enumerate(source.paths):
        folder, _, name = path.rpartition("/")
        if folder not in listed:
            here = source.root / folder
            listed[folder] = set(os.listdir(here)) if here.is_dir() else set()
        if name not in listed[folder]:
            absent.append(row)
    return np.array(absent, dtype=np.int64)


def _refusal(name: str, source: ImageFiles, absent: np.ndarray) -> str:
    named = "; ".join(source.paths[row] for row in absent[:3]) + ("; ..." if len(absent) > 3 else "")
    advice = (
        'Restore them, or set `missing` to "use" to go without them.'
        if len(absent) < len(source)
        else "Unpack the images there."
    )
    return (
        f"{name} lists {len(source):,} images, of which {len(absent):,} are missing in {source.root}: {named}. {advice}"
    )
