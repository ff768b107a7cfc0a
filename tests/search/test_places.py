"""Where pictures are found again: files below a root, or a data set that keeps them otherwise."""

import numpy as np
import pytest

from vicinal.data import Glyphs
from vicinal.description import describe
from vicinal.errors import ConfigError, DataError
from vicinal.search.places import Pictures, Place


def test_a_root_below_the_collection_moves_with_it(tmp_path, draw):
    draw(tmp_path / "moved" / "archives" / "x" / "a.png", 0)
    place = Place("/elsewhere/a.zip", "archive", "archives/x")
    assert Pictures(tmp_path / "moved", [place]).image(0, "a.png").size == (24, 20)


@pytest.mark.parametrize("path", ["../secret.png", "/etc/passwd", "a/../../secret.png", "link.png"])
def test_nothing_outside_is_named(path, tmp_path, draw):
    draw(tmp_path / "root" / "a" / "1.png", 0)
    (tmp_path / "root" / "link.png").symlink_to(draw(tmp_path / "secret.png", 1))
    with pytest.raises(DataError, match="leads out"):
        Place("x", "folder", str(tmp_path / "root")).file(tmp_path, path)


def test_a_data_set_without_files_gives_its_pictures(tmp_path):
    data = Glyphs()
    records = data.load()
    pictures = Pictures(tmp_path, [Place("glyphs", "data set", None, description=describe(data))])
    assert np.array_equal(pictures.image(0, records.source.name(7)), records.source.read(7))
    with pytest.raises(DataError, match="no longer in glyphs"):
        pictures.image(0, "nothing of the kind")


def test_a_description_can_name_data_sets_only(tmp_path):
    pictures = Pictures(tmp_path, [Place("x", "data set", None, description={"class": "system", "command": "true"})])
    with pytest.raises(ConfigError, match="unknown class 'system'"):
        pictures.image(0, "a")
