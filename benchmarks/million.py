"""A large collection on a small machine: indexing, searching, deduplicating and mapping, with time
and memory of each.

    python benchmarks/million.py                # 1,000,000 x 512; about 8 GB of disk below --folder
    python benchmarks/million.py --rows 100000 --write
    python benchmarks/million.py --pictures         # a folder of 1,000,000 small pictures instead:
                                                    # start of training, embedding, evaluation

Each command is a process of its own, which may allocate at most 4 GiB (RLIMIT_DATA: what is mapped
from files does not count, for the system takes such pages back when it needs them). Resident memory
is the most that /proc reported.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from measuring import ROOT, provenance, write_between

DIM = 512
LIMIT = 4 * 2**30
COPIED = 100  # one row of so many is a near copy of another
MAP = """import sys
from vicinal.retrieval.collection import CollectionDirectory
from vicinal.retrieval.overview import collection_map

print(len(collection_map(CollectionDirectory.open(sys.argv[1]).snapshot()).ids), "points")
"""
START = """import sys, time
from vicinal.training.trainer import Trainer
begun = time.perf_counter()

def stop(self):
    print(f"training starts after {time.perf_counter() - begun:.1f} s, "
          f"{time.process_time():.1f} s of a processor", flush=True)
    raise SystemExit(0)

