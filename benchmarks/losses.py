"""Losses beside pytorch-metric-learning: values, gradients, time and memory, forward and backward.

    python benchmarks/losses.py                  # prints the table; about 5 minutes on 2 cores
    python benchmarks/losses.py --write          # and writes it into docs/benchmarks.md
    python benchmarks/losses.py --gpu            # the GPU case alone, on a machine that has one

Random unit vectors, D = 128, float32, margin 0.2, mean over non-zero terms. Times are taken
alternately in one process with the same threads; the table gives the median ratio and its range
over rounds. Memory is the growth of the peak resident set over what was resident before the call,
each in a fresh process after a small warm-up call.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable

from measuring import ROOT, alternate, provenance, resident, timed, verdict, write_between

DOCUMENT = ROOT / "docs" / "benchmarks.md"
MARGIN = 0.2
DIM = 128
BATCH_ALL = [
    (512, 4, 20.0),
    (1024, 4, 90.0),
    (1024, 32, 100.0),
]  # rows, per class, how many times faster at least
MEMORY_CASE = (1024, 4)
MEMORY_BAR = 20
LARGE = (8192, 8)
LARGE_SECONDS = 6.0
LARGE_BYTES = 2**31
GPU = (4096, 4)
GPU_SECONDS = 0.025
GPU_BYTES = 2**30


def batch(rows: int, per_class: int, device: str = "cpu"):
    import torch

    rng = torch.Generator().manual_seed(0)
    embeddings = torch.nn.functional.normalize(torch.randn(rows, DIM, generator=rng), dim=1)
    return embeddings.to(device), (torch.arange(rows) // per_class).to(device)


def ours(kind: str) -> Callable:
    from vicinal import losses

    return {
        "batch_all": lambda: losses.BatchAllTripletLoss(
            margin=MARGIN, squared=False, normalize=True
        ),
        "semi_hard": lambda: losses.SemiHardTripletLoss(
            margin=MARGIN, squared=False, normalize=True
        ),
        "multi_similarity": lambda: losses.MultiSimilarityLoss(
            alpha=2.0, beta=50.0, base=0.5, epsilon=0.1
        ),
    }[kind]()


def theirs(kind: str) -> Callable:
    from pytorch_metric_learning import losses, miners

    if kind == "batch_all":
        return losses.TripletMarginLoss(margin=MARGIN)
    if kind == "semi_hard":
        loss = losses.TripletMarginLoss(margin=MARGIN)
        miner = miners.TripletMarginMiner(MARGIN, "semihard")
    else:
        loss = losses.MultiSimilarityLoss(2, 50, 0.5)
        miner = miners.MultiSimilarityMiner(0.1)
    return lambda embeddings, labels: loss(embeddings, labels, miner(embeddings, labels))


def step(loss: Callable, embeddings, labels):
    """Value and gradient of one forward and backward pass."""
    leaf = embeddings.detach().requires_grad_()
    value = loss(leaf, labels)
    value.backward()
    return value.detach(), leaf.grad


def compare(kind: str, rows: int, per_class: int, rounds: int) -> dict[str, float]:
    import torch

    embeddings, labels = batch(rows, per_class)
    mine = ours(kind)
    peer = theirs(kind)
    (value, gradient), (their_value, their_gradient) = (
        step(mine, embeddings, labels),
        step(peer, embeddings, labels),
    )
    found = alternate(
        lambda: step(mine, embeddings, labels),
        lambda: step(peer, embeddings, labels),
        rounds,
        inner=5,
    )
    return found._asdict() | {
        "value_error": float((value - their_value).abs() / their_value.abs()),
        "gradient_error": float(
            torch.linalg.norm(gradient - their_gradient) / torch.linalg.norm(their_gradient)
        ),
    }


def measure_memory(contestant: str, rows: int, per_class: int) -> dict[str, float]:
    loss = (ours if contestant == "vicinal" else theirs)("batch_all")
    step(loss, *batch(16, 4))
    embeddings, labels = batch(rows, per_class)
    before = resident("VmRSS")
    seconds = timed(lambda: step(loss, embeddings, labels))
    return {"bytes": resident("VmHWM") - before, "seconds": seconds}


def in_fresh_process(contestant: str, case: tuple[int, int], threads: int) -> dict[str, float]:
    words = ["--memory", contestant, *map(str, case), "--threads", str(threads)]
    done = subprocess.run(
        [sys.executable, __file__, *words], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def table(rounds: int, threads: int) -> str:
    load = os.getloadavg()[0]
    lines = ["| case | vicinal | pytorch-metric-learning | bar | |", "|---|---|---|---|---|"]
    cases = [("batch_all", *case) for case in BATCH_ALL]
    cases += [("semi_hard", 1024, 4, 20.0), ("multi_similarity", 1024, 4, 2.0)]
    titles = {
        "batch_all": "batch-all triplet",
        "semi_hard": "semi-hard triplet",
        "multi_similarity": "multi-similarity with miner",
    }
    for kind, rows, per_class, bar in cases:
        found = compare(kind, rows, per_class, rounds)
        spread = (
            f"{found['ratio']:.0f}x ({found['least']:.0f} to {found['most']:.0f} in {rounds} "
            "rounds)"
        )
        errors = (
            f"value differs by {found['value_error']:.0e}, gradient by "
            f"{found['gradient_error']:.0e}"
        )
        lines.append(
            row(
                f"{titles[kind]}, B = {rows}, K = {per_class}",
                f"{found['ours'] * 1e3:.1f} ms",
                f"{found['theirs'] * 1e3:.0f} ms",
                f"{bar:.0f}x faster",
                f"{verdict(found['ratio'] >= bar)}: {spread}; {errors}",
            )
        )
    mine, peer = (in_fresh_process(name, MEMORY_CASE, threads) for name in ("vicinal", "peer"))
    share = peer["bytes"] / max(mine["bytes"], 1)
    lines.append(
        row(
            f"batch-all triplet, B = {MEMORY_CASE[0]}, K = {MEMORY_CASE[1]}: extra memory",
            mib(mine["bytes"]),
            mib(peer["bytes"]),
            f"1/{MEMORY_BAR}",
            f"{verdict(share >= MEMORY_BAR)}: 1/{share:.0f}",
        )
    )
    large = in_fresh_process("vicinal", LARGE, threads)
    lines.append(
        row(
            f"batch-all triplet, B = {LARGE[0]}, K = {LARGE[1]}",
            f"{large['seconds']:.1f} s, {mib(large['bytes'])}",
            "cannot",
            f"{LARGE_SECONDS:.0f} s and {mib(LARGE_BYTES)}",
            verdict(large["seconds"] < LARGE_SECONDS and large["bytes"] < LARGE_BYTES),
        )
    )
    where = provenance(("torch", "pytorch-metric-learning"))
    command = f"python benchmarks/losses.py --write --rounds {rounds} --threads {threads}"
    return "\n".join(
        [
            *lines,
            "",
            f"`{command}` on {where}; {threads} threads; load average before the run {load:.1f}.",
        ]
    )


def gpu_row(rounds: int = 20) -> str:
    import torch

    loss = ours("batch_all")
    (embeddings, labels) = batch(*GPU, device="cuda")
    for _ in range(3):
        step(loss, embeddings, labels)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()

    def run() -> None:
        step(loss, embeddings, labels)
        torch.cuda.synchronize()

    seconds = timed(run, rounds)
    grown = torch.cuda.max_memory_allocated() - before
    return row(
        f"batch-all triplet on the GPU, B = {GPU[0]}, K = {GPU[1]}",
        f"{seconds * 1e3:.1f} ms, {mib(grown)}",
        "",
        f"{GPU_SECONDS * 1e3:.0f} ms and {mib(GPU_BYTES)}",
        f"{verdict(seconds < GPU_SECONDS and grown < GPU_BYTES)} ({torch.cuda.get_device_name()}, "
        f"{torch.__version__})",
    )


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def mib(size: float) -> str:
    return f"{size / 2**20:,.0f} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7, help="how often both are timed")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of torch")
    parser.add_argument(
        "--gpu", action="store_true", help="measure the GPU case alone and print its row"
    )
    parser.add_argument(
        "--write", action="store_true", help="write the table into docs/benchmarks.md"
    )
    parser.add_argument(
        "--memory", nargs=3, metavar=("CONTESTANT", "B", "K"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()

    import torch

    torch.set_num_threads(options.threads)
    if options.memory:
        contestant, rows, per_class = options.memory
        print(json.dumps(measure_memory(contestant, int(rows), int(per_class))))
        return
    text = gpu_row() if options.gpu else table(options.rounds, options.threads)
    print(text)
    if options.write:
        write_between(DOCUMENT, "losses_gpu" if options.gpu else "losses", text)


if __name__ == "__main__":
    main()
