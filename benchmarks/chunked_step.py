"""Peak memory and time of a training step, plain and in chunks (`training.chunk`), for growing
batches.

    python benchmarks/chunked_step.py                                  # on a GPU; about two minutes
    python benchmarks/chunked_step.py --size 96 --batches 32 64 128 --chunk 8   # also on a CPU

EfficientNet-Lite0 with frozen norms over random images, 512 dimensions, multi-similarity loss,
AdamW. Each case runs in a process of its own. Memory is what a step adds to network, optimizer and
batch: the peak of torch's allocator on a GPU, of the process on a CPU. Time is the median of the
steps after the first two.

Gradients are compared on a batch of four chunks, as the largest difference relative to the largest
entry. In float64 both ways must agree. In float32 each has rounding errors of its own, which a deep
network of random weights magnifies: convolutions of other batch sizes add in another order, and
activations near 0 fall on the other side.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

import torch
from torch import Tensor

from measuring import commit, resident
from vicinal.losses import MultiSimilarityLoss
from vicinal.methods.method import trained
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import EfficientNetLite, Embedder
from vicinal.models.embedder import chunked

PER_CLASS = 4


class Step:
    """A plain step over random images; ``rows`` of them at a time, or all."""

    def __init__(self, options: argparse.Namespace, batch: int) -> None:
        torch.manual_seed(0)
        self.device = torch.device(options.device)
        self.embedder = Embedder(EfficientNetLite(freeze_norm=True), 512).to(self.device)
        self.embedder.accelerate(
            getattr(torch, options.precision) if options.precision != "float32" else None
        )
        self.embedder.train()
        self.optimizer, _ = OptimizerConfig(learning_rate=1e-5).build(self.embedder, steps=1000)
        self.labels = torch.arange(batch, device=self.device) // PER_CLASS
        noise = torch.randn(batch, 3, options.size, options.size, device=self.device)
        self.inputs = noise + self.labels.view(-1, 1, 1, 1) % 7
        self.loss = MultiSimilarityLoss()

    def gradients(self, rows: int | None, inputs: Tensor, labels: Tensor) -> list[Tensor]:
        run = self.embedder.features
        features = run(inputs) if rows is None else chunked(run, inputs, rows)
        loss = self.loss(self.embedder.embed(features), labels)
        return list(torch.autograd.grad(loss, trained(self.optimizer)))

    def __call__(self, rows: int | None, inputs: Tensor, labels: Tensor) -> None:
        parameters = trained(self.optimizer)
        gradients = self.gradients(rows, inputs, labels)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        self.optimizer.step()
        self.optimizer.zero_grad()


def measured(options: argparse.Namespace, batch: int, rows: int | None) -> dict[str, float]:
    """Bytes and seconds of one case; this process has done nothing before."""
    step = Step(options, batch)
    cuda = step.device.type == "cuda"
    if not cuda:
        # The optimizer's state and libraries.
        step(rows, step.inputs[:PER_CLASS], step.labels[:PER_CLASS])
        before = resident("VmRSS")
    seconds = []
    for number in range(options.steps + 2):
        if cuda and number == 2:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        start = time.perf_counter()
        step(rows, step.inputs, step.labels)
        if cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    peak = torch.cuda.max_memory_allocated() if cuda else resident("VmHWM")
    return {"bytes": peak - before, "seconds": statistics.median(seconds[2:])}


def differences(options: argparse.Namespace) -> dict[str, float]:
    """How far the gradients of both ways are from those of the plain step in float64."""
    step = Step(options, 4 * options.chunk)
    step.embedder.accelerate(None)
    found = {}
    for dtype in (torch.float64, torch.float32):
        step.embedder.to(dtype)
        inputs = step.inputs.to(dtype)
        for name, rows in (("plain", None), ("chunks", options.chunk)):
            gradients = step.gradients(rows, inputs, step.labels)
            found[name, dtype] = [gradient.to(torch.float64, copy=True) for gradient in gradients]
    true = found["plain", torch.float64]
    largest = max(float(gradient.abs().max()) for gradient in true)
    return {
        f"{name} in {str(dtype).removeprefix('torch.')}": max(
            float((mine - theirs).abs().max()) / largest
            for mine, theirs in zip(gradients, true, strict=True)
        )
        for (name, dtype), gradients in found.items()
    }


def apart(options: argparse.Namespace, batch: int, rows: int | None) -> dict[str, float] | None:
    """``measured`` in a fresh process; None where memory did not suffice."""
    case = [sys.executable, __file__, "--one", str(batch), str(rows or 0)]
    settings = [
        f"--{name}={getattr(options, name)}" for name in ("device", "size", "precision", "steps")
    ]
    done = subprocess.run([*case, *settings], capture_output=True, text=True)
    if done.returncode and "OutOfMemoryError" not in done.stderr:
        raise SystemExit(done.stderr)
    return None if done.returncode else json.loads(done.stdout.splitlines()[-1])


def cells(found: dict[str, float] | None) -> str:
    return (
        "out of memory | -"
        if found is None
        else f"{found['bytes'] / 2**30:.2f} GiB | {1e3 * found['seconds']:.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--batches", type=int, nargs="+", default=[128, 512, 2048, 8192])
    parser.add_argument("--chunk", type=int, default=64)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--one", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False  # gradients are compared in float32
    if options.one:
        batch, rows = options.one
        print(json.dumps(measured(options, batch, rows or None)))
        return
    print(f"| batch | plain | a step | in chunks of {options.chunk} | a step |")
    print("|---|---|---|---|---|")
    for batch in options.batches:
        plain, parts = (apart(options, batch, rows) for rows in (None, options.chunk))
        print(f"| {batch} | {cells(plain)} | {cells(parts)} |", flush=True)
    errors = ", ".join(f"{name} {error:.1e}" for name, error in differences(options).items())
    print(f"\nGradients against those of the plain step in float64: {errors}.")
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    print(
        f"\n{name}; torch {torch.__version__}; {options.size} px; {options.precision}; commit "
        f"{commit()}"
    )


if __name__ == "__main__":
    main()
