"""DANML beside its original form, the losses that ANML (Song et al., TPAMI 2022) improves, and its rivals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from vicinal.losses.adaptive_neighborhood import AdaptiveNeighborhoodLoss, Outer, Radius
from vicinal.losses.circle import CircleLoss
from vicinal.losses.improved import ImprovedLiftedStructureLoss, ImprovedNPairLoss, ImprovedProxyNCALoss
from vicinal.losses.lifted import LiftedStructureLoss
from vicinal.losses.multi_similarity import MultiSimilarityLoss
from vicinal.losses.n_pair import NPairLoss
from vicinal.losses.proxy_nca import ProxyNCALoss

Variant = Literal[
    "danml",
    "original",
    "multi_similarity",
    "circle",
    "lifted",
    "improved_lifted",
    "n_pair",
    "improved_n_pair",
    "proxy_nca",
    "improved_proxy_nca",
]


@dataclass(frozen=True)
class Neighborhoods:
    """The numbers of all variants; one that a variant does not have, it does not read.

    Defaults of α, β, λ1 and σ are the middle of the paper's grids, so that multi-similarity is tuned on the same
    numbers; for improved N-pair and Proxy-NCA the paper prints none.

    Attributes:
        alpha: α of DANML and multi-similarity, γ1 of improved lifted.
        beta: β of DANML and multi-similarity, γ2 of improved lifted.
        lambda1: λ1 of DANML and improved lifted, λ of multi-similarity.
        sigma: λ2 - λ1; 0 makes DANML's two constants one, as multi-similarity has it.
        epsilon: ε of the mining of DANML and multi-similarity; None is none.
        outer: ℓ of DANML; with ``identity`` and sigma=0 it is multi-similarity.
        scale: of ℓ.
        radius: of DANML, by ``gamma``, by ``count`` or ``exact``.
        k1: K of the positives, for the latter two.
        k2: K of the negatives.
        without_farthest: in place of ``k1``, all but so many.
        gamma: γ of improved N-pair, an inverse temperature; alone it is that of offset=0.
        proxy_gamma: γ of improved Proxy-NCA.
        offset: λ of improved N-pair and Proxy-NCA.
        margin: of lifted and improved lifted.
        l2: of N-pair and improved N-pair.
        normalize: whether N-pair and improved N-pair work on the unit sphere.
        relaxation: m of circle loss.
        circle_gamma: γ of circle loss.
    """

    alpha: float = 2.0
    beta: float = 30.0
    lambda1: float = 0.55
    sigma: float = 0.02
    epsilon: float | None = 0.1
    outer: Outer = "logistic"
    scale: float = 1.0
    radius: Radius = "gamma"
    k1: int = -2
    k2: int = 5
    without_farthest: int | None = None
    gamma: float = 2.0
    proxy_gamma: float = 9.0  # ProxyNCA++'s inverse temperature
    offset: float = 0.0
    margin: float = 1.0
    l2: float = 3e-3
    normalize: bool = False
    relaxation: float = 0.4
    circle_gamma: float = 80.0

    def loss(self, variant: Variant, labels: Sequence[int], dim: int, seed: int) -> nn.Module:
        """The loss of a variant.

        Args:
            variant: ``"danml"``, Eq. (22); ``"original"``, without λ; the rest is named after its loss. ``"lifted"`` is
                Eq. (23), which Eq. (25) improves.
            labels: of the training part; proxies stand for the classes among them and no others.
            dim: of the embeddings.
            seed: of the proxies.
        """
        lambda2 = self.lambda1 + self.sigma
        classes = sorted(set(labels))
        match variant:
            case "danml":
                return self._danml(self.lambda1, lambda2)
            case "original":
                return self._danml(None, None)
            case "multi_similarity":
                return MultiSimilarityLoss(self.alpha, self.beta, self.lambda1, self.epsilon)
            case "circle":
                return CircleLoss(self.relaxation, self.circle_gamma)
            case "lifted":
                return LiftedStructureLoss(self.margin, form="smooth", similarity="cosine")
            case "improved_lifted":
                return ImprovedLiftedStructureLoss(self.margin, self.alpha, self.beta, self.lambda1, lambda2)
            case "n_pair":
                return NPairLoss(l2=self.l2, normalize=self.normalize)
            case "improved_n_pair":
                return ImprovedNPairLoss(self.gamma, self.offset, l2=self.l2, normalize=self.normalize)
            case "proxy_nca":
                return Renumbered(ProxyNCALoss(len(classes), dim, seed=seed), classes)
            case "improved_proxy_nca":
                proxies = ImprovedProxyNCALoss(len(classes), dim, self.proxy_gamma, self.offset, seed=seed)
                return Renumbered(proxies, classes)

    def _danml(self, lambda1: float | None, lambda2: float | None) -> AdaptiveNeighborhoodLoss:
        return AdaptiveNeighborhoodLoss(
            self.alpha,
            self.beta,
            lambda1,
            lambda2,
            self.epsilon,
            outer=self.outer,
            scale=self.scale,
            radius=self.radius,
            k1=self.k1,
            k2=self.k2,
            without_farthest=self.without_farthest,
        )


class Renumbered(nn.Module):
    """A loss with proxies over labels that are not 0, 1, ...: some classes are held out, and have none."""

    def __init__(self, loss: nn.Module, classes: Sequence[int]) -> None:
        super().__init__()
        self.loss = loss
        number = torch.full((max(classes) + 1,), -1)  # -1 is refused by the loss
        number[list(classes)] = torch.arange(len(classes))
        self._number: Tensor
        self.register_buffer("_number", number, persistent=False)  # follows from the data

    def forward(self, embeddings: Float[Tensor, "n d"], labels: Integer[Tensor, "n"]) -> Float[Tensor, ""]:
        value: Tensor = self.loss(embeddings, self._number[labels.long()])
        return value
