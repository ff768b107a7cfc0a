"""Contact sheets: a search as one picture; groups as a table and as one page that needs no
network."""

import base64
import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, ImageOps

from vicinal.data.records import Progress
from vicinal.errors import DataError
from vicinal.files import write_atomically
from vicinal.retrieval.collection import Snapshot
from vicinal.retrieval.store import Item

TILE = 160  # pixels of a picture's longer side on a sheet
_GAP = 12
_CAPTION = 36
_LETTERS = 12
_PAPER = "#ffffff"
_FRAME = "#e4e4e0"
_INK = "#1c1c1a"
_FAINT = "#6b6b66"
TILES = 1200  # pictures on a page: about 4 MB; what is left out stands in the table
# what a spreadsheet runs, or what stood so already; numbers are harmless
_FORMULA = re.compile(r"'*[=+\-@\t\r](?![\d.]*$)")
_SIDE = 96  # pixels of a picture, shown at half that size on a dense screen


@dataclass(frozen=True)
class Tile:
    """A picture with two lines below it; without a picture, the first line stands in its place."""

    picture: Image.Image | None
    title: str
    note: str = ""


def contact_sheet(tiles: Sequence[Tile], *, columns: int = 6, tile: int = TILE) -> Image.Image:
    """Draw the tiles row by row on white paper."""
    import matplotlib  # slow to import

    columns = max(1, min(columns, len(tiles)))
    wide = tile + _GAP
    high = tile + _CAPTION + _GAP
    sheet = Image.new(
        "RGB", (columns * wide + _GAP, max(1, -(-len(tiles) // columns)) * high + _GAP), _PAPER
    )
    # DejaVu comes with matplotlib and knows more scripts than Pillow's own letters.
    font = ImageFont.truetype(
        Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf", _LETTERS
    )
    draw = ImageDraw.Draw(sheet)
    for number, each in enumerate(tiles):
        left = _GAP + number % columns * wide
        top = _GAP + number // columns * high
        draw.rectangle((left - 1, top - 1, left + tile, top + tile), outline=_FRAME)
        if each.picture is not None:
            picture = ImageOps.contain(each.picture.convert("RGB"), (tile, tile))
            sheet.paste(
                picture, (left + (tile - picture.width) // 2, top + (tile - picture.height) // 2)
            )
        for line, (text, color) in enumerate(((each.title, _INK), (each.note, _FAINT))):
            while len(text) > 1 and font.getlength(text) > tile:  # longer than a tile is wide
                text = text[:-2].rstrip("…") + "…"
            draw.text((left, top + tile + 4 + line * (_LETTERS + 3)), text, color, font)
    return sheet


def item_tile(snapshot: Snapshot, id: int, note: str = "") -> Tile:
    """Return an item with its picture, where it has one that can be read."""
    item = snapshot.item(id)
    return Tile(_picture(snapshot, id), item.label or item.path.rsplit("/", 1)[-1], note)


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

    @property
    def pictures(self) -> int:
        """How many pictures the page will show: what ``progress`` counts to."""
        return min(TILES, sum(min(self.shown, len(group.rows)) for group in self.groups))


def write_shown(path: Path, text: str) -> None:
    """Write a text in which names of files may be no text at all; such bytes become question
    marks."""
    write_atomically(path, lambda file: file.write(text.encode(errors="replace")))


def as_csv(columns: Sequence[str], rows: Iterable[Sequence[object]], *, data: bool = False) -> str:
    """Write rows as comma-separated values below the names of their columns.

    A text that a spreadsheet would run as a formula gets an apostrophe before it, which
    ``as_given`` takes off again; not so ``data`` that are to be trained on, whose texts stay as
    they are.
    """
    text = StringIO()
    lines = rows if data else ([_harmless(cell) for cell in row] for row in rows)
    csv.writer(text, lineterminator="\n").writerows((columns, *lines))
    return text.getvalue()


def _harmless(cell: object) -> object:
    return f"'{cell}" if _FORMULA.match(str(cell)) else cell


def as_given(cell: str) -> str:
    """Return a cell of a table that ``as_csv`` wrote as it was before.

    >>> as_given(_harmless("=1+1")), as_given(_harmless("'-x")), as_given(_harmless("-1.5"))
    ('=1+1', "'-x", '-1.5')
    """
    return cell[1:] if cell[:1] == "'" and _FORMULA.match(cell) else cell


def as_table(snapshot: Snapshot, groups: Sequence[Group]) -> str:
    """Write one line for each item: ``group,id,path,label,distance,place``."""

    def line(group: Group, item: Item, distance: float) -> Sequence[object]:
        # NaN: of no group, so far from no mean.
        far = "" if distance != distance else f"{distance:.6g}"
        return (
            group.number,
            item.id,
            item.path,
            item.label or "",
            far,
            snapshot.places[item.place].path,
        )

    each = (
        (group, *pair) for group in groups for pair in zip(group.rows, group.distances, strict=True)
    )
    lines = (line(group, snapshot.items()[row], distance) for group, row, distance in each)
    return as_csv(("group", "id", "path", "label", "distance", "place"), lines)


def as_page(
    snapshot: Snapshot, contents: Contents, table: str, progress: Progress = lambda done: None
) -> str:
    """Render the page; whatever comes from the collection is escaped, and nothing on it can run."""
    from vicinal.reports.html import render_page

    cards = list[tuple[Group, list[dict[str, str | None]]]]()
    left = TILES
    for group in contents.groups:
        if left <= 0:
            break
        rows = list(zip(group.rows, group.distances, strict=True))[: min(contents.shown, left)]
        cards.append((group, [_card(snapshot, row, distance) for row, distance in rows]))
        left -= len(rows)
        progress(TILES - left)
    values = {"contents": contents, "cards": cards, "table": table, "snapshot": snapshot}
    return render_page("vicinal.retrieval", "groups.html.j2", scripts=(), filters={}, **values)


def mostly(labels: Sequence[str | None]) -> str:
    """Return what most of a group are, as words for its title.

    >>> mostly(["wren", "wren", "robin", None]), mostly(["wren"] * 2), mostly([None])
    ('mostly wren (2 of 3)', 'wren', '')
    """
    counts = Counter(label for label in labels if label is not None)
    if not counts:
        return ""
    name, count = counts.most_common(1)[0]
    return name if len(counts) == 1 else f"mostly {name} ({count} of {counts.total()})"


def _card(snapshot: Snapshot, row: int, distance: float) -> dict[str, str | None]:
    """Return an item on the page: its picture as a data URI, or none, and what stands beside it."""
    item = snapshot.items()[row]
    picture = _picture(snapshot, item.id)
    uri = None
    if picture is not None:
        # The whole picture in a small square, without what its file said besides (place, camera,
        # owner).
        small = ImageOps.contain(picture.convert("RGB"), (_SIDE, _SIDE))
        content = BytesIO()
        Image.frombytes("RGB", small.size, small.tobytes()).save(content, "JPEG", quality=80)
        uri = f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()}"
    note = "" if distance != distance else f"{distance:.3f}"
    return {"path": item.path, "label": item.label, "note": note, "picture": uri}


def _picture(snapshot: Snapshot, id: int) -> Image.Image | None:
    try:
        return snapshot.image(id)
    except DataError:  # a feature vector, or a file that is gone: its name stands there instead
        return None
