"""The price of LoOp: its step beside the plain step with the same network, loss and batch, and its
loss alone on a CPU.

    PYTHONPATH=src python benchmarks/loop_step.py   # prints the table; about two minutes on one GPU
    PYTHONPATH=src python benchmarks/loop_step.py --size 64 --rounds 3 --device cpu    # a rehearsal
    PYTHONPATH=src python benchmarks/loop_step.py --loss-alone   # 64 and 260 pairs, one thread

Random images at 227 px (no data is needed), 512 dimensions; consecutive pairs of 64 classes x 2
(batch 128), and all pairs of 26 classes x 5 (batch 130: 260 pairs, 32,500 pairs of pairs of
different classes); bfloat16, channels last, frozen norms, as the trainer has them. Both methods are
built from the same seed and take their steps alternately in one process; each round waits for the
device before and after a step. The ratio is the median over rounds of (LoOp step / plain step),
with its range.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch

from measuring import alternate, commit, verdict
from steps import Take, ready, seconds
from vicinal.data.records import Batch
from vicinal.losses import HPHNLoss, LiftedStructureLoss, Loss, MultiSimilarityLoss, TripletLoss
from vicinal.methods import LoOp, Plain
from vicinal.methods.loop import OptimalNegatives
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import BNInception, EfficientNetLite, Embedder

DIM = 512
BACKBONES: dict[str, Callable[[], torch.nn.Module]] = {
    "EfficientNet-Lite0": lambda: EfficientNetLite("lite0", freeze_norm=True),
    "BN-Inception": lambda: BNInception(freeze_norm=True),
}
LOSSES: dict[str, Callable[[], Loss]] = {
    "triplet": lambda: TripletLoss(squared=False),
    "HPHN": HPHNLoss,
    "lifted": lambda: LiftedStructureLoss(form="min"),
    "multi-similarity": MultiSimilarityLoss,
}
PAIRINGS = {
    "consecutive": (64, 2, 1.05),
    "all": (26, 5, 1.15),
}  # classes, per class, most that LoOp may cost


def methods(backbone: str, loss: str, pairing: str, device: torch.device) -> tuple[Take, Take]:
    optimizer = OptimizerConfig(learning_rate=1e-5, head_factor=10.0)
    made = []
    for method in (Plain(), LoOp("authors" if pairing == "consecutive" else "paper")):
        torch.manual_seed(0)
        embedder = Embedder(BACKBONES[backbone](), DIM)
        made.append(ready(method, embedder, LOSSES[loss](), device, optimizer=optimizer)[1])
    return made[0], made[1]


def compare(
    backbone: str,
    loss: str,
    pairing: str,
    device: torch.device,
    size: int,
    rounds: int,
    warmup: int,
) -> str:
    classes, per_class, bar = PAIRINGS[pairing]
    plain, loop = methods(backbone, loss, pairing, device)
    labels = torch.arange(classes).repeat_interleave(per_class)
    images = torch.randn(len(labels), 3, size, size, generator=torch.Generator().manual_seed(0))
    images = images.to(device, memory_format=torch.channels_last)
    batch = Batch(images, labels.to(device), torch.arange(len(labels)), largest_class=per_class)
    steps = partial(plain, batch), partial(loop, batch)
    times = [tuple(seconds(step, device) for step in steps) for _ in range(warmup + rounds)][
        warmup:
    ]
    ratios = [ours / theirs for theirs, ours in times]
    middle = statistics.median(ratios)
    theirs, ours = (1000 * statistics.median(column) for column in zip(*times, strict=True))
    return (
        f"| {backbone} | {loss} | {pairing}, {classes} x {per_class} | {theirs:.1f} | {ours:.1f} "
        f"| {middle:.3f} "
        f"({min(ratios):.3f}-{max(ratios):.3f}) | {bar} {verdict(middle <= bar)} |"
    )


def loss_alone(name: str, plain: Loss, loop: OptimalNegatives, pairing: str, rounds: int) -> str:
    """Forward and backward pass on one thread, processor time."""
    torch.set_num_threads(1)
    classes, per_class, _ = PAIRINGS[pairing]
    rows = torch.randn(
        classes * per_class, DIM, generator=torch.Generator().manual_seed(0)
    ).requires_grad_()
    labels = torch.arange(classes).repeat_interleave(per_class)
    found = alternate(
        lambda: torch.autograd.grad(plain(rows, labels), rows),
        lambda: torch.autograd.grad(loop(rows, labels), rows),
        rounds,
        clock=time.process_time,
    )
    bar = f", at most 3 {verdict(found.ratio <= 3)}" if pairing == "consecutive" else ""
    return (
        f"{name}, {classes} x {per_class}: plain {1000 * found.ours:.2f} ms, LoOp "
        f"{1000 * found.theirs:.2f} ms, ratio "
        f"{found.ratio:.2f} ({found.least:.2f}-{found.most:.2f}){bar}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", type=int, default=227)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--loss-alone", action="store_true")
    asked = parser.parse_args()
    if asked.loss_alone:
        triplet = TripletLoss(squared=False)
        pairs = MultiSimilarityLoss()
        print(
            loss_alone(
                "triplet",
                triplet,
                OptimalNegatives(triplet, overlap="arcs", anchors="pairs"),
                "consecutive",
                asked.rounds,
            )
        )
        print(loss_alone("multi-similarity", pairs, OptimalNegatives(pairs), "all", asked.rounds))
        arcs = OptimalNegatives(pairs, anchors="pairs")
        print(loss_alone("multi-similarity, anchors=pairs", pairs, arcs, "all", asked.rounds))
        return
    device = torch.device(asked.device)
    print(
        "| backbone | loss | pairs | plain ms | LoOp ms | ratio (range) | bar "
        "|\n|---|---|---|---|---|---|---|"
    )
    for backbone in BACKBONES:
        for pairing in PAIRINGS:
            for loss in LOSSES:
                print(
                    compare(
                        backbone, loss, pairing, device, asked.size, asked.rounds, asked.warmup
                    ),
                    flush=True,
                )
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(f"\n{name}; torch {torch.__version__}; {asked.rounds} rounds; commit {commit()}")


if __name__ == "__main__":
    main()
