"""The baseline of every method, and cross-batch memory, which differs from it in its loss alone."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from vicinal.arguments import Count, Natural, check_arguments
from vicinal.errors import ConfigError
from vicinal.losses import memory
from vicinal.losses.loss import tuple_loss
from vicinal.methods.ala.scoring import EpisodeLoss, TripletScoring
from vicinal.methods.method import Method, Parts


@dataclass(eq=False)
class Plain(Method):
    """Train on the loss alone: the baseline of every other method.

    On episodes (ALA's batches) it scores the triplets that ALA would weigh, all with weight 1.
    """

    title: ClassVar[str] = "method=plain"

    def setup(self, parts: Parts) -> None:
        super().setup(parts)
        rows = getattr(parts.sampler, "training_rows", None)
        if rows is not None and getattr(parts.loss, "takes_reference", False):
            self.loss = EpisodeLoss(TripletScoring(tuple_loss(parts.loss, "episodes")), training_rows=rows)


@dataclass(eq=False)
class CrossBatchMemory(Plain):
    """Cross-batch memory (Wang et al. 2020): compare each batch with the embeddings of past batches as well.

    Attributes:
        size: number of embeddings kept; at most as many as there are training records.
        warmup: steps before the memory is used; None for a tenth of all steps.
    """

    size: Count = 1024
    warmup: Natural | None = None

    title: ClassVar[str] = "cross-batch memory"

    def __post_init__(self) -> None:
        check_arguments(self)

    def sampler_for(self, loss: type[nn.Module]) -> str:
        return "classes"

    def check(self, loss: nn.Module, sampler: object) -> None:
        super().check(loss, sampler)
        memory.CrossBatchMemory(tuple_loss(loss, "cross-batch memory"), size=1, dim=1)
        rows = getattr(sampler, "batch_size", 0)
        if rows > self.size:
            raise ConfigError(f"the memory keeps {self.size} rows, got batches of {rows}. Set method.size={4 * rows}.")

    def setup(self, parts: Parts) -> None:
        Method.setup(self, parts)
        self.loss = memory.CrossBatchMemory(
            parts.loss,  # type: ignore[arg-type]  # see ``check``
            size=min(self.size, max(len(parts.train.labels), getattr(parts.sampler, "batch_size", 1))),
            dim=parts.embedder.embedding_dim,
            warmup=parts.steps // 10 if self.warmup is None else self.warmup,
        )
