"""A config made real: data split, method built, everything that cannot work rejected before
training."""

import copy
import itertools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from vicinal import parallel
from vicinal.arguments import parameters
from vicinal.config import Config
from vicinal.data.loader import (
    WORTH_PROCESSES,
    Loader,
    free_memory,
    keep_decoded,
    load_all,
    open_cache,
    start_early,
    travels,
)
from vicinal.data.records import Batch, FeatureArray, Records
from vicinal.data.splits import hold_out, overlapping_classes
from vicinal.data.transforms import (
    FeatureTransform,
    ImageTransform,
    OwnTransform,
    Transform,
    own_transform,
)
from vicinal.distances import Poincare
from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.encoder import Embedded, Encoder
from vicinal.evaluation.measure import evaluate
from vicinal.evaluation.retrieval import QueryScores, query_score
from vicinal.evaluation.statistics import Estimate, class_bootstrap
from vicinal.files import Document, read_object, write_tensors
from vicinal.losses import NestedLoss
from vicinal.losses.loss import tuple_loss
from vicinal.losses.proxies import start_at_means, wants_means
from vicinal.methods import Plain
from vicinal.methods.method import Method, Parts
from vicinal.miners import Mined
from vicinal.models import TwoStreamEmbedder, starts
from vicinal.models.backbone import (
    PUBLIC,
    Backbone,
    first_line,
    forbids_commerce,
    probe,
    read_weights,
)
from vicinal.models.config import COMPUTED_STARTS, ModelConfig
from vicinal.models.embedder import Embedder, check_chunks
from vicinal.models.finetuning import FrozenPart
from vicinal.reports.tables import metric_title
from vicinal.run_directory import RunDirectory
from vicinal.samplers import BatchSampler
from vicinal.training.console import Console
from vicinal.training.trackers import check_trackers

