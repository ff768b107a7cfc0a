"""The baseline of every method, and two that compare batches with past ones: cross-batch memory and
MoCo's queue."""

import copy
from dataclasses import dataclass

import torch
from torch import nn

from vicinal.arguments import Count, Natural, Share
from vicinal.data.records import Batch
from vicinal.errors import ConfigError
from vicinal.losses import wrappers
from vicinal.losses.loss import Loss, compares_rows, tuple_loss
from vicinal.methods.ala.assessment import EpisodeLoss, TripletScoring
from vicinal.methods.method import Method, Parts, StepResult
from vicinal.parallel import gather
from vicinal.samplers import CrossViewSampler, EpisodeSampler
from vicinal.tuples import Embeddings, Labels, Scalar


@dataclass(eq=False)
class Plain(Method):
    """Train on the loss alone: the baseline of every other method.

    On episodes (ALA's batches) it scores the triplets that ALA would weigh, all with weight 1. On
    pairs of a text and a picture it compares texts with pictures and pictures with texts, as CLIP
    (Radford et al. 2021) does.
    """

    title = "method=plain"

    def setup(self, parts: Parts) -> None:
        super().setup(parts)
        if isinstance(parts.sampler, EpisodeSampler) and compares_rows(parts.loss):
            self.loss = EpisodeLoss(
                TripletScoring(parts.loss), training_rows=parts.sampler.training_rows
            )
        if parts.embedder.reads_text and isinstance(parts.sampler, CrossViewSampler):
            self.loss = _both_ways(parts.loss)


class BothWays(nn.Module):
    """The mean of a loss of texts among pictures and of pictures among texts, on batches ``[t, p,
    t, p, ...]``.

    >>> from vicinal.losses import InfoNCELoss
    >>> rows = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> labels = torch.tensor([0, 0, 1, 1])
    >>> BothWays(InfoNCELoss(temperature=1.0))(rows, labels)  # log(1 + exp(0 - 1))
    tensor(0.3133)

    Args:
        loss: takes reference rows.
    """

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, embeddings: Embeddings, labels: Labels) -> Scalar:
        texts, pictures = ((embeddings[side::2], labels[side::2].contiguous()) for side in (0, 1))
        return (self.loss(*texts, *pictures) + self.loss(*pictures, *texts)) / 2


def _both_ways(loss: nn.Module) -> nn.Module:
    """Let a loss compare texts with pictures alone, in each of nested sizes; one with proxies
    compares neither."""
    if isinstance(loss, wrappers.NestedLoss):
        return wrappers.NestedLoss([_both_ways(part) for part in loss.losses], loss.sizes)
    return BothWays(tuple_loss(loss, Plain.title)) if compares_rows(loss) else loss


@dataclass(eq=False)
class CrossBatchMemory(Plain):
    """Cross-batch memory (Wang et al. 2020): compare each batch with the embeddings of past batches
    as well.

    Attributes:
        size: number of embeddings kept; at most as many as there are training records.
        warmup: steps before the memory is used; None for a tenth of all steps.
    """

    size: Count = 1024
    warmup: Natural | None = None

    title = "cross-batch memory"

    def sampler_for(self, loss: type[nn.Module]) -> str:
        return "classes"

    def check(self, loss: nn.Module, sampler: object) -> None:
        super().check(loss, sampler)
        wrappers.CrossBatchMemory(tuple_loss(loss, self.title), size=1, dim=1)
        rows = getattr(sampler, "batch_size", 1)
        if rows > self.size:
            raise ConfigError(
                f"the memory keeps {self.size} rows, got batches of {rows}. Set "
                f"method.size={4 * rows}."
            )

    def setup(self, parts: Parts) -> None:
        Method.setup(self, parts)
        self.acts_from = parts.steps // 10 if self.warmup is None else self.warmup
        rows = getattr(parts.sampler, "batch_size", 1)
        self.loss = wrappers.CrossBatchMemory(
            tuple_loss(parts.loss, self.title),
            size=min(self.size, max(len(parts.train.labels), rows)),
            dim=parts.embedder.embedding_dim,
            warmup=self.acts_from,
        )


@dataclass(eq=False)
class MomentumQueue(CrossBatchMemory):
    """Momentum contrast (MoCo, He et al. 2020): compare each batch with a queue of keys from a
    momentum encoder.

        θ_k ← m θ_k + (1 - m) θ_q

    The trained network gives the queries; the keys of the batch come from a copy of it whose
    weights follow slowly, so that all keys in the queue are alike though they are of many steps.
    They enter the queue before the loss is computed, and queries are compared with the whole queue.

    Differs: the paper has no labels, and two views of an image are its only positive pair. Here all
        keys of a class are
    positives, and, as there is one view of an image in a batch, a query is not compared with its
    own key. All processes share one queue instead of shuffling batch norms.

    Attributes:
        size: number of keys kept; at most as many as there are training records.
        warmup: steps before the queue is used; None for a tenth of all steps.
        momentum: m.
    """

    warmup: Natural | None = 0
    momentum: Share = 0.999

    default_loss = "info_nce"
    title = "momentum contrast"

    def setup(self, parts: Parts) -> None:
        super().setup(parts)
        self.momentum_encoder = (
            copy.deepcopy(self.embedder).requires_grad_(requires_grad=False).train()
        )

    def step(self, batch: Batch) -> StepResult:
        queries, labels = self.embed(batch)
        with torch.no_grad():
            encoder = self.momentum_encoder
            keys, _ = gather(encoder.embed(encoder.features(batch.inputs)), batch.labels)
        result = self.update(self.loss(queries, labels, keys), queries, labels)
        with torch.no_grad():
            slow, fast = ([p.data for p in net.parameters()] for net in (encoder, self.embedder))
            torch._foreach_lerp_(slow, fast, 1 - self.momentum)
        return result
