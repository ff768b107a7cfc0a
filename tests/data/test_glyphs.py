"""The embedded set: its characters and classes, its distortions, that a seed fixes it, and its
cache."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import ImageFont

from vicinal.data import glyphs
from vicinal.data.glyphs import Glyphs, distorted


def test_another_seed_gives_other_images(monkeypatch, tmp_path):
    """Which are rendered once for each."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rendered = []

    def render(self):
        rendered.append(self.seed)
        pixels = np.full((2 * self.per_class, 8, 8), self.seed, dtype=np.uint8)
        names = np.array(["name"] * len(pixels))
        return {"pixels": pixels, "names": names, "classes": np.array(["A · Α", "B"])}

    monkeypatch.setattr(Glyphs, "render", render)
    shades = [Glyphs(seed=seed).load().source.pixels.max() for seed in (1, 1, 2)]
    assert shades == [1, 1, 2] and rendered == [1, 2]


@pytest.fixture(scope="module")
def classes(codes, drawings):
    return [
        {chr(codes[member]) for member in members} for members in glyphs.classes_of_shape(drawings)
    ]


def class_of(character, classes):
    return next(members for members in classes if character in members)


ALIKE = (
    "AΑА BΒВ EΕЕ KΚК MΜМ OΟО PΡР TΤТ XΧХ aа pр "  # Latin, Greek, Cyrillic
    "hһհ "  # Armenian
    "oOοО cCсС sSѕЅ vV wW xX zZ "  # alike up to scale
    "mт "  # alike in italics
    "lI"  # alike in Sans
)


def test_characters_that_render_alike_are_one_class(classes):
    for alike in ALIKE.split():
        assert set(alike) <= class_of(alike[0], classes), alike


def test_there_are_several_hundred_classes_and_each_character_has_one(codes, classes):
    assert 400 <= len(classes) <= 550
    assert sum(map(len, classes)) == len(set(codes)) == len(codes)
    # Likeness that is followed through has not swallowed the alphabet.
    assert max(map(len, classes)) < 20


def test_only_drawings_of_the_fonts_own_are_used(codes, drawings):
    """What a font lacks would come out as its ".notdef" box, the same for every such character."""
    for font, name, covered in zip(drawings, glyphs.FONTS, glyphs.coverage(), strict=True):
        path = str(glyphs.font_path(name))
        face = ImageFont.truetype(path, 2 * glyphs.FRAME, layout_engine=ImageFont.Layout.BASIC)
        box = glyphs._plain_drawing("\U0010fffd", face)  # of the private plane: no font has it
        drawn = font.any(axis=(1, 2))
        assert box.any()
        assert not (font == box).all(axis=(1, 2)).any(), name
        assert [code in covered for code in codes] == drawn.tolist()
    assert (drawings.any(axis=(2, 3)).sum(axis=0) >= glyphs.MINIMUM_FONTS).all()


def test_likeness_is_the_hausdorff_distance_by_hand():
    """Two dots d pixels apart are alike up to the tolerance, and a third one away from both is
    not."""
    for apart, alike in ((2, True), (3, False)):
        drawn = np.zeros((1, 3, 48, 48), dtype=np.uint8)
        drawn[0, 0, 20, 20] = drawn[0, 1, 20, 20 + apart] = drawn[0, 2, 40, 40] = 255
        assert glyphs.classes_of_shape(drawn) == ([[0, 1], [2]] if alike else [[0], [1], [2]])


def test_an_image_depends_on_its_seed_and_place_alone(drawings):
    drawings = drawings[0, :2]
    chosen = np.arange(700) % 2
    whole = distorted(drawings, chosen, 32, 3)
    assert_array_equal(distorted(drawings, chosen[:9], 32, 3), whole[:9])
    assert_array_equal(distorted(drawings, chosen, 32, 3), whole)
    assert (distorted(drawings, chosen, 32, 4) != whole).any(axis=(1, 2)).all()
    assert len(np.unique(whole.reshape(700, -1), axis=0)) == 700


def test_characters_that_a_reader_tells_apart_are_not(classes):
    for pair in ("OQ", "ec", "bd", "un", "69", "EF", "VU", "Aa", "gq", "ij", "ДЛ", "ΩО"):
        assert class_of(pair[0], classes) is not class_of(pair[1], classes), pair
