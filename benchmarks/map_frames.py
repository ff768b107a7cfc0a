"""Measure the map of `vicinal serve` in headless Chromium: frames a second and milliseconds of
script for each frame.

The same page zooms with WebGL and with the plain canvas that it falls back to. Chromium has no GPU
here: SwiftShader plays it on the CPU, so frames a second are a lower bound, and the time of scripts
is what the page is answerable for.

    python benchmarks/map_frames.py --points 100000
"""

import argparse
import tempfile
import threading
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import uvicorn
from playwright.sync_api import sync_playwright

from vicinal.retrieval.collection import CollectionDirectory, Snapshot, publish
from vicinal.retrieval.items import Item
from vicinal.retrieval.library import Library
from vicinal.retrieval.overview import CollectionMap
from vicinal.retrieval.serve.server import bind, create_application
from vicinal.run_directory import RunDirectory

CLASSES = 200
COUNTING = """window.spent = 0; window.frames = 0;
const before = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = (act) => before((time) => {
  const start = performance.now();
  act(time);
  window.spent += performance.now() - start;
  window.frames++;
});"""
NO_WEBGL = """const context = HTMLCanvasElement.prototype.getContext;
HTMLCanvasElement.prototype.getContext = function (kind, ...more) {
  return kind === "webgl2" ? null : context.call(this, kind, ...more);
};"""
ZOOMING = """async (count) => {
  const canvas = document.getElementById("map-canvas"), box = canvas.getBoundingClientRect();
  window.spent = window.frames = 0;
  const start = performance.now();
  for (let i = 0; i < count; i++) {
    canvas.dispatchEvent(new WheelEvent("wheel", { ctrlKey: true, deltaY: -1, cancelable: true,
      clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 }));
    await new Promise((resolve) => requestAnimationFrame(resolve));
  }
  return [1000 * count / (performance.now() - start), window.spent / count];
}"""


def laid_out(snapshot: Snapshot) -> CollectionMap:
    rng = np.random.default_rng(0)
    ids = np.arange(len(snapshot))
    places = rng.random((CLASSES, 2))[ids % CLASSES] + 0.03 * rng.normal(size=(len(ids), 2))
    return CollectionMap(ids, places.astype(np.float32))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--points", type=int, default=100_000)
    arguments.add_argument("--chromium", default="/usr/bin/chromium")
    given = arguments.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        bind("127.0.0.1", 0) as bound,
        sync_playwright() as playwright,
    ):
        run = RunDirectory.create(Path(folder) / "run")
        run.write_info({"name": "map"})
        items = [Item(i, f"{i}.png", f"class {i % CLASSES}") for i in range(given.points)]
        publish(run.path / "collection", items, np.zeros((given.points, 2), np.float32), dim=2)
        library = Library(run, CollectionDirectory.of(run), Mock(kind="features"), layout=laid_out)
        server = uvicorn.Server(
            uvicorn.Config(create_application(library), log_level="critical", ws="none")
        )
        threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True).start()
        browser = playwright.chromium.launch(
            executable_path=given.chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        print(f"{given.points} points, 1280 x 900, software GL\nmap      frames/s  script ms/frame")
        for name, script, frames in (("WebGL", "", 30), ("canvas", NO_WEBGL, 4)):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.add_init_script(COUNTING + script)
            page.goto(f"http://127.0.0.1:{bound.getsockname()[1]}/")
            while not page.evaluate("document.getElementById('map-waiting').hidden"):
                page.wait_for_timeout(200)
            page.wait_for_timeout(3000)
            rate, spent = page.evaluate(ZOOMING, frames)
            print(f"{name:8} {rate:8.1f}  {spent:15.2f}", flush=True)
            page.close()
        server.should_exit = True


if __name__ == "__main__":
    main()
