"""A recipe made real: data split, method built, everything that can be refused refused."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

import numpy as np
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from vicinal import parallel
from vicinal.data.loader import load
from vicinal.data.records import Batch, Records, Split
from vicinal.data.residency import Residency, resident_if_it_fits
from vicinal.data.resident import Resident
from vicinal.data.splits import hold_out, overlapping_classes
from vicinal.data.transforms import ImageTransform, Transform
from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.encoder import Embedded, Encoder
from vicinal.methods.method import Method, ReadsRecords
from vicinal.models.principal import start_as_discriminants, start_as_principal_components
from vicinal.run_directory import RunDirectory
from vicinal.training.console import Console
from vicinal.training.recipe import Recipe, settings

WORTH_SAYING = 1.0  # seconds: what planning an epoch may take without a word


@dataclass(frozen=True)
class Experiment:
    """What a run trains and measures.

    Attributes:
        records: all rows, the validation classes already cut from the training classes.
        resident: the images on the device, where they are kept there.
        notes: what a reader of the results should know about the data.
        console: where the planning of an epoch is followed.
    """

    recipe: Recipe
    records: Records
    train: Records
    method: Method
    device: torch.device
    workers: int
    resident: Resident | None
    notes: tuple[str, ...]
    console: Console = field(default_factory=lambda: Console(quiet=True))

    @property
    def preprocessing(self) -> Transform:
        return self.recipe.transform.evaluation()

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
        refuse_unequal_parts(plan)
        return plan

    def _planned(self, epoch: int) -> Sequence[Sequence[int]]:
        """The method's batches; where it embeds the training records for them, its cost is shown."""
        if not isinstance(self.method, ReadsRecords):
            return self.method.batches(epoch)
        began, title = time.monotonic(), f"planning epoch {epoch + 1}/{self.recipe.epochs}"
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
        transform, seed, skip = self.recipe.transform, self.recipe.seed, self.recipe.skip_corrupt
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
        """Embed records as the recipe says that they are read."""
        return encoder.embed(
            records,
            batch_size=self.recipe.batch_size,
            workers=self.workers,
            skip_corrupt=self.recipe.skip_corrupt,
            features=features,
            resident=self.resident,
            progress=progress,
        )

    def start_head(self, console: Console) -> None:
        """Let the head begin as the recipe says; once, before the first batch is planned."""
        start, embedder = self.recipe.start, self.method.embedder
        if start.head == "random":
            return
        with console.following(len(self.train), 0, "features of the training set") as follower:
            encoder = Encoder(embedder, self.preprocessing, self.device)
            found = self.embed(encoder, self.train, features=True, progress=follower.advance)
        if start.head == "principal":
            start_as_principal_components(embedder, found.vectors, start.length)
        else:
            start_as_discriminants(embedder, found.vectors, found.labels, start.length)
        head = parallel.from_first(lambda: {name: value.cpu() for name, value in embedder.head.state_dict().items()})
        embedder.head.load_state_dict(head)  # the same to the last bit in every process

    def selected(self, run: RunDirectory) -> Encoder:
        """The selected model of the run, whose folder only the first process needs to see."""
        encoder = parallel.from_first(lambda: Encoder.load(run))
        return Encoder(encoder.embedder.to(self.device), encoder.preprocessing, self.device)

    def untrained(self) -> Encoder:
        """The network as it was before the first step: the same seed gives it again."""
        method = build_method(self.recipe, self.train, self.device)
        return Encoder(method.embedder, self.preprocessing, self.device)


def prepare(recipe: Recipe, console: Console | None = None) -> Experiment:
    """Load and split the data, build the method; refuse what cannot work before anything is trained."""
    device = pick_device(recipe.device)
    records = recipe.data.load()
    if records.source.kind != recipe.transform.kind:
        raise ConfigError(
            f"the recipe prepares {recipe.transform.kind}, but {records.name} holds {records.source.kind}. "
            f"`vicinal recipes` lists a recipe for each."
        )
    if recipe.validation > 0:
        records = hold_out(records, recipe.validation, recipe.seed)
    train = records.part("train")
    if len(np.unique(train.labels)) < 2:
        raise DataError(
            f"{records.name} has {len(np.unique(train.labels))} training classes; learning needs at least 2."
        )
    measured: tuple[Split, ...] = ("validation", "test")
    for split in measured:
        _refuse_unmeasurable(records, split)
    method = build_method(recipe, train, device)
    shared = overlapping_classes(records)
    seen = (f"{len(shared)} classes are in training and test: the test measures known classes.",) if shared else ()
    unshared = _unshared_norms(method, device)
    workers = pick_workers(recipe, records)
    console = console or Console(quiet=True)
    with console.following(len(records), 0, "decoding") as follower:
        resident = resident_if_it_fits(
            records,
            recipe.transform,
            device,
            resident=_residency(recipe, device),
            workers=recipe.workers if parallel.local_processes() == 1 else workers,
            skip_corrupt=recipe.skip_corrupt,
            channels_last=device.type == "cuda",
            progress=follower.advance,
        )
    _refuse_difference(recipe, records, method)
    notes = seen + unshared + method.notes
    return Experiment(recipe, records, train, method, device, workers, resident, notes, console)


