"""Summaries of an experiment before it is trained: data, choices, parameters, memory and time."""

import copy
import time
from pathlib import Path

import numpy as np
import torch

from vicinal import parallel
from vicinal.config import Config
from vicinal.data.records import Batch, Records
from vicinal.data.transforms import ImageTransform, own_transform
from vicinal.methods import Plain
from vicinal.methods.method import Method
from vicinal.models import count_parameters
from vicinal.run_directory import RunDirectory
from vicinal.training.console import spell
from vicinal.training.experiment import Experiment, build_method, load_records, taken

SMALL = 64  # pixels a side of the pictures on which methods are compared
QUICK = 0.2  # seconds of a network's pass over a batch below which steps are taken to measure them
ROWS = 4  # embedded and differentiated once to measure; more would take seconds on a CPU


def describe(config: Config) -> str:
    """Return the resolved experiment as TOML with comments on its size and cost."""
    config, records = load_records(config)
    device = parallel.pick_device(config.training.device)
    method, steps = build_method(config, records.part("train"), device)
    time, bytes_used = _cost(config, method, records, steps)
    learnt, count = count_parameters(method.embedder)
    lines = [
        _found(records),
        f"{count:,} parameters, {learnt:,} of them trained",
        time,
        f"about {(4 * (count + 3 * learnt) + bytes_used) / 2**20:,.0f} MiB for weights, optimizer "
        "and activations",
        *config.reasons,
        *taken(config, method.embedder),
        *method.notes,
    ]
    return "\n".join([*(f"# {line}" for line in lines), config.toml().rstrip()])


def introduce(path: Path, experiment: Experiment) -> None:
    """Print what was found and chosen, how long it will take, where the result will be and what to
    try next."""
    config = experiment.config
    records = experiment.records
    method = experiment.method
    steps = experiment.steps
    slots = config.slots()
    run = RunDirectory(path)
    line = experiment.console.line
    used = ("model", "loss", "method") if steps else ("model",)
    names = ", ".join(f"{slot} {slots[slot]['name']}" for slot in used)
    form = "" if config.method.form is None else f", form={config.method.form}"
    line(f"found   {_found(records)}")
    line(f"chosen  preset {config.preset}: {names}{form}")
    for reason in (*config.reasons, *taken(config, method.embedder)):
        line(f"        {reason}")
    line(f"time    {_cost(config, method, records, steps)[0]}")
    headed = config.model.head != "none" or config.transform.kind == "text"
    if steps and headed and records.captions is None:
        line("        --head-only gives a baseline first: the head in closed form, no step trained")
    line(f"result  {run.report_path}")
    live = config.own_slots(live=True)  # which only Python can give again
    given = ", ".join(f"{slot}=..." for slot in live)
    again = f"vicinal.train(resume={str(path)!r}, {given})" if live else f"`{run.resume_command()}`"
    line(f"        Ctrl-C stops; {again} goes on")
    if "model" in live:
        line(f"then    vicinal.load({str(path)!r}, module=...)")
        return
    commands = run.next_commands(tested="test" in records.splits)
    for word, command in zip(("then", "", ""), commands, strict=True):
        line(f"{word:<8}{command}")


def _found(records: Records) -> str:
    """Say how many records of how many classes each split holds."""
    uses = zip(
        records.counts().values(), ("to train on", "to select by", "to test on"), strict=True
    )
    parts = [f"{rows} of {classes} classes {use}" for (rows, classes), use in uses if rows]
    kind = "texts" if records.source.kind == "text" else records.source.kind
    captions = "" if records.captions is None else " and texts"
    return f"{len(records)} {kind}{captions} in {records.name}: {', '.join(parts)}"


def _cost(config: Config, method: Method, records: Records, steps: int) -> tuple[str, float]:
    """Say how long so many steps take, and return the bytes of a batch's activations.

    A step is measured with feature vectors as it is; with pictures, by the network's pass over a
    few of them and by how much longer the method's step takes than a plain one on small ones.
    """
    device = parallel.pick_device(config.training.device)
    transform = own_transform(config.transform)
    rows = config.training.batch_size if method.reads_records else len(method.batches(0)[0])
    words = f"{steps:,} steps of {rows} rows"
    plain = type(config.method) is Plain
    shape: tuple[int, ...] = ()
    small: tuple[int, ...] = ()
    if isinstance(transform, ImageTransform):
        shape = (transform.channels, transform.size, transform.size)
        if config.model.any_size and not plain:
            small = (transform.channels, SMALL, SMALL)
    elif transform.kind == "features":
        shape = small = records.source.read(0).shape
    bytes_used = 0.0
    if shape:  # not of a transform of the user's own, nor of texts
        seconds, bytes_used = (rows * each for each in _pass(method, shape, device))
        if not plain and seconds < QUICK:
            small = shape
        own = step_seconds(config, records, small) if small else None
        base = None
        if own is not None and not plain:
            base = step_seconds(config.replace(method=Plain()), records, small)
        times = own[0] / base[0] if own and base else None
        seconds = own[0] if own and small == shape else seconds * (times or 1.0)
        words += f", about {spell(seconds * steps)} on this {device.type}"
        if times is not None:
            words += f", {times:.1f} times as long as with method=plain"
    if not steps:
        words = "no step is trained: the head is set in closed form"
    else:
        words += ", and measuring"
    return words, bytes_used * min(1.0, (config.training.chunk or rows) / rows)


def _pass(method: Method, shape: tuple[int, ...], device: torch.device) -> tuple[float, float]:
    """Return the seconds and bytes that a row takes forward and backward in a copy of the
    network."""
    network = copy.deepcopy(method.embedder.streams[-1]).train()
    saved = 0

    def count(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal saved
        if not isinstance(tensor, torch.nn.Parameter):
            saved += tensor.numel() * tensor.element_size()
        return tensor

    with torch.random.fork_rng():  # training draws what it would draw without
        for _ in range(2):  # the first time, kernels are chosen
            inputs = torch.randn(ROWS, *shape, device=device)
            saved = 0
            began = time.perf_counter()
            with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
                network.embed(network.features(inputs)).sum().backward()  # type: ignore[no-untyped-call]
            if device.type == "cuda":
                torch.cuda.synchronize()
            seconds = time.perf_counter() - began
    return seconds / ROWS, saved / ROWS


def step_seconds(
    config: Config, records: Records, shape: tuple[int, ...]
) -> tuple[float, int] | None:
    """Time the fastest of three steps on random inputs of a shape, and count the steps of the run;
    None for a method that embeds the training records to plan its batches, and among several
    processes, which would have to take the steps together."""
    if parallel.processes() > 1:
        return None
    device = parallel.pick_device(config.training.device)
    train = records.part("train")
    with torch.random.fork_rng():
        method, steps = build_method(config, train, device)
        if method.reads_records:
            return None
        rows = np.array(method.batches(0)[0])
        columns = {name: torch.from_numpy(values[rows]) for name, values in train.columns.items()}
        labels = torch.from_numpy(train.labels[rows]).long()
        inputs = torch.randn(len(rows), *shape)
        batch = Batch(inputs, labels, torch.from_numpy(rows), columns).to(device)
        method.train()
        took = []
        for _ in range(3):
            began = time.perf_counter()
            method(batch)
            if device.type == "cuda":
                torch.cuda.synchronize()
            took.append(time.perf_counter() - began)
        return min(took), steps
