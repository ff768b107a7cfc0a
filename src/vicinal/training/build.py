"""From a config and its training records to a method that is ready to train."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from vicinal import parallel
from vicinal.arguments import parameters
from vicinal.config import Config
from vicinal.data.records import Records
from vicinal.data.transforms import ImageTransform, own_transform
from vicinal.distances import Poincare
from vicinal.errors import ConfigError
from vicinal.losses import LOSSES, NestedLoss
from vicinal.losses.loss import tuple_loss
from vicinal.methods.method import Method, Parts, Sampler
from vicinal.miners import Mined
from vicinal.models import TwoStreamEmbedder
from vicinal.models.backbone import first_line, probe
from vicinal.models.embedder import Embedder, check_chunks
from vicinal.samplers import SAMPLERS


def build_method(config: Config, train: Records, device: torch.device) -> tuple[Method, int]:
    """Build the method of a config for these training records; return it with the number of steps
    to take.

    The network is drawn first, so that one seed gives every method the same.
    """
    training = config.training
    torch.manual_seed(training.seed)
    embedder = _build_embedder(config, train)
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
    method = config.method.build(parts)
    if training.chunk is not None:
        check_chunks(method.embedder, training.chunk)
        for stream in method.embedder.streams:
            stream.chunk = training.chunk
    method.place(device)
    if device.type == "cuda":
        method.embedder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if parallel.processes() > 1 and not norms_are_frozen(method.embedder):
            parallel.share_norms(method.embedder)
    return method, 0 if training.head_only else steps


def norms_are_frozen(embedder: Embedder) -> bool:
    """Whether no batch norm takes statistics from batches; a head's norm learns whatever the
    backbone's do."""
    return bool(getattr(embedder.backbone, "freeze_norm", False)) and not embedder.head_norm


def _build_embedder(config: Config, train: Records) -> Embedder:
    embedder = _build_stream(config, train)
    return (
        embedder
        if train.captions is None
        else TwoStreamEmbedder(config.model.build_text(), embedder)
    )


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
            fault = (
                f"the network takes images of {shown.size} pixels, but not of "
                f"transform.test_size={shown.test_size}"
            )
            raise ConfigError(
                f"{fault}: {first_line(error)}. Set transform.test_size=none."
            ) from error
    if "role" in train.columns and config.model.streams == 2 and train.captions is None:
        return TwoStreamEmbedder(embedder, copy.deepcopy(embedder))  # both start alike
    return embedder


def _build_sampler(config: Config, train: Records) -> Sampler:
    """Build the sampler, with batches no larger than these records fill."""
    slot = config.sampler
    training = config.training
    if slot.own is not None:
        return OwnSampler(slot.own, train.labels)
    kind = slot.kind or SAMPLERS[slot.name]
    known = parameters(getattr(kind, "fitted", kind))
    arguments = {name: value for name, value in slot.arguments.items() if value is not None}
    strata = arguments.get("strata")
    if isinstance(strata, str):  # the name of a column
        if strata not in train.columns:
            advice = f"Columns here: {', '.join(train.columns) or 'none'}."
            raise ConfigError(
                f"sampler.strata names a column of the data, got {strata!r}. {advice}"
            )
        arguments["strata"] = train.columns[strata]
    if "roles" in known and "role" in train.columns:
        arguments["roles"] = train.columns["role"]
    if hasattr(kind, "fitted"):
        sampler: Sampler = kind.fitted(
            train.labels, batch_size=training.batch_size, seed=training.seed, **arguments
        )
        return sampler
    derived = {"labels": train.labels, "seed": training.seed}
    return OwnSampler(
        kind(**{k: v for k, v in derived.items() if k in known}, **arguments), train.labels
    )


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
        plan: Sequence[Sequence[int]]
        if hasattr(self.sampler, "epoch"):
            plan = self.sampler.epoch(number)
        else:
            if hasattr(self.sampler, "set_epoch"):
                self.sampler.set_epoch(number)
            plan = [[int(row) for row in batch] for batch in self.sampler]
        bad = next((row for batch in plan for row in batch if not 0 <= row < self.rows), None)
        if bad is not None:
            advice = (
                "Give a function of the training labels: sampler=lambda labels: MySampler(labels)."
            )
            raise ConfigError(
                f"your sampler gives row {bad}, but there are {self.rows} training records. "
                f"{advice}"
            )
        return plan

    def __len__(self) -> int:
        return self._length


def _build_loss(config: Config, labels: np.ndarray, dim: int) -> nn.Module:
    """Build the loss for training labels and embeddings of ``dim`` numbers."""
    slot = config.loss
    seed = config.training.seed
    if slot.own is not None:
        if not isinstance(slot.own, nn.Module):
            raise ConfigError(
                f"loss is a torch module over (embeddings, labels), got {type(slot.own).__name__}."
            )
        return copy.deepcopy(slot.own)  # a second run must not begin where the first one ended
    kind = slot.kind or LOSSES[slot.name]
    arguments = dict(slot.arguments)
    miner = arguments.pop("miner", None)
    nested = arguments.pop("nested", ())
    if nested:
        # The whole embedding is always one of the sizes, or its last dimensions would learn
        # nothing.
        parts = {**slot.arguments, "nested": ()}
        sizes = sorted({*nested, dim})
        if sizes[-1] > dim:
            raise ConfigError(f"loss.nested has sizes up to model.dim={dim}, got {sizes[-1]}.")
        whole = config.replace(loss=replace(slot, arguments=parts))
        return NestedLoss([_build_loss(whole, labels, size) for size in sizes], sizes)
    classes = np.unique(labels)
    layout = getattr(kind, "layout", None)
    blocks = (
        layout is not None and getattr(SAMPLERS.get(config.sampler.name), "layout", None) == layout
    )
    derived = {
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
