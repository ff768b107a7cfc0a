"""HDML's generator (Zheng et al., CVPR 2019, Section 3.3): from embeddings back to features,
hardness and label kept.

All of it computes in float32: the reconstruction term sums over 10^5 squares, which half precision
can neither add nor hold.
"""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

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
        features: Tensor = self.layers(embeddings)
        return features


class FeatureClassifier(nn.Module):
    """The softmax layer on features that tells the generator whether a synthetic kept its label
    (Section 3.3).

    It learns from real features alone: ``own_loss`` detaches them, ``label_costs`` detaches the
    layer, so no gradient can cross in either direction.

    Args:
        width: size of a feature.
        labels: the labels that training uses; any integers.
    """

    known: Tensor

    def __init__(self, width: int, labels: SingleLabels) -> None:
        super().__init__()
        self.register_buffer("known", torch.unique(labels.long()))
        self.layer = nn.Linear(width, len(self.known))

    def own_loss(self, features: Float[Tensor, "n y"], labels: SingleLabels) -> Float[Tensor, ""]:
        """Return the cross-entropy on real features."""
        numbers = torch.searchsorted(self.known, labels.long())
        return cross_entropy(self.layer(features.detach()), numbers)

    def label_costs(
        self, features: Float[Tensor, "n y"], labels: SingleLabels
    ) -> Float[Tensor, "n"]:
        """Return what each row adds to J_soft (second part of Eq. 9)."""
        numbers = torch.searchsorted(self.known, labels.long())
        logits = linear(features, self.layer.weight.detach(), self.layer.bias.detach())
        return cross_entropy(logits, numbers, reduction="none")


def reconstruction_cost(
    features: Float[Tensor, "n y"], regenerated: Float[Tensor, "n y"], how: Reconstruction
) -> Float[Tensor, ""]:
    """Return J_recon: how far regenerated features lie from the real ones, which are constants
    here.

        sum:       Σ ‖y - y'‖²                              Zheng et al. 2019, first part of Eq. (9)
        relative:  Σ ‖y - y'‖² / Σ ‖y - ȳ‖²

    ``"relative"`` (ours) is the share of the features' variance that was lost: 1 for a generator
    that knows but their mean, with any backbone.

    >>> features = torch.tensor([[0.0, 2.0], [0.0, 4.0]])
    >>> means = torch.tensor([[0.0, 3.0], [0.0, 3.0]])
    >>> [reconstruction_cost(features, means, how).item() for how in ("sum", "relative")]
    [2.0, 1.0]
    """
    features = features.detach()
    lost = (features - regenerated).square().sum()
    if how == "sum":
        return lost
    spread = (features - features.mean(dim=0)).square().sum()
    return lost / spread.clamp(min=torch.finfo(spread.dtype).tiny)
