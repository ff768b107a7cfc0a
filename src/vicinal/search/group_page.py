"""Groups of a collection as a table and as one page of contact sheets that needs no network."""

import base64
import csv
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from io import BytesIO, StringIO
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from PIL import Image, ImageOps

from vicinal.errors import DataError
from vicinal.files import write_atomically
from vicinal.search.collection import Snapshot

TILES = 1200  # pictures on a page: about 4 MB; what is left out stands in the table
_SIDE = 96  # pixels of a picture, shown at half that size on a dense screen


@dataclass(frozen=True)
class Group:
    """Rows that stand together on the page, in the order in which they are shown.

    Attributes:
        number: by which the table names it, from 1; 0 for rows in no group.
        rows: of the snapshot.
        distances: one for each row; what they are is the page's to say.
        title: over the group.
        warning: something a person should look at, or nothing.
    """

    number: int
    rows: Sequence[int]
    distances: Sequence[float]
    title: str
    warning: str = ""


@dataclass(frozen=True)
class Contents:
    """A page.

    Attributes:
        title: over the page.
        facts: name and value of each number under it.
        lead: sentences on how the groups were found and how to read them.
        groups: in the order in which they are shown.
        shown: at most so many pictures of each group.
        empty: what to say where there is no group.
    """

    title: str
    facts: Sequence[tuple[str, str]]
    lead: Sequence[str]
    groups: Sequence[Group]
    shown: int
    empty: str


@dataclass(frozen=True)
class Tile:
    """An item on the page: its picture as a data URI, or none, and what stands beside it."""

    path: str
    label: str
    note: str
    picture: str | None


def write_groups(
    snapshot: Snapshot, contents: Contents, table: Path, page: Path, progress: Callable[[int], None] | None = None
) -> None:
    """Write the table of all groups, then the page of those that fit on it, each whole or not at all."""
    write_atomically(table, lambda file: file.write(_encoded(as_table(snapshot, contents.groups))))
    write_atomically(page, lambda file: file.write(_encoded(as_page(snapshot, contents, table.name, progress))))


def as_table(snapshot: Snapshot, groups: Sequence[Group]) -> str:
    """One line for each item: ``group,id,path,label,distance,place``."""
    items = snapshot.items()
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["group", "id", "path", "label", "distance", "place"])
    for group in groups:
        for row, distance in zip(group.rows, group.distances, strict=True):
            item = items[row]
            far = "" if distance != distance else f"{distance:.6g}"  # NaN: of no group, so far from no mean
            writer.writerow([group.number, item.id, item.path, item.label or "", far, snapshot.places[item.place].path])
    return text.getvalue()


def as_page(snapshot: Snapshot, contents: Contents, table: str, progress: Callable[[int], None] | None = None) -> str:
    """The page; whatever comes from the collection is escaped, and nothing on it can run."""
    cards, left = list[tuple[Group, list[Tile]]](), TILES
    for group in contents.groups:
        if left <= 0:
            break
        rows = list(zip(group.rows, group.distances, strict=True))[: min(contents.shown, left)]
        cards.append((group, [_tile(snapshot, row, distance) for row, distance in rows]))
        left -= len(rows)
        if progress is not None:
            progress(TILES - left)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_shipped("vicinal.search", "groups.html.j2")).render(
        css=Markup(_shipped("vicinal.reports", "page.css")),
        contents=contents,
        cards=cards,
        hidden=len(contents.groups) - len(cards),
        table=table,
        generation=snapshot.generation,
        items=len(snapshot),
    )


def mostly(labels: Sequence[str | None]) -> str:
    """What most of a group are, as words for its title.

    >>> mostly(["wren", "wren", "robin", None]), mostly(["wren"] * 2), mostly([None])
    ('mostly wren (2 of 3)', 'wren', '')
    """
    counts = Counter(label for label in labels if label is not None)
    if not counts:
        return ""
    name, count = counts.most_common(1)[0]
    return name if len(counts) == 1 else f"mostly {name} ({count} of {counts.total()})"


def pictures_on(contents: Contents) -> int:
    """How many pictures the page will show: what ``progress`` counts to."""
    return min(TILES, sum(min(contents.shown, len(group.rows)) for group in contents.groups))


def _tile(snapshot: Snapshot, row: int, distance: float) -> Tile:
    item = snapshot.items()[row]
    note = "" if distance != distance else f"{distance:.3f}"
    try:
        picture = _data_uri(snapshot.image(item.id))
    except DataError:  # a feature vector, or a file that is gone: its name stands there instead
        picture = None
    return Tile(item.path, item.label or "", note, picture)


def _data_uri(image: Image.Image) -> str:
    """The whole picture in a small square, without what its file said besides (place, camera, owner)."""
    small = ImageOps.contain(image.convert("RGB"), (_SIDE, _SIDE))
    clean, content = Image.new("RGB", small.size), BytesIO()
    clean.paste(small)
    clean.save(content, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()}"


def _encoded(text: str) -> bytes:
    """A file name that is no text at all reaches us as lone surrogates, which no encoding can hold."""
    return text.encode(errors="replace")


def _shipped(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")
