"""The page in a real browser: searched by picture and by click, by keyboard, on a phone, and when
things go wrong."""

import re
import threading
import time
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from PIL import Image
from tests.browser import PATIENCE, chromium, resting_box, until, visits

from vicinal.retrieval.calibration import Threshold
from vicinal.retrieval.collection import publish
from vicinal.retrieval.items import Item, Place
from vicinal.retrieval.overview import CollectionMap
from vicinal.retrieval.serve.server import bind, create_application

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def serve():
    """``serve(library)`` answers on a free port of this machine, in a thread, until the module is
    done."""
    import uvicorn

    running = []

    def serve(library, **settings):
        bound = bind("127.0.0.1", 0)
        application = create_application(library, **settings)
        server = uvicorn.Server(uvicorn.Config(application, log_level="critical", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        running.append((server, thread, bound))
        return f"http://127.0.0.1:{bound.getsockname()[1]}"

    yield serve
    for server, thread, bound in running:
        server.should_exit = True
        thread.join(10)
        bound.close()


@pytest.fixture(scope="module")
def address(serve, library):
    known = Threshold(0.05, 0.001, "As calibrated.")
    return serve(replace(library, threshold=known))


@pytest.fixture
def visit(browser):
    with visits(browser) as visit:
        yield visit


def settled(page, cards=1):
    until(page, "document.getElementById('found').getAttribute('aria-busy')", "false")
    until(page, f"document.querySelectorAll('#matches .match').length >= {cards}")


def opened(visit, address, cards=1, **settings):
    """A page that shows its results and its map."""
    page = visit(address, **settings)
    settled(page, cards)
    until(page, MAP_READY)
    return page


def listed(page, count):
    until(page, f"document.querySelectorAll('#matches .match').length === {count}")


def titled(page, words):
    until(page, "document.getElementById('found-title').textContent", words)


def choose(page, content, name="mine.png"):
    page.locator("#file").set_input_files(
        {"name": name, "mimeType": "image/png", "buffer": content}
    )


def enter(page, field, words):
    page.locator(field).fill(words)
    page.locator(field).press("Enter")


def notice(page):
    page.locator("#notice").wait_for(state="visible")
    return page.locator("#notice").inner_text()


def select(page, *shares, tool="rectangle", **more):
    page.locator(f"[data-tool={tool}]").click()
    drag(page, *shares, **more)


ZOOM = "parseFloat(document.getElementById('map-zoom').textContent)"
MAP_READY = "document.getElementById('map-waiting').hidden"
QUERY = "(document.querySelector('#query h2')?.textContent ?? null)"


@pytest.mark.parametrize(
    ("width", "scheme"), [(360, "light"), (360, "dark"), (768, "light"), (1280, "dark")]
)
def test_the_page_fits_every_width_in_both_color_schemes(visit, address, width, scheme):
    for path in ("/", "/?item=3", "/?view=hardness", "/docs", "/report"):
        page = visit(address + path, width=width, scheme=scheme)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", background))) > 3 * 128) == (scheme == "light")


def test_a_chosen_picture_finds_neighbors_a_click_searches_on_and_the_browser_goes_back(
    visit, address, png
):
    page = opened(visit, address)
    assert page.locator("#found-title").text_content() == "Start from one of these"
    choose(page, png)
    until(page, QUERY, "mine.png")
    settled(page, 24)
    distances = [float(text) for text in page.locator(".distance").all_text_contents()]
    assert distances == sorted(distances)
    assert "0.050" in page.locator(".matches .line").text_content()
    assert page.locator(".matches .beyond").count() == sum(
        distance > 0.05 for distance in distances
    )
    until(page, "document.querySelector('#query img').naturalWidth", 96)
    page.locator("#matches .match").nth(1).click()
    until(page, "/\\?item=\\d+/.test(location.href)")
    until(page, f"{QUERY} !== 'mine.png'")
    settled(page, 24)
    first = page.evaluate("location.search")
    page.locator("#matches .match").nth(2).click()
    until(page, f"location.search !== '{first}'")
    settled(page, 24)
    page.go_back()
    until(page, "location.search", first)
    page.go_back()
    until(page, QUERY, "mine.png")
    page.go_back()
    until(page, "document.getElementById('query').hidden")
    page.go_forward()
    until(page, QUERY, "mine.png")


def test_words_find_pictures_and_the_address_keeps_them(visit, serve, library, address, reader):
    """The box is there where the run has a text encoder; an item then takes the place of the
    words."""
    page = opened(visit, f"{serve(replace(library, reader=reader))}/?text=a+square", cards=24)
    assert page.locator("#text").input_value() == "a square" and page.locator("#query").is_hidden()
    enter(page, "#text", "a blue disc")
    until(page, "new URLSearchParams(location.search).get('text')", "a blue disc")
    settled(page, 24)
    assert page.locator("#found-title").text_content() == "Neighbors"
    page.locator("#matches button").first.click()
    until(page, "location.search.includes('item=')")
    settled(page)
    assert page.locator("#text").input_value() == "" and page.locator("#query").is_visible()
    assert visit(address).locator("#text").is_hidden()


def test_classes_narrow_and_the_address_keeps_the_state(visit, address):
    page = opened(visit, f"{address}/?item=3", cards=24)
    page.locator("#class").select_option("square")
    listed(page, 12)
    assert {text.strip() for text in page.locator("#matches bdi").all_text_contents()} == {"square"}
    page.reload()
    listed(page, 12)
    assert page.locator("#class").input_value() == "square"
    line = page.locator(".matches .line")
    assert "right answers" not in line.text_content()  # where none can be right, none is counted
    enter(page, "#threshold", "0.0001")
    titled(page, "No match")
    assert page.locator(".matches .line.none").is_visible()
    page = opened(visit, f"{address}/?item=3", cards=24)
    found = page.evaluate("fetch('/api/search/item/3?k=200').then((answer) => answer.json())")
    beyond = sum(match["label"] == "disc" and not match["matches"] for match in found["matches"])
    line = page.locator(".matches .line")
    assert f"{beyond} of 11 right answers lie beyond it" in line.text_content()
    enter(page, "#threshold", "0")
    titled(page, "No match")
    assert "all 11 right answers lie beyond it" in line.text_content()


def test_the_map_zooms_to_pictures_and_a_click_on_it_searches(visit, address):
    page = opened(visit, f"{address}/?item=3", cards=24)
    box = resting_box(page, "#map-canvas")
    x = box["x"] + box["width"] / 2
    y = box["y"] + box["height"] / 2
    picture = "document.getElementById('map-canvas').toDataURL()"
    still = page.evaluate(picture)
    page.mouse.move(x - 5, y)
    page.mouse.move(x, y)
    with page.expect_response(re.compile(r"thumbnail\?side=64")):  # points become pictures
        for _ in range(3):
            page.mouse.wheel(0, -200)
    until(page, f"{ZOOM} > 2")
    until(page, f"{picture} === '{still}'", wanted=False)
    page.locator("#map-reset").click()
    until(page, ZOOM, 1)
    page.locator("#class").select_option("disc")
    listed(page, 11)
    page.locator("#map-reset").click()
    until(page, ZOOM, 1)
    page.locator("#map-found").click()
    until(page, f"{ZOOM} > 1")
    page.locator("#map-reset").click()
    until(page, ZOOM, 1)
    page.mouse.click(*point(page, 35))
    until(page, "location.search", "?item=35&class=disc")


def point(page, id):
    """Where an item stands on the screen while the whole map is in sight."""
    box = resting_box(page, "#map-canvas")
    points = page.evaluate("fetch('/api/map').then((answer) => answer.json())")
    place = points["ids"].index(id)
    scale = 0.92 * min(box["width"], box["height"])
    x, y = (points[axis][place] - 0.5 for axis in ("x", "y"))
    return box["x"] + box["width"] / 2 + x * scale, box["y"] + box["height"] / 2 + y * scale


def test_on_a_phone_the_map_is_one_tap_away(visit, address):
    page = opened(visit, f"{address}/?item=3", width=390, height=844, touch=True, cards=24)
    button = page.locator("#to-map")
    middle = "document.elementFromPoint(195, 400)?.id === 'map-canvas'"
    assert button.text_content() == "Map" and not page.evaluate(middle)
    box = button.bounding_box()
    assert box["height"] >= 44 and box["y"] + box["height"] <= 844
    button.tap()
    until(page, middle)
    until(page, "document.getElementById('to-map').textContent", "Results")
    button.tap()
    until(page, "document.getElementById('found').getBoundingClientRect().top < 400")
    until(page, "document.getElementById('to-map').textContent", "Map")
    page.locator(".views [data-view=hardness]").tap()
    button.wait_for(state="hidden")
    assert visit(address).locator("#to-map").is_hidden()  # beside the results there is no need


def test_everything_can_be_done_by_keyboard_and_focus_is_seen(visit, address):
    page = opened(visit, address)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(45):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
        shown = page.evaluate("""() => {
          const active = document.activeElement;
          const seen = (e) => e && getComputedStyle(e).outlineStyle !== 'none';
          return active === document.body || seen(active) || seen(active.closest('.drop'));
        }""")
        assert shown, page.evaluate("document.activeElement.outerHTML")
    assert {"file", "class", "threshold", "match", "map-canvas", "map-in"} <= reached
    first = page.locator("#matches .match").first
    first.focus()
    page.keyboard.press("ArrowRight")
    assert (
        page.evaluate("[...document.querySelectorAll('.match')].indexOf(document.activeElement)")
        == 1
    )
    page.keyboard.press("Enter")
    until(page, "/item=/.test(location.search)")
    settled(page, 24)
    canvas = page.locator("#map-canvas")
    canvas.focus()
    before = page.evaluate("location.search")
    for key in ("+", "+", "+", "ArrowLeft", "ArrowUp"):
        canvas.press(key)
    until(page, f"{ZOOM} > 2")
    until(page, "document.getElementById('map-told').textContent.startsWith('In the middle')")
    canvas.press("Enter")
    until(page, f"location.search !== '{before}'")
    canvas.press("0")
    until(page, ZOOM, 1)


def test_hardness_draws_charts_and_leads_to_the_classes(visit, address):
    page = visit(f"{address}/?view=hardness")
    until(page, "document.querySelectorAll('figure.chart svg polyline').length >= 3")
    assert page.locator("figure.chart h3").all_text_contents()[0] == "Hardness"
    chart = page.locator("[data-chart='scalar-hardness'] svg").first
    chart.press("ArrowLeft")
    assert "lambda" in page.locator("[data-chart='scalar-hardness'] .tip").text_content()
    assert page.locator(".worst li").nth(1).text_content().startswith("<img src=x")
    page.locator(".worst .link").first.click()
    titled(page, "12 items")
    assert page.locator("#class").input_value() == "disc"
    page = opened(visit, f"{address}/?item=30", cards=24)
    assert page.locator("#query h2").text_content().startswith("<img src=x")


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        (
            "note",
            lambda png: b"no picture",
            "note is not a picture that can be read here. Choose a",
        ),
        ("cut", lambda png: png[:200], "cut is damaged or incomplete. Choose another"),
        ("huge", lambda png: b"x" * (17 * 2**20), "huge is too large. Choose a smaller version"),
    ],
)
def test_what_cannot_be_searched_by_is_told_and_can_be_dismissed(
    visit, address, png, name, content, told
):
    page = opened(visit, address)
    choose(page, content(png), name)
    said = notice(page)
    assert told in said
    assert not re.search("Expected|Error|bytes that", said)  # kept for the details
    page.locator("#notice-close").click()
    assert page.locator("#notice").is_hidden()
    visit.expected("Failed to load resource")  # the browser's own remark
    choose(page, png)
    until(page, QUERY, "mine.png")