# -- which step is kept ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """How well the held-out classes are found: for each the sum of its queries' scores, and how
    many they are."""

    sums: tuple[float, ...]
    queries: tuple[int, ...]

    @property
    def score(self) -> float:
        return sum(self.sums) / sum(self.queries)

    @property
    def error(self) -> float:
        """Standard error of the score over classes drawn anew (Cochran 1977, Eq. 2.39).

        √(C / (C - 1) Σ_c (s_c - m q_c)²) / Σ_c q_c
        """
        off = np.asarray(self.sums) - self.score * np.asarray(self.queries)
        freedom = max(1, len(off) - 1)
        return math.sqrt(len(off) / freedom * float(off @ off)) / sum(self.queries)

    def above(self, other: "Verdict") -> Estimate:
        """By how much this verdict is above another of the same judge, over classes drawn anew."""
        ours, theirs, queries = map(np.asarray, (self.sums, other.sums, self.queries))
        return class_bootstrap(ours, theirs, queries, draws=2_000)


class Judged(NamedTuple):
    """What a judge says of a model: the verdict that counts, and all scores by name."""

    verdict: Verdict
    scores: dict[str, float]


class Judge:
    """Scores models on the validation records.

    MAP@R tells models apart where Recall@1 stands at 99 %: over 40 runs it chose steps whose test
    MAP@R was 0.03 below the best step's, Recall@1 0.35 (``experiments/selection.md``).

    Args:
        records: the validation records.
        reading: how ``Encoder.embed`` reads them.
        by: name of the score that counts, or a function of the user's own: ``(embeddings [n d],
            labels [n])`` to a score for each row, the larger the better. Where rows are sought in a
            gallery it also gets ``gallery`` and ``gallery_labels``.
    """

    def __init__(self, records: Records, by: str | Callable[..., Any], reading: Document) -> None:
        self.own = by if callable(by) else None
        self.by = getattr(by, "__name__", "own metric") if callable(by) else by
        if self.own is None:
            query_score(
                self.by, torch.ones(1, 1, dtype=torch.bool), torch.ones(1, dtype=torch.long)
            )
        self.records = records
        self.reading = reading

    def __len__(self) -> int:
        return len(self.records)

    def __call__(self, encoder: Encoder) -> Judged:
        embedded = encoder.embed(self.records, **self.reading)
        queries, labels, gallery = embedded.sides()
        own = () if self.own else (self.by,)
        metrics = tuple(dict.fromkeys((*own, "recall@1", "map@r")))
        scores = evaluate(
            queries, labels, **gallery, metrics=metrics, metric=embedded.metric, together=True
        )
        held = scores.queries
        if self.own:
            each = torch.as_tensor(self.own(queries, labels, **gallery)).double().cpu()
            if each.shape != labels.shape[:1] or not bool(each.isfinite().all()):
                raise ConfigError(
                    f"training.select={self.by} gives a finite score for each of {len(labels)} "
                    f"rows, got {each}."
                )
            held = QueryScores(labels.cpu(), {self.by: each}, torch.arange(len(each)))
            scores |= held.means()
        table = held.by_class()
        verdict = Verdict(tuple(table[self.by].tolist()), tuple(table["queries"].tolist()))
        found = Judged(verdict, dict(scores))
        return parallel.from_first(lambda: found)  # on other processors the last digit may differ


# -- experiment ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Experiment:
    """What a run trains and measures.

    Attributes:
        steps: number of updates in all.
        records: all rows, the validation classes already cut from the training classes.
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
    notes: tuple[str, ...]
    console: Console

    @property
    def preprocessing(self) -> Transform:
        return self.config.transform.evaluation()

    @property
    def encoder(self) -> Encoder:
        """Return the network in training, with the preprocessing it is measured with."""
        return Encoder(self.method.embedder, self.preprocessing, self.device)

    def plan(self, epoch: int) -> Sequence[Sequence[int]]:
        """Return the batches that the method wants in ``epoch``; with several processes, those of
        the first one."""
        if self.method.reads_records:
            title = f"planning epoch {epoch + 1}"
            self.method.embed_records = partial(self.embed_train, title)
        wanted = self.method.batches(epoch)
        if not len(wanted):
            raise ConfigError(
                f"the method plans no batch for epoch {epoch + 1}. Lower the batch size or add "
                "data."
            )
        plan = parallel.from_first(lambda: [[*map(int, rows)] for rows in wanted])
        check_equal_parts(plan)
        return plan

    def embed_train(self, title: str, *, features: bool = False) -> Embedded:
        """Embed the training records, and show how far that is."""
        mine = len(parallel.part(range(len(self.train))))
        with self.console.following(mine, 0, title) as follower:
            return self.embed(
                self.encoder, self.train, features=features, progress=follower.advance
            )

    @cached_property
    def features(self) -> Embedded:
        """What the network makes of the training records."""
        return self.embed_train("features of the training set", features=True)

    def batches(self, plan: Sequence[Sequence[int]], *, epoch: int, start: int) -> Iterator[Batch]:
        """Yield this process's rows of an epoch's batches from number ``start`` on, augmented, on
        the device."""
        mine = [parallel.part(rows) for rows in plan[start:]]
        for rows, batch in zip(plan[start:], self._loader.batches(mine, epoch), strict=True):
            largest = int(np.bincount(self.train.labels[np.asarray(rows)]).max())
            yield replace(batch.to(self.device), largest_class=largest)

    @cached_property
    def _loader(self) -> Loader:
        """Return what reads the training records from files, by processes that stay for all
        epochs."""
        training = self.config.training
        maps = self._frozen_maps()
        return Loader(
            self.train if maps is None else replace(self.train, source=maps),
            self.config.transform if maps is None else FeatureTransform(),
            seed=training.seed,
            workers=self.workers,
            corrupt="replace" if training.skip_corrupt else "raise",
            device=self.device,
        )

    def _frozen_maps(self) -> FeatureArray | None:
        """Compute for each training picture what the frozen part of the network makes of it; None
        where that changes from step to step, or takes a quarter of the free memory."""
        embedder = self.method.embedder
        transform = self.config.transform
        if (
            embedder.freeze is None
            or embedder.precision is not None
            or self.config.training.compile == "on"
            or type(self.method) is not Plain  # others mix or copy what they are given
            or not isinstance(transform, ImageTransform)
            or transform.crop != "center"
            or transform.mirror
            or self.config.training.skip_corrupt
            or self.device.type != "cpu"
            or parallel.processes() > 1
        ):
            return None
        fixed = replace(transform, test_size=None)
        batches = load_all(self.train, fixed, workers=self.workers, device=self.device)
        first = next(batches)
        part = FrozenPart(embedder.backbone, first.inputs[:4])
        pooled = embedder.pool if part.end is embedder.backbone else nn.Identity()
        rows = list[Tensor]()
        embedder.eval()
        with torch.no_grad():
            if part.holds():
                size = pooled(part.expected)[0].nbytes * len(self.train)
                if size <= free_memory(self.device) / 4:
                    every = itertools.chain([first], batches)
                    rows = [pooled(part.maps(batch.inputs)) for batch in every]
        embedder.train()
        if not rows:
            return None
        self.console.line("what the frozen part makes of each picture is computed once")
        embedder.frozen = part
        part.shape = rows[0].shape[1:]
        return FeatureArray(torch.cat(rows).flatten(1).numpy(), self.train.names())

    def embed(self, encoder: Encoder, records: Records, **how: Any) -> Embedded:
        """Embed records as ``Encoder.embed`` does, read as the config says."""
        return encoder.embed(records, **how, **self.reading)

    @property
    def reading(self) -> Document:
        """Return how ``Encoder.embed`` reads records."""
        return {
            "batch_size": self.config.evaluation.batch_size,
            "workers": self.workers,
            "skip_corrupt": self.config.training.skip_corrupt,
        }

    @cached_property
    def judge(self) -> Judge:
        """Return what tells models apart by the classes held out of training."""
        return Judge(self.records.part("validation"), self.config.training.select, self.reading)

    def begin(self) -> Sequence[Sequence[int]] | None:
        """Initialize the head and return the batches of the first epoch, if any; once, at the start
        of a run."""
        self.start_head()
        self.start_proxies()
        return self.plan(0) if self.steps else None

    def start_head(self) -> None:
        """Initialize the head as ``model.start`` says, unless a run brought one."""
        model = self.config.model
        embedder = self.method.embedder
        if model.start == "random" or (embedder.took_head and self.steps):
            return
        if model.start == "glorot":
            starts.start_by_glorot(embedder, self.config.training.seed)
            return
        found = self.features
        if self.steps:
            vars(self).pop("features")  # they need memory, and change
        if model.start == "principal":
            starts.start_as_principal_components(embedder, found.vectors, model.start_length)
        elif model.start == "discriminant":
            starts.start_as_discriminants(embedder, found.vectors, found.labels, model.start_length)
        elif model.start == "fitted":
            starts.start_by_estimator(
                embedder, found.vectors, found.labels, model.name, model.arguments
            )
        else:
            self._start_best(found)
        head = parallel.from_first(
            lambda: {name: value.cpu() for name, value in embedder.head.state_dict().items()}
        )
        embedder.head.load_state_dict(head)  # the same to the last bit in every process

    def start_proxies(self) -> None:
        """Put proxies at class means, as ``loss.start`` says."""
        loss = self.method.loss
        if self.steps and wants_means(loss, usual=self.method.embedder.took_head):
            found = self.embed(self.encoder, self.train)
            start_at_means(loss, found.vectors, found.labels)
            if not any(isinstance(each, parallel.Shard) for each in loss.parameters()):
                loss.load_state_dict(parallel.from_first(loss.state_dict))

    def _start_best(self, found: Embedded) -> None:
        """Start as the features are, unless their discriminants are better on the held-out
        classes."""
        embedder = self.method.embedder
        starts.start_as_features(embedder, found.vectors)
        if not len(self.judge):
            self.console.line(
                "the head starts as the features are: no held-out classes could choose another "
                "start"
            )
            return
        plain = self.judge(self.encoder).verdict.score
        heads = copy.deepcopy(embedder.head.state_dict())
        starts.start_as_discriminants(
            embedder, found.vectors, found.labels, self.config.model.start_length
        )
        discriminant = self.judge(self.encoder).verdict.score
        if discriminant <= plain:
            embedder.head.load_state_dict(heads)
        won = "their discriminants" if discriminant > plain else "the features are"
        scores = (
            f"validation {metric_title(self.judge.by)} {100 * plain:.1f} as they are, "
            f"{100 * discriminant:.1f} as discriminants"
        )
        self.console.line(f"the head starts as {won}: {scores}")

    def save_head(self, run: RunDirectory) -> None:
        """Keep the head that training starts from, in closed form or of a run, for its row of the
        results."""
        embedder = self.method.embedder
        known = self.config.model.start in COMPUTED_STARTS or embedder.took_head
        if known and self.steps > 0 and len(embedder.streams) == 1:
            write_tensors(run.head_path, embedder.head.state_dict())

    def selected(self, run: RunDirectory) -> Encoder:
        """Load the selected model of the run, whose folder only the first process needs to see."""
        encoder = parallel.from_first(lambda: Encoder.load(run, trust=self.method.embedder))
        return Encoder(encoder.embedder.to(self.device), encoder.preprocessing, self.device)

    def untrained(self) -> Encoder:
        """Build the network as it was before the first step: the same seed gives it again."""
        method, _ = build_method(self.config, self.train, self.device)
        return Encoder(method.embedder, self.preprocessing, self.device)


