"""The optimizer slot: optimizer, learning rates of the layers and schedule, the same settings for every method."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, get_args

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from vicinal.errors import ConfigError, unknown
from vicinal.models.embedder import Embedder

Name = Literal["adamw", "adam", "sgd"]
Schedule = Literal["constant", "cosine"]


@dataclass(frozen=True)
class OptimizerConfig:
    """One learning rate for the backbone, a multiple of it for new layers, with a schedule.

    Attributes:
        name: ``adamw`` (Loshchilov and Hutter 2019), ``adam`` (Kingma and Ba 2015) or ``sgd`` with momentum.
        learning_rate: of the backbone.
        head_factor: the head's rate in multiples of ``learning_rate``; papers use 10 over a pre-trained backbone.
        loss_factor: the same for what a loss itself learns (proxies, boundaries); Proxy-Anchor's authors use 100.
        weight_decay: decoupled from the gradient with ``adamw``, added to the gradient as an L2 penalty with ``adam``
            and ``sgd``; not applied to vectors (biases, batch norm), where it only shrinks scales.
        schedule: ``cosine`` falls to 0 at the last step.
        warmup: steps over which the rate rises linearly from 0.
        momentum: of ``sgd``.
        layer_decay: factor by which the rate falls from each layer of the backbone to the one before it, counted from
            the head, such as 0.75 to fine-tune a transformer (Clark et al. 2020); 1 gives all layers one rate.
        clip: largest norm of the gradient over all parameters of this optimizer; None does not clip.
    """

    name: Name = "adamw"
    learning_rate: float = 1e-3
    head_factor: float = 1.0
    loss_factor: float = 1.0
    weight_decay: float = 1e-4
    schedule: Schedule = "cosine"
    warmup: int = 0
    momentum: float = 0.9
    layer_decay: float = 1.0
    clip: float | None = None

    def __post_init__(self) -> None:
        for field, choices in (("name", get_args(Name)), ("schedule", get_args(Schedule))):
            if getattr(self, field) not in choices:
                raise ConfigError(f"optimizer.{field}: {unknown(field, str(getattr(self, field)), choices)}")
        for field, valid, wanted in (
            ("learning_rate", self.learning_rate > 0, "positive"),
            ("head_factor", self.head_factor >= 0, "0 or more"),
            ("loss_factor", self.loss_factor >= 0, "0 or more"),
            ("weight_decay", self.weight_decay >= 0, "0 or more"),
            ("warmup", self.warmup >= 0, "0 or more"),
            ("momentum", 0 <= self.momentum < 1, "at least 0 and below 1"),
            ("layer_decay", 0 < self.layer_decay <= 1, "above 0 and at most 1"),
            ("clip", self.clip is None or self.clip > 0, "positive, or None for no clipping"),
        ):
            value = getattr(self, field)
            if not valid or (value is not None and not math.isfinite(value)):
                raise ConfigError(f"optimizer.{field} must be finite and {wanted}, got {value}.")

    def build(
        self, embedder: Embedder, *, steps: int, others: Iterable[nn.Parameter] = ()
    ) -> tuple[Optimizer, LambdaLR]:
        """Build optimizer and schedule for ``steps`` updates; ``others`` are what a loss itself learns.

        Gradients are clipped at the beginning of ``optimizer.step``, so after any average over processes.
        """
        head = list(embedder.head.parameters())
        layered = {id(parameter) for parameter in chain(embedder.backbone.parameters(), head)}
        pooling = (parameter for parameter in embedder.parameters() if id(parameter) not in layered)
        parts: list[tuple[Iterable[nn.Parameter], float]] = [
            *self._layers(embedder),
            (chain(head, pooling), self.head_factor),
            (others, self.loss_factor),
        ]
        groups = [
            group for part, factor in parts for group in _groups(part, factor * self.learning_rate, self.weight_decay)
        ]
        if not groups:
            raise ConfigError(
                "nothing can be trained: the backbone has no free parameters and there is no head. Set model.dim, or "
                "freeze less of the backbone."
            )
        optimizer = self._optimizer(groups)
        if self.clip is not None:
            optimizer.register_step_pre_hook(_Clipping(self.clip))
        return optimizer, LambdaLR(optimizer, lambda step: self.rate(step, steps))

    def rate(self, step: int, steps: int) -> float:
        """The share of the full rate at ``step``.

        >>> [round(OptimizerConfig(warmup=2).rate(step, 10), 2) for step in (0, 1, 2, 6, 10)]
        [0.0, 0.5, 1.0, 0.5, 0.0]
        """
        if step < self.warmup:
            return step / self.warmup
        if self.schedule == "constant":
            return 1.0
        done = (step - self.warmup) / max(1, steps - self.warmup)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))

    def _optimizer(self, groups: list[dict[str, Any]]) -> Optimizer:
        if self.name == "sgd":
            return SGD(groups, lr=self.learning_rate, momentum=self.momentum)
        return AdamW(groups) if self.name == "adamw" else Adam(groups)

    def _layers(self, embedder: Embedder) -> list[tuple[Iterable[nn.Parameter], float]]:
        """The backbone's parameters and their factors of the learning rate."""
        if self.layer_decay == 1:
            return [(embedder.backbone.parameters(), 1.0)]
        from vicinal.models import layer_groups

        backbone = {id(parameter) for parameter in embedder.backbone.parameters()}
        layers = [[p for p in layer if id(p) in backbone] for layer in layer_groups(embedder)]
        missing = len(backbone) - len({id(parameter) for layer in layers for parameter in layer})
        if missing:
            raise ConfigError(
                f"optimizer.layer_decay={self.layer_decay}: {missing} of {len(backbone)} parameters of "
                f"{type(embedder.backbone).__name__} belong to no known layer. Set optimizer.layer_decay=1."
            )
        return [(layer, self.layer_decay ** (len(layers) - 1 - place)) for place, layer in enumerate(layers)]


class _Clipping:
    """Scale the gradients of an optimizer before its step, so that their common norm is at most ``norm``."""

    def __init__(self, norm: float) -> None:
        self.norm = norm

    def __call__(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        # The factor stays on the device: nothing waits for it, and a CUDA graph can hold it.
        clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], self.norm)


def fit(optimizer: Optimizer, device: torch.device) -> None:
    """Adapt an optimizer to where its parameters are.

    On a GPU all parameters are updated in one kernel, and learning rates are tensors, so that a CUDA graph can hold
    the update and follow the schedule.
    """
    cuda = device.type == "cuda"
    for group in optimizer.param_groups:
        group["lr"] = torch.tensor(float(group["lr"]), device=device) if cuda else float(group["lr"])
        if "fused" in group:
            group["fused"] = cuda or None
        if "capturable" in group:
            group["capturable"] = cuda
    # torch would warn at the steps before a capture, or where there is none.
    optimizer._warned_capturable_if_run_uncaptured = True


def _groups(parameters: Iterable[nn.Parameter], rate: float, decay: float) -> list[dict[str, object]]:
    learnt = [parameter for parameter in parameters if parameter.requires_grad]
    matrices, vectors = [p for p in learnt if p.ndim > 1], [p for p in learnt if p.ndim <= 1]
    groups = [
        {"params": matrices, "lr": rate, "weight_decay": decay},
        {"params": vectors, "lr": rate, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
