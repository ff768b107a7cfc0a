"""What is assessed: the tuples that a subset of an episode forms, what each costs and what the assessor sees of it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from vicinal.distances import at_least_float32, pairwise_distances, row_distances, unit_rows
from vicinal.errors import ConfigError
from vicinal.losses.loss import Comparisons, Loss, tuple_loss
from vicinal.samplers.episodes import episode_triplets
from vicinal.tuples import Embeddings, SingleLabels, other_class, same_class

Over = Literal["mean", "sum"]
Head = Callable[[Tensor], Tensor]  # features y to embeddings z, with whatever parameters are being tried


class Scored(NamedTuple):
    """The tuples of a subset.

    Attributes:
        losses: L(T; θ) of each, differentiable.
        members: the embeddings that the assessor sees: anchor, positive, negative.
        hardness: d(y, y⁺) / d(y, y⁻) of each (Zheng et al. 2020, Sect. 4.3).
    """

    losses: Float[Tensor, "t"]
    members: Float[Tensor, "t m d"]
    hardness: Float[Tensor, "t"]


class Scoring(nn.Module, ABC):
    """From the embeddings of a subset to its tuples: a pure function of embeddings, labels and the head.

    A method whose tuples are more than the loss's own (HDML's regenerated ones) wraps a scoring and appends to what it
    gives; those go through ``head`` again, which therefore is an argument.

    Attributes:
        loss: what a tuple costs.
        seen: members of a tuple that the assessor sees.
    """

    seen: int = 3

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = tuple_loss(loss, "ALA")

    @abstractmethod
    def forward(self, embeddings: Embeddings, labels: SingleLabels, head: Head) -> Scored:
        """The tuples of a subset whose rows lie in blocks ``[a; p]``."""

    def rows(self, count: int) -> Integer[Tensor, "t m"] | None:
        """Which of a subset's ``count`` rows the first tuples consist of, on the host; None where none is rows only."""
        return None

    @property
    def real(self) -> "Scoring":
        """The scoring of real tuples alone, by which a validation subset is measured."""
        return self

    def comparable(self, embeddings: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
        """Embeddings as the loss compares them: on the unit sphere or not."""
        return unit_rows(embeddings) if self.loss.distance.normalize else at_least_float32(embeddings)


class TripletScoring(Scoring):
    """Triplets as units: any loss, on one positive and one negative of each anchor.

    L(T) is the sum of the loss's terms of the triplet: one hinge for the triplet loss, [α + D⁺ - β]_+ + [α - D⁻ + β]_+
    for margin loss.
    """

    def forward(self, embeddings: Embeddings, labels: SingleLabels, head: Head) -> Scored:
        triplets = episode_triplets(len(embeddings), embeddings.device)
        compared = self.loss.triplet_comparisons(at_least_float32(embeddings), triplets, labels)
        members = embeddings[torch.stack(triplets, dim=1)]
        return Scored(self.loss.core(compared).sums, members, hardness(self.comparable(members)))

    def rows(self, count: int) -> Integer[Tensor, "t m"]:
        return torch.stack(episode_triplets(count), dim=1)


class PairScoring(Scoring):
    """Pairs as units: of each triplet the positive and the negative pair, each with a weight of its own.

    For losses that are sums over pairs (contrastive, margin). The assessor sees two embeddings and is not told whether
    they are of one class: the paper names no such input. A pair's hardness is that of its triplet.
    """

    seen = 2

    def __init__(self, loss: Loss) -> None:
        super().__init__(loss)
        one = torch.ones(1, 1)
        whole = Comparisons(one, one.bool(), one / 2, one.bool())
        parts = sum(loss.core(half).sums for half in _halves(whole))
        if not torch.allclose(loss.core(whole).sums, torch.as_tensor(parts)):
            raise ConfigError(
                f"units=pairs needs a sum over pairs, got {type(loss).__name__}. Set method.units=triplets."
            )

    def forward(self, embeddings: Embeddings, labels: SingleLabels, head: Head) -> Scored:
        triplets = episode_triplets(len(embeddings), embeddings.device)
        found = self.loss.triplet_comparisons(at_least_float32(embeddings), triplets, labels)
        halves = torch.stack([self.loss.core(half).sums for half in _halves(found)], dim=1)
        members = embeddings[torch.stack(triplets, dim=1)]
        of_triplets = hardness(self.comparable(members))
        pairs = members[:, [[0, 1], [0, 2]]].flatten(0, 1)
        return Scored(halves.flatten(), pairs, of_triplets.repeat_interleave(2))

    def rows(self, count: int) -> Integer[Tensor, "t m"]:
        return torch.stack(episode_triplets(count), dim=1)[:, [[0, 1], [0, 2]]].flatten(0, 1)


class AnchorScoring(Scoring):
    """Anchors as units: losses that compare an anchor with all of its subset (multi-similarity, lifted structure).

    The assessor sees the anchor, the mean of its positives and its hardest negative. A subset of an episode has one
    positive for each anchor, so the mean is that one unless another sampler brings more.
    """

    def forward(self, embeddings: Embeddings, labels: SingleLabels, head: Head) -> Scored:
        found = self.loss.comparisons(at_least_float32(embeddings), labels)
        sums, counts = self.loss.core(found)
        known = embeddings.detach()
        positive = same_class(labels).to(known.dtype)
        mean_positive = (positive @ known) / positive.sum(dim=1, keepdim=True).clamp(min=1)
        distances = pairwise_distances(self.comparable(known), squared=False)
        hardest = distances.masked_fill(~other_class(labels), torch.inf).argmin(dim=1)
        members = torch.stack([known, mean_positive, known[hardest]], dim=1)
        return Scored(sums / counts.clamp(min=1), members, hardness(self.comparable(members)))


class EpisodeLoss(nn.Module):
    """The mean loss of all tuples of both subsets: what ALA's plain baseline trains on.

    Args:
        scoring: how a subset forms tuples.
        training_rows: where the validation subset begins.
    """

    def __init__(self, scoring: Scoring, *, training_rows: int) -> None:
        super().__init__()
        self.scoring, self.training_rows = scoring, training_rows

    @property
    def loss(self) -> nn.Module:
        """The loss underneath, whose margin and geometry a batch is described by."""
        return self.scoring.loss

    @property
    def capturable(self) -> bool:
        return self.scoring.loss.capturable

    def forward(self, embeddings: Embeddings, labels: SingleLabels) -> Float[Tensor, ""]:
        subsets = zip(*(torch.tensor_split(x, [self.training_rows]) for x in (embeddings, labels)), strict=True)
        losses = torch.cat([self.scoring(rows, classes, nn.Identity()).losses for rows, classes in subsets])
        return losses.mean()


def add_up(losses: Float[Tensor, "t"], over: Over) -> Float[Tensor, ""]:
    """Mean or sum over tuples; the paper's equations sum."""
    return losses.mean() if over == "mean" else losses.sum()


def _halves(found: Comparisons) -> tuple[Comparisons, Comparisons]:
    """A triplet as its positive pair alone and as its negative pair alone."""
    nothing = torch.zeros_like(found.keep_positive)
    return replace(found, keep_negative=nothing), replace(found, keep_positive=nothing)


@torch.no_grad()
def hardness(members: Float[Tensor, "t 3 d"]) -> Float[Tensor, "t"]:
    """d(y, y⁺) / d(y, y⁻); coinciding negatives count as very hard, not as infinitely so."""
    anchor, positive, negative = members.detach().unbind(dim=1)
    near, far = row_distances(anchor, positive, squared=False), row_distances(anchor, negative, squared=False)
    return near / far.clamp(min=torch.finfo(far.dtype).eps)