def refuse_unequal_parts(plan: Sequence[Sequence[int]]) -> None:
    """Rows are gathered without saying how many come from where, so every process brings as many as the others."""
    count = parallel.processes()
    for number, rows in enumerate(plan, 1):
        if len(rows) % count:
            raise ConfigError(
                f"{count} processes were to share each batch equally, but batch {number} has {len(rows)} rows. "
                f"Choose a batch size that {count} divides, or another number of processes."
            )


def _refuse_difference(recipe: Recipe, records: Records, method: Method) -> None:
    """Processes that train together start from the same settings, rows and weights, wherever each read its own."""
    if parallel.processes() == 1:
        return
    weights = sha256()
    for tensor in method.embedder.state_dict().values():
        weights.update(tensor.cpu().contiguous().numpy().tobytes())
    mine = {"settings": settings(recipe), "records": records.fingerprint(), "weights": weights.hexdigest()}
    for name, value in parallel.from_first(lambda: mine).items():
        if mine[name] != value:
            raise ConfigError(
                f"all processes start from the same {name}, but process {parallel.rank()} has others than process 0. "
                f"Use the same version, recipe, data and weight files on every machine."
            )


def _refuse_unmeasurable(records: Records, split: Split) -> None:
    """Retrieval needs something to find and something to confuse it with; say so before hours of training."""
    _, sizes = np.unique(records.part(split).labels, return_counts=True)
    if len(sizes) and (len(sizes) < 2 or sizes.max() < 2):
        raise DataError(
            f"the {split} part of {records.name} has {len(sizes)} classes of at most {sizes.max()} records; measuring "
            f"needs 2 classes, and 2 records in at least one. Move classes into it, or leave it empty."
        )


def build_method(recipe: Recipe, train: Records, device: torch.device) -> Method:
    torch.manual_seed(recipe.seed)
    method = recipe.build(train)
    _refuse_incomplete(method)
    method.to(device)
    if device.type == "cuda":
        method.embedder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if device.type == "cuda" and parallel.processes() > 1 and not _frozen(method):
        parallel.share_norms(method.embedder)
    return method


def _refuse_incomplete(method: Method) -> None:
    """Some of what a method brings is asked for only when training has ended: too late to learn that it is missing."""
    missing = [name for name in vars(Method) if not name.startswith("_") and not hasattr(method, name)]
    if missing:
        raise ConfigError(
            f"{type(method).__name__} was to train, but a method also has {', '.join(missing)}. "
            f"docs/adding_a_method.md says what for."
        )


def _frozen(method: Method) -> bool:
    return bool(getattr(method.embedder.backbone, "freeze_norm", False))


def _unshared_norms(method: Method, device: torch.device) -> tuple[str, ...]:
    """Torch synchronises batch norms on GPUs only; elsewhere say what several processes do instead."""
    moving = not _frozen(method) and any(isinstance(module, _BatchNorm) for module in method.embedder.modules())
    if parallel.processes() == 1 or device.type == "cuda" or not moving:
        return ()
    return (
        f"batch norm took its statistics from the rows of each of {parallel.processes()} processes, not from the whole "
        f"batch: one process, or GPUs, would give other numbers.",
    )


def _residency(recipe: Recipe, device: torch.device) -> Residency:
    """Each process would keep a copy of its own: on GPUs in its own memory, on a CPU in the one they share."""
    sharing = device.type == "cpu" and parallel.local_processes() > 1
    return "off" if recipe.resident == "auto" and sharing else recipe.resident


def pick_precision(wanted: str, device: torch.device) -> torch.dtype | None:
    """What the backbone trains in; None is what its parameters are in."""
    has = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if wanted == "bfloat16" or (wanted == "auto" and has) else None


def pick_device(wanted: str) -> torch.device:
    """Where to compute; of several processes on a machine each takes a GPU of its own."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device=cuda was asked for, but torch sees no GPU. Use device=cpu, or check the driver.")
    if wanted == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    if parallel.processes() > 1:
        if parallel.local_rank() >= torch.cuda.device_count():
            raise ConfigError(
                f"each process takes a GPU, but there are {parallel.local_processes()} processes on this machine and "
                f"{torch.cuda.device_count()} GPUs. Start fewer, or use device=cpu."
            )
        torch.cuda.set_device(parallel.local_rank())
    return torch.device("cuda")


def pick_workers(recipe: Recipe, records: Records) -> int:
    """Reading files is worth a process per core; arrays in memory are faster without."""
    if recipe.workers is not None:
        return recipe.workers
    return 0 if records.source.in_memory else min(8, max(1, (os.cpu_count() or 1) // parallel.local_processes()))
