"""The cost of an ALA step on a GPU, in multiples of a plain step, and the rounding error of its
slopes.

    python benchmarks/ala_step.py          # TF32, 120 images at 227 pixels, K = 3, BN-Inception
    python benchmarks/ala_step.py --precision bfloat16     # backbone, forward mode: autocast
    python benchmarks/ala_step.py --quick                  # 32 pixels, one round: does it run?

Random images, triplet loss over 50 + 10 tuples, batch norm frozen; every contestant is a whole step
with its optimizer. Rounds are interleaved; a ratio is the median over rounds, with its range. Peak
memory is torch's, of one step after all contestants were built and warmed up, above what they hold
between steps. Slopes are taken along the real direction of the first step, and compared with
forward mode in full float32.
"""

import argparse
import statistics
from functools import partial

import torch

from measuring import commit, verdict
from steps import Take, ready, seconds
from vicinal.data.records import Batch
from vicinal.losses import TripletLoss
from vicinal.methods import ALA, Method, Plain
from vicinal.methods.ala import meta_gradient
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import BNInception, Embedder
from vicinal.samplers import EpisodeSampler

KINDS = {"plain": Plain(), "ALA": ALA(), "ALA, first order": ALA(meta_gradient="first_order")}
BARS = 2.1, 1.5  # time and memory in multiples of a plain step


def build(kind: str, device: torch.device, options: argparse.Namespace) -> tuple[Method, Take]:
    """A contestant, one of ``KINDS``."""
    torch.manual_seed(0)
    embedder = Embedder(BNInception(freeze_norm=True), 512)
    return ready(
        KINDS[kind],
        embedder,
        TripletLoss(margin=1.0, squared=False, normalize=False),
        device,
        optimizer=OptimizerConfig(learning_rate=1e-4, head_factor=10.0),
        sampler=EpisodeSampler(torch.arange(60).repeat_interleave(2).numpy(), seed=0),
        precision=torch.bfloat16 if options.precision == "bfloat16" else None,
        captured=options.cuda_graph,
    )


def make_batch(device: torch.device, side: int) -> Batch:
    rng = torch.Generator().manual_seed(1)
    rows = torch.arange(120)
    labels = torch.cat([torch.arange(50).repeat(2), 50 + torch.arange(10).repeat(2)])
    images = torch.randn(120, 3, side, side, generator=rng).to(memory_format=torch.channels_last)
    return Batch(images, labels, rows, largest_class=2).to(device)


def peak(method: Method, batch: Batch) -> float:
    """GiB that a step needs above what was allocated before it; not captured, for a graph holds its
    own for good."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    method(batch)
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**30


def errors(device: torch.device, batch: Batch, options: argparse.Namespace) -> list[str]:
    """Slopes by forward mode as it is trained, against full float32."""
    method, _ = build("ALA", device, options)
    training = method.training_pass(batch)
    losses = training.scored.losses
    leaves = method.metric.leaves
    steps = method.metric.scaled(
        [*torch.autograd.grad(losses.mean() / 2, leaves, retain_graph=True)]
    )
    _, direction = method.validate(batch, steps)

    def slopes() -> torch.Tensor:
        tangents = method.metric.tangents(direction, training.inputs)
        found = meta_gradient.slopes(method.scoring, training.embeddings, tangents, training.labels)
        return found.double()

    precision = method.embedder.precision
    method.embedder.precision = None
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    exact = slopes()
    method.embedder.precision = precision
    found = {"forward mode as trained": slopes()}
    lines = ["| slopes | relative error | cosine to exact |", "|---|---|---|"]
    for name, value in found.items():
        cosine = torch.nn.functional.cosine_similarity(value, exact, dim=0)
        lines.append(
            f"| {name} | {float((value - exact).norm() / exact.norm()):.1e} | {float(cosine):.6f} |"
        )
    return lines


def table(device: torch.device, options: argparse.Namespace) -> str:
    batch = make_batch(device, 32 if options.quick else options.side)
    methods = {kind: build(kind, device, options) for kind in KINDS}
    for _, take in methods.values():
        # From the fourth on steps are replayed, as the trainer does.
        for _ in range(1 if options.quick else 5):
            take(batch)
    times = {kind: [] for kind in KINDS}
    for _ in range(options.rounds):
        for kind, (_, take) in methods.items():
            times[kind].append(seconds(partial(take, batch), device))
    on_gpu = device.type == "cuda"
    memory = {kind: peak(method, batch) if on_gpu else 1.0 for kind, (method, _) in methods.items()}
    lines = [
        "| step | ms | times plain | peak GiB | times plain | bars |",
        "|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        ratios = [mine / plain for mine, plain in zip(times[kind], times["plain"], strict=True)]
        ratio = statistics.median(ratios)
        share = memory[kind] / memory["plain"]
        judged = ""
        if kind != "plain":
            slowest, largest = BARS
            judged = f"{slowest}x: {verdict(ratio <= slowest)}"
            judged += f"; {largest}x memory: {verdict(share <= largest)}"
        lines.append(
            f"| {kind} | {1e3 * statistics.median(times[kind]):.1f} | {ratio:.2f} "
            f"({min(ratios):.2f} to "
            f"{max(ratios):.2f}) | {memory[kind]:.2f} | {share:.2f} | {judged} |"
        )
    name = torch.cuda.get_device_name() if on_gpu else "CPU"
    where = (
        f"{name}, torch {torch.__version__}, commit {commit()}, {options.precision}, "
        f"{options.rounds} rounds"
    )
    return "\n".join([*lines, "", f"{where}.", "", *errors(device, batch, options)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15, help="interleaved rounds")
    parser.add_argument("--side", type=int, default=227, help="pixels")
    parser.add_argument("--precision", choices=("tf32", "float32", "bfloat16"), default="tf32")
    parser.add_argument(
        "--cuda-graph", action=argparse.BooleanOptionalAction, default=True, help="replay steps"
    )
    parser.add_argument("--quick", action="store_true", help="32 pixels, one round: does it run?")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = (
        options.precision != "float32"
    )
    torch.backends.cudnn.benchmark = True
    options.rounds = 1 if options.quick else options.rounds
    print(table(device, options))


if __name__ == "__main__":
    main()