Trainer.train = stop
from vicinal.cli.main import run
run()
"""


class Cost(NamedTuple):
    seconds: float
    allocated: int
    resident: int
    output: str


def write_data(path: Path, rows: int, seed: int = 0) -> None:
    """Unit rows around class centers, fifty of a class; one of a hundred is a near copy of the row
    before."""
    import numpy as np

    rng = np.random.default_rng(seed)
    classes = max(4, rows // 50)
    centers = rng.standard_normal((classes, DIM), dtype=np.float32)
    labels = np.arange(rows) % classes
    features = np.empty((rows, DIM), np.float32)
    for start in range(0, rows, 10_000):
        part = centers[labels[start : start + 10_000]]
        part += rng.standard_normal(part.shape, dtype=np.float32)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
        copied = np.arange(COPIED, len(part), COPIED)
        part[copied] = part[copied - 1] + 0.001 * rng.standard_normal(
            (len(copied), DIM), dtype=np.float32
        )
        features[start : start + 10_000] = part
    np.savez(path, features=features, labels=labels)


def write_pictures(folder: Path, rows: int) -> None:
    """Small pictures of up to 1,000 classes, of each class one file under many names."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    classes = min(1000, rows // 10)
    for label in range(classes):
        place = folder / f"class{label:04d}"
        place.mkdir(parents=True)
        pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
        first = place / "0.jpg"
        Image.fromarray(pixels).save(first)
        for number in range(1, rows // classes):
            os.link(first, place / f"{number}.jpg")


def picture_steps(folder: Path, rows: int, vicinal: list[str]) -> dict[str, list[str]]:
    """Return the commands over a folder of pictures: what they hold is the first process's memory,
    not that of workers."""
    pictures = folder / "pictures"
    tiny = "transform.size=16 model.widths=[8] model.dim=64 training.steps=1 training.resident=off"
    small = ["train", "images_from_scratch", *tiny.split(), "evaluation.artifacts=false"]
    if not pictures.exists():
        write_pictures(folder / "few", 1000)
        made = [f"data={folder / 'few'}", "--run", str(folder / "run")]
        quiet: dict = {"cwd": ROOT, "stdout": subprocess.DEVNULL}
        subprocess.run([*vicinal, *small, *made], check=True, **quiet)
        write_pictures(pictures, rows)
        time.sleep(2)  # files of this second count as still being written
    start = [sys.executable, "-c", START, *small, f"data={pictures}", "--run"]
    embed = [*vicinal, "embed", str(folder / "run"), str(pictures), "--out"]
    scores = ["--data", str(folder / "ray"), "--split", "all", "--no-clustering"]
    return {
        "start": [*start, str(folder / "first")],
        "start again": [*start, str(folder / "second")],
        "embed": [*embed, str(folder / "embedded")],
        "embed on Ray": [*embed, str(folder / "ray"), "--ray", "2"],
        "evaluate": [*vicinal, "evaluate", str(folder / "run"), *scores],
    }


def measured(words: list[str]) -> Cost:
    """Run a command with its memory limited; an error ends the benchmark with the command's own
    words."""
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        limit = lambda: resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))  # noqa: E731
        child = subprocess.Popen(
            words, stdout=output, stderr=subprocess.STDOUT, preexec_fn=limit, cwd=ROOT
        )
        allocated = held = 0
        while child.poll() is None:
            try:
                fields = dict(
                    line.split(":")
                    for line in Path(f"/proc/{child.pid}/status").read_text().splitlines()
                )
                anonymous, peak = (
                    int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "VmHWM")
                )
                allocated = max(allocated, anonymous)
                held = max(held, peak)
            except (OSError, KeyError, ValueError):  # it has just ended
                pass
            time.sleep(0.05)
        output.seek(0)
        text = output.read()
    if child.returncode:
        sys.exit(f"{' '.join(words)} ended with {child.returncode}:\n{text[-3000:]}")
    return Cost(time.perf_counter() - start, allocated, held, text.strip())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="vectors in the collection")
    parser.add_argument(
        "--folder",
        type=Path,
        help="where to work; by default a temporary folder, removed afterwards",
    )
    parser.add_argument("--only", help="steps, with commas; by default all")
    parser.add_argument("--pictures", action="store_true", help="a folder of pictures instead")
    parser.add_argument(
        "--write", action="store_true", help="write the table into docs/benchmarks.md"
    )
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    load = os.getloadavg()[0]
    vicinal = [sys.executable, "-m", "vicinal"]
    run = folder / "run"
    data = folder / "data.npz"
    query = folder / "query.npz"
    if not run.exists() and not options.pictures:
        write_data(data, options.rows)
        write_data(folder / "small.npz", 2000, seed=1)
        write_data(query, 200, seed=2)
        small = [
            f"data={folder / 'small.npz'}",
            f"model.dim={DIM}",
            "training.steps=2",
            "--run",
            str(run),
        ]
        subprocess.run(
            [*vicinal, "train", "features", *small], check=True, cwd=ROOT, stdout=subprocess.DEVNULL
        )
    steps = {
        "index": [*vicinal, "index", str(run), str(data)],
        "search": [*vicinal, "search", str(run), str(query), "--k", "10"],
        "search a label": [
            *vicinal,
            "search",
            str(run),
            str(query),
            "--k",
            "10",
            "--where",
            "label=1",
        ],
        "dedupe": [*vicinal, "dedupe", str(run), "--embeddings", "--distance", "0.1"],
        "map": [sys.executable, "-c", MAP, str(run / "collection")],
    }
    what = f"{options.rows:,} x {DIM}"
    if options.pictures:
        steps = picture_steps(folder, options.rows, vicinal)
        what = f"{options.rows:,} pictures"
    lines = [
        f"| {what} | time | allocated | resident, with mapped files | |",
        "|---|---|---|---|---|",
    ]
    for name in options.only.split(",") if options.only else steps:
        cost = measured(steps[name])
        said = next(
            (
                line
                for line in cost.output.splitlines()[::-1]
                if any(
                    word in line for word in ("groups:", "points", "training starts", "embeddings:")
                )
            ),
            "",
        )
        lines.append(
            f"| {name} | {cost.seconds:.0f} s | {cost.allocated / 2**20:,.0f} MiB | "
            f"{cost.resident / 2**20:,.0f} MiB "
            f"| {said.strip()} |"
        )
        print(lines[-1], flush=True)
    note = (
        f"`python benchmarks/million.py` on {provenance(('torch', 'numpy'))}; load average "
        f"before {load:.1f}."
    )
    text = "\n".join([*lines, "", note])
    print(text)
    if options.write:
        write_between(ROOT / "docs" / "benchmarks.md", "million", text)
    if options.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