def test_an_item_that_is_gone_and_a_server_that_is_gone_are_told(visit, address):
    page = visit(f"{address}/?item=777")
    assert "This item is no longer in the collection. Start from another" in notice(page)
    page.locator("#notice summary").click()
    assert "has no item 777" in page.locator("#notice").inner_text()
    page.locator("#home").click()
    settled(page)
    assert page.locator("#notice").is_hidden()
    page.route("**/api/search/**", lambda route: route.abort())
    page.locator("#matches .match").first.click()
    assert "cannot be reached" in notice(page)
    page.unroute("**/api/search/**")
    page.goto(f"{address}/?item=3&beyond=1e12")
    assert "This search is not possible. Check the class and the distance" in notice(page)
    visit.expected("Failed to load resource")


# -- the workbench
# --------------------------------------------------------------------------------------------------


def heaps(snapshot):
    """Lay out each class of 12 in a heap of its own, from left to right."""
    place = np.arange(len(snapshot))
    positions = np.stack([place // 12 + 0.01 * (place % 12), 0.01 * (place % 5)], axis=1)
    return CollectionMap(place, positions.astype(np.float32))


@pytest.fixture
def bench(serve, write_run, write_pictures, index, library_of, tmp_path):
    """A run of its own whose pictures may be tagged, with findings; its address and its folder."""
    run = write_run(tmp_path / "run")
    written = write_pictures(tmp_path / "pictures")
    index(run.path, tmp_path / "pictures", written)
    near = "|".join(path for path, _ in written[12:18])
    rows = [(0, "label", "square"), (1, "duplicate", ""), (2, "outlier", ""), (3, "class", "")]
    lines = [
        f"{row},{written[row][0]},disc,{kind},{0.9 - row / 10},{to},{near}\n"
        for row, kind, to in rows
    ]
    (run.path / "clean").mkdir()
    header = "row,path,label,kind,score,suggested,neighbors\n"
    (run.path / "clean" / "findings.csv").write_text(
        header + "".join(lines) + f"9,not/indexed.png,a,outlier,0.1,,{near}\n"
    )
    return serve(replace(library_of(run), layout=heaps), writable=True), run.path


def drag(page, *shares, shift=False):
    """Press at the first share of the map's width and height, pass the others and let go."""
    box = resting_box(page, "#map-canvas")
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in shares]
    if shift:
        page.keyboard.down("Shift")
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=3)
    page.mouse.up()
    if shift:
        page.keyboard.up("Shift")


