"""Time and memory of a loss and its gradient in two processes that each score half of the anchors,
beside two that each score all.

    python benchmarks/shared_loss.py                # on a CPU; about five minutes

4,096 embeddings of 128 dimensions, four of a class, gathered over gloo. Each case runs in two
processes of its own, one thread each. Time is the processor's, the median of the rounds after the
first, of the slower process; memory is what its peak adds to what it held before.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

from measuring import hardware, resident
from vicinal import parallel
from vicinal.losses import BatchAllTripletLoss, MultiSimilarityLoss
from vicinal.losses.loss import share_anchors

LOSSES = {"batch-all": BatchAllTripletLoss, "multi-similarity": MultiSimilarityLoss}


def measured(options: argparse.Namespace) -> dict[str, float]:
    """Seconds and bytes of one process; it has done nothing before."""
    torch.set_num_threads(1)
    meeting = f"file://{options.folder}/meet"
    dist.init_process_group("gloo", init_method=meeting, rank=options.rank, world_size=2)
    loss = LOSSES[options.loss]()
    if options.share:
        share_anchors(loss)
    rng = torch.Generator().manual_seed(0)
    labels = torch.arange(options.batch) // 4
    rows = parallel.part(torch.randn(options.batch, 128, generator=rng)).requires_grad_()

    def step(count: int) -> None:
        own = rows[:count]
        gathered, classes = parallel.gather(own, parallel.part(labels)[:count])
        torch.autograd.grad(loss(gathered, classes), rows)

    step(64)
    before = resident("VmRSS")
    seconds = []
    for _ in range(options.rounds + 1):
        start = time.process_time()
        step(len(rows))
        seconds.append(time.process_time() - start)
    peak = resident("VmHWM") - before
    dist.destroy_process_group()
    return {"seconds": statistics.median(seconds[1:]), "bytes": peak}


def of_two(options: argparse.Namespace, loss: str, share: bool) -> dict[str, float]:
    """Run two processes; return the larger of their seconds and bytes."""
    words = ["--loss", loss, "--batch", str(options.batch), "--rounds", str(options.rounds)]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, *words, "--folder", folder]
        command += ["--share"] if share else []
        running = [
            subprocess.Popen([*command, "--rank", str(rank)], stdout=subprocess.PIPE, text=True)
            for rank in range(2)
        ]
        found = [json.loads(each.communicate()[0]) for each in running]
    return {name: max(each[name] for each in found) for name in found[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--loss", choices=LOSSES)
    parser.add_argument("--share", action="store_true")
    parser.add_argument("--folder")
    parser.add_argument("--rank", type=int)
    options = parser.parse_args()
    if options.rank is not None:
        print(json.dumps(measured(options)))
        return
    for loss in LOSSES:
        whole, share = (of_two(options, loss, each) for each in (False, True))
        print(
            f"{loss}: all anchors {whole['seconds']:.2f} s, {whole['bytes'] / 2**20:.0f} MiB; "
            f"half {share['seconds']:.2f} s, {share['bytes'] / 2**20:.0f} MiB; ratios "
            f"{share['seconds'] / whole['seconds']:.2f} and {share['bytes'] / whole['bytes']:.2f}"
        )
    print(hardware())


if __name__ == "__main__":
    main()
