"""SoftTriple loss (Qian et al., ICCV 2019)."""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import softplus

from vicinal.distances import Cosine, row_distances, unit_rows
from vicinal.geometry import log_sum_exp
from vicinal.losses.loss import Comparisons, Reduction, Terms
from vicinal.losses.proxies import ProxyLoss, beside


class SoftTripleLoss(ProxyLoss):
    """SoftTriple (Qian et al. 2019): a softmax over classes with several centers each.

        S'_ic = Σ_k softmax_k(s(x_i, w_c^k) / γ) · s(x_i, w_c^k)
        l_i   = -log( exp(λ (S'_iy - δ)) / (exp(λ (S'_iy - δ)) + Σ_{c ≠ y} exp(λ S'_ic)) )
              + τ / (C K (K - 1)) · Σ_c Σ_{k < l} √(2 - 2 w_c^k·w_c^l)               Qian et al. 2019

    Paper to code: s = cosine similarity, K = ``centers``, γ = ``gamma``, λ = ``scale``, δ = ``margin``, τ = ``merge``.
    The last sum draws centres of a class together, so that it keeps no more of them than it needs.

    The mean is over samples. The centres are the loss's parameters: give them to an optimiser.

    Args:
        classes: C.
        dim: dimension of the embeddings.
        centers: K.
        scale: λ.
        gamma: how evenly a sample belongs to the centres of a class; small is the nearest one alone.
        margin: δ.
        merge: τ.
        known: the labels of the classes in increasing order; None for 0 to ``classes`` - 1. Name no class that never
            occurs: its proxy would only push.
        seed: seed of the initial proxies.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per sample.
    """

    def __init__(
        self,
        classes: int,
        dim: int,
        *,
        centers: int = 10,
        scale: float = 20.0,
        gamma: float = 0.1,
        margin: float = 0.01,
        merge: float = 0.2,
        known: tuple[int, ...] | None = None,
        seed: int = 0,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(classes, dim, Cosine(), known=known, seed=seed, reduction=reduction, centers=centers)
        self.centers, self.scale, self.gamma, self.margin, self.merge = centers, scale, gamma, margin, merge

    def with_proxies(
        self,
        embeddings: Float[Tensor, "n d"],
        column: Int[Tensor, "n 1"],
        there: Bool[Tensor, "n 1"],
        others: Bool[Tensor, "n c"],
    ) -> Comparisons:
        """Each sample with the centres of its own class, as one, and with those of each other class."""
        proxies = beside(self.proxies, embeddings)
        to_centers = self.distance(embeddings, proxies.flatten(end_dim=1)).view(-1, self.classes, self.centers)
        to_classes = ((to_centers / self.gamma).softmax(dim=2) * to_centers).sum(dim=2)
        compared = Comparisons(to_classes.gather(1, column), there, to_classes, others)
        return replace(compared, penalty=self.spread_penalty(proxies).expand(len(column)))

    def spread_penalty(self, proxies: Float[Tensor, "c k d"]) -> Float[Tensor, ""]:
        """What it costs that the centres of a class differ."""
        first, second = torch.triu_indices(self.centers, self.centers, offset=1, device=proxies.device)
        unit = unit_rows(proxies)
        apart = row_distances(unit[:, first], unit[:, second], squared=False)  # ‖w - v‖ = √(2 - 2 w·v)
        return self.merge * apart.sum() / max(1, self.classes * self.centers * (self.centers - 1))

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        against = log_sum_exp(self.scale * c.negative, c.keep_negative, c.negative_weights)
        losses = softplus(against[:, None] - self.scale * (c.positive - self.margin), threshold=40.0)
        if c.positive_weights is not None:
            losses = losses * c.positive_weights
        if c.penalty is not None:
            losses = losses + c.penalty[:, None]
        formed = c.keep_positive & c.keep_negative.any(dim=1, keepdim=True)
        return Terms(losses.masked_fill(~formed, 0).sum(dim=1), formed.sum(dim=1).to(losses.dtype))