SELECTED = "document.querySelector('#selection h2')?.textContent ?? ''"
LEFT = [(0.01, 0.2), (0.2, 0.8)]
MIDDLE = [(0.4, 0.2), (0.6, 0.8)]
TABLE = "fetch('/api/decisions.csv').then((answer) => answer.text())"


def test_a_rectangle_and_a_lasso_select_and_their_pictures_are_listed(visit, bench):
    page = opened(visit, bench[0])
    select(page, *LEFT)
    until(page, SELECTED, "12 selected")
    assert page.locator("#selection .match").count() == 12
    assert "disc 12" in page.locator("#selection .selection-head").text_content()
    until(page, "document.querySelector('#selection img')?.naturalWidth > 0")
    drag(page, *MIDDLE, shift=True)  # adds
    until(page, SELECTED, "24 selected")
    page.locator("[data-tool=move]").click()
    # A lasso, whatever the tool is.
    drag(page, (0.4, 0.2), (0.6, 0.2), (0.6, 0.8), (0.4, 0.8), shift=True)
    until(page, SELECTED, "12 selected")
    assert "square 12" in page.locator("#selection .selection-head").text_content()
    canvas = page.locator("#map-canvas")
    canvas.press(" ")  # the item in the middle, which is one of these
    until(page, SELECTED, "11 selected")
    canvas.press("Escape")
    until(page, "document.getElementById('selection').hidden")
    assert page.evaluate(ZOOM) == 1  # dragging has moved nothing
    page.set_viewport_size({"width": 360, "height": 800})
    select(page, (0.01, 0.2), (0.2, 0.2), (0.2, 0.8), (0.01, 0.8), tool="lasso")
    until(page, SELECTED, "12 selected")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.locator("#to-map").click()  # leads to what is selected
    until(page, "Math.abs(document.getElementById('selection').getBoundingClientRect().top) < 40")


