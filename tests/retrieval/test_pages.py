"""Groups as a table and a page: nothing of the collection becomes markup, nothing is asked of a
network."""

import base64
import csv
import re
from io import BytesIO

import numpy as np
import pytest
from PIL import Image
from tests.browser import chromium, visits

from vicinal.retrieval import pages
from vicinal.retrieval.pages import Group, Page

EVIL = '<script>window.injected=1</script>"x"'


@pytest.fixture
def snapshot(collect, tmp_path):
    """Five pictures, one with a camera's notes, one gone, one whose label is a script."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    names = ["a.jpg", "b.png", "gone.png", "d, e.png", "f.png"]
    for place, name in enumerate(names):
        image = Image.new("RGB", (200, 100), (50 * place, 80, 120))
        notes = Image.Exif()
        notes[0x010F] = "a camera"
        if name != "gone.png":
            image.save(folder / name, exif=notes)
    labels = [EVIL, "b", None, "b", "b"]
    return collect(np.eye(5), labels, path=names, id=range(10, 15), root=folder)


FIRST = Group([0, 2], [0.25, 0.5], f"Group 1 {EVIL}", "labels differ")
SECOND = Group([3, 4, 1], [0.1, 0.2, 0.3], "Group 2")


@pytest.fixture
def written(snapshot, tmp_path):
    """``written(group, ...)``: the table and the page of these groups."""

    def write(*groups, title="Groups", lead="By hand.", shown=10):
        page = Page(title, [("groups", "2")], [lead], groups, shown)
        return [path.read_text() for path in page.write(snapshot, tmp_path / "new" / "groups")]

    return write


def test_a_table_has_a_line_for_each_item_and_nothing_of_them_becomes_markup(written, tmp_path):
    table, page = written(FIRST, SECOND, title=EVIL, lead=EVIL)
    rows = list(csv.DictReader(table.splitlines()))
    found = [(row["group"], row["id"], row["distance"]) for row in rows[:2]]
    assert found == [("1", "10", "0.25"), ("1", "12", "0.5")]
    assert rows[2]["path"] == "d, e.png" and rows[0]["label"] == EVIL and rows[1]["label"] == ""
    assert rows[0]["place"] == str(tmp_path / "pictures") and len(rows) == 5
    assert "<script" not in page and "&lt;script&gt;" in page
    assert "default-src 'none'" in page and not re.search(r"(src|href)=[\"']?https?:", page)
    assert "prefers-color-scheme: dark" in page and "labels differ" in page
    found = re.findall(r"data:image/jpeg;base64,([A-Za-z0-9+/=]+)", page)
    assert len(found) == 4  # one file is gone: its name stands there
    for content in map(base64.b64decode, found):
        with Image.open(BytesIO(content)) as image:
            assert max(image.size) == 96 and not image.getexif()
        assert b"a camera" not in content
    assert '<span class="blank"><bdi>gone.png</bdi>' in page


def test_what_has_no_room_is_counted(written, monkeypatch):
    page = written(FIRST, SECOND, shown=1)[1]
    assert "and 1 more, in groups.csv" in page and "and 2 more, in groups.csv" in page
    monkeypatch.setattr(pages, "TILES", 2)
    assert "1 further groups stand in groups.csv" in written(FIRST, SECOND)[1]


def test_no_group_and_a_name_that_is_no_text(written):
    assert "Nothing was found." in written()[1]
    assert "a ? name" in written(Group([1], [0.5], "a \udcff name"))[1]


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_in_a_browser_it_fits_and_nothing_goes_wrong(width, scheme, written, tmp_path):
    written(FIRST, SECOND)
    with chromium() as browser, visits(browser) as visit:
        page = visit(tmp_path / "new" / "groups.html", width, scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate("[...document.images].every(image => image.alt)")
        assert page.locator("img").count() == 4