def load_records(config: Config) -> tuple[Config, Records]:
    """Load the data; return the config that fits them, and the records with the validation classes
    that it asks for."""
    records = config.data.load()
    classes = records.counts()["train"][1]
    tested = records.counts()["test"][1]
    if classes < 2:
        advice = "Add classes."
        if tested and (share := getattr(config.data, "test", 0)):
            advice = (
                f"data.test={share:g} keeps {tested} for testing. Add classes, or set data.test=0 "
                "to train on all and measure on none."
            )
        raise DataError(
            f"{records.name} has {classes} training classes; learning needs at least 2. {advice}"
        )
    config = config.fitted(records)
    share = config.training.validation
    seed = config.training.seed
    return config, hold_out(records, share, seed) if share > 0 else records


def prepare(
    config: Config,
    console: Console | None = None,
    introduce: Callable[[Experiment], None] | None = None,
) -> Experiment:
    """Load and split the data, build the method; reject what cannot work before anything is
    trained.

    ``introduce`` is called before images are decoded.
    """
    training = config.training
    device = parallel.pick_device(training.device)
    check_trackers(training.trackers, training.tracker_mode)
    cache = open_cache(training.cache)
    config, records = load_records(config)
    if records.source.kind != config.transform.kind:
        raise ConfigError(
            f"the transform prepares {config.transform.kind}, got {records.name} with "
            f"{records.source.kind}. Leave `transform` out, or name another preset."
        )
    train = records.part("train")
    _check_measurable(records)
    workers = pick_workers(config, records, device)
    sharing = parallel.local_processes() > 1
    if workers and cache is None and len(records) >= WORTH_PROCESSES:
        start_early()
    method, steps = build_method(config, train, device)
    # What a reader of the results should know about the data and about several processes.
    notes = [*taken(config, method.embedder)]
    if shared := overlapping_classes(records):
        notes.append(
            f"{len(shared)} classes are in training and test: the test measures known classes."
        )
    count = parallel.processes()
    learns = any(isinstance(module, _BatchNorm) for module in method.embedder.modules())
    if count > 1 and device.type != "cuda" and learns and not norms_are_frozen(method.embedder):
        notes.append(  # torch synchronizes batch norms on GPUs only
            f"batch norm took its statistics from the rows of each of {count} processes, not from "
            "the whole batch: one process, or GPUs, would give other numbers."
        )
    kept = "there is no head" if config.model.head == "none" else "the head was set in closed form"
    closed = (f"{kept}; no step was trained.",)
    notes += closed if training.head_only else method.notes
    console = console or Console(quiet=True)
    for each in pretrained(config.model, method.embedder):
        if forbids_commerce(each["license"]):
            notes += (
                f"the pretrained weights' license, {each['license']}, forbids commercial use",
            )
            console.line(notes[-1], warning=True)
    experiment = Experiment(
        config, records, train, method, steps, device, workers, tuple(notes), console
    )
    if introduce is not None:
        introduce(experiment)
    if count > 1 and method.undivided:
        why = "; ".join(method.undivided)
        console.line(f"every process computes the loss of the whole batch: {why}")
    with console.following(len(records), 0, "decoding") as follower:
        keep_decoded(
            records,
            config.transform,
            device,
            # On a CPU each process would keep a copy of its own in the memory that they share.
            resident="off"
            if training.resident == "auto" and sharing and device.type == "cpu"
            else training.resident,
            workers=workers if sharing else training.workers,
            skip_corrupt=training.skip_corrupt,
            cache=cache,
            progress=follower.advance,
        )
    check_equal_start(config, records, method)
    return experiment


