"""Fonts and text of figures: class names come in any script, and as any file system allows."""

import unicodedata
from functools import cache

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from matplotlib.text import Text

# DejaVu comes with matplotlib; the others lend it scripts that it lacks, on machines that have them.
_FALLBACKS = (
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Noto Sans CJK KR",
    "Source Han Sans",
    "WenQuanYi Zen Hei",
    "Hiragino Sans",
    "PingFang SC",
    "Microsoft YaHei",
    "Yu Gothic",
    "Malgun Gothic",
    "Arial Unicode MS",
)
_UNKNOWN = "□"


def shorten(text: str, length: int) -> str:
    """
    >>> shorten("a name that goes on", 8)
    'a name…'
    """
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def printable(text: str) -> str:
    """The text as our fonts can draw it: what they lack is a box (matplotlib would warn of each), and invisible
    characters, which could turn the rest of a line around, are left out.

    >>> printable("A·Α\\n" + chr(0xE000) + chr(0x202E) + "b")
    'A·Α □b'
    """
    known = _characters()
    return "".join(
        " " if character.isspace() else character if ord(character) in known else _UNKNOWN
        for character in text
        if unicodedata.category(character) != "Cf"
    )


def use_fonts(figure: Figure) -> None:
    """Make all text of a finished figure drawable: known characters, our fonts, and ``$`` as a plain dollar."""
    for text in figure.findobj(Text):
        text.set_text(printable(text.get_text()))
        text.set_parse_math(False)
        text.set_fontfamily(list(_families()))
    for axes in figure.axes:
        axes.tick_params(which="both", labelfontfamily=list(_families()))


@cache
def _families() -> tuple[str, ...]:
    installed = {entry.name for entry in fontManager.ttflist}
    return ("DejaVu Sans", *(name for name in _FALLBACKS if name in installed))


@cache
def _characters() -> frozenset[int]:
    paths = [findfont(FontProperties(family=[family])) for family in _families()]
    return frozenset().union(*(get_font(path).get_charmap() for path in paths))
