"""The characters of `glyphs`: which ones, their plain drawings, and which of them are one shape."""

import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool, UInt8
from PIL import Image, ImageDraw, ImageFont

FONTS = tuple(
    f"DejaVu{family}{style}"
    for family, styles in {
        "Sans": ("", "-Bold", "-Oblique", "-BoldOblique"),
        "Serif": ("", "-Bold", "-Italic", "-BoldItalic"),
        "SansMono": ("", "-Bold", "-Oblique", "-BoldOblique"),
    }.items()
    for style in styles
)
MINIMUM_FONTS = 8  # two of the three families: a class that varies less is learnt by its one drawing
BLOCKS = (  # Unicode blocks, first and last code point
    (0x0021, 0x007E),  # ASCII
    (0x00A1, 0x024F),  # Latin-1 Supplement, Latin Extended-A and -B
    (0x0250, 0x02AF),  # phonetic (IPA) extensions
    (0x0370, 0x03FF),  # Greek and Coptic
    (0x0400, 0x052F),  # Cyrillic with its supplement
    (0x0531, 0x0587),  # Armenian
    (0x10A0, 0x10FF),  # Georgian
    (0x20A0, 0x20BF),  # currency signs
)
CATEGORIES = frozenset({"Lu", "Ll", "Lo", "Nd", "Sc"})  # letters, digits, currency signs; no marks, no punctuation

FRAME = 48  # side of a plain drawing; distortion draws it smaller, so that edges stay clean
INK = 33  # the longer side of the ink within the frame: room to shift, turn and grow
TOLERANCE = 2.0  # pixels of the frame, 6 % of the ink: what the distortions move a stroke without changing the letter


def font_folder() -> Path:
    """Where matplotlib keeps the DejaVu fonts it ships."""
    import matplotlib  # a third of a second, and only a first rendering needs it

    return Path(matplotlib.get_data_path()) / "fonts" / "ttf"


def characters() -> list[int]:
    """Code points of the blocks that are letters, digits or currency signs in enough fonts, rising.

    Accented letters (those that Unicode decomposes) are left out: at this size an accent is noise.
    """
    found = coverage()
    return [
        code
        for first, last in BLOCKS
        for code in range(first, last + 1)
        if unicodedata.category(chr(code)) in CATEGORIES
        and not unicodedata.decomposition(chr(code))
        and sum(code in codes for codes in found) >= MINIMUM_FONTS
    ]


def coverage() -> list[frozenset[int]]:
    """The code points for which each font has a drawing of its own; any other would come out as its ".notdef" box."""
    from matplotlib.ft2font import FT2Font

    return [frozenset(FT2Font(str(font_folder() / f"{name}.ttf")).get_charmap()) for name in FONTS]


def plain_drawings(codes: Sequence[int]) -> UInt8[np.ndarray, "fonts codes h w"]:
    """Every character in every font, white on black, its ink scaled to one length and centred.

    So size and place carry no information, just as the distortions take it to be. A frame without ink stands for
    a character that the font lacks.
    """
    drawings = np.zeros((len(FONTS), len(codes), FRAME, FRAME), dtype=np.uint8)
    for drawn, name, covered in zip(drawings, FONTS, coverage(), strict=True):
        # Basic layout: the complex one (raqm) may be absent, and single characters need no shaping.
        path = str(font_folder() / f"{name}.ttf")
        font = ImageFont.truetype(path, size=2 * FRAME, layout_engine=ImageFont.Layout.BASIC)
        for place, code in enumerate(codes):
            if code in covered:
                drawn[place] = _plain_drawing(chr(code), font)
    return drawings


def _plain_drawing(character: str, font: ImageFont.FreeTypeFont) -> UInt8[np.ndarray, "h w"]:
    left, top, right, bottom = (int(edge) for edge in font.getbbox(character))
    page = Image.new("L", (right - left + 2, bottom - top + 2))
    ImageDraw.Draw(page).text((1 - left, 1 - top), character, fill=255, font=font)
    ink = page.crop(page.getbbox())
    scale = INK / max(ink.size)
    width, height = (max(1, round(side * scale)) for side in ink.size)
    frame = Image.new("L", (FRAME, FRAME))
    frame.paste(
        ink.resize((width, height), Image.Resampling.BOX, reducing_gap=None),
        ((FRAME - width) // 2, (FRAME - height) // 2),
    )
    return np.asarray(frame)


def classes_of_shape(drawings: UInt8[np.ndarray, "fonts codes h w"]) -> list[list[int]]:
    """Positions of the characters that are one class, in the order of their first members.

    Two characters are alike where some font draws them so: brought to one size and place, every inked pixel of
    either lies within TOLERANCE of an inked pixel of the other (their Hausdorff distance is at most that). One
    font is enough, for its renderings could be told apart by nobody: Latin I and l in Sans, Cyrillic т and Latin m in
    an italic. Likeness is then followed through: alike to alike is one class (A, Α, А; o, O, ο, Օ; C, c, С, с).
    """
    count = drawings.shape[1]
    alike = np.zeros((count, count), dtype=bool)
    for drawn in drawings:
        ink = drawn >= 128
        near = _within(ink, TOLERANCE).reshape(count, -1)
        flat = ink.reshape(count, -1)
        outside = flat.astype(np.float32) @ (~near).astype(np.float32).T  # pixels of i that are far from all of j
        drawable = flat.any(axis=1)
        alike |= (outside == 0) & (outside.T == 0) & drawable & drawable[:, None]
    return _components(alike)


def _within(ink: Bool[np.ndarray, "n h w"], radius: float) -> Bool[np.ndarray, "n h w"]:
    """Pixels at most ``radius`` away from ink: a dilation by a disc."""
    reach = int(radius)
    height, width = ink.shape[1:]
    padded = np.pad(ink, ((0, 0), (reach, reach), (reach, reach)))
    near = np.zeros_like(ink)
    for down in range(-reach, reach + 1):
        for right in range(-reach, reach + 1):
            if down**2 + right**2 <= radius**2:
                near |= padded[:, reach + down : reach + down + height, reach + right : reach + right + width]
    return near


def _components(alike: Bool[np.ndarray, "n n"]) -> list[list[int]]:
    """Connected components of a symmetric relation, each sorted, in the order of their first members."""
    unseen, found = set(range(len(alike))), []
    while unseen:
        component, edge = set[int](), {min(unseen)}
        while edge:
            component |= edge
            edge = {int(other) for member in edge for other in np.flatnonzero(alike[member])} - component
        found.append(sorted(component))
        unseen -= component
    return found


def title(codes: Iterable[int]) -> str:
    """A class's name: its characters.

    >>> title([0x41, 0x391, 0x410])
    'A · Α · А'
    """
    return " · ".join(map(chr, codes))
