"""What an experiment will cost, before it is trained: parameters, steps, memory and time."""

import time

import torch

from vicinal import config as configs
from vicinal.config import Config
from vicinal.models import count_parameters
from vicinal.parallel import pick_device
from vicinal.training.build import build_method
from vicinal.training.experiment import load_records

ROWS = 4  # embedded and differentiated once to measure; more would take seconds on a CPU


def describe(config: Config) -> str:
    """The resolved experiment as TOML with comments on its size and cost."""
    records = load_records(config)
    train = records.part("train")
    device = pick_device(config.training.device)
    method, steps = build_method(config, train, device)
    embedder = method.embedder
    learnt, count = count_parameters(embedder)
    rows = len(method.batches(0)[0])
    seconds, saved = _measured(config, embedder.streams[0], train.source.read(0), device)
    held = min(rows, config.training.chunk or rows)
    memory = 4 * (count + 3 * learnt) + saved * held
    lines = [
        f"# {len(train)} {records.source.kind} of {len(set(train.labels.tolist()))} classes to train on",
        f"# {count:,} parameters, {learnt:,} of them trained",
        f"# {steps:,} steps of {rows} rows, about {seconds * rows * steps / 60:.1f} minutes on this {device.type}",
        f"# about {memory / 2**20:,.0f} MiB for weights, optimizer and activations",
        *(f"# {reason}" for reason in config.reasons),
        *(f"# {note}" for note in method.notes),
    ]
    return "\n".join([*lines, config.toml().rstrip()])


def _measured(config: Config, embedder: torch.nn.Module, example: object, device: torch.device) -> tuple[float, float]:
    """Seconds and bytes of activations for one row of a forward and backward pass."""
    if configs.kind_of(config.data) == "features":
        inputs = torch.randn(ROWS, len(example), device=device)  # type: ignore[arg-type]
    else:
        transform = config.transform.evaluation()
        side, channels = transform.size, transform.channels  # type: ignore[union-attr]
        inputs = torch.randn(ROWS, channels, side, side, device=device)
    saved = 0

    def count(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal saved
        if not isinstance(tensor, torch.nn.Parameter):
            saved += tensor.numel() * tensor.element_size()
        return tensor

    embedder.train()
    for _ in range(2):  # the first time, kernels are chosen
        saved, began = 0, time.perf_counter()
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            embedder.embed(embedder.features(inputs)).sum().backward()  # type: ignore[operator]
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
    return seconds / ROWS, saved / ROWS
