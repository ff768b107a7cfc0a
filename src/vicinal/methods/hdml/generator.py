"""HDML's generator (Zheng et al., CVPR 2019, Section 3.3): from embeddings back to features,
hardness and label kept.

All of it computes in float32, whatever autocast surrounds it: the reconstruction term sums over
10^5 squares, which half precision can neither add nor hold. Its matrix products take TF32 where the
network trains in bfloat16 on a GPU.
"""

import math
from collections.abc import Sequence
from functools import reduce
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from vicinal.tuples import Embeddings, SingleLabels

Reconstruction = Literal["sum", "relative"]
HIDDEN = 512  # the paper's width between an embedding of 512 and a feature of 1024


class Generator(nn.Module):
    """i: Z → Y, two fully connected layers of increasing width.

        ỹ = W₂ [BN] relu(W₁ ẑ + b₁) + b₂                                  Zheng et al. 2019, Eq. (8)

    Args:
        dim: size of an embedding.
        width: size of a feature.
        hidden: width between; None is the paper's 512 where that lies between ``dim`` and
            ``width``, else their geometric mean.
        norm: batch norm after the activation, where the authors' code has it and the paper does
            not.
    """

    def __init__(
        self, dim: int, width: int, *, hidden: int | None = None, norm: bool = False
    ) -> None:
        super().__init__()
        if hidden is None:
            hidden = HIDDEN if dim <= HIDDEN <= width else round(math.sqrt(dim * width))
        self.dim, self.width, self.hidden, self.norm = dim, width, hidden, norm
        middle = [nn.BatchNorm1d(hidden)] if norm else []
        self.layers = nn.Sequential(
            nn.Linear(dim, hidden), nn.ReLU(), *middle, nn.Linear(hidden, width)
        )

    def forward(self, embeddings: Embeddings) -> Float[Tensor, "n y"]:
        with torch.autocast(embeddings.device.type, enabled=False):
            features: Tensor = self.layers(embeddings.to(next(self.layers.parameters()).dtype))
        return features


class LabelTerm(NamedTuple):
    """What regenerated features cost in label and how many of them still carry theirs, before any
    mean is taken."""

    cost: Float[Tensor, ""]
    kept: Float[Tensor, ""]
    rows: Float[Tensor, ""]

    @classmethod
    def sum(cls, terms: "Sequence[LabelTerm]") -> "LabelTerm":
        return cls(*(reduce(torch.add, each) for each in zip(*terms, strict=True)))

    def mean(self) -> Float[Tensor, ""]:
        return self.cost / self.rows.clamp(min=1)

    def share_kept(self) -> Float[Tensor, ""]:
        return self.kept / self.rows.clamp(min=1)


class FeatureClassifier(nn.Module):
    """The softmax layer on features that tells the generator whether a synthetic kept its label
    (Section 3.3).

    It learns from real features alone: ``own_loss`` detaches them, ``label_term`` detaches the
    layer, so no gradient can cross in either direction. ``judge`` is a second such layer from another start. No generator
    is trained against it, so its verdict on synthetics is not one that they learned to please.

    Args:
        width: size of a feature.
        labels: the labels that training uses; any integers.
    """

    known: Tensor

    def __init__(self, width: int, labels: SingleLabels) -> None:
        super().__init__()
        self.register_buffer("known", torch.unique(labels.long()))
        self.teacher, self.judge = (
            nn.Linear(width, len(self.known)),
            nn.Linear(width, len(self.known)),
        )

    def own_loss(
        self, features: Float[Tensor, "n y"], labels: SingleLabels
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Return the cross-entropy of both layers on real features, and the share that the judge
        gets right."""
        numbers = self._numbers(labels)
        with torch.autocast(features.device.type, enabled=False):
            features = features.detach().to(self.judge.weight.dtype)
            verdicts = self.judge(features)
            cost = cross_entropy(self.teacher(features), numbers) + cross_entropy(verdicts, numbers)
        return cost, (verdicts.detach().argmax(dim=1) == numbers).float().mean()

    def label_term(
        self,
        features: Float[Tensor, "n y"],
        labels: SingleLabels,
        keep: Bool[Tensor, "n"] | None = None,
    ) -> LabelTerm:
        """Return J_soft over the kept rows, as a sum (second part of Eq. 9), and the judge's
        opinion of them."""
        numbers = self._numbers(labels)
        with torch.autocast(features.device.type, enabled=False):
            features = features.to(self.teacher.weight.dtype)
            logits = nn.functional.linear(
                features, self.teacher.weight.detach(), self.teacher.bias.detach()
            )
            costs = cross_entropy(logits, numbers, reduction="none")
            with torch.no_grad():
                kept = (self.judge(features).argmax(dim=1) == numbers).float()
        weights = torch.ones_like(costs) if keep is None else keep.to(costs.dtype)
        return LabelTerm((costs * weights).sum(), (kept * weights).sum(), weights.sum())

    def _numbers(self, labels: SingleLabels) -> Int[Tensor, "n"]:
        return torch.searchsorted(self.known, labels.long())


def reconstruction_cost(
    features: Float[Tensor, "n y"], regenerated: Float[Tensor, "n y"], how: Reconstruction
) -> Float[Tensor, ""]:
    """Return J_recon: how far regenerated features lie from the real ones, which are constants
    here.

        sum:       Σ ‖y - y'‖²                              Zheng et al. 2019, first part of Eq. (9)
        relative:  Σ ‖y - y'‖² / Σ ‖y - ȳ‖²

    ``"relative"`` (ours) is the share of the features' variance that was lost: 1 for a generator
    that knows but their mean, whatever the backbone.

    >>> features = torch.tensor([[0.0, 2.0], [0.0, 4.0]])
    >>> means = torch.tensor([[0.0, 3.0], [0.0, 3.0]])
    >>> [reconstruction_cost(features, means, how).item() for how in ("sum", "relative")]
    [2.0, 1.0]
    """
    with torch.autocast(features.device.type, enabled=False):
        features = features.detach().to(regenerated.dtype)
        lost = (features - regenerated).square().sum()
        if how == "sum":
            return lost
        spread = (features - features.mean(dim=0)).square().sum()
        return lost / spread.clamp(min=torch.finfo(spread.dtype).tiny)
