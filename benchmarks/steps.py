"""What the benchmarks of training steps share: a method as the trainer has it, and the time that a
step takes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from vicinal.data.records import Batch, FeatureArray, Records
from vicinal.methods import Method, StepResult
from vicinal.methods.method import Parts
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import Embedder
from vicinal.training.cuda_graph import CUDAGraphStep

Take = Callable[[Batch], StepResult]


@dataclass(frozen=True)
class NoSampler:
    """The benchmark makes its own batches."""

    note: str | None = None

    def epoch(self, number: int) -> Sequence[Sequence[int]]:
        return []

    def __len__(self) -> int:
        return 1000


def ready(
    method: Method,
    embedder: Embedder,
    loss: nn.Module,
    device: torch.device,
    *,
    optimizer: OptimizerConfig,
    sampler: object | None = None,
    classes: int = 100,
    precision: torch.dtype | None = torch.bfloat16,
    compiled: bool = False,
    captured: bool = True,
) -> tuple[Method, Take]:
    """Return the method, and what takes its steps: on a GPU in lower precision, channels last,
    captured as a graph."""
    # Of which none is read.
    source = FeatureArray(np.zeros((classes, 1), np.float32), list(map(str, range(classes))))
    names = tuple(map(str, range(classes)))
    train = Records("random", source, np.arange(classes), names, np.full(classes, "train"))
    given = Parts(
        embedder,
        loss,
        sampler or NoSampler(),
        optimizer,
        train,
        steps=1000,
        seed=0,
    )
    built = method.build(given)
    built.place(device)
    built.embedder.train()
    if device.type != "cuda":
        return built, built
    built.embedder.to(memory_format=torch.channels_last)
    built.embedder.accelerate(precision, compiled=compiled)
    return built, CUDAGraphStep(built) if captured and built.capturable else built


def seconds(step: Callable[[], object], device: torch.device) -> float:
    """Return the time of one call; the device is waited for before and after it."""
    wait(device)
    start = time.perf_counter()
    step()
    wait(device)
    return time.perf_counter() - start


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