def _check_measurable(records: Records) -> None:
    """Retrieval needs something to find and something to confuse it with; say so before hours of
    training."""
    for split, (rows, classes) in records.counts().items():
        most = records.part(split).sizes().max(initial=0)
        if split != "train" and rows and (classes < 2 or most < 2):
            raise DataError(
                f"the {split} part of {records.name} has {rows} records of {classes} classes; "
                "measuring needs 2 classes, and 2 records in at least one. Move classes into it, "
                "or leave it empty."
            )


def check_equal_parts(plan: Sequence[Sequence[int]]) -> None:
    """Raise a ConfigError for a batch that the processes cannot share equally: its rows are
    gathered without counts."""
    count = parallel.processes()
    for number, rows in enumerate(plan, 1):
        if len(rows) % count:
            raise ConfigError(
                f"{count} processes were to share each batch equally, but batch {number} has "
                f"{len(rows)} rows. "
                f"Choose a batch size that {count} divides, or another number of processes."
            )


def check_equal_start(config: Config, records: Records, method: Method) -> None:
    """Processes that train together start from the same settings and rows, wherever each read its
    own, and from the weights of the first one."""
    if parallel.processes() == 1:
        return
    parallel.spread(method.embedder.state_dict().values())
    mine = {"settings": config.slots(), "records": records.fingerprint()}
    for name, value in parallel.from_first(lambda: mine).items():
        if mine[name] != value:
            raise ConfigError(
                f"all processes start from the same {name}, but process {parallel.rank()} has "
                "others than process 0. "
                f"Use the same version, settings and data on every machine."
            )