def test_classes_and_drops_are_kept_undone_and_exported(visit, bench):
    page = opened(visit, bench[0])
    select(page, *LEFT)
    page.locator("#selection-word").fill("<b>ring</b>")
    page.get_by_role("button", name="Set class").click()
    until(page, "document.querySelector('#selection .match b')?.textContent", "→ <b>ring</b>")
    page.locator("#selection").get_by_role("button", name="Drop").click()
    until(page, "document.querySelectorAll('#selection .gone').length", 12)
    page.get_by_role("button", name="Undo").click()
    until(page, "document.querySelectorAll('#selection .gone').length", 0)
    assert page.evaluate(TABLE).splitlines()[1] == "class_0/00.jpg,<b>ring</b>"
    page.reload()
    settled(page)
    until(page, MAP_READY)
    select(page, *LEFT)
    until(page, "document.querySelector('#selection .match b')?.textContent", "→ <b>ring</b>")
    with page.expect_download() as download:
        page.locator("#selection a[download='decisions.csv']").click()
    assert download.value.suggested_filename == "decisions.csv"


def test_findings_are_reviewed_by_keyboard(visit, bench):
    page = opened(visit, bench[0])
    at = "document.querySelector('#review h2').textContent"
    told = "document.getElementById('review-said').textContent"

    def press(key, words, place=at):
        page.keyboard.press(key)
        until(page, place, words)

    page.locator("#to-review").click()
    head = page.locator("#review h2").first
    verdict = page.locator(".verdict")
    head.wait_for()
    assert head.text_content() == "1 of 5 findings"
    assert "Probably mislabeled" in verdict.text_content()
    assert page.locator(".evidence .judged.wrong").count() == 6  # the neighbors that disagree
    press("Enter", "2 of 5 findings")  # accept: square
    press("Enter", "3 of 5 findings")  # accept: of a duplicate, a drop
    press("x", "4 of 5 findings")
    page.keyboard.press("Enter")  # an ambiguous class suggests nothing
    page.keyboard.press("e")
    page.keyboard.type("jxk")  # letters in the field are letters
    press("Escape", "4 of 5 findings")
    page.keyboard.press("e")
    page.keyboard.type("ring")
    press("Enter", "5 of 5 findings")
    assert "Not in the collection" in verdict.text_content()
    press("x", "5 decided", told)
    press("u", "4 decided", told)
    press("u", "4 of 5 findings")  # undo leads to where it was
    press("k", "3 of 5 findings")
    press("j", "4 of 5 findings")
    press("s", "4 decided", told)
    page.keyboard.press("?")
    page.locator("dialog[open]").wait_for()
    page.keyboard.press("x")  # nothing happens below the help
    page.keyboard.press("Escape")
    page.locator("dialog[open]").wait_for(state="detached")
    assert page.evaluate(TABLE).splitlines() == [
        "path,label",
        "class_0/00.jpg,square",
        "class_0/01.jpg,",
        "class_0/02.jpg,",
        "class_0/03.jpg,disc",
    ]
    page.locator("#review-kind").select_option("outlier")
    until(page, at, "1 of 2 findings")
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_damaged_findings_are_told_and_the_rest_goes_on(visit, bench):
    address, run = bench
    (run / "clean" / "findings.csv").write_text("row,path\n1,2\n")
    page = visit(f"{address}/?view=review")
    assert "findings.csv is damaged" in notice(page)
    page.locator("#home").click()
    settled(page)
    visit.expected("Failed to load resource")


