"""The price of HDML: its step beside the plain step with the same network, loss and batch, on a
GPU.

    PYTHONPATH=src python benchmarks/hdml_step.py   # prints the table; about two minutes on one GPU
    PYTHONPATH=src python benchmarks/hdml_step.py --size 64 --rounds 3 --device cpu    # a rehearsal

Random images at 227 px (no data is needed), 512 dimensions, N-pair loss with 64 pairs (batch 128)
and triplet loss with 40 triplets (batch 120), as Zheng et al. (CVPR 2019) trained; bfloat16,
channels last, frozen norms, as the trainer has them. Both methods are built from the same seed and
take their steps alternately in one process; each round waits for the device before and after a
step. The ratio is the median over rounds of (HDML step / plain step), with its range.
"""

import argparse
import statistics
from collections.abc import Callable
from functools import partial

import torch

from measuring import commit, verdict
from steps import Take, ready, seconds
from vicinal.data.records import Batch
from vicinal.losses import Loss, NPairLoss, TripletLoss
from vicinal.methods import HDML, Plain
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import BNInception, EfficientNetLite, Embedder

DIM = 512
BACKBONES: dict[str, Callable[[], torch.nn.Module]] = {
    "EfficientNet-Lite0": lambda: EfficientNetLite("lite0", freeze_norm=True),
    "BN-Inception": lambda: BNInception(freeze_norm=True),
}
LOSSES: dict[str, tuple[Callable[[], Loss], int, float]] = {  # loss, batch, most that HDML may cost
    "N-pair": (lambda: NPairLoss("dot", l2=1.5e-2, blocks=True), 128, 1.10),
    "triplet": (lambda: TripletLoss(0.2, blocks=True), 120, 1.05),
}


def labels_for(name: str, batch: int) -> torch.Tensor:
    if name == "N-pair":
        return torch.arange(batch // 2).repeat(2)
    third = batch // 3
    return torch.cat([torch.arange(third), torch.arange(third), third + torch.arange(third)])


def methods(backbone: str, loss: str, device: torch.device) -> tuple[Take, Take]:
    optimizer = OptimizerConfig(learning_rate=1e-5, head_factor=10.0)
    made = []
    for method in (Plain(), HDML()):
        torch.manual_seed(0)
        embedder = Embedder(BACKBONES[backbone](), DIM)
        made.append(ready(method, embedder, LOSSES[loss][0](), device, optimizer=optimizer)[1])
    return made[0], made[1]


def compare(
    backbone: str, loss: str, device: torch.device, size: int, rounds: int, warmup: int
) -> str:
    _, rows, bar = LOSSES[loss]
    plain, hdml = methods(backbone, loss, device)
    rng = torch.Generator().manual_seed(0)
    inputs = torch.randn(rows, 3, size, size, generator=rng).to(
        device, memory_format=torch.channels_last
    )
    batch = Batch(inputs, labels_for(loss, rows).to(device), torch.arange(rows), largest_class=2)
    steps = partial(plain, batch), partial(hdml, batch)
    for step in steps:
        # Also past the first window, so that every kernel of a step has run.
        for _ in range(warmup):
            seconds(step, device)
    times = [tuple(seconds(step, device) for step in steps) for _ in range(rounds)]
    ratios = [ours / theirs for theirs, ours in times]
    theirs, ours = (1e3 * statistics.median(column) for column in zip(*times, strict=True))
    ratio = statistics.median(ratios)
    spread = f"{ratio:.3f} ({min(ratios):.2f} - {max(ratios):.2f})"
    verdicts = f"<= {bar} | {verdict(ratio <= bar)}"
    return f"| {backbone} | {loss}, {rows} | {theirs:.1f} | {ours:.1f} | {spread} | {verdicts} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", type=int, default=227)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--warmup", type=int, default=70)
    parser.add_argument("--backbones", nargs="*", default=list(BACKBONES), choices=list(BACKBONES))
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    print("| backbone | loss, batch | plain, ms | HDML, ms | ratio (range) | bar | |")
    print("|---|---|---|---|---|---|---|")
    for backbone in arguments.backbones:
        for loss in LOSSES:
            print(
                compare(backbone, loss, device, arguments.size, arguments.rounds, arguments.warmup),
                flush=True,
            )
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(
        f"\n{name}; torch {torch.__version__}; {arguments.size} px; {arguments.rounds} rounds; "
        f"commit {commit()}"
    )


if __name__ == "__main__":
    main()
