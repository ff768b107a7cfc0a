"""Embedding that is killed in the middle: no row may be lost or doubled, and scores stay the same.

    python benchmarks/kills.py --times 20            # the process itself, killed at random
    python benchmarks/kills.py --times 20 --ray      # a worker of a Ray cluster, then the driver

Each round kills once by SIGKILL; a killed command is given again. Every row, vector and score is
then held against an embedding that nobody disturbed.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring import ROOT

ROWS = 4_000


def write_pictures(folder: Path) -> None:
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    for row in range(ROWS):
        file = folder / f"class {row % 40}" / f"{row}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(file)


def ray_workers() -> list[int]:
    """Return the processes of workers that embed."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes()
        except (OSError, ValueError):
            continue
        if words.startswith(b"ray::MapWorker"):
            found.append(int(folder.name))
    return found


def held(folder: Path):
    """Return names, vectors and scores of a folder of embeddings."""
    from vicinal.data import open_path
    from vicinal.evaluation import evaluate

    records = open_path(folder).load()
    scores = evaluate(records.source.features, records.labels)
    return records.names(), records.source.features, dict(scores)


def main() -> None:
    import numpy as np

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--ray", action="store_true")
    options = parser.parse_args()
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pictures(folder / "pictures")
        vicinal = [sys.executable, "-m", "vicinal"]
        run = folder / "run"
        words = [
            "train",
            "images_from_scratch",
            f"data={folder / 'pictures'}",
            "transform.size=64",
            "training.steps=1",
            "evaluation.artifacts=false",
            "--run",
            str(run),
        ]
        quiet = {"cwd": ROOT, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([*vicinal, *words], check=True, **quiet)
        embed = [*vicinal, "embed", str(run), str(folder / "pictures"), "--out"]
        subprocess.run([*embed, str(folder / "whole")], check=True, **quiet)
        names, vectors, scores = held(folder / "whole")
        cases = ["process"]
        if options.ray:
            import ray

            started = ray.init(include_dashboard=False, log_to_driver=False)
            os.environ["RAY_ADDRESS"] = started.address_info["address"]
            embed[-1:-1] = ["--ray", "2"]
            cases = ["worker", "driver"]
        for case in cases:
            interrupted = 0
            for number in range(options.times):
                out = folder / f"{case}{number}"
                child = subprocess.Popen([*embed, str(out)], **quiet)
                # kill when a random number of the shards is there
                wanted = rng.randrange(14)
                while child.poll() is None and len([*out.glob("part-*")]) < wanted + 1:
                    time.sleep(0.02)
                there = len([*out.glob("part-*")])
                victims = ray_workers() if case == "worker" else [child.pid]
                if child.poll() is None and victims:
                    os.kill(rng.choice(victims), signal.SIGKILL)
                    interrupted += 1
                code = child.wait()
                if case == "worker":
                    assert code == 0, f"round {number}: the command ended with {code}"
                else:
                    subprocess.run([*embed, str(out)], check=True, **quiet)
                now, found, measured = held(out)
                lost, doubled = len({*names} - {*now}), len(now) - len({*now})
                apart = float(np.abs(found - vectors).max()) if now == names else None
                print(
                    f"{case} {number}: killed at {there} of 16 shards; {lost} rows lost, {doubled} "
                    f"doubled, vectors within {apart}",
                    flush=True,
                )
                assert now == names and apart < 1e-6, "rows or vectors differ"
                assert all(abs(measured[it] - scores[it]) < 1e-12 for it in scores), measured
            print(f"{case}: killed in {interrupted} of {options.times} rounds; all rows and scores")


if __name__ == "__main__":
    main()