def test_a_server_for_other_machines_shows_and_changes_nothing(visit, serve, library):
    page = opened(visit, serve(replace(library, layout=heaps)))
    select(page, *LEFT)
    until(page, SELECTED, "12 selected")
    assert page.locator("#selection .deciding button:enabled").count() == 0
    assert "takes no changes" in page.locator("#selection").text_content()


@pytest.mark.parametrize("webgl", [True, False])
def test_a_crowd_of_points_is_drawn_by_webgl_or_without_it(
    visit, serve, write_run, write_pictures, library_of, tmp_path, webgl
):
    run = write_run(tmp_path / "run")
    count = 3000
    root = str(tmp_path / "pictures")
    rows = np.zeros((count, 16), np.float32)
    files = write_pictures(tmp_path / "pictures")
    items = [Item(i, files[i % len(files)][0], "ab"[i % 2]) for i in range(count)]
    publish(run.path / "collection", items, rows, dim=16, places=[Place(root, root)])

    def halves(snapshot):
        """Class a on the left, class b on the right."""
        place = np.arange(count)
        positions = np.random.default_rng(1).random((count, 2)).astype(np.float32)
        positions[:, 0] = 0.5 * (place % 2) + 0.48 * positions[:, 0]
        return CollectionMap(place, positions)

    script = """HTMLCanvasElement.prototype.getContext = ((before) => function (kind, ...more) {
      return kind === "webgl2" ? null : before.call(this, kind, ...more);
    })(HTMLCanvasElement.prototype.getContext);"""
    address = serve(replace(library_of(run), layout=halves))
    page = opened(visit, address, script="void 0" if webgl else script)
    until(page, "document.getElementById('map-points').hidden", not webgl)

    def colored(as_wanted):
        """Pixels of strong color in the two halves of the map, once they are as they should be."""
        end = time.monotonic() + PATIENCE
        while True:
            image = Image.open(BytesIO(page.locator("#map-canvas").screenshot())).convert("HSV")
            strong = np.asarray(image)[:, :, 1] > 120
            halves = [int(half.sum()) for half in np.array_split(strong, 2, axis=1)]
            if as_wanted(*halves):
                return halves
            assert time.monotonic() < end, halves

    before = colored(lambda left, right: left > 500 and right > 500)
    select(page, (0.01, 0.01), (0.5, 0.99))
    until(page, SELECTED, "1,500 selected")
    colored(lambda left, right: left > 500 and right < before[1] / 10)  # what is not selected fades
    until(page, "document.querySelectorAll('#selection .match').length", 48)
    # Points become pictures here, too.
    with page.expect_response(re.compile(r"thumbnail\?side=64")):
        for _ in range(6):
            page.locator("#map-in").click()
    visit.expected("GL Driver Message")  # of a GPU played by software


def test_texts_stand_on_their_cards_whole_and_are_searched_in_a_wide_field(
    visit, serve, library_of, write_run, reader, tmp_path
):
    run = write_run(tmp_path / "run")
    said = [f"sentence {row} about either/or, w/o an end" for row in range(6)]
    items = [Item(row, text, "ab"[row % 2]) for row, text in enumerate(said)]
    vectors = np.random.default_rng(0).normal(size=(6, 16)).astype(np.float32)
    place = Place("/data/texts.csv", None)
    publish(run.path / "collection", items, vectors, dim=16, places=[place])
    library = replace(library_of(run), model=reader, reader=reader)
    page = opened(visit, serve(library) + "/?item=2", cards=5)
    shown = page.locator("#matches .match .words").all_text_contents()
    assert sorted(shown) == [text for row, text in enumerate(said) if row != 2]
    assert page.locator("#query h2").text_content() == said[2]
    assert page.locator("#text").bounding_box()["width"] > 400
    until(page, MAP_READY)
    page.locator("#map-canvas").focus()
    page.keyboard.press("Space")
    until(page, "document.querySelector('#selection .words')?.textContent.slice(0, 8)", "sentence")
