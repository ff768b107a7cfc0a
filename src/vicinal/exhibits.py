"""Exhibits: small pictures of what a method does inside, as plain values that a run keeps and a report draws.

A method makes them at the end of training; ``artefacts/exhibits.json`` holds them, and the report draws each kind in
one way, whichever method made it. A new kind is a dataclass here, an entry in ``KINDS`` and a drawing in ``reports``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vicinal.description import build, describe
from vicinal.errors import ConfigError


@dataclass(frozen=True)
class Point:
    """A point in the plane: the group gives it colour and sign, the label is read by whoever points at it."""

    x: float
    y: float
    group: str
    label: str = ""


@dataclass(frozen=True)
class Segment:
    """An arrow from one point to another, by their places in the scatter."""

    start: int
    end: int


@dataclass(frozen=True)
class Scatter:
    """Points of several groups in a plane whose axes have no name but one scale, with arrows between them.

    Attributes:
        title: stands above it.
        reading: how to read it.
        points: in the order in which groups should appear in the legend.
        segments: arrows.
    """

    title: str
    reading: str
    points: tuple[Point, ...]
    segments: tuple[Segment, ...] = ()

    def __post_init__(self) -> None:
        for segment in self.segments:
            if not (0 <= segment.start < len(self.points) and 0 <= segment.end < len(self.points)):
                raise ConfigError(
                    f"the scatter {self.title!r} has {len(self.points)} points, but a segment goes from "
                    f"{segment.start} to {segment.end}. Count its points from 0."
                )


@dataclass(frozen=True)
class Member:
    """One member of a tuple: its record's position in the training part, and what it is there (``anchor``, ...)."""

    record: int
    role: str


@dataclass(frozen=True)
class RecordTuple:
    """Records that a loss compares, with a caption of what came of it."""

    members: tuple[Member, ...]
    caption: str


@dataclass(frozen=True)
class Tuples:
    """Tuples of training records, shown as thumbnails where the records are pictures.

    Attributes:
        title: stands above them.
        reading: how to read them.
        tuples: in order.
    """

    title: str
    reading: str
    tuples: tuple[RecordTuple, ...]


Exhibit = Scatter | Tuples
KINDS: dict[str, type] = {kind.__name__: kind for kind in (Scatter, Point, Segment, Tuples, RecordTuple, Member)}


def to_json(exhibits: Sequence[Exhibit]) -> list[Any]:
    """Exhibits as JSON; ``from_json`` reads it back.

    >>> shown = (Scatter("One point", "It is there.", (Point(0.0, 1.0, "anchor"),)),)
    >>> from_json(to_json(shown)) == shown
    True
    """
    return [describe(exhibit) for exhibit in exhibits]


def from_json(values: Sequence[Any]) -> tuple[Exhibit, ...]:
    """The exhibits that JSON stands for; anything but the kinds above is refused."""
    found = tuple(build(value, KINDS) for value in values)
    for exhibit in found:
        if not isinstance(exhibit, (Scatter, Tuples)):
            raise ConfigError(f"an exhibit is a Scatter or Tuples, but a {type(exhibit).__name__} came.")
    return found


def records_of(exhibits: Sequence[Exhibit]) -> list[int]:
    """The training records that the exhibits show, each once, in order of appearance.

    >>> pair = RecordTuple((Member(7, "anchor"), Member(3, "positive")), "")
    >>> records_of([Tuples("", "", (pair, pair))])
    [7, 3]
    """
    shown = (member.record for e in exhibits if isinstance(e, Tuples) for t in e.tuples for member in t.members)
    return list(dict.fromkeys(shown))
