"""A config made real: data split, method built, everything that cannot work rejected before training."""

import copy
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from vicinal import parallel
from vicinal.arguments import parameters
from vicinal.config import Config
from vicinal.data.loader import load
from vicinal.data.records import Batch, Records, Split
from vicinal.data.resident import Residency, Resident, resident_if_it_fits
from vicinal.data.splits import hold_out, overlapping_classes
from vicinal.data.transforms import ImageTransform, OwnTransform, Transform
from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.encoder import Embedded, Encoder
from vicinal.losses import LOSSES, Mined
from vicinal.methods.method import Method, Parts, ReadsRecords, Sampler
from vicinal.models import TwoStreamEmbedder
from vicinal.models.chunking import check_chunks
from vicinal.models.embedder import Embedder
from vicinal.models.starts import start_as_discriminants, start_as_principal_components, start_by_glorot
from vicinal.run_directory import RunDirectory
from vicinal.samplers import SAMPLERS
from vicinal.training.console import Console
from vicinal.training.trackers import check_trackers

WORTH_SAYING = 1.0  # seconds: what planning an epoch may take without a word


@dataclass(frozen=True)
class Experiment:
    """What a run trains and measures.

    Attributes:
        steps: number of updates in all.
        records: all rows, the validation classes already cut from the training classes.
        resident: the images on the device, where they are kept there.
        notes: what a reader of the results should know about the data.
        console: where the planning of an epoch is followed.
    """

    config: Config
    records: Records
    train: Records
    method: Method
    steps: int
    device: torch.device
    workers: int
    resident: Resident | None
    notes: tuple[str, ...]
    console: Console = field(default_factory=lambda: Console(quiet=True))

    @property
    def preprocessing(self) -> Transform:
        return self.config.transform.evaluation()

    @property
    def encoder(self) -> Encoder:
        """The network in training, with the preprocessing it is measured with."""
        return Encoder(self.method.embedder, self.preprocessing, self.device)

    def plan(self, epoch: int) -> Sequence[Sequence[int]]:
        """What the method wants to see in ``epoch``; with several processes, what it wants in the first one."""
        wanted = self._planned(epoch)
        if not len(wanted):
            raise ConfigError(f"the method plans no batch for epoch {epoch + 1}. Lower the batch size or add data.")
        plan = parallel.from_first(lambda: wanted)
        check_equal_parts(plan)
        return plan

    def _planned(self, epoch: int) -> Sequence[Sequence[int]]:
        """The method's batches; where it embeds the training records for them, its cost is shown."""
        if not isinstance(self.method, ReadsRecords):
            return self.method.batches(epoch)
        began, title = time.monotonic(), f"planning epoch {epoch + 1}"
        with self.console.following(len(parallel.part(range(len(self.train)))), 0, title) as follower:
            self.method.read_by(self.resident, workers=self.workers, progress=follower.advance)
            wanted = self.method.batches(epoch)
            self.method.read_by(self.resident, workers=self.workers)  # the bar is gone when it is asked again
        seconds = time.monotonic() - began
        if seconds >= WORTH_SAYING:
            self.console.line(f"{title}: {len(self.train)} training records embedded in {seconds:.1f} s")
        return wanted

    def batches(self, plan: Sequence[Sequence[int]], *, epoch: int, start: int) -> Iterator[Batch]:
        """The batches of an epoch's plan from number ``start`` on, augmented, on the device: this process's rows."""
        whole = plan[start:]
        rest = [parallel.part(rows) for rows in whole]
        training = self.config.training
        transform, seed, skip = self.config.transform, training.seed, training.skip_corrupt
        if self.resident is not None and isinstance(transform, ImageTransform):
            read = self.resident.load(self.train, rest, transform, seed=seed, epoch=epoch, skip_corrupt=skip)
        else:
            read = load(self.train, rest, transform, seed=seed, epoch=epoch, workers=self.workers, skip_corrupt=skip)
        for rows, batch in zip(whole, read, strict=True):
            largest = int(np.bincount(self.train.labels[np.asarray(rows)]).max())
            yield replace(batch.to(self.device), largest_class=largest)

    def embed(
        self,
        encoder: Encoder,
        records: Records,
        *,
        features: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Embedded:
        """Embed records, read as the config says."""
        return encoder.embed(
            records,
            batch_size=self.config.evaluation.batch_size,
            workers=self.workers,
            skip_corrupt=self.config.training.skip_corrupt,
            features=features,
            resident=self.resident,
            progress=progress,
        )

    def start_head(self, console: Console) -> None:
        """Initialize the head as ``model.start`` says; once, before the first batch is planned."""
        model, embedder = self.config.model, self.method.embedder
        if model.start == "random":
            return
        if model.start == "glorot":
            start_by_glorot(embedder, self.config.training.seed)
            return
        with console.following(len(self.train), 0, "features of the training set") as follower:
            encoder = Encoder(embedder, self.preprocessing, self.device)
            found = self.embed(encoder, self.train, features=True, progress=follower.advance)
        if model.start == "principal":
            start_as_principal_components(embedder, found.vectors, model.start_length)
        else:
            start_as_discriminants(embedder, found.vectors, found.labels, model.start_length)
        head = parallel.from_first(lambda: {name: value.cpu() for name, value in embedder.head.state_dict().items()})
        embedder.head.load_state_dict(head)  # the same to the last bit in every process

    def selected(self, run: RunDirectory) -> Encoder:
        """The selected model of the run, whose folder only the first process needs to see."""
        encoder = parallel.from_first(lambda: Encoder.load(run, trust=self.method.embedder))
        return Encoder(encoder.embedder.to(self.device), encoder.preprocessing, self.device)

    def untrained(self) -> Encoder:
        """The network as it was before the first step: the same seed gives it again."""
        method, _ = build_method(self.config, self.train, self.device)
        return Encoder(method.embedder, self.preprocessing, self.device)


def prepare(config: Config, console: Console | None = None) -> Experiment:
    """Load and split the data, build the method; reject what cannot work before anything is trained."""
    training = config.training
    device = parallel.pick_device(training.device)
    records = config.data.load()
    if records.source.kind != config.transform.kind:
        raise ConfigError(
            f"the transform prepares {config.transform.kind}, got {records.name} with {records.source.kind}. "
            f"Leave `transform` out, or name another preset."
        )
    if training.validation > 0:
        records = hold_out(records, training.validation, training.seed)
    train = records.part("train")
    if len(np.unique(train.labels)) < 2:
        raise DataError(
            f"{records.name} has {len(np.unique(train.labels))} training classes; learning needs at least 2."
        )
    measured: tuple[Split, ...] = ("validation", "test")
    for split in measured:
        _check_unmeasurable(records, split)
    check_trackers(training.trackers)
    method, steps = build_method(config, train, device)
    shared = overlapping_classes(records)
    seen = (f"{len(shared)} classes are in training and test: the test measures known classes.",) if shared else ()
    unshared = _unshared_norms(method, device)
    workers = pick_workers(config, records)
    console = console or Console(quiet=True)
    with console.following(len(records), 0, "decoding") as follower:
        resident = resident_if_it_fits(
            records,
            config.transform,
            device,
            resident=_residency(config, device),
            workers=training.workers if parallel.local_processes() == 1 else workers,
            skip_corrupt=training.skip_corrupt,
            channels_last=device.type == "cuda",
            progress=follower.advance,
        )
    _check_difference(config, records, method)
    notes = seen + unshared + method.notes
    return Experiment(config, records, train, method, steps, device, workers, resident, notes, console)


def check_equal_parts(plan: Sequence[Sequence[int]]) -> None:
    """Rows are gathered without saying how many come from where, so every process brings as many as the others."""
    count = parallel.processes()
    for number, rows in enumerate(plan, 1):
        if len(rows) % count:
            raise ConfigError(
                f"{count} processes were to share each batch equally, but batch {number} has {len(rows)} rows. "
                f"Choose a batch size that {count} divides, or another number of processes."
            )


def _check_difference(config: Config, records: Records, method: Method) -> None:
    """Processes that train together start from the same settings, rows and weights, wherever each read its own."""
    if parallel.processes() == 1:
        return
    weights = sha256()
    for tensor in method.embedder.state_dict().values():
        weights.update(tensor.cpu().contiguous().numpy().tobytes())
    mine = {"settings": config.slots(), "records": records.fingerprint(), "weights": weights.hexdigest()}
    for name, value in parallel.from_first(lambda: mine).items():
        if mine[name] != value:
            raise ConfigError(
                f"all processes start from the same {name}, but process {parallel.rank()} has others than process 0. "
                f"Use the same version, settings, data and weight files on every machine."
            )


def _check_unmeasurable(records: Records, split: Split) -> None:
    """Retrieval needs something to find and something to confuse it with; say so before hours of training."""
    _, sizes = np.unique(records.part(split).labels, return_counts=True)
    if len(sizes) and (len(sizes) < 2 or sizes.max() < 2):
        raise DataError(
            f"the {split} part of {records.name} has {len(sizes)} classes of at most {sizes.max()} records; measuring "
            f"needs 2 classes, and 2 records in at least one. Move classes into it, or leave it empty."
        )


def build_method(config: Config, train: Records, device: torch.device) -> tuple[Method, int]:
    """The method of a config for these training records, and for how many steps it was built."""
    torch.manual_seed(config.training.seed)
    parts = build_parts(config, train)
    config.method.check(parts.loss, parts.sampler)
    method = config.method.build(parts)
    if (rows := config.training.chunk) is not None:
        if not config.method.chunkable:
            raise ConfigError("ALA differentiates through its own update, which training.chunk cannot. Leave it out.")
        check_chunks(method.embedder, rows)
        for stream in method.embedder.streams:
            stream.chunk = rows
    method.place(device)
    if device.type == "cuda":
        method.embedder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if device.type == "cuda" and parallel.processes() > 1 and not _frozen(method):
        parallel.share_norms(method.embedder)
    return method, parts.steps


def build_parts(config: Config, train: Records) -> Parts:
    """Network, sampler and loss of a config. The network is drawn first: one seed gives every method the same."""
    training = config.training
    embedder = _build_embedder(config, train)
    sampler = build_sampler(config, train)
    loss = build_loss(config, train.labels, embedder.embedding_dim)
    return Parts(
        embedder=embedder,
        loss=loss,
        sampler=sampler,
        optimizer=config.optimizer,
        train=train,
        preprocessing=config.transform.evaluation(),
        steps=training.steps or training.epochs * len(sampler),
        seed=training.seed,
        batch_size=config.evaluation.batch_size,
        skip_corrupt=training.skip_corrupt,
    )


def _build_embedder(config: Config, train: Records) -> Embedder:
    if config.transform.kind == "features":
        return config.model.build(width=train.source.read(0).shape[0])
    channels = getattr(config.transform, "channels", 3)
    size = getattr(config.transform, "size", None)
    embedder = config.model.build(channels=channels, size=size)
    if "role" in train.columns and config.model.streams == 2:
        return TwoStreamEmbedder(embedder, copy.deepcopy(embedder))  # both start alike
    return embedder


def build_sampler(config: Config, train: Records) -> Sampler:
    """The sampler of a config, with batches no larger than these records fill."""
    part = config.sampler
    if part.own is not None:
        return OwnSampler(part.own, train.labels)
    kind = part.kind or SAMPLERS[part.name]
    arguments = {name: value for name, value in part.arguments.items() if value is not None}
    if "roles" in parameters(getattr(kind, "fitted", kind)) and "role" in train.columns:
        arguments["roles"] = train.columns["role"]
    if not hasattr(kind, "fitted"):
        derived = {"labels": train.labels, "seed": config.training.seed}
        return OwnSampler(
            kind(**{k: v for k, v in derived.items() if k in parameters(kind)}, **arguments), train.labels
        )
    sampler: Sampler = kind.fitted(
        train.labels, batch_size=config.training.batch_size, seed=config.training.seed, **arguments
    )
    return sampler


class OwnSampler:
    """A sampler of the user's own: any iterable of index lists, or a function of the training labels that gives one.

    A torch ``Sampler`` with ``set_epoch`` is told the epoch; one without it must give the same batches when it is asked
    again, or a resumed run sees others than the interrupted one.
    """

    def __init__(self, given: Any, labels: np.ndarray) -> None:
        self.sampler = given if hasattr(given, "epoch") or hasattr(given, "__iter__") else given(labels)
        self.rows = len(labels)
        self.note: str | None = getattr(self.sampler, "note", None)
        self._length = len(self.epoch(0))

    def epoch(self, number: int) -> Sequence[Sequence[int]]:
        plan: Sequence[Sequence[int]]
        if hasattr(self.sampler, "epoch"):
            plan = self.sampler.epoch(number)
        else:
            if hasattr(self.sampler, "set_epoch"):
                self.sampler.set_epoch(number)
            plan = [[int(row) for row in batch] for batch in self.sampler]
        bad = next((row for batch in plan for row in batch if not 0 <= row < self.rows), None)
        if bad is not None:
            raise ConfigError(
                f"your sampler gives row {bad}, but there are {self.rows} training records. Give a function of the "
                f"training labels: sampler=lambda labels: MySampler(labels)."
            )
        return plan

    def __len__(self) -> int:
        return self._length


def build_loss(config: Config, labels: np.ndarray, dim: int) -> nn.Module:
    """The loss of a config for training labels and the size of the embeddings."""
    part = config.loss
    if part.own is not None:
        if not isinstance(part.own, nn.Module):
            raise ConfigError(f"loss is a torch module over (embeddings, labels), got {type(part.own).__name__}.")
        return copy.deepcopy(part.own)  # a second run must not begin where the first one ended
    kind, arguments = part.kind or LOSSES[part.name], dict(part.arguments)
    miner = arguments.pop("miner", None)
    classes = np.unique(labels)
    derived = {
        "classes": len(classes),
        "dim": dim,
        "known": tuple(classes.tolist()),
        "seed": config.training.seed,
        "blocks": config.sampler.name == getattr(kind, "layout", None),
    }
    known = parameters(kind)
    loss: nn.Module = kind(**{k: v for k, v in derived.items() if k in known and k not in arguments}, **arguments)
    return loss if miner is None else Mined(loss, miner, seed=config.training.seed)


def _frozen(method: Method) -> bool:
    frozen = bool(getattr(method.embedder.backbone, "freeze_norm", False))
    return frozen and not method.embedder.head_norm  # which learns whatever the backbone's do


def _unshared_norms(method: Method, device: torch.device) -> tuple[str, ...]:
    """Torch synchronises batch norms on GPUs only; elsewhere say what several processes do instead."""
    moving = not _frozen(method) and any(isinstance(module, _BatchNorm) for module in method.embedder.modules())
    if parallel.processes() == 1 or device.type == "cuda" or not moving:
        return ()
    return (
        f"batch norm took its statistics from the rows of each of {parallel.processes()} processes, not from the whole "
        f"batch: one process, or GPUs, would give other numbers.",
    )


def _residency(config: Config, device: torch.device) -> Residency:
    """Each process would keep a copy of its own: on GPUs in its own memory, on a CPU in the one they share."""
    sharing = device.type == "cpu" and parallel.local_processes() > 1
    wanted = config.training.resident
    return "off" if wanted == "auto" and sharing else wanted


def pick_precision(wanted: str, device: torch.device) -> torch.dtype | None:
    """What the backbone trains in; None is what its parameters are in."""
    has = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if wanted == "bfloat16" or (wanted == "auto" and has) else None


def pick_workers(config: Config, records: Records) -> int:
    """Reading files is worth a process per core; arrays in memory are faster without."""
    if config.training.workers is not None:
        return config.training.workers
    if isinstance(config.transform, OwnTransform) and not _travels(config.transform):
        return 0
    return 0 if records.source.in_memory else min(8, max(1, (os.cpu_count() or 1) // parallel.local_processes()))


def _travels(transform: OwnTransform) -> bool:
    """Whether other processes can be given the transform; a lambda, for example, cannot travel."""
    try:
        ForkingPickler.dumps(transform)
    except Exception:  # whatever an object of the user's own raises
        return False
    return True
