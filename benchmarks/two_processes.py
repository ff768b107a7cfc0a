"""Evaluating and embedding in two processes beside one, with one thread each.

    python benchmarks/two_processes.py             # about 15 minutes on 2 quiet cores
    python benchmarks/two_processes.py --rows 6000 --pictures 2000

Evaluation is of 60,502 x 512 (Stanford Online Products' test part), embedding of 20,000 small
pictures. From each time that of the same command over a few rows is taken away: the start, in which
every process imports torch. Scores must be equal to the last digit. The processor time of two
processes beyond that of one is what both do, or what they cost each other by sharing memory; a time
beyond half of it is waiting.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring import ROOT, hardware, verdict
from million import write_pictures

BAR = 1.8


def seconds(words: list[str]) -> tuple[float, float, str]:
    """Run a command; return its time, the processor's, and what it printed."""
    start = time.perf_counter()
    before = os.times()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    after = os.times()
    spent = after.children_user + after.children_system
    spent -= before.children_user + before.children_system
    return time.perf_counter() - start, spent, done.stdout


def main() -> None:
    import numpy as np

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=60_502)
    parser.add_argument("--pictures", type=int, default=20_000)
    options = parser.parse_args()
    vicinal = [sys.executable, "-m", "vicinal"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rng = np.random.default_rng(0)
        sizes = {"few": 400, "many": options.rows}
        for part, rows in sizes.items():
            labels = np.arange(rows) % max(2, rows // 5)
            centers = rng.standard_normal((labels.max() + 1, 512), dtype=np.float32)
            noise = rng.standard_normal((rows, 512), dtype=np.float32)
            np.savez(folder / f"{part}.npz", features=centers[labels] + 1.7 * noise, labels=labels)
        write_pictures(folder / "pictures few", 200)
        write_pictures(folder / "pictures many", options.pictures)
        numbers = ["features", f"data={folder / 'few.npz'}", "model.dim=512", "training.steps=1"]
        tiny = ["images_from_scratch", f"data={folder / 'pictures few'}", "transform.size=32"]
        for run, words in (("run", numbers), ("shown", [*tiny, "training.steps=1"])):
            seconds([*vicinal, "train", *words, "--run", str(folder / run)])

        def evaluate(part: str, processes: int) -> tuple[float, float, str]:
            words = ["--data", str(folder / f"{part}.npz"), "--split", "all", "--no-clustering"]
            more = ["--json", "--processes", str(processes)]
            return seconds([*vicinal, "evaluate", str(folder / "run"), *words, *more])

        def embed(part: str, processes: int) -> tuple[float, float, str]:
            data, out = folder / f"pictures {part}", folder / f"out {part} {processes}"
            words = [str(folder / "shown"), str(data), "--out", str(out)]
            return *seconds([*vicinal, "embed", *words, "--processes", str(processes)])[:2], ""

        print(hardware())
        for title, command in (("evaluate", evaluate), ("embed", embed)):
            took, said = {}, {}
            for processes in (1, 2):
                start, spent, _ = command("few", processes)
                whole, every, said[processes] = command("many", processes)
                took[processes] = whole - start
                print(
                    f"{title}, {processes} processes: {whole:.1f} s, {start:.1f} s to start; "
                    f"{every - spent:.1f} s of processors after it"
                )
            ratio = took[1] / took[2]
            equal = "equal" if said[1] == said[2] else "**other**"
            print(f"{title}: {ratio:.2f} times as fast, {verdict(ratio >= BAR)}; {equal} digits")


if __name__ == "__main__":
    main()
