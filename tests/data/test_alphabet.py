"""Which characters `glyphs` draws, and which of them are one class."""

import numpy as np
import pytest
from PIL import ImageFont

from vicinal.data import alphabet


@pytest.fixture(scope="module")
def classes(codes, drawings):
    return [{chr(codes[member]) for member in members} for members in alphabet.classes_of_shape(drawings)]


def class_of(character, classes):
    return next(members for members in classes if character in members)


@pytest.mark.parametrize(
    "alike",
    [
        "AΑА",  # Latin, Greek, Cyrillic
        "BΒВ",
        "EΕЕ",
        "KΚК",
        "MΜМ",
        "OΟО",
        "PΡР",
        "TΤТ",
        "XΧХ",
        "aа",
        "pр",
        "hһհ",  # Armenian
        "oOοО",  # alike up to scale
        "cCсС",
        "sSѕЅ",
        "vV",
        "wW",
        "xX",
        "zZ",
        "mт",  # alike in italics
        "lI|"[:2],  # alike in Sans
    ],
)
def test_characters_that_render_alike_are_one_class(alike, classes):
    assert set(alike) <= class_of(alike[0], classes)


@pytest.mark.parametrize(
    "pair", ["OQ", "ec", "bd", "pq", "un", "68", "69", "EF", "PR", "VU", "Aa", "gq", "ij", "ДЛ", "ΩО"]
)
def test_characters_that_a_reader_tells_apart_are_not(pair, classes):
    assert class_of(pair[0], classes) is not class_of(pair[1], classes)


def test_there_are_several_hundred_classes_and_each_character_has_one(codes, classes):
    assert 400 <= len(classes) <= 550
    assert sum(map(len, classes)) == len(set(codes)) == len(codes)
    assert max(map(len, classes)) < 20  # likeness that is followed through has not swallowed the alphabet


def test_only_drawings_of_the_fonts_own_are_used(codes, drawings):
    """What a font lacks would come out as its ".notdef" box, the same for every such character."""
    for font, name, covered in zip(drawings, alphabet.FONTS, alphabet.coverage(), strict=True):
        path = str(alphabet.font_folder() / f"{name}.ttf")
        face = ImageFont.truetype(path, 2 * alphabet.FRAME, layout_engine=ImageFont.Layout.BASIC)
        box = alphabet._plain_drawing("\U0010fffd", face)  # of the private plane: no font has it
        drawn = font.any(axis=(1, 2))
        assert box.any()
        assert not (font == box).all(axis=(1, 2)).any(), name
        assert [code in covered for code in codes] == drawn.tolist()
    assert (drawings.any(axis=(2, 3)).sum(axis=0) >= alphabet.MINIMUM_FONTS).all()


def test_drawings_are_of_one_size_and_centred(drawings):
    ink = drawings.reshape(-1, alphabet.FRAME, alphabet.FRAME)
    ink = ink[ink.any(axis=(1, 2))] > 0
    extents = []
    for lines in (ink.any(axis=1), ink.any(axis=2)):
        first, last = lines.argmax(axis=1), alphabet.FRAME - lines[:, ::-1].argmax(axis=1)
        assert np.abs(first + last - alphabet.FRAME).max() <= 2  # both margins are alike
        extents.append(last - first)
    longer = np.maximum(*extents)
    assert longer.max() == alphabet.INK and longer.min() >= alphabet.INK - 1


def test_likeness_is_the_hausdorff_distance_by_hand():
    """Two dots d pixels apart are alike up to the tolerance, and a third one away from both is not."""
    for apart, alike in ((2, True), (3, False)):
        drawn = np.zeros((1, 3, 48, 48), dtype=np.uint8)
        drawn[0, 0, 20, 20] = drawn[0, 1, 20, 20 + apart] = drawn[0, 2, 40, 40] = 255
        assert alphabet.classes_of_shape(drawn) == ([[0, 1], [2]] if alike else [[0], [1], [2]])


def test_likeness_is_followed_through_and_one_font_is_enough():
    drawn = np.zeros((2, 4, 48, 48), dtype=np.uint8)
    drawn[0, 0, 20, 20] = drawn[0, 1, 20, 22] = drawn[0, 2, 20, 24] = 255  # 0 - 1 - 2 in the first font
    drawn[1, 0, 5, 5] = drawn[1, 3, 6, 6] = drawn[1, 2, 30, 30] = 255  # 0 - 3 in the second; the font lacks 1
    assert alphabet.classes_of_shape(drawn) == [[0, 1, 2, 3]]


def test_a_part_is_not_the_whole():
    """All ink of the bar lies on the cross, but not the other way round."""
    drawn = np.zeros((1, 2, 48, 48), dtype=np.uint8)
    drawn[0, :, 24, 10:38] = 255
    drawn[0, 1, 10:38, 24] = 255
    assert alphabet.classes_of_shape(drawn) == [[0], [1]]
