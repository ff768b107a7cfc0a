"""Evaluation beside pytorch-metric-learning's AccuracyCalculator: values, time and memory.

    python benchmarks/evaluation.py                  # prints the table; about 10 minutes on 2 cores
    python benchmarks/evaluation.py --write          # and writes it into docs/benchmarks.md
    python benchmarks/evaluation.py --no-large       # without the size of Stanford Online Products

Times are taken alternately in one process with the same threads: one round times both, the ratio is
taken within the round, and the table gives the median and the range over rounds. Memory is the
growth of the peak resident set over what was resident before the call, each in a fresh process
after a small warm-up call.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from measuring import ROOT, provenance, resident, verdict, write_between

DOCUMENT = ROOT / "docs" / "benchmarks.md"
SMALL = {"rows": 10_000, "dim": 128, "classes": 2_500}
LARGE = {"rows": 60_502, "dim": 512, "classes": 11_316}  # Stanford Online Products' test part
NAMES = {
    "precision_at_1": "recall@1",
    "mean_average_precision_at_r": "map@r",
    "r_precision": "r_precision",
}


def data(rows: int, dim: int, classes: int, seed: int = 0):
    """Unit rows around class centers, each class of about the same size; no two rows equal."""
    import torch

    rng = torch.Generator().manual_seed(seed)
    labels = torch.arange(rows) % classes
    noise = torch.randn(rows, dim, generator=rng)
    embeddings = torch.randn(classes, dim, generator=rng)[labels] + 1.7 * noise
    return torch.nn.functional.normalize(embeddings, dim=1), labels


def ours(recalls: tuple[int, ...] = (1,)) -> Callable:
    from vicinal.evaluation import evaluate

    return lambda rows, labels: evaluate(rows, labels, recalls=recalls, clustering=False)


def theirs(k: str | None) -> Callable:
    import torch
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    calculator = AccuracyCalculator(include=tuple(NAMES), k=k, device=torch.device("cpu"))

    def score(rows, labels):
        found = calculator.get_accuracy(rows, labels)
        return {name: found[their] for their, name in NAMES.items()}

    return score


CONTESTANTS = {
    "vicinal": ours,
    "best": lambda: theirs("max_bin_count"),
    "default": lambda: theirs(None),
    "large": lambda: ours((1, 10, 100, 1000)),
}


def timed(function: Callable, *arguments) -> tuple[float, dict[str, float]]:
    start = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - start, result


def compare_times(rounds: int) -> dict[str, float]:
    """Alternate the two; the first round warms up and is thrown away."""
    rows, labels = data(**SMALL)
    mine = CONTESTANTS["vicinal"]()
    peer = CONTESTANTS["best"]()
    seconds = []
    for _ in range(rounds + 1):
        (our_time, our_scores), (their_time, their_scores) = (
            timed(mine, rows, labels),
            timed(peer, rows, labels),
        )
        seconds.append((our_time, their_time))
    seconds = seconds[1:]
    ratios = [our_time / their_time for our_time, their_time in seconds]
    return {
        "ours": statistics.median(our_time for our_time, _ in seconds),
        "theirs": statistics.median(their_time for _, their_time in seconds),
        "ratio": statistics.median(ratios),
        "least": min(ratios),
        "most": max(ratios),
        "difference": max(abs(our_scores[name] - their_scores[name]) for name in their_scores),
        "map@r": our_scores["map@r"],
    }


def compare_clustering() -> dict[str, float]:
    """NMI and AMI of the same assignment, theirs as their calculator takes them."""
    import torch
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    from vicinal.evaluation import clustering_scores, kmeans

    rows, labels = data(**SMALL)
    rows = rows[labels < 500]
    labels = labels[labels < 500]
    assigned = kmeans(rows, 500, seed=0, restarts=1)
    calculator = AccuracyCalculator(
        include=("NMI", "AMI"), kmeans_func=lambda *_: assigned, device=torch.device("cpu")
    )
    our_time, our_scores = timed(clustering_scores, labels, assigned)
    their_time, their_scores = timed(calculator.get_accuracy, rows, labels)
    difference = max(abs(our_scores[name.lower()] - their_scores[name]) for name in ("NMI", "AMI"))
    return {"ours": our_time, "theirs": their_time, "difference": difference}


def measure_memory(contestant: str, folder: Path) -> dict[str, float]:
    """In this process, which does nothing else: growth of the peak resident set, and the time."""
    import numpy as np
    import torch

    score = CONTESTANTS[contestant]()
    score(*data(rows=200, dim=8, classes=50))  # load and initialize what a first call loads
    # Read, not drawn: the allocator would keep the memory of the drawing and hide what the call
    # takes.
    rows, labels = (
        torch.from_numpy(np.load(folder / f"{name}.npy")) for name in ("rows", "labels")
    )
    before = resident("VmRSS")
    worked = time.process_time()
    seconds, scores = timed(score, rows, labels)
    worked = time.process_time() - worked
    return {"bytes": resident("VmHWM") - before, "seconds": seconds, "worked": worked, **scores}


def in_fresh_process(contestant: str, threads: int) -> dict[str, float]:
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        rows, labels = data(**(LARGE if contestant == "large" else SMALL))
        np.save(Path(folder) / "rows.npy", rows.numpy())
        np.save(Path(folder) / "labels.npy", labels.numpy())
        command = [
            sys.executable,
            __file__,
            "--memory",
            contestant,
            folder,
            "--threads",
            str(threads),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def table(rounds: int, threads: int, large: bool) -> str:
    load = os.getloadavg()[0]
    times = compare_times(rounds)
    clustering = compare_clustering()
    mine, best, default = (
        in_fresh_process(name, threads) for name in ("vicinal", "best", "default")
    )
    mib = 2**20
    size = f"{SMALL['rows']:,} x {SMALL['dim']}, {SMALL['classes']:,} classes"
    lines = [
        "| case | measure | vicinal | pytorch-metric-learning | bar | |",
        "|---|---|---|---|---|---|",
        f"| {size}: P@1, MAP@R, R-precision | values | MAP@R {times['map@r']:.4f} "
        f"| largest difference {times['difference']:.1e} | 1e-6 | "
        f"{verdict(times['difference'] <= 1e-6)} |",
        f"| | time | {times['ours']:.2f} s | {times['theirs']:.2f} s with its best `k` | less "
        f"| {verdict(times['most'] < 1)}: ratio {times['ratio']:.2f} ({times['least']:.2f} to "
        f"{times['most']:.2f} "
        f"in {rounds} rounds) |",
        f"| | peak memory | {mine['bytes'] / mib:,.0f} MiB | {default['bytes'] / mib:,.0f} MiB by "
        "default, "
        f"{best['bytes'] / mib:,.0f} MiB with its best `k` | 1/20 of its default "
        f"| {verdict(20 * mine['bytes'] <= default['bytes'])}: "
        f"1/{default['bytes'] / mine['bytes']:.0f} |",
        "| NMI and AMI of one assignment, 2,000 rows in 500 clusters | values | | largest "
        "difference "
        f"{clustering['difference']:.1e} | 1e-6 | {verdict(clustering['difference'] <= 1e-6)} |",
        f"| | time | {clustering['ours'] * 1e3:.1f} ms | {clustering['theirs'] * 1e3:.0f} ms | | |",
    ]
    if large:
        found = in_fresh_process("large", threads)
        lines += [
            f"| {LARGE['rows']:,} x {LARGE['dim']}, {LARGE['classes']:,} classes: R@1, 10, 100, "
            "1000, MAP@R "
            f"| peak memory | {found['bytes'] / mib:,.0f} MiB | | 2,048 MiB | "
            f"{verdict(found['bytes'] <= 2**31)} |",
            f"| | time | {found['seconds']:.0f} s ({found['worked']:.0f} s of processor time) | | "
            "| |",
        ]
    notes = [
        "",
        f"`python benchmarks/evaluation.py --write --rounds {rounds} --threads {threads}` on "
        f"{provenance(('torch', 'faiss-cpu', 'pytorch-metric-learning', 'numpy'))}; {threads} "
        "threads; seed 0; "
        f"load average before the run {load:.1f}.",
    ]
    return "\n".join(lines + notes)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9, help="how often both are timed")
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count(), help="threads of torch and of faiss"
    )
    parser.add_argument("--no-large", action="store_true", help="leave the large size out")
    parser.add_argument(
        "--write", action="store_true", help="write the table into docs/benchmarks.md"
    )
    parser.add_argument(
        "--memory", nargs=2, metavar=("CONTESTANT", "FOLDER"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()

    import faiss
    import torch

    torch.set_num_threads(options.threads)
    faiss.omp_set_num_threads(options.threads)
    if options.memory:
        print(json.dumps(measure_memory(options.memory[0], Path(options.memory[1]))))
        return
    text = table(options.rounds, options.threads, not options.no_large)
    print(text)
    if options.write:
        write_between(DOCUMENT, "evaluation", text)


if __name__ == "__main__":
    main()
