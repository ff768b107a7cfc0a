"""Groups as a table and a page: nothing of the collection becomes markup, nothing is asked of a
network."""

import base64
import csv
import re
from io import BytesIO, StringIO

import numpy as np
import pytest
from PIL import Image

from vicinal.retrieval import contact_sheets
from vicinal.retrieval.contact_sheets import (
    Contents,
    Group,
    Tile,
    as_page,
    as_table,
    contact_sheet,
    item_tile,
    write_shown,
)

EVIL = '<script>window.injected=1</script>"x"'


@pytest.fixture
def snapshot(collect, tmp_path):
    """Five pictures, one with a camera's notes, one gone, one whose label is a script."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    names = ["a.jpg", "b.png", "gone.png", "d, e.png", "=f.png"]
    for place, name in enumerate(names):
        image = Image.new("RGB", (40, 20), (50 * place, 80, 120))
        if name == "a.jpg":
            notes = Image.Exif()
            notes[0x010F] = "a camera"
            image.save(folder / name, exif=notes)
        elif name != "gone.png":
            image.save(folder / name)
    labels = [EVIL, "b", None, "b", "b"]
    return collect(np.eye(5), labels, path=names, id=range(10, 15), root=folder)


def contents(*groups, **changes):
    settings = {
        "title": "Groups",
        "facts": [("groups", "2")],
        "lead": ["By hand."],
        "shown": 10,
        "empty": "None found.",
    }
    return Contents(groups=groups, **(settings | changes))


FIRST = Group(1, [0, 2], [0.25, float("nan")], f"Group 1 {EVIL}", "labels differ")
SECOND = Group(2, [3, 4, 1], [0.1, 0.2, 0.3], "Group 2")


def test_the_table_has_a_line_for_each_thing(snapshot, tmp_path):
    rows = list(csv.DictReader(StringIO(as_table(snapshot, [FIRST, SECOND]))))
    assert [(row["group"], row["id"], row["distance"]) for row in rows[:2]] == [
        ("1", "10", "0.25"),
        ("1", "12", ""),
    ]
    assert rows[2]["path"] == "d, e.png" and rows[0]["label"] == EVIL and rows[1]["label"] == ""
    assert rows[0]["place"] == str(tmp_path / "pictures") and len(rows) == 5


def test_nothing_of_the_collection_becomes_markup(snapshot):
    page = as_page(snapshot, contents(FIRST, SECOND, title=EVIL, lead=[EVIL]), "groups.csv")
    assert "<script" not in page and "&lt;script&gt;" in page
    assert "default-src 'none'" in page and not re.search(r"(src|href)=[\"']?https?:", page)
    assert "prefers-color-scheme: dark" in page and "labels differ" in page


def test_pictures_are_small_and_say_nothing_of_their_camera(snapshot):
    page = as_page(snapshot, contents(FIRST, SECOND), "groups.csv")
    found = re.findall(r"data:image/jpeg;base64,([A-Za-z0-9+/=]+)", page)
    assert len(found) == 4  # one file is gone: its name stands there
    for content in map(base64.b64decode, found):
        with Image.open(BytesIO(content)) as image:
            assert max(image.size) == 96 and not image.getexif()
        assert b"a camera" not in content
    assert '<span class="blank"><bdi>gone.png</bdi>' in page


def test_what_has_no_room_is_counted(snapshot, monkeypatch):
    page = as_page(snapshot, contents(FIRST, SECOND, shown=1), "groups.csv")
    assert "and 1 more, in groups.csv" in page and "and 2 more, in groups.csv" in page
    monkeypatch.setattr(contact_sheets, "TILES", 2)
    told = []
    page = as_page(snapshot, contents(FIRST, SECOND), "groups.csv", told.append)
    assert "1 further groups stand in groups.csv" in page and told == [2]
    assert contents(FIRST, SECOND).pictures == 2


def test_no_group_is_said(snapshot):
    assert "None found." in as_page(snapshot, contents(), "groups.csv")


def test_both_files_are_written_whole_also_for_names_that_are_no_text(snapshot, tmp_path):
    odd = Group(1, [1], [0.5], "a \udcff name")
    write_shown(tmp_path / "new" / "t.csv", as_table(snapshot, [odd]))
    write_shown(tmp_path / "new" / "p.html", as_page(snapshot, contents(odd), "t.csv"))
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["p.html", "t.csv"]
    assert "a ? name" in (tmp_path / "new" / "p.html").read_text()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_in_a_browser_it_fits_and_nothing_goes_wrong(width, scheme, snapshot, tmp_path):
    from playwright.sync_api import sync_playwright

    write_shown(tmp_path / "p.html", as_page(snapshot, contents(FIRST, SECOND), "t.csv"))
    said = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        page.on("console", lambda message: said.append(message.text))
        page.goto((tmp_path / "p.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert (
            page.evaluate("[...document.images].every(image => image.alt)")
            and page.locator("img").count() == 4
        )
        assert page.evaluate("window.injected") is None
        browser.close()
    assert said == []


def test_tiles_stand_row_by_row():
    colours = ["red", "lime", "blue"]
    sheet = contact_sheet(
        [Tile(Image.new("RGB", (50, 50), colour), colour) for colour in colours], columns=2, tile=50
    )
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
    sheet = np.asarray(
        contact_sheet([Tile(None, "a very long name " * 9, "and a note " * 9)], tile=60)
    )
    assert (sheet[80:, 12 + 60 + 1 :] == 255).all()


def test_what_has_no_picture_still_has_a_caption(collect):
    snapshot = collect(np.zeros((2, 2)), [None, "wren"], path=["folder/name.png", "x"])
    assert item_tile(snapshot, 0, "0.5") == Tile(None, "name.png", "0.5")
    assert item_tile(snapshot, 1) == Tile(None, "wren", "")
