"""A training step on a GPU: its time, and what of it is not forward, backward or optimiser.

    python benchmarks/training_step.py                   # GoogLeNet and EfficientNet-Lite0, recorded; about 1 minute
    python benchmarks/training_step.py --how compiled    # recorded and compiled; about 3 minutes
    python benchmarks/training_step.py --how eager       # neither

As many random images as CUB-200-2011 has, 256 pixels a side, on the device; batches of 128 with random crops of 227
pixels, mirrored; multi-similarity loss, AdamW, frozen norms, bfloat16, channels last. A whole step is what the trainer
takes: cut a batch, augment it, ``method.step``. It is compared with forward, loss, backward and optimiser on one batch
that lies there, recorded where the step is. Both are timed alternately, 20 steps a turn; medians over the rounds.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from measuring import commit, verdict
from vicinal.data.records import Batch, ImageArray, Records
from vicinal.data.resident import Resident
from vicinal.data.transforms import ImageTransform
from vicinal.evaluation.encoder import Encoder
from vicinal.losses import MultiSimilarityLoss
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.methods.plain import PlainTraining
from vicinal.methods.recording import Recorder, Work, differentiate, learnt
from vicinal.models import EfficientNetLite, Embedder, GoogLeNet
from vicinal.sampling import PKSampler

IMAGES, CLASSES, SIDE, CROP, STEPS = 11_788, 200, 256, 227, 20
BARS = {"GoogLeNet": 20.0, "EfficientNet-Lite0": 22.0}  # ms a step
SHARE_BAR, EMBEDDING_BAR = 0.10, 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--how", choices=("recorded", "compiled", "eager"), default="recorded")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    device = torch.device("cuda")
    transform = ImageTransform(size=CROP, resize=SIDE, canvas=SIDE, crop="random", mirror=True)
    records, resident = random_images(transform, device)
    print("| network | whole step | forward, backward, optimiser | outside of these | first step | embedding all |")
    print("|---|---|---|---|---|---|")
    for name, backbone in (("GoogLeNet", GoogLeNet), ("EfficientNet-Lite0", EfficientNetLite)):
        torch.manual_seed(0)
        sampler = PKSampler(records.labels, classes=32, per_class=4, seed=0, batches=1_000)
        embedder = Embedder(backbone(freeze_norm=True), 512)
        method = PlainTraining.from_config(
            embedder, MultiSimilarityLoss(), sampler, OptimizerConfig(learning_rate=1e-6), steps=len(sampler)
        )
        method.to(device)
        embedder.to(memory_format=torch.channels_last)
        compiled, recorded = options.how == "compiled", options.how != "eager"
        embedder.accelerate(torch.bfloat16, compiled=compiled, recorded=recorded)
        embedder.train()
        print(row(name, method, records, resident, transform, options.rounds), flush=True)
    print(f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}, {options.how}, commit {commit()}")


def row(
    name: str, method: PlainTraining, records: Records, resident: Resident, transform: ImageTransform, rounds: int
) -> str:
    read = resident.load(records, method.batches(0), transform, seed=0, epoch=0)
    batches = (replace(batch, largest_class=4) for batch in read)
    batch = next(batches)
    first = milliseconds(partial(method.step, batch), 1) / 1000
    bare = Recorder(method.embedder, learnt(method.optimizer), pure=True)
    turns = [
        (milliseconds(lambda: method.step(next(batches))), milliseconds(partial(bare_step, method, bare, batch)))
        for _ in range(rounds + 1)
    ][1:]  # the first warms up
    whole, core = ([turn[place] for turn in turns] for place in (0, 1))
    step, least = statistics.median(whole), statistics.median(core)
    share = max(0.0, 1 - least / step)
    encoder = Encoder(method.embedder, transform.evaluation(), resident.pixels.device)
    embedding = milliseconds(partial(encoder.embed, records, resident=resident), 1) / 1000
    cells = (
        name,
        f"{step:.1f} ms ({min(whole):.1f}-{max(whole):.1f}), bar {BARS[name]:.0f}: {verdict(step < BARS[name])}",
        f"{least:.1f} ms ({min(core):.1f}-{max(core):.1f})",
        f"{100 * share:.1f} %, bar 10: {verdict(share < SHARE_BAR)}",
        f"{first:.0f} s",
        f"{embedding:.1f} s, bar 10: {verdict(embedding < EMBEDDING_BAR)}",
    )
    return f"| {' | '.join(cells)} |"


def bare_work(method: PlainTraining, inputs: Tensor, labels: Tensor) -> Work:
    embedder = method.embedder
    loss = method.loss(embedder.embed(embedder.features(inputs)), labels)
    differentiate(loss, learnt(method.optimizer))
    return Work({"loss": loss.detach()})


def bare_step(method: PlainTraining, recorder: Recorder, batch: Batch) -> None:
    recorder(partial(bare_work, method), batch)
    method.optimizer.step()


def milliseconds(step: Callable[[], object], steps: int = STEPS) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps * 1000


def random_images(transform: ImageTransform, device: torch.device) -> tuple[Records, Resident]:
    labels = np.arange(IMAGES) % CLASSES
    names = list(map(str, range(IMAGES)))
    source = ImageArray(np.zeros((IMAGES, SIDE, SIDE, 3), np.uint8), names)  # never read: the device has its own pixels
    records = Records("random images", source, labels, tuple(names[:CLASSES]), np.full(IMAGES, "train"))
    pixels = torch.randint(0, 256, (IMAGES, 3, SIDE, SIDE), dtype=torch.uint8, device=device)
    return records, Resident(pixels, transform, source, np.arange(IMAGES), {}, channels_last=True)


if __name__ == "__main__":
    main()
