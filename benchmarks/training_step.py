"""A training step on a GPU: its time, and what of it is not forward, backward or optimizer.

    python benchmarks/training_step.py  # EfficientNet-Lite0, captured; about 1 minute
    python benchmarks/training_step.py --how compiled    # captured and compiled; about 3 minutes
    python benchmarks/training_step.py --how eager       # neither

As many random images as CUB-200-2011 has, 256 pixels a side, on the device; batches of 128 with
random crops of 224 pixels, mirrored; multi-similarity loss, AdamW, frozen norms, bfloat16, channels
last. A whole step is what the trainer takes: cut a batch, augment it, ``method(batch)``,
diagnostics every tenth step. It is compared with forward, loss, backward and optimizer on one batch
that lies there, captured as a CUDA graph where the step is. Both are timed alternately, 20 steps a
turn; medians over the rounds.
"""

import argparse
import copy
import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from measuring import commit, verdict
from steps import Take, ready
from vicinal.data.loader import Loader
from vicinal.data.records import Batch, Decoded, ImageArray, Records
from vicinal.data.transforms import ImageTransform
from vicinal.evaluation.encoder import Encoder
from vicinal.losses import MultiSimilarityLoss
from vicinal.methods import Method, Plain
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import EfficientNetLite, Embedder
from vicinal.samplers import PKSampler
from vicinal.training.cuda_graph import CUDAGraphStep
from vicinal.training.trainer import STEPS_PER_DIAGNOSIS

IMAGES = 11_788
CLASSES = 200
SIDE = 256
STEPS = 20
NETWORKS = {
    "EfficientNet-Lite0": (EfficientNetLite, 224),
}  # with the size of crops
BARS = {"EfficientNet-Lite0": 9.0}  # ms a step
SHARE_BAR = 0.10
EMBEDDING_BAR = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--how", choices=("captured", "compiled", "eager"), default="captured")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    device = torch.device("cuda")
    transform = ImageTransform(size=SIDE, resize=SIDE, canvas=SIDE, crop="random", mirror=True)
    records = random_images(transform, device)
    print(
        "| network | whole step | forward, backward, optimizer | outside of these | first step | "
        "embedding all |"
    )
    print("|---|---|---|---|---|---|")
    for name, (backbone, size) in NETWORKS.items():
        torch.manual_seed(0)
        sampler = PKSampler(records.labels, classes=32, per_class=4, seed=0, batches=1_000)
        embedder = Embedder(backbone(freeze_norm=True), 512)
        method, take = ready(
            Plain(),
            embedder,
            MultiSimilarityLoss(),
            device,
            optimizer=OptimizerConfig(learning_rate=1e-6),
            sampler=sampler,
            compiled=options.how == "compiled",
            captured=options.how != "eager",
        )
        print(
            row(name, method, take, records, replace(transform, size=size), options.rounds),
            flush=True,
        )
    print(
        f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}, {options.how}, commit "
        f"{commit()}"
    )


@dataclass(eq=False)
class Bare(Plain):
    """Forward, loss, backward and optimizer, without a schedule."""

    def advance(self, batch: Batch) -> None:
        pass


def row(
    name: str,
    method: Method,
    take: Take,
    records: Records,
    transform: ImageTransform,
    rounds: int,
) -> str:
    device = next(method.parameters()).device
    read = Loader(records, transform, device=device).batches(method.batches(0))
    batches = (replace(batch, largest_class=4) for batch in read)
    batch = next(batches)
    first = milliseconds(partial(take, batch), 1) / 1000
    bare = copy.copy(method)
    bare.__class__ = Bare
    core_step = CUDAGraphStep(bare) if isinstance(take, CUDAGraphStep) else bare
    numbers = itertools.count()

    def whole_step() -> None:
        result = take(next(batches))
        if next(numbers) % STEPS_PER_DIAGNOSIS == 0:
            method.diagnostics(result)

    turns = [
        (milliseconds(whole_step), milliseconds(partial(core_step, batch)))
        for _ in range(rounds + 1)
    ][1:]  # the first warms up
    whole, core = ([turn[place] for turn in turns] for place in (0, 1))
    step = statistics.median(whole)
    least = statistics.median(core)
    share = max(0.0, 1 - least / step)
    encoder = Encoder(method.embedder, transform.evaluation(), device)
    embedding = milliseconds(partial(encoder.embed, records), 1) / 1000
    cells = (
        name,
        f"{step:.1f} ms ({min(whole):.1f}-{max(whole):.1f}), bar {BARS[name]:.0f}: "
        f"{verdict(step < BARS[name])}",
        f"{least:.1f} ms ({min(core):.1f}-{max(core):.1f})",
        f"{100 * share:.1f} %, bar 10: {verdict(share < SHARE_BAR)}",
        f"{first:.0f} s",
        f"{embedding:.1f} s, bar 10: {verdict(embedding < EMBEDDING_BAR)}",
    )
    return f"| {' | '.join(cells)} |"


def milliseconds(step: Callable[[], object], steps: int = STEPS) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps * 1000


def random_images(transform: ImageTransform, device: torch.device) -> Records:
    labels = np.arange(IMAGES) % CLASSES
    names = list(map(str, range(IMAGES)))
    # Never read: the device has its own pixels.
    source = ImageArray(np.zeros((IMAGES, SIDE, SIDE, 3), np.uint8), names)
    records = Records(
        "random images", source, labels, tuple(names[:CLASSES]), np.full(IMAGES, "train")
    )
    pixels = torch.randint(0, 256, (IMAGES, SIDE, SIDE, 3), dtype=torch.uint8, device=device)
    source.decoded = Decoded(pixels, transform.preparation, np.arange(IMAGES), {})
    return records


if __name__ == "__main__":
    main()
