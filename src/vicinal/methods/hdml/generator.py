"""HDML's generator (Zheng et al., CVPR 2019, Section 3.3): from embeddings back to features,
hardness and label kept.

All of it computes in float32, whatever autocast surrounds it: the reconstruction term sums over
10^5 squares, which half precision can neither add nor hold. Its matrix products take TF32 where the
network trains in bfloat16 on a GPU.
"""

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float
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
        middle = [nn.BatchNorm1d(hidden)] if norm else []
        self.layers = nn.Sequential(
            nn.Linear(dim, hidden), nn.ReLU(), *middle, nn.Linear(hidden, width)
        )

    def forward(self, embeddings: Embeddings) -> Float[Tensor, "n y"]:
        with torch.autocast(embeddings.device.type, enabled=False):
            features: Tensor = self.layers(embeddings.to(next(self.layers.parameters()).dtype))
        return features


class FeatureClassifier(nn.Module):
    """The softmax layer on features that tells the generator whether a synthetic kept its label
    (Section 3.3).

    It learns from real features alone: ``own_loss`` detaches them, ``label_costs`` detaches the
    layer, so no gradient can cross in either direction. ``judge`` is a second such layer from
    another start. No generator is trained against it, so its verdict on synthetics is not one that
    they learned to please.

    Args:
        width: size of a feature.
        labels: the labels that training uses; any integers.
    """

    known: Tensor

    def __init__(self, width: int, labels: SingleLabels) -> None:
        super().__init__()
        self.register_buffer("known", torch.unique(labels.long()))
        self.teacher = nn.Linear(width, len(self.known))
        self.judge = nn.Linear(width, len(self.known))

    def own_loss(
        self, features: Float[Tensor, "n y"], labels: SingleLabels
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Return the cross-entropy of both layers on real features, and the share that the judge
        gets right."""
        numbers = torch.searchsorted(self.known, labels.long())
        with torch.autocast(features.device.type, enabled=False):
            features = features.detach().to(self.judge.weight.dtype)
            verdicts = self.judge(features)
            cost = cross_entropy(self.teacher(features), numbers) + cross_entropy(verdicts, numbers)
        return cost, (verdicts.detach().argmax(dim=1) == numbers).float().mean()

    def label_costs(
        self, features: Float[Tensor, "n y"], labels: SingleLabels
    ) -> tuple[Float[Tensor, "n"], Bool[Tensor, "n"]]:
        """Return what each row adds to J_soft (second part of Eq. 9), and whether the judge still
        sees its label in it."""
        numbers = torch.searchsorted(self.known, labels.long())
        with torch.autocast(features.device.type, enabled=False):
            features = features.to(self.teacher.weight.dtype)
            weight = self.teacher.weight.detach()
            bias = self.teacher.bias.detach()
            logits = nn.functional.linear(features, weight, bias)
            costs = cross_entropy(logits, numbers, reduction="none")
            with torch.no_grad():
                return costs, self.judge(features).argmax(dim=1) == numbers


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
