"""Groups of items as a table, and as one page with their pictures that needs no network."""

import base64
import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path

from PIL import Image

from vicinal.errors import DataError
from vicinal.files import upright, write_text
from vicinal.retrieval.collection import Snapshot

# What a spreadsheet runs, but for numbers.
_FORMULA = re.compile(r"'*[=+\-@\t\r](?![\d.]*$)")
TILES = 1200  # pictures on a page: about 4 MB; what is left out stands in the table
_SMALL = 64  # pixels; below, PNG is as small as JPEG and shows no artifacts
_SIDE = 96  # pixels of a picture, shown at half that size on a dense screen


@dataclass(frozen=True)
class Group:
    """Rows that stand together on the page, in the order in which they are shown.

    Attributes:
        rows: of the snapshot.
        distances: one for each row; what they are is the page's to say.
        title: over the group.
        warning: something a person should look at, or nothing.
    """

    rows: Sequence[int]
    distances: Sequence[float]
    title: str
    warning: str = ""


@dataclass(frozen=True)
class Page:
    """What a page and the table beside it hold.

    Attributes:
        title: over the page.
        facts: name and value of each number under it.
        lead: sentences on how the groups were found and how to read them.
        groups: in the order in which they are shown.
        shown: at most so many pictures of each group.
        table: name and cells of each column; by default, the items of all groups.
    """

    title: str
    facts: Sequence[tuple[str, str]]
    lead: Sequence[str]
    groups: Sequence[Group]
    shown: int
    table: str | None = None

    def write(self, snapshot: Snapshot, stem: Path) -> tuple[Path, Path]:
        """Write the table and the page; return their paths."""
        table = stem.with_suffix(".csv")
        page = stem.with_suffix(".html")
        write_shown(table, self.table or _members(snapshot, self.groups))
        write_shown(page, self._rendered(snapshot, table.name))
        return table, page

    def _rendered(self, snapshot: Snapshot, table: str) -> str:
        """Render the page; what comes from the collection is escaped, and nothing on it can
        run."""
        from vicinal.reports.page import render_page

        cards = list[tuple[Group, list[dict[str, str | None]]]]()
        left = TILES
        for group in self.groups:
            rows = list(zip(group.rows, group.distances, strict=True))[: min(self.shown, left)]
            left -= len(rows)
            if rows:
                cards.append((group, [_card(snapshot, row, far) for row, far in rows]))
        return render_page(
            "vicinal.retrieval",
            "groups.html.j2",
            filters={},
            page=self,
            cards=cards,
            table=table,
            snapshot=snapshot,
        )


def as_shown(text: str) -> str:
    """Return a text as pages and tables hold it: names of files may be no text at all, and such
    bytes become question marks."""
    return text.encode(errors="replace").decode()


def write_shown(path: Path, text: str) -> None:
    write_text(path, as_shown(text))


def as_csv(columns: Sequence[str], rows: Iterable[Sequence[object]], *, data: bool = False) -> str:
    """Write rows as comma-separated values below the names of their columns.

    A text that a spreadsheet would run as a formula gets an apostrophe before it, which
    ``as_given`` takes off again; not so ``data`` that are to be trained on.
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


def _members(snapshot: Snapshot, groups: Sequence[Group]) -> str:
    """Write one line for each item: ``group,id,path,label,distance,place``."""
    items = snapshot.items
    lines = (
        (
            number,
            items[row].id,
            items[row].path,
            items[row].label,
            f"{far:.6g}",
            snapshot.places[items[row].place].path,
        )
        for number, group in enumerate(groups, 1)
        for row, far in zip(group.rows, group.distances, strict=True)
    )
    return as_csv(("group", "id", "path", "label", "distance", "place"), lines)


def _card(snapshot: Snapshot, row: int, distance: float) -> dict[str, str | None]:
    """Return an item on the page: its picture as a data URI, or none, and what stands beside it."""
    item = snapshot.items[row]
    uri = None
    try:
        content, kind = encoded(snapshot.image(item.id), _SIDE)
        uri = f"data:{kind};base64,{base64.b64encode(content).decode()}"
    except DataError:
        pass  # a feature vector, or a file that is gone: its name stands there instead
    return {"path": item.path, "label": item.label, "note": f"{distance:.3f}", "picture": uri}


def encoded(image: Image.Image, side: int) -> tuple[bytes, str]:
    """Encode the picture with its longer side at most ``side``, without its metadata; return its
    media type, too."""
    small = upright(image)
    small = small.copy() if small.mode == "L" else small.convert("RGB")
    small.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=2.0)
    small.info.clear()  # EXIF, comments and profiles stay behind
    kind = "png" if max(small.size) <= _SMALL else "jpeg"
    file = BytesIO()
    small.save(file, kind, quality=85)
    return file.getvalue(), f"image/{kind}"
