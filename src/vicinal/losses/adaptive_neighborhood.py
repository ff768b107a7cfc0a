"""DANML, deep adaptive neighborhood metric learning (Song, Han, Cheng, Lu & Nie, TPAMI 2022)."""

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import softplus

from vicinal.arguments import Finite, Positive
from vicinal.distances import Cosine, Distance, Negative
from vicinal.errors import ConfigError
from vicinal.geometry import log_exp_mean, mean_of_k
from vicinal.losses.loss import Comparisons, Loss, Terms
from vicinal.losses.multi_similarity import informative


@dataclass(eq=False, repr=False)
class AdaptiveNeighborhoodLoss(Loss):
    """DANML (Song et al. 2022): the radius of an anchor's positives inside the radius of its
    negatives.

        l_i = ℓ(r_i - R_i),                                                         Eq. (22)
            r_i = b(γ1; {d_ij | j ∈ P_i} ∪ {λ1}),  R_i = b(γ2; {d_ik | k ∈ N_i} ∪ {λ2})
        b(γ; a) = -1/γ log(1/n Σ exp(-γ a)),  γ1 < 0 < γ2,  ℓ(u) = log(1 + e^u)

    With the cosine S that is

        u_i = 1/α log[(exp(-α λ1) + Σ_P exp(-α S_ij)) / (|P_i| + 1)]
            + 1/β log[(exp(+β λ2) + Σ_N exp(+β S_ik)) / (|N_i| + 1)],  l_i = ℓ(u_i)

    r_i approaches the farthest positive as α grows, and R_i the nearest negative as β grows.
    λ1 and λ2 stand in for what a random batch does not show: they count as one more positive and
    one more negative.

    With ``radius="exact"`` the radii are means of K distances, Eqs. (6) and (11), so that just
    those K pass gradient.

    P_i and N_i are what multi-similarity mining leaves, as in ``MultiSimilarityLoss``. The mean is
    over anchors that have positives and negatives; one of which mining leaves none costs 0.

    With ℓ(u) = u and λ1 = λ2 it is ``MultiSimilarityLoss`` up to the constants log(|P_i| + 1) / α
    and log(|N_i| + 1) / β (Proposition 7); with α, β → ∞ and without λ it is farthest positive
    against nearest negative.

    Paper to code: α = -γ1 of Eq. (22), the "γ1" of the paper's experiments; β = γ2; d = -S; λ of
        the cosine form are
    cosines, those of the distance form distances.

    Differs: Eq. (11) has the sign of ℓ's argument reversed. ``"original"`` of the paper's Table 3
        is λ1 = λ2 = None;
    divisors are then |P_i| and |N_i|.

    Args:
        alpha: α; the paper tries 1, 2, 3. Below 0, r_i approaches the nearest positive: a class may
            have many clusters.
        beta: β; the paper tries 25, 30, 35.
        lambda1: λ1; the paper tries 0.5 to 0.65. None leaves it out.
        lambda2: λ2; the paper tries λ1 + 0.01, 0.02, 0.03. None leaves it out.
        epsilon: ε of the mining; None keeps all pairs.
        outer: ℓ.
        scale: s of the logistic log(1 + e^su) / s; a u between -2 and 2 hardly bends s = 1, and s →
            ∞ is the hinge.
        radius: ``"gamma"``: α and β; ``"exact"``: ``k1`` and ``k2``.
        k1: K of r_i: so many nearest (K > 0) or farthest (K < 0) of the positives and λ1; no number
            is printed.
        k2: K of R_i, likewise.
        similarity: ``"cosine"``, or ``"distance"``, the Euclidean distance.
        squared: whether the distance is squared; ignored by ``"cosine"``.
        normalize: whether embeddings are put on the unit sphere first; ignored by ``"cosine"``.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor.
    """

    pair_rows = "class"

    alpha: Finite = 2.0
    beta: Finite = 30.0
    lambda1: float | None = 0.55
    lambda2: float | None = 0.57
    epsilon: float | None = 0.1
    _: KW_ONLY
    outer: Literal["logistic", "identity"] = "logistic"
    scale: Positive = 1.0
    radius: Literal["gamma", "exact"] = "gamma"
    k1: int = -2
    k2: int = 5
    similarity: Literal["cosine", "distance"] = "cosine"
    squared: bool = False
    normalize: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("k1", "k2"):
            if getattr(self, name) == 0:
                raise ConfigError(
                    f"{name} counts the nearest ({name} > 0) or farthest ({name} < 0), got 0."
                )

    @cached_property
    def distance(self) -> Distance:
        return Negative(Cosine()) if self.similarity == "cosine" else super().distance

    def core(self, c: Comparisons) -> Terms:
        similar = c.keep_positive
        dissimilar = c.keep_negative
        formed = c.formed()
        if self.epsilon is not None:  # the miner speaks of similarities
            similar, dissimilar = informative(
                Comparisons(-c.positive, similar, -c.negative, dissimilar), self.epsilon
            )
        inner = self._radius(c.positive, similar, self.lambda1, -self.alpha, self.k1)
        excess = inner - self._radius(c.negative, dissimilar, self.lambda2, self.beta, self.k2)
        losses = softplus(excess, self.scale, 40.0) if self.outer == "logistic" else excess
        at_rest = ~(similar.any(dim=1) & dissimilar.any(dim=1))
        return Terms(losses.masked_fill(at_rest, 0), formed.to(losses.dtype))

    def _radius(
        self,
        distances: Float[Tensor, "n m"],
        keep: Bool[Tensor, "n m"],
        threshold: float | None,
        gamma: float,
        k: int,
    ) -> Float[Tensor, "n"]:
        """Return r_i of an anchor's positives with λ1, or R_i of its negatives with λ2."""
        # One more neighbor, at a distance that does not depend on the batch.
        if threshold is not None:
            at = distances.new_full(
                (len(distances), 1), -threshold if self.similarity == "cosine" else threshold
            )
            distances = torch.cat([distances, at], dim=1)
            keep = torch.cat([keep, torch.ones_like(at, dtype=torch.bool)], dim=1)
        if self.radius == "gamma":
            return log_exp_mean(distances, keep, gamma)
        return mean_of_k(distances, keep, k)
