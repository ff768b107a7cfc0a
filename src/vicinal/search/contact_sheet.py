"""A contact sheet: what was asked for and what was found, as one picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont, ImageOps

from vicinal.errors import DataError
from vicinal.search.collection import Snapshot

TILE = 160  # pixels of a picture's longer side
_GAP, _CAPTION, _LETTERS = 12, 36, 12
_PAPER, _FRAME, _INK, _FAINT = "#ffffff", "#e4e4e0", "#1c1c1a", "#6b6b66"


@dataclass(frozen=True)
class Tile:
    """A picture with two lines below it; without a picture, the first line stands in its place."""

    picture: Image.Image | None
    title: str
    note: str = ""


def contact_sheet(tiles: Sequence[Tile], *, columns: int = 6, tile: int = TILE) -> Image.Image:
    """The tiles row by row on white paper."""
    columns = max(1, min(columns, len(tiles)))
    rows = -(-len(tiles) // columns)
    step = tile + _GAP, tile + _CAPTION + _GAP
    sheet = Image.new("RGB", (columns * step[0] + _GAP, max(1, rows) * step[1] + _GAP), _PAPER)
    # DejaVu comes with matplotlib and knows more scripts than Pillow's own letters.
    font = ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf", _LETTERS)
    draw = ImageDraw.Draw(sheet)
    for number, each in enumerate(tiles):
        left, top = (
            _GAP + place * size for place, size in zip((number % columns, number // columns), step, strict=True)
        )
        draw.rectangle((left - 1, top - 1, left + tile, top + tile), outline=_FRAME)
        if each.picture is not None:
            picture = ImageOps.contain(each.picture.convert("RGB"), (tile, tile))
            sheet.paste(picture, (left + (tile - picture.width) // 2, top + (tile - picture.height) // 2))
        for line, (text, colour) in enumerate(((each.title, _INK), (each.note, _FAINT))):
            draw.text((left, top + tile + 4 + line * (_LETTERS + 3)), _fitted(text, font, tile), colour, font)
    return sheet


def item_tile(snapshot: Snapshot, id: int, note: str = "") -> Tile:
    """An item with its picture, where it has one that can be read."""
    item = snapshot.item(id)
    try:
        picture = snapshot.image(id)
    except DataError:  # a feature vector, or a file that is gone: the caption still says what was found
        picture = None
    return Tile(picture, item.label or item.path.rsplit("/", 1)[-1], note)


def _fitted(text: str, font: ImageFont.FreeTypeFont, width: int) -> str:
    """The text, its end cut off where it is longer than a tile is wide."""
    while len(text) > 1 and font.getlength(text) > width:
        text = text[:-2].rstrip("…") + "…"
    return text
