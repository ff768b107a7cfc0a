"""Time and memory of a loss and its gradient in two processes that each score half of the anchors,
beside two that each score all; or of steps on proxies that two processes divide, beside one.

    python benchmarks/shared_loss.py                      # on a CPU; about five minutes
    python benchmarks/shared_loss.py --classes 1000000    # 12 GB; about five minutes

4,096 embeddings of 128 dimensions, four of a class, gathered over gloo. Each case runs in two
processes of its own, one thread each. Time is the processor's, the median of the rounds after the
first, of the slower process; memory is what its peak adds to what it held before.

Proxies of 512 dimensions meet batches of 128 rows; a tenth of them in each, by normalized softmax
and Adam.
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
from vicinal.losses import BatchAllTripletLoss, MultiSimilarityLoss, NormalizedSoftmaxLoss
from vicinal.losses.loss import share_anchors

LOSSES = {"batch-all": BatchAllTripletLoss, "multi-similarity": MultiSimilarityLoss}


def measured(options: argparse.Namespace) -> dict[str, float]:
    """Seconds and bytes of one process; it has done nothing before."""
    torch.set_num_threads(1)
    meeting = f"file://{options.folder}/meet"
    count = options.processes
    dist.init_process_group("gloo", init_method=meeting, rank=options.rank, world_size=count)
    if options.classes:
        return of_proxies(options)
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


def of_proxies(options: argparse.Namespace) -> dict[str, float]:
    """Seconds and bytes of steps on the proxies that this process has."""
    before = resident("VmRSS")
    loss = NormalizedSoftmaxLoss(options.classes, 512, divided=True, sampled=0.1)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3)
    rng = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    seconds = []
    for _ in range(options.rounds + 1):
        rows = torch.randn(128, 512, generator=rng)
        labels = torch.randint(options.classes, (128,), generator=rng)
        start = time.process_time()
        optimizer.zero_grad()
        value = loss(*parallel.gather(*map(parallel.part, (rows, labels))))
        value.backward()
        parallel.average_gradients(loss.parameters())
        optimizer.step()
        seconds.append(time.process_time() - start)
    peak = resident("VmHWM") - before
    dist.destroy_process_group()
    found = {"seconds": statistics.median(seconds[1:]), "bytes": peak}
    return found | {"value": float(value.detach())}


def of_all(options: argparse.Namespace, count: int, *words: str) -> dict[str, float]:
    """Run processes; return the larger of their seconds and bytes."""
    words = (*words, "--processes", str(count), "--rounds", str(options.rounds))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, *words, "--folder", folder]
        running = [
            subprocess.Popen([*command, "--rank", str(rank)], stdout=subprocess.PIPE, text=True)
            for rank in range(count)
        ]
        found = [json.loads(each.communicate()[0]) for each in running]
    return {name: max(each[name] for each in found) for name in found[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--classes", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--loss", choices=LOSSES)
    parser.add_argument("--share", action="store_true")
    parser.add_argument("--folder")
    parser.add_argument("--rank", type=int)
    options = parser.parse_args()
    if options.rank is not None:
        print(json.dumps(measured(options)))
        return
    if options.classes:
        for count in (1, 2):
            found = of_all(options, count, "--classes", str(options.classes))
            print(
                f"{options.classes:,} proxies in {count}: {found['seconds']:.2f} s a step, "
                f"{found['bytes'] / 2**30:.2f} GiB each, last loss {found['value']:.7f}"
            )
        return
    for loss in LOSSES:
        words = ("--loss", loss, "--batch", str(options.batch))
        whole = of_all(options, 2, *words)
        share = of_all(options, 2, *words, "--share")
        print(
            f"{loss}: all anchors {whole['seconds']:.2f} s, {whole['bytes'] / 2**20:.0f} MiB; "
            f"half {share['seconds']:.2f} s, {share['bytes'] / 2**20:.0f} MiB; ratios "
            f"{share['seconds'] / whole['seconds']:.2f} and {share['bytes'] / whole['bytes']:.2f}"
        )
    print(hardware())


if __name__ == "__main__":
    main()