def pick_precision(wanted: str, device: torch.device) -> torch.dtype | None:
    """Return what the backbone trains in; None is what its parameters are in."""
    has = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    if wanted == "auto":
        return torch.bfloat16 if has else None
    return {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(wanted)


def pick_workers(config: Config, records: Records, device: torch.device) -> int:
    """Return a process per core where files are read, up to 16 beside a GPU; arrays in memory are
    faster without."""
    if config.training.workers is not None:
        return config.training.workers
    if isinstance(config.transform, OwnTransform) and not travels(config.transform):
        return 0
    most = 16 if device.type == "cuda" else 8
    cores = (os.cpu_count() or 1) // parallel.local_processes()
    return 0 if records.source.in_memory else min(most, max(1, cores))


# -- building ---------------------------------------------------------------------------------


def build_method(config: Config, train: Records, device: torch.device) -> tuple[Method, int]:
    """Build the method of a config for these training records; return it with the number of steps
    to take.

    The network is drawn first, so that one seed gives every method the same.
    """
    training = config.training
    torch.manual_seed(training.seed)
    embedder = _build_stream(config, train)
    if train.captions is not None:
        embedder = TwoStreamEmbedder(config.model.build_text(), embedder)
    if config.model.from_run:
        embedder.take(read_weights(Path(config.model.weights)))
        if embedder.left and not embedder.backbone.state_dict():
            raise ConfigError(
                f"the head is all that a run over vectors has, and that of model.weights="
                f"{config.model.weights} does not fit these vectors or this model.dim. Set "
                "model.weights=none."
            )
    sampler = _build_sampler(config, train)
    loss = _build_loss(config, train.labels, embedder.embedding_dim)
    steps = training.steps or training.epochs * len(sampler)
    parts = Parts(
        embedder,
        loss,
        sampler,
        config.optimizer,
        train,
        steps,
        training.seed,
    )
    if train.every is not None:
        _check_several(config, loss)
    method = config.method.build(parts)
    if training.chunk is not None:
        check_chunks(method.embedder, training.chunk)
        for stream in method.embedder.streams:
            stream.chunk = training.chunk
    method.place(device)
    method.embedder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if device.type == "cuda" and parallel.processes() > 1 and not norms_are_frozen(method.embedder):
        parallel.share_norms(method.embedder)
    return method, 0 if training.head_only else steps


def _check_several(config: Config, loss: nn.Module) -> None:
    """Raise a ConfigError for what takes one class for each row."""
    own = config.loss.own is not None
    parts = getattr(loss, "losses", [loss])
    single = [one for one in parts if not getattr(one, "multi_label", own)]
    faults = {
        f"method={config.method.title}": type(config.method) is not Plain,
        f"model.start={config.model.start}": config.model.start == "fitted",
        f"loss={config.loss.name}": bool(single),
    }
    for fault in [words for words, wrong in faults.items() if wrong]:
        raise ConfigError(
            f"rows of these data have several labels, but {fault} takes one class for each. Set "
            "method=plain and a loss over pairs, triplets or rankings without a miner, such as "
            "loss=multi_similarity."
        )


def norms_are_frozen(embedder: Embedder) -> bool:
    """Whether no batch norm takes statistics from batches; a head's norm learns also
    where the backbone's do not."""
    return bool(getattr(embedder.backbone, "freeze_norm", False)) and not embedder.head_norm


def taken(config: Config, embedder: Embedder) -> tuple[str, ...]:
    """Say what of a run's weights was taken, and what was not."""
    if embedder.left is None:
        return ()
    misfits = f" except {', '.join(embedder.left)}, which do not fit" if embedder.left else ""
    run = config.model.weights
    return (f"begins with network and head of {run}{misfits}; the loss begins anew",)


def pretrained(model: ModelConfig, embedder: Embedder) -> list[dict[str, str]]:
    """Return source and license of the weights that the networks began with."""
    told = Path(model.weights, "run.json")
    if model.from_run and told.is_file():
        return list(read_object(told).get("pretrained", []))
    found = []
    for stream in embedder.streams:
        backbone = stream.backbone
        public = model.weights in PUBLIC or stream.reads_text
        if public and isinstance(backbone, Backbone):
            source = str(getattr(backbone, "title", model.name))
            found.append({"source": source, "license": backbone.license})
        elif not public and model.weights != "none":
            found.append({"source": Path(model.weights).name, "license": "unknown"})
    return found


def _build_stream(config: Config, train: Records) -> Embedder:
    if config.transform.kind == "text":
        return config.model.build(text=True)
    if config.transform.kind == "features":
        model = config.model
        width = train.source.read(0).shape[0]
        # Features have no more directions than numbers.
        if config.training.head_only and model.dim is not None:
            model = replace(model, dim=min(model.dim, width))
        return model.build(width=width)
    shown = cast(ImageTransform, own_transform(config.transform))
    embedder = config.model.build(channels=shown.channels, size=shown.size)
    if shown.test_size not in (None, shown.size):
        try:
            probe(embedder, (shown.channels, shown.test_size, shown.test_size))
        except (AssertionError, RuntimeError, ValueError) as error:
            raise ConfigError(
                f"the network takes images of {shown.size} pixels, but not of "
                f"transform.test_size={shown.test_size}: {first_line(error)}. Set "
                "transform.test_size=none."
            ) from error
    if "role" in train.columns and config.model.streams == 2 and train.captions is None:
        return TwoStreamEmbedder(embedder, copy.deepcopy(embedder))  # both start alike
    return embedder


def _build_sampler(config: Config, train: Records) -> "BatchSampler | OwnSampler":
    """Build the sampler, with batches no larger than these records fill."""
    slot = config.sampler
    training = config.training
    if slot.own is not None:
        return OwnSampler(slot.own, train.labels)
    kind = slot.kind
    known = parameters(kind)
    arguments = {name: value for name, value in slot.arguments.items() if value is not None}
    strata = arguments.get("strata")
    if strata is None and "strata" in known and train.levels:
        strata = [*train.levels][-1]
    if isinstance(strata, str):  # the name of a column
        if strata not in train.columns:
            raise ConfigError(
                f"sampler.strata names a column of the data, got {strata!r}. Columns here: "
                f"{', '.join(train.columns) or 'none'}."
            )
        arguments["strata"] = train.columns[strata]
    if "roles" in known and "role" in train.columns:
        arguments["roles"] = train.columns["role"]
    derived = {"labels": train.labels, "seed": training.seed, "batch_size": training.batch_size}
    made = kind(**{k: v for k, v in derived.items() if k in known} | arguments)
    return made if isinstance(made, BatchSampler) else OwnSampler(made, train.labels)


class OwnSampler:
    """A sampler of the user's own: any iterable of index lists, or a function of the training
    labels that gives one.

    A torch ``Sampler`` with ``set_epoch`` is told the epoch; one without it must give the same
    batches when it is asked again, or a resumed run sees others than the interrupted one.
    """

    def __init__(self, given: Any, labels: np.ndarray) -> None:
        self.sampler = (
            given if hasattr(given, "epoch") or hasattr(given, "__iter__") else given(labels)
        )
        self.rows = len(labels)
        self.note: str | None = getattr(self.sampler, "note", None)
        self._length = len(self.epoch(0))

    def epoch(self, number: int) -> Sequence[Sequence[int]]:
        own = self.sampler
        if hasattr(own, "set_epoch"):
            own.set_epoch(number)
        batches = own.epoch(number) if hasattr(own, "epoch") else own
        plan = [[int(row) for row in batch] for batch in batches]
        bad = next((row for batch in plan for row in batch if not 0 <= row < self.rows), None)
        if bad is not None:
            raise ConfigError(
                f"your sampler gives row {bad}, but there are {self.rows} training records. Give a "
                "function of the training labels: sampler=lambda labels: MySampler(labels)."
            )
        return plan

    def __len__(self) -> int:
        return self._length


def _build_loss(config: Config, labels: np.ndarray, dim: int) -> nn.Module:
    """Build the loss for training labels and embeddings of ``dim`` numbers."""
    slot = config.loss
    seed = config.training.seed
    if slot.own is not None:
        # A second run begins anew.
        return copy.deepcopy(slot.own)
    kind = slot.kind
    arguments = dict(slot.arguments)
    miner = arguments.pop("miner", None)
    nested = arguments.pop("nested", ())
    if nested:
        # The whole embedding is always one of the sizes, or its last dimensions would learn
        # nothing.
        sizes = sorted({*nested, dim})
        if sizes[-1] > dim:
            raise ConfigError(f"loss.nested has sizes up to model.dim={dim}, got {sizes[-1]}.")
        one = config.replace(loss=replace(slot, arguments={**slot.arguments, "nested": ()}))
        return NestedLoss([_build_loss(one, labels, size) for size in sizes], sizes)
    classes = np.unique(labels)
    layout = getattr(kind, "layout", None)
    blocks = layout is not None and getattr(config.sampler.kind, "layout", None) == layout
    plain = isinstance(config.method, Plain)
    if not plain and (arguments.get("sampled", 1) != 1 or arguments.get("divided")):
        raise ConfigError(
            f"loss.sampled and loss.divided are for the loss alone, got "
            f"method={type(config.method).__name__}. Set method=plain."
        )
    derived = {
        "divided": plain
        and len(classes) >= parallel.processes()
        and not isinstance(getattr(kind, "indivisible", None), str),
        "classes": len(classes),
        "dim": dim,
        "known": tuple(classes.tolist()),
        "seed": seed,
        "blocks": blocks,
    }
    if arguments.get("dim", dim) != dim:
        raise ConfigError(
            f"loss.dim={arguments['dim']}, but the embeddings have {dim} numbers. Leave loss.dim "
            "out."
        )
    loss: nn.Module = kind(
        **{k: v for k, v in derived.items() if k in parameters(kind)} | arguments
    )
    if config.model.head == "hyperbolic":
        ball = Poincare(curvature=config.model.curvature)
        loss = tuple_loss(loss, "model.head=hyperbolic").with_distance(ball)
    return loss if miner is None else Mined(loss, miner, seed=seed)
