"""Proxy-Anchor loss (Kim et al., CVPR 2020)."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vicinal.distances import Cosine
from vicinal.geometry import log_one_plus_sum_exp
from vicinal.losses.loss import Comparisons, Reduction, Terms
from vicinal.losses.proxies import ProxyLoss, beside


class ProxyAnchorLoss(ProxyLoss):
    """Proxy-Anchor (Kim et al. 2020): proxies pull the samples of their class and push all others.

        L = 1/|P⁺| Σ_{p ∈ P⁺} log(1 + Σ_{x ∈ X_p⁺} exp(-α (s(x, p) - δ)))
          + 1/|P|  Σ_{p ∈ P}  log(1 + Σ_{x ∈ X_p⁻} exp(+α (s(x, p) + δ)))           Kim et al. 2020

    Paper to code: s = cosine similarity, δ = ``margin``, P the proxies, P⁺ those with samples in the batch.

    An anchor is a proxy here, so ``"none"`` gives one value per class. The first sum is scaled by |P| / |P⁺|, so that
    the mean over all proxies is L. The proxies are the loss's parameters: give them to an optimiser; the paper's rate
    for them is 100 times the network's.

    Args:
        classes: number of classes.
        dim: dimension of the embeddings.
        margin: δ.
        alpha: how sharply the hardest sample dominates.
        known: the labels of the classes in increasing order; None for 0 to ``classes`` - 1. Name no class that never
            occurs: its proxy would only push.
        seed: seed of the initial proxies.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per proxy.
    """

    def __init__(
        self,
        classes: int,
        dim: int,
        *,
        margin: float = 0.1,
        alpha: float = 32.0,
        known: tuple[int, ...] | None = None,
        seed: int = 0,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(classes, dim, Cosine(), known=known, seed=seed, reduction=reduction)
        self.margin, self.alpha = margin, alpha

    def with_proxies(
        self,
        embeddings: Float[Tensor, "n d"],
        column: Int[Tensor, "n 1"],
        there: Bool[Tensor, "n 1"],
        others: Bool[Tensor, "n c"],
    ) -> Comparisons:
        """Each proxy as an anchor with the samples of its class and with all others."""
        compared = self.distance(beside(self.proxies, embeddings), embeddings)
        return Comparisons(compared, ~others.T, compared, others.T)

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        pull = log_one_plus_sum_exp(-self.alpha * (c.positive - self.margin), c.keep_positive, c.positive_weights)
        push = log_one_plus_sum_exp(self.alpha * (c.negative + self.margin), c.keep_negative, c.negative_weights)
        with_positives = c.keep_positive.any(dim=1).sum().clamp(min=1).to(pull.dtype)
        sums = pull * (len(pull) / with_positives) + push
        return Terms(sums, torch.ones_like(sums))
