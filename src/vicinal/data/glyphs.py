"""`glyphs`, the embedded default set: characters of six scripts, rendered from the fonts that
matplotlib ships.

Which characters, their plain drawings, which of them are one class, and the seeded distortions of
the renderings.
"""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from jaxtyping import Float, Int, UInt8
from PIL import Image, ImageDraw, ImageFont

from vicinal.arguments import Limits, Settings, Share
from vicinal.data.draws import uniform
from vicinal.data.folder import cached
from vicinal.data.records import ImageArray, Records
from vicinal.data.splits import by_class

VERSION = 1  # raised whenever the same settings would render other images: it keys the cache
FONTS = tuple(
    f"DejaVu{family}{style}"
    for family, slanted in {"Sans": "Oblique", "Serif": "Italic", "SansMono": "Oblique"}.items()
    for style in ("", "-Bold", f"-{slanted}", f"-Bold{slanted}")
)
# Two of the three families: a class that varies less is learned by its one drawing.
MINIMUM_FONTS = 8
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
# Letters, digits, currency signs; no marks, no punctuation.
CATEGORIES = frozenset({"Lu", "Ll", "Lo", "Nd", "Sc"})

FRAME = 48  # side of a plain drawing; distortion draws it smaller, so that edges stay clean
INK = 33  # the longer side of the ink within the frame: room to shift, turn and grow
# pixels of the frame, 6 % of the ink: what the distortions move a stroke without changing the
# letter
TOLERANCE = 2.0

# control points per side of the elastic warp: close enough to bend a stroke, too far apart to break
# it
_NODES = 5
_AFFINE = 6  # numbers drawn per image for each step
_ELASTIC = 2 * _NODES**2
_TONE = 4
_CHUNK = 512  # images at a time: bounds the memory


class Glyphs(Settings):
    """Several hundred characters as classes, each in many styles and distortions, split into train
    and test by class.

    Characters that are drawn alike are one class (see ``classes_of_shape``). Images are gray, white
    on black. The same settings give the same images; they are rendered in seconds on first use and
    then kept in the user's cache.

    >>> records = Glyphs(per_class=2, size=16).load()
    >>> records.source.read(0).size, len(records) == 2 * len(records.classes)
    ((16, 16), True)

    Args:
        seed: of distortions and of the split.
        per_class: renderings of each class.
        size: side of the images.
        test: share of the classes that are for testing.
    """

    slot: ClassVar[str] = "data"
    seed: int = 0
    per_class: Annotated[int, Limits("[2, 10000]")] = 24
    size: Annotated[int, Limits("[8, 1024]")] = 32
    test: Share = 0.5

    def load(self) -> Records:
        arrays = cached(f"glyphs-{self._key()}", self.render)
        labels = np.repeat(np.arange(len(arrays["classes"])), self.per_class)
        classes = tuple(arrays["classes"].tolist())
        splits = by_class(labels, classes, self.test, "random", self.seed)
        return Records(
            "glyphs",
            ImageArray(arrays["pixels"], arrays["names"].tolist()),
            labels,
            classes,
            splits,
        )

    def render(self) -> dict[str, np.ndarray]:
        """Render ``pixels`` [n h w], ``names`` [n] and ``classes`` [c]; rows stand class by
        class."""
        codes = characters()
        drawings = plain_drawings(codes)
        drawn = drawings.max(axis=(2, 3)) > 0
        shapes = classes_of_shape(drawings)
        chosen = []
        names = []
        for label, members in enumerate(shapes):
            draws = uniform(self.seed, 2 + label, np.arange(self.per_class), 1)[:, 0]
            usable = np.flatnonzero(drawn[:, members].any(axis=1))
            for row, draw in enumerate(draws):  # fonts take turns, characters are drawn
                font = usable[row % len(usable)]
                known = [member for member in members if drawn[font, member]]
                character = known[int(draw * len(known))]
                chosen.append(font * len(codes) + character)
                names.append(f"U+{codes[character]:04X} {FONTS[font]} {row:02d}")
        flat = drawings.reshape(-1, FRAME, FRAME)
        return {
            "pixels": distorted(flat, np.array(chosen), self.size, self.seed),
            "names": np.array(names),
            "classes": np.array([" · ".join(chr(codes[one]) for one in shape) for shape in shapes]),
        }

    def _key(self) -> str:
        """Hash everything that the images depend on: matplotlib has the fonts, Pillow draws."""
        versions = (VERSION, version("matplotlib"), version("pillow"))
        settings = (*versions, self.seed, self.per_class, self.size)
        return sha256(repr(settings).encode()).hexdigest()[:16]


# -- plain drawings --------------------------------------------------------------------------------


def font_path(name: str) -> Path:
    """Return where matplotlib keeps one of the DejaVu fonts it ships."""
    import matplotlib  # a third of a second, and only a first rendering needs it

    return Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"


