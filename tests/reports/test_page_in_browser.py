"""The page in a real browser: it renders, it answers, it asks nobody, and no name of a folder
runs."""

import json
import re

import pytest
from tests.browser import chromium, point_at, resting_box, until, visits

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser():
    """One for all tests here; closed before another module could want an event loop."""
    with chromium() as browser:
        yield browser


@pytest.fixture
def visit(browser):
    with visits(browser) as visit:
        yield visit


def point_of_map(page, place):
    """Where on the screen a point of the unzoomed map lies, and the point's class."""
    data = json.loads(page.locator("#map-data").text_content())
    page.locator("#map-canvas").scroll_into_view_if_needed()
    box = resting_box(page, "#map-canvas")
    scale = 0.92 * min(box["width"], box["height"])
    x = box["x"] + box["width"] / 2 + (data["x"][place] - 0.5) * scale
    y = box["y"] + box["height"] / 2 + (data["y"][place] - 0.5) * scale
    return x, y, data["classes"][data["class"][place]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_every_width_in_both_color_schemes(visit, reported, width, scheme):
    page = visit(reported.page, width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    bright = sum(map(int, re.findall(r"\d+", background))) > 3 * 128
    assert bright == (scheme == "light")
    until(page, "document.querySelectorAll('figure.chart svg polyline').length >= 7")


def test_names_run_nothing_even_without_the_content_policy(visit, reported, tmp_path):
    unguarded = tmp_path / "report.html"
    unguarded.write_text(re.sub(r"<meta http-equiv.*?>", "", reported.text), encoding="utf-8")
    page = visit(unguarded)
    for place in (0, 6, 12):  # one of each name that is a piece of a page
        x, y, _ = point_of_map(page, place)
        page.mouse.move(x, y)
    page.wait_for_timeout(100)


def test_the_map_tells_what_lies_under_the_pointer(visit, reported):
    page = visit(reported.page)
    x, y, name = point_of_map(page, 3)
    tip = page.locator("#map-tip")
    point_at(page, lambda: (x, y), tip.locator(".thumb"))  # there once the pictures are read
    assert tip.locator("bdi").text_content() == name
    assert name.startswith("<script>")
    assert "data:image/webp" in tip.locator(".thumb").evaluate(
        "e => getComputedStyle(e).backgroundImage"
    )
    page.mouse.move(0, 0)
    tip.wait_for(state="hidden")


def test_the_map_zooms_moves_and_resets(visit, reported):
    page = visit(reported.page)
    canvas = page.locator("#map-canvas")
    zoom = "document.getElementById('map-zoom').textContent"
    picture = "document.getElementById('map-canvas').toDataURL()"
    x, y, _ = point_of_map(page, 0)
    page.mouse.move(x - 5, y)
    page.mouse.move(x, y)
    for _ in range(8):
        page.mouse.wheel(0, -200)
    until(page, f"parseFloat({zoom}) > 8")
    zoomed = page.evaluate(picture)
    page.mouse.down()
    page.mouse.move(x + 80, y + 40, steps=3)
    page.mouse.up()
    until(page, f"{picture} === '{zoomed}'", wanted=False)
    canvas.press("0")
    until(page, zoom, "1.0×")
    canvas.press("+")
    until(page, zoom, "1.4×")
    page.locator("#map-reset").click()
    until(page, zoom, "1.0×")


def test_a_click_keeps_one_class_in_sight_and_escape_lets_it_go(visit, reported):
    page = visit(reported.page)
    x, y, name = point_of_map(page, 9)
    page.mouse.click(x, y)
    chosen = "() => document.getElementById('map-class').selectedOptions[0].textContent"
    assert page.evaluate(chosen) == name
    page.locator("#map-canvas").press("Escape")
    assert page.evaluate(chosen) == "all 12"


def test_who_scrolls_past_the_map_is_not_caught_by_it(visit, reported):
    page = visit(reported.page)
    box = page.locator("#map-canvas").bounding_box()
    page.mouse.move(640, 450)
    page.mouse.wheel(0, box["y"])
    until(page, f"window.scrollY > {box['y'] - 400}")
    resting_box(page, "#map-canvas")
    before = page.evaluate("window.scrollY")
    page.mouse.wheel(0, -150)
    until(page, f"window.scrollY < {before}")
    assert page.locator("#map-zoom").text_content() == "1.0×"


def test_charts_are_read_by_pointer_and_by_keyboard(visit, reported):
    page = visit(reported.page)
    chart = page.locator("[data-chart='evaluation-validation']")
    chart.locator("polyline").first.wait_for(state="attached")
    chart.locator("svg").first.hover()
    assert "Recall@1" in chart.locator(".tip").text_content()
    page.mouse.move(0, 0)
    chart.locator("svg").first.press("ArrowLeft")
    assert chart.locator(".tip").is_visible()
    assert "step 599" in chart.locator(".tip").text_content()
    chart.locator("svg").first.press("ArrowLeft")
    assert "step 539" in chart.locator(".tip").text_content()


def test_a_legend_hides_and_shows_its_line(visit, reported):
    page = visit(reported.page)
    chart = page.locator("[data-chart='scalar-hardness']")
    button = chart.get_by_role("button", name="pull")
    # drawn frame by frame
    lines = "document.querySelectorAll(\"[data-chart='scalar-hardness'] polyline\").length"
    until(page, lines, 2)
    button.click()
    until(page, lines, 1)
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    until(page, lines, 2)


def test_reports_of_unfinished_runs_and_of_feature_arrays_open_cleanly(
    visit, reported_interrupted, reported_features
):
    for report in (reported_interrupted, reported_features):
        page = visit(report.page, width=390)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.locator("h1").text_content() == report.run.info["data"]["name"]


def test_a_picture_of_the_retrievals_opens_and_closes(visit, reported):
    page = visit(reported.page, width=390)
    picture = page.locator("button.opens").first
    picture.click()
    opened = page.locator("dialog.opened")
    assert opened.is_visible() and opened.locator("bdi").text_content() == picture.get_attribute(
        "data-label"
    )
    assert opened.locator(".thumb").bounding_box()["width"] > 2.5 * picture.bounding_box()["width"]
    opened.locator("button").click()
    assert not opened.is_visible()
