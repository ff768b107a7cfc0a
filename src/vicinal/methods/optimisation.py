"""Optimiser and learning-rate schedule as settings, so that every method tunes the same numbers."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from vicinal.errors import ConfigError
from vicinal.models.embedder import Embedder


@dataclass(frozen=True)
class Optimisation:
    """AdamW (Loshchilov and Hutter 2019) with one rate for the backbone and a multiple of it for new layers.

    Attributes:
        learning_rate: of the backbone.
        head_factor: the head's rate in multiples of ``learning_rate``; papers use 10 over a pre-trained backbone.
        loss_factor: the same for what a loss itself learns (proxies, boundaries); Proxy-Anchor's authors use 100.
        weight_decay: decoupled; not applied to vectors (biases, batch norm), where it only shrinks scales.
        schedule: ``cosine`` falls to 0 at the last step.
        warmup: steps over which the rate rises linearly from 0.
    """

    learning_rate: float = 1e-3
    head_factor: float = 1.0
    loss_factor: float = 1.0
    weight_decay: float = 1e-4
    schedule: Literal["constant", "cosine"] = "cosine"
    warmup: int = 0

    def build(
        self, embedder: Embedder, *, steps: int, others: Iterable[nn.Parameter] = ()
    ) -> tuple[Optimizer, LambdaLR]:
        """Optimiser and schedule for ``steps`` updates; ``others`` are what a loss itself learns."""
        if self.learning_rate <= 0:
            raise ConfigError(f"learning_rate must be positive, but {self.learning_rate} came.")
        parts = (
            (embedder.backbone.parameters(), 1.0),
            (embedder.head.parameters(), self.head_factor),
            (others, self.loss_factor),
        )
        groups = [
            group for part, factor in parts for group in _groups(part, factor * self.learning_rate, self.weight_decay)
        ]
        if not groups:
            raise ConfigError("nothing can be trained: the backbone has no parameters and dim is None. Set dim.")
        optimizer = AdamW(groups)
        return optimizer, LambdaLR(optimizer, lambda step: self.rate(step, steps))

    def rate(self, step: int, steps: int) -> float:
        """The share of the full rate at ``step``.

        >>> [round(Optimisation(warmup=2).rate(step, 10), 2) for step in (0, 1, 2, 6, 10)]
        [0.0, 0.5, 1.0, 0.5, 0.0]
        """
        if step < self.warmup:
            return step / self.warmup
        if self.schedule == "constant":
            return 1.0
        done = (step - self.warmup) / max(1, steps - self.warmup)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def fuse(optimizer: Optimizer, device: torch.device, *, recorded: bool = False) -> None:
    """Update all parameters in one kernel where ``device`` is a GPU: hundreds of small ones cost more to start.

    ``recorded`` is for an optimiser whose steps are themselves part of what ``methods.recording`` records.
    """
    for group in optimizer.param_groups:
        if "fused" in group:
            group["fused"] = device.type == "cuda" or None
        if recorded and "capturable" in group:
            group["capturable"] = device.type == "cuda"


def _groups(parameters: Iterable[nn.Parameter], rate: float, decay: float) -> list[dict[str, object]]:
    learnt = [parameter for parameter in parameters if parameter.requires_grad]
    matrices, vectors = [p for p in learnt if p.ndim > 1], [p for p in learnt if p.ndim <= 1]
    groups = [
        {"params": matrices, "lr": rate, "weight_decay": decay},
        {"params": vectors, "lr": rate, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