def characters() -> list[int]:
    """Return the code points of the blocks that are letters, digits or currency signs in enough
    fonts, rising.

    Accented letters (those that Unicode decomposes) are left out: at this size an accent is noise.
    """
    found = Counter(chain(*coverage()))
    codes = (
        code
        for first, last in BLOCKS
        for code in range(first, last + 1)
        if found[code] >= MINIMUM_FONTS
    )
    plain = (code for code in codes if not unicodedata.decomposition(chr(code)))
    return [code for code in plain if unicodedata.category(chr(code)) in CATEGORIES]


def coverage() -> list[frozenset[int]]:
    """Return the code points that each font draws; any other would come out as its ".notdef"
    box."""
    from matplotlib.ft2font import FT2Font

    return [frozenset(FT2Font(str(font_path(name))).get_charmap()) for name in FONTS]


def plain_drawings(codes: Sequence[int]) -> UInt8[np.ndarray, "fonts codes h w"]:
    """Draw every character in every font, white on black, its ink scaled to one length and
    centered.

    So size and place carry no information, just as the distortions take it to be. A frame without
    ink stands for a character that the font lacks.
    """
    drawings = np.zeros((len(FONTS), len(codes), FRAME, FRAME), dtype=np.uint8)
    for drawn, name, covered in zip(drawings, FONTS, coverage(), strict=True):
        # Basic layout: the complex one (raqm) may be absent, and single characters need no shaping.
        font = ImageFont.truetype(
            str(font_path(name)), size=2 * FRAME, layout_engine=ImageFont.Layout.BASIC
        )
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
    ink = ink.resize((width, height), Image.Resampling.BOX, reducing_gap=None)
    frame = Image.new("L", (FRAME, FRAME))
    frame.paste(ink, ((FRAME - width) // 2, (FRAME - height) // 2))
    return np.asarray(frame)


def classes_of_shape(drawings: UInt8[np.ndarray, "fonts codes h w"]) -> list[list[int]]:
    """Return the positions of the characters that are one class, in the order of their first
    members.

    Two characters are alike where some font draws them so: brought to one size and place, every
    inked pixel of either lies within TOLERANCE of an inked pixel of the other (their Hausdorff
    distance is at most that). One font is enough, for nobody could tell its renderings apart: Latin
    I and l in Sans, Cyrillic т and Latin m in an italic. Likeness is transitive: alike to alike is
    one class (A, Α, А; o, O, ο, Օ; C, c, С, с).
    """
    from scipy.ndimage import binary_dilation  # here, since only a first rendering needs scipy
    from scipy.sparse.csgraph import connected_components

    count = drawings.shape[1]
    steps = np.arange(-int(TOLERANCE), int(TOLERANCE) + 1)
    disc = steps**2 + steps[:, None] ** 2 <= TOLERANCE**2
    alike = np.eye(count, dtype=bool)
    for drawn in drawings:
        ink = drawn >= 128
        near = binary_dilation(ink, disc[None]).reshape(count, -1)
        flat = ink.reshape(count, -1)
        # Pixels of i that are far from all of j.
        outside = flat.astype(np.float32) @ (~near).astype(np.float32).T
        drawable = flat.any(axis=1)
        alike |= (outside == 0) & (outside.T == 0) & drawable & drawable[:, None]
    number, component = connected_components(alike, directed=False)
    return sorted(np.flatnonzero(component == one).tolist() for one in range(number))


# -- distortions -----------------------------------------------------------------------------------


# How far a drawing may be bent; amounts are uniform between -x and x. Together they leave raw
# pixels a R@1 near 0.46 on the test classes, a small trained network one above 0.9.
ANGLE = 15.0  # rotation, in degrees
SCALE = 0.25  # growth of each axis, as a logarithm to base 2
SHEAR = 0.2  # slant, as the tangent of its angle
SHIFT = 0.06  # displacement of the whole, as a share of the image's side
ELASTIC = 0.05  # displacement of each control point of the elastic warp, as a share of the side
STROKE = 0.12  # change of the gray level at which a softened stroke ends: thinner and thicker
NOISE = 0.12  # the largest standard deviation of the gray noise, where white is 1


def distorted(
    drawings: UInt8[np.ndarray, "m h h"],
    chosen: Int[np.ndarray, "n"],
    size: int,
    seed: int,
) -> UInt8[np.ndarray, "n size size"]:
    """Show drawing ``chosen[i]`` in image i, distorted by numbers that depend on (seed, i)
    alone."""
    images = np.empty((len(chosen), size, size), dtype=np.uint8)
    for start in range(0, len(chosen), _CHUNK):
        rows = np.arange(start, min(start + _CHUNK, len(chosen)))
        draws = uniform(seed, 0, rows, _AFFINE + _ELASTIC + _TONE).astype(np.float32) * 2 - 1
        affine, elastic, tone = np.split(draws, [_AFFINE, _AFFINE + _ELASTIC], axis=1)
        places = _affine(affine, size) + _elastic(elastic, size)
        grain = (
            uniform(seed, 1, rows, size * size).astype(np.float32).reshape(-1, size, size) * 2 - 1
        )
        images[rows] = _toned(_sampled(drawings, chosen[rows], places), tone, grain)
    return images


def _affine(draws: Float[np.ndarray, "n 6"], size: int) -> Float[np.ndarray, "n 2 size size"]:
    """Return where in the drawing (row, column; both from -1 to 1) each pixel of the image
    looks."""
    angle, stretch_down, stretch_right, shear, down, right = draws.T
    radians = np.deg2rad(ANGLE) * angle
    cosine = np.cos(radians)
    sine = np.sin(radians)
    slant = SHEAR * shear
    # rotation [[cos, -sin], [sin, cos]] times the slant of an italic [[1, 0], [slant, 1]]; then a
    # scale for each axis
    matrix = np.stack(
        [cosine - sine * slant, -sine, sine + cosine * slant, cosine], axis=1
    ).reshape(-1, 2, 2)
    matrix *= np.exp2(-SCALE * np.stack([stretch_down, stretch_right], axis=1))[:, :, None]
    center = 2 * SHIFT * np.stack([down, right], axis=1)
    axis = ((np.arange(size, dtype=np.float32) + 0.5) * 2 / size - 1).astype(np.float32)
    pixels = np.stack(np.meshgrid(axis, axis, indexing="ij")).reshape(2, -1)
    places = matrix @ (pixels - center[:, :, None])
    return places.reshape(-1, 2, size, size).astype(np.float32)


def _elastic(draws: Float[np.ndarray, "n 50"], size: int) -> Float[np.ndarray, "n 2 size size"]:
    """Return a smooth displacement: random control points, joined by a cubic B-spline in both
    directions."""
    points = 2 * ELASTIC * draws.reshape(-1, 2, _NODES, _NODES)
    place = (np.arange(size) + 0.5) / size * (_NODES - 1)
    gap = np.abs(place[:, None] - np.arange(_NODES))
    near = 2 / 3 - gap**2 + gap**3 / 2
    far = np.clip(2 - gap, 0, None) ** 3 / 6
    spline = np.where(gap < 1, near, far)
    # The border lacks its outer points.
    spline = (spline / spline.sum(axis=1, keepdims=True)).astype(np.float32)
    return spline @ points @ spline.T


def _sampled(
    drawings: UInt8[np.ndarray, "m h h"],
    chosen: Int[np.ndarray, "n"],
    places: Float[np.ndarray, "n 2 size size"],
) -> Float[np.ndarray, "n size size"]:
    """Sample the chosen drawings bilinearly, 0 (black) beyond their edge, 1 for white."""
    side = drawings.shape[1] + 2
    # A black rim: what looks further out sees it.
    framed = np.pad(drawings, ((0, 0), (1, 1), (1, 1)))
    pixels = np.clip((places + 1) * (drawings.shape[1] / 2) + 0.5, 0, side - 1.001)
    corner = pixels.astype(np.int32)
    down, right = np.moveaxis(pixels - corner, 1, 0)
    flat = framed.reshape(-1)
    first = chosen[:, None, None] * (side * side) + corner[:, 0] * side + corner[:, 1]
    upper = flat[first] * (1 - right) + flat[first + 1] * right
    lower = flat[first + side] * (1 - right) + flat[first + side + 1] * right
    return np.asarray((upper * (1 - down) + lower * down) / 255, dtype=np.float32)


def _toned(
    images: Float[np.ndarray, "n size size"],
    draws: Float[np.ndarray, "n 4"],
    grain: Float[np.ndarray, "n size size"],
) -> UInt8[np.ndarray, "n size size"]:
    """Soften, cut the stroke at a random gray level, dim, and add noise."""
    threshold, contrast, brightness, noise = (column[:, None, None] for column in draws.T)
    soft = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    soft = (soft[:, :-2] + 2 * soft[:, 1:-1] + soft[:, 2:]) / 4
    soft = (soft[:, :, :-2] + 2 * soft[:, :, 1:-1] + soft[:, :, 2:]) / 4
    # 0.35: after softening, a stroke two pixels wide peaks near 0.7, so half of that is its edge
    strokes = np.clip(0.5 + (2.5 + contrast) * (soft - 0.35 - STROKE * threshold), 0, 1)
    toned = strokes * (0.8 + 0.2 * brightness)
    toned += np.sqrt(3) * NOISE * (noise + 1) / 2 * grain  # evenly drawn on [-√3, √3]: deviation 1
    return np.asarray(np.clip(toned, 0, 1) * 255 + 0.5, dtype=np.uint8)
