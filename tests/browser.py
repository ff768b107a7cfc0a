"""What the tests of pages in a real browser share: how it is started, and how to wait for what
comes late."""

import re
import time
from contextlib import contextmanager
from pathlib import Path

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 30  # seconds, as in Playwright's own waits

RESTING = """(selector) => new Promise((done) => {
  const element = document.querySelector(selector);
  let before = null, frames = 0;
  const look = () => {
    const { x, y, width, height } = element.getBoundingClientRect();
    const now = [x, y, width, height].join();
    frames = now === before ? frames + 1 : 0;
    before = now;
    if (frames < 5) requestAnimationFrame(look); else done({ x, y, width, height });
  };
  look();
})"""


@contextmanager
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def visits(browser):
    """``visit(address)`` opens a page; at the end nothing may have been complained of but what the
    test expects, no name of a folder has run, and no other file and no other machine was asked."""
    said = []
    asked = []
    contexts = []

    def visit(address, width=1280, height=900, scheme="light", touch=False, script="void 0"):
        address = address.as_uri() if isinstance(address, Path) else address
        size = {"width": width, "height": height}
        context = browser.new_context(viewport=size, color_scheme=scheme, has_touch=touch)
        contexts.append(context)
        page = context.new_page()
        page.add_init_script(script)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: request.url == address or asked.append(request.url))
        page.goto(address)
        return page

    def expected(words):
        said[:] = [text for text in said if words not in text]

    visit.expected = expected
    yield visit
    for context in contexts:
        for page in context.pages:
            assert page.evaluate("window.injected") is None
        context.close()
    assert said == []
    allowed = r"http://127\.0\.0\.1:\d+/|blob:http://127|data:"
    assert [url for url in asked if not re.match(allowed, url)] == []


def until(page, expression, wanted=True):
    """Wait for what a script should answer; the page's policy forbids the eval that playwright's
    own wait uses."""
    end = time.monotonic() + PATIENCE
    while (got := page.evaluate(expression)) != wanted:
        assert time.monotonic() < end, f"{expression} stayed {got!r}, not {wanted!r}"
        page.wait_for_timeout(40)


def resting_box(page, selector):
    """The box of an element, once it has stayed in its place for some frames: pages scroll
    smoothly."""
    return page.evaluate(RESTING, selector)


def point_at(page, place, seen):
    """Move the mouse to ``place()`` again and again until ``seen`` is visible: a late redraw may
    hide a tip."""
    end = time.monotonic() + PATIENCE
    while True:
        x, y = place()
        page.mouse.move(x - 3, y)
        page.mouse.move(x, y)
        if seen.is_visible():
            return
        assert time.monotonic() < end, f"nothing was told of what lies at {x}, {y}"
        page.wait_for_timeout(40)
