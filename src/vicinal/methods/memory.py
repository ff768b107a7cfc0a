"""Cross-batch memory (Wang et al., CVPR 2020) as a method: any tuple loss against the last batches."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from vicinal.errors import ConfigError
from vicinal.losses import memory
from vicinal.losses.loss import tuple_loss
from vicinal.methods.method import Parts, check_batches
from vicinal.methods.plain import PlainTraining


@dataclass(frozen=True)
class CrossBatchMemory:
    """Cross-batch memory (Wang et al. 2020): compare each batch with the embeddings of past batches as well.

    Attributes:
        size: number of embeddings kept; at most as many as there are training records.
        warmup: steps before the memory is used; None for a tenth of all steps.
    """

    size: int = 1024
    warmup: int | None = None

    default_loss: ClassVar[str] = "multi_similarity"

    def __post_init__(self) -> None:
        if self.size < 1 or (self.warmup or 0) < 0:
            raise ConfigError(f"size is at least 1 and warmup at least 0, got {self.size} and {self.warmup}.")

    def sampler_for(self, loss: type[nn.Module]) -> str:
        return "classes"

    def check(self, loss: nn.Module, sampler: object) -> None:
        check_batches("cross-batch memory", loss, sampler)
        memory.CrossBatchMemory(tuple_loss(loss, "cross-batch memory"), size=1, dim=1)
        rows = getattr(sampler, "batch_size", 0)
        if rows > self.size:
            raise ConfigError(f"the memory keeps {self.size} rows, got batches of {rows}. Set method.size={4 * rows}.")

    def build(self, parts: Parts) -> PlainTraining:
        self.check(parts.loss, parts.sampler)
        loss = memory.CrossBatchMemory(
            tuple_loss(parts.loss, "cross-batch memory"),
            size=min(self.size, max(len(parts.train.labels), getattr(parts.sampler, "batch_size", 1))),
            dim=parts.embedder.dim or parts.embedder.width,
            warmup=parts.steps // 10 if self.warmup is None else self.warmup,
        )
        return PlainTraining.from_config(parts.embedder, loss, parts.sampler, parts.optimizer, steps=parts.steps)
