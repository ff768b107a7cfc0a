"""Figures of what a method does inside, as plain values that a run keeps and a report draws
(``figures.json``).

A method makes them at the end of training; ``artifacts/figures.json`` holds them, and the report
draws each kind in one way, whichever method made it. A new kind is a dataclass here, an entry in
``KINDS`` and a drawing in ``reports``.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from vicinal.arguments import build, describe
from vicinal.errors import ConfigError


@dataclass(frozen=True)
class Point:
    """A point in the plane: the group gives it colour and sign, the label is read by whoever points
    at it."""

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
    """Points of several groups in a plane whose axes have no name but one scale, with arrows
    between them.

    Attributes:
        title: stands above it.
        caption: how to read it.
        points: in the order in which groups should appear in the legend.
        segments: arrows.
    """

    title: str
    caption: str
    points: tuple[Point, ...]
    segments: tuple[Segment, ...] = ()

    def __post_init__(self) -> None:
        for segment in self.segments:
            if not (0 <= segment.start < len(self.points) and 0 <= segment.end < len(self.points)):
                raise ConfigError(
                    f"the scatter {self.title!r} has {len(self.points)} points, got a segment "
                    f"from {segment.start} to "
                    f"{segment.end}. Count its points from 0."
                )


@dataclass(frozen=True)
class Member:
    """One member of a tuple: its record's position in the training part, and what it is there
    (``anchor``, ...)."""

    record: int
    role: str


@dataclass(frozen=True)
class RecordTuple:
    """Records that a loss compares, with a caption that states the result."""

    members: tuple[Member, ...]
    caption: str


@dataclass(frozen=True)
class Tuples:
    """Tuples of training records, shown as thumbnails where the records are pictures.

    Attributes:
        title: stands above them.
        caption: how to read them.
        tuples: in order.
    """

    title: str
    caption: str
    tuples: tuple[RecordTuple, ...]


def record_tuples(
    title: str, caption: str, tuples: Iterable[tuple[Sequence[int], Sequence[str], str]]
) -> Tuples:
    """Make the figure of some tuples, each of them its records, their roles and its caption."""
    made = [
        RecordTuple(tuple(map(Member, records, roles)), text) for records, roles, text in tuples
    ]
    return Tuples(title, caption, tuple(made))


@dataclass(frozen=True)
class Leaf:
    """A leaf of a tree: its name, and the record that stands for it, by its position in the
    training part."""

    record: int
    name: str


@dataclass(frozen=True)
class Merge:
    """Two nodes that become one at some height. Leaves are counted from 0, and each merge is the
    next node after."""

    first: int
    second: int
    height: float


@dataclass(frozen=True)
class Dendrogram:
    """A tree of leaves that merge two by two, with thumbnails where the records are pictures.

    Attributes:
        title: stands above it.
        caption: how to read it, and what a height is.
        leaves: in any order.
        merges: one less than there are leaves, no node in two of them.
    """

    title: str
    caption: str
    leaves: tuple[Leaf, ...]
    merges: tuple[Merge, ...]

    def __post_init__(self) -> None:
        count = len(self.leaves)
        pairs = [(merge.first, merge.second) for merge in self.merges]
        once = sorted(itertools.chain(*pairs)) == list(range(max(0, 2 * count - 2)))
        made = all(max(pair) < node for node, pair in enumerate(pairs, count))
        if not once or not made or not all(math.isfinite(m.height) for m in self.merges):
            raise ConfigError(
                f"the tree {self.title!r} of {count} leaves does not merge each node once, after "
                "those it is made of, at a finite height."
            )


Figure = Scatter | Tuples | Dendrogram
_PARTS = (Scatter, Point, Segment, Tuples, RecordTuple, Member, Dendrogram, Leaf, Merge)
KINDS: dict[str, type] = {kind.__name__: kind for kind in _PARTS}


def to_json(figures: Sequence[Figure]) -> list[Any]:
    """Figures as JSON; ``from_json`` reads it back.

    >>> shown = (Scatter("One point", "It is there.", (Point(0.0, 1.0, "anchor"),)),)
    >>> from_json(to_json(shown)) == shown
    True
    """
    return [describe(figure) for figure in figures]


def from_json(values: Sequence[Any]) -> tuple[Figure, ...]:
    """The figures that JSON stands for; anything but the kinds above is an error."""
    found = tuple(build(value, KINDS) for value in values)
    for figure in found:
        if not isinstance(figure, Figure):
            raise ConfigError(
                "a method's figure is a Scatter, Tuples or Dendrogram, got a "
                f"{type(figure).__name__}."
            )
    return found


def records_of(figures: Sequence[Figure]) -> list[int]:
    """The training records that the figures show, each once, in order of appearance.

    >>> pair = RecordTuple((Member(7, "anchor"), Member(3, "positive")), "")
    >>> records_of([Tuples("", "", (pair, pair))])
    [7, 3]
    """
    shown = list[int]()
    for figure in figures:
        if isinstance(figure, Tuples):
            shown += [member.record for each in figure.tuples for member in each.members]
        elif isinstance(figure, Dendrogram):
            shown += [leaf.record for leaf in figure.leaves]
    return list(dict.fromkeys(shown))
