"""Contact sheets: every tile in its place, captions that stay within theirs."""

import numpy as np
import pytest
from PIL import Image

from vicinal.search.collection import CollectionDirectory, Item
from vicinal.search.contact_sheet import Tile, contact_sheet, item_tile
from vicinal.search.generations import publish
from vicinal.search.places import Place


def test_tiles_stand_row_by_row():
    colours = ["red", "lime", "blue"]
    sheet = contact_sheet([Tile(Image.new("RGB", (50, 50), colour), colour) for colour in colours], columns=2, tile=50)
    assert sheet.size == (2 * 62 + 12, 2 * 98 + 12)
    assert [sheet.getpixel(place) for place in ((37, 37), (99, 37), (37, 135))] == [
        (255, 0, 0),
        (0, 255, 0),
        (0, 0, 255),
    ]
    assert sheet.getpixel((99, 135)) == (255, 255, 255)


@pytest.mark.parametrize("size", [(10, 400), (400, 10), (3, 3)])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_pictures_of_any_shape_keep_it(size, mode):
    sheet = np.asarray(contact_sheet([Tile(Image.new(mode, size, 0), "")], tile=40))
    dark = np.argwhere(sheet[12:52, 12:52].sum(axis=2) == 0)
    height, width = dark.max(axis=0) - dark.min(axis=0) + 1
    assert max(height, width) == 40 and (width > height) == (size[0] > size[1])


def test_a_long_caption_ends_at_the_tile():
    sheet = np.asarray(contact_sheet([Tile(None, "a very long name " * 9, "and a note " * 9)], tile=60))
    assert (sheet[80:, 12 + 60 + 1 :] == 255).all()


def test_what_has_no_picture_still_has_a_caption(tmp_path):
    items = [Item(0, "folder/name.png", None), Item(1, "x", "wren")]
    publish(tmp_path, items, np.zeros((2, 2)), dim=2, places=[Place("vectors.npz", "features", None)])
    snapshot = CollectionDirectory.open(tmp_path).snapshot()
    assert item_tile(snapshot, 0, "0.5") == Tile(None, "name.png", "0.5")
    assert item_tile(snapshot, 1) == Tile(None, "wren", "")
