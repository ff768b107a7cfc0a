"""What the tests of pages in a real browser share: how it is started, and how to wait for what
comes late."""

import time
from contextlib import contextmanager

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
