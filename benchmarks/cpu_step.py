"""A fine-tuning step on a CPU beside a plain loop over the same network.

    python benchmarks/cpu_step.py --write  # EfficientNet-Lite0, 64 pictures; about 5 minutes

Random pictures of 224 pixels, AdamW, float32. Ours is what the trainer takes with the preset
``images``: multi-similarity, frozen norms folded into the convolutions, channels last. "Channels
first" is the same step without the last. The plain loop is what a user writes: the network with its
norms trained, a linear classifier, cross-entropy. All keep the memory that they free, as runs on a
CPU do. Processor time, alternately; the first round warms up.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from measuring import ROOT, provenance, verdict, write_between
from steps import ready
from vicinal.data.records import Batch
from vicinal.losses import MultiSimilarityLoss
from vicinal.methods import Plain
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import EfficientNetLite, Embedder
from vicinal.parallel import keep_memory

CLASSES = 16
BARS = {"channels first": 2.0, "plain loop": 1.5}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_memory()
    images = torch.randn(options.pictures, 3, 224, 224)
    labels = torch.arange(options.pictures) % CLASSES
    last = images.contiguous(memory_format=torch.channels_last)
    turns = {
        "ours": ours(last, labels, torch.channels_last),
        "channels first": ours(images, labels, torch.contiguous_format),
        "plain loop": plain(images, labels),
    }
    seconds: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(options.rounds + 1):
        for name, step in turns.items():
            start = time.process_time()
            step()
            seconds[name].append(time.process_time() - start)
    mine = seconds.pop("ours")[1:]
    table = (
        "| step | processor time | over ours | bar |\n|---|---|---|---|\n"
        f"| ours | {statistics.median(mine):.1f} s | | |"
    )
    for name, taken in seconds.items():
        ratios = [other / own for other, own in zip(taken[1:], mine, strict=True)]
        ratio = statistics.median(ratios)
        table += (
            f"\n| {name} | {statistics.median(taken[1:]):.1f} s | {ratio:.1f} ({min(ratios):.1f} "
            f"to {max(ratios):.1f} in {options.rounds} rounds) | {BARS[name]:g}: "
            f"{verdict(ratio >= BARS[name])} |"
        )
    command = f"python benchmarks/cpu_step.py --rounds {options.rounds}"
    table += (
        f"\n\n`{command} --pictures {options.pictures} --threads {options.threads} --write` on "
        f"{provenance(('torch',))}."
    )
    print(table)
    if options.write:
        write_between(ROOT / "docs" / "benchmarks.md", "cpu_step", table)


def ours(
    images: torch.Tensor, labels: torch.Tensor, layout: torch.memory_format
) -> Callable[[], object]:
    torch.manual_seed(0)
    _, take = ready(
        Plain(),
        Embedder(EfficientNetLite(freeze_norm=True), 512, pooling="generalized").to(
            memory_format=layout
        ),
        MultiSimilarityLoss(),
        torch.device("cpu"),
        optimizer=OptimizerConfig(learning_rate=1e-6),
    )
    batch = Batch(images, labels, torch.arange(len(images)))
    return lambda: take(batch)


def plain(images: torch.Tensor, labels: torch.Tensor) -> Callable[[], object]:
    torch.manual_seed(0)
    network = nn.ModuleList([EfficientNetLite(), nn.Linear(1280, CLASSES)]).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-6)

    def step() -> None:
        logits = network[1](network[0](images).mean(dim=(2, 3)))
        loss = functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    main()
