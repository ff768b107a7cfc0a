"""Summaries of an experiment before it is trained: data, choices, parameters, memory and time."""

import copy
import time
from pathlib import Path
from typing import NamedTuple

import torch

from vicinal.config import Config
from vicinal.data.records import Records
from vicinal.data.transforms import ImageTransform, own_transform
from vicinal.methods.method import Method
from vicinal.models import count_parameters
from vicinal.parallel import pick_device
from vicinal.run_directory import RunDirectory
from vicinal.training.build import build_method
from vicinal.training.console import Console, spell
from vicinal.training.experiment import load_records

ROWS = 4  # embedded and differentiated once to measure; more would take seconds on a CPU


def describe(config: Config) -> str:
    """Return the resolved experiment as TOML with comments on its size and cost."""
    config, records = load_records(config)
    method, steps = build_method(config, records.part("train"), pick_device(config.training.device))
    cost = _cost(config, method, records)
    learnt, count = count_parameters(method.embedder)
    memory = 4 * (count + 3 * learnt) + cost.bytes * min(
        cost.rows, config.training.chunk or cost.rows
    )
    lines = [
        _found(records),
        f"{count:,} parameters, {learnt:,} of them trained",
        cost.time(steps),
        f"about {memory / 2**20:,.0f} MiB for weights, optimizer and activations",
        *config.reasons,
        *method.notes,
    ]
    return "\n".join([*(f"# {line}" for line in lines), config.toml().rstrip()])


def introduce(
    path: Path, console: Console, config: Config, records: Records, method: Method, steps: int
) -> None:
    """Print what was found and chosen, how long it will take, where the result will be and what to
    try next."""
    slots, run = config.slots(), RunDirectory(path)
    names = ", ".join(f"{slot} {slots[slot]['name']}" for slot in ("model", "loss", "method"))
    console.line(f"found   {_found(records)}")
    console.line(f"chosen  preset {config.preset}: {names}")
    for reason in config.reasons:
        console.line(f"        {reason}")
    console.line(f"time    {_cost(config, method, records).time(steps)}")
    headed = config.model.head != "none" or config.transform.kind == "text"
    if steps and headed and records.captions is None:
        console.line(
            "        --head-only gives a baseline in seconds: the head in closed form, no step "
            "trained"
        )
    console.line(f"result  {run.report_path}")
    console.line(f"        Ctrl-C stops; `{run.resume_command()}` goes on")
    for word, command in zip(("then", "", ""), run.next_commands(), strict=True):
        console.line(f"{word:<8}{command}")


def _found(records: Records) -> str:
    """Say how many records of how many classes each split holds."""
    uses = zip(
        records.counts().values(), ("to train on", "to select by", "to test on"), strict=True
    )
    parts = [f"{rows} of {classes} classes {use}" for (rows, classes), use in uses if rows]
    held = records.source.kind + ("" if records.captions is None else " and texts")
    return f"{len(records)} {held} in {records.name}: {', '.join(parts)}"


class Cost(NamedTuple):
    """Rows of a batch, and what one of them takes in a forward and backward pass; None where that
    is not known."""

    rows: int
    device: str
    seconds: float | None = None
    bytes: float = 0.0

    def time(self, steps: int) -> str:
        """Say how long so many steps take."""
        if not steps:
            return "no step is trained: the head is set in closed form"
        words = f"{steps:,} steps of {self.rows} rows"
        if self.seconds is not None:
            words += f", about {spell(self.seconds * self.rows * steps)} on this {self.device}"
        return f"{words}, and measuring"


def _cost(config: Config, method: Method, records: Records) -> Cost:
    """Measure a forward and backward pass of a copy of the network."""
    device, transform = pick_device(config.training.device), own_transform(config.transform)
    rows = config.training.batch_size if method.reads_records else len(method.batches(0)[0])
    if isinstance(transform, ImageTransform):
        shape = (transform.channels, transform.size, transform.size)
    elif transform.kind == "features":
        shape = records.source.read(0).shape
    else:  # a transform of the user's own, or texts
        return Cost(rows, device.type)
    network, saved = copy.deepcopy(method.embedder.streams[-1]).train(), 0

    def count(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal saved
        if not isinstance(tensor, torch.nn.Parameter):
            saved += tensor.numel() * tensor.element_size()
        return tensor

    with torch.random.fork_rng():  # training draws what it would draw without
        for _ in range(2):  # the first time, kernels are chosen
            inputs = torch.randn(ROWS, *shape, device=device)
            saved, began = 0, time.perf_counter()
            with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
                network.embed(network.features(inputs)).sum().backward()  # type: ignore[no-untyped-call]
            if device.type == "cuda":
                torch.cuda.synchronize()
            seconds = time.perf_counter() - began
    return Cost(rows, device.type, seconds / ROWS, saved / ROWS)
