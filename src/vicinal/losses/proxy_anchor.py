"""Proxy-Anchor loss (Kim et al., CVPR 2020)."""

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from vicinal.geometry import cosine_similarity, log_one_plus_sum_exp
from vicinal.losses.loss import Comparisons, Loss
from vicinal.losses.proxies import beside, columns_of, initial_proxies, refuse_reference
from vicinal.losses.reduction import Reduction, Terms


class ProxyAnchorLoss(Loss):
    """Proxies as anchors: each pulls the samples of its class and pushes all others, the hardest most.

        L = 1/|P⁺| Σ_{p ∈ P⁺} log(1 + Σ_{x ∈ X_p⁺} exp(-α (s(x, p) - δ)))
          + 1/|P|  Σ_{p ∈ P}  log(1 + Σ_{x ∈ X_p⁻} exp(+α (s(x, p) + δ)))           Kim et al. 2020

    Paper to code: s = cosine similarity, δ = ``margin``, P the proxies, P⁺ those with samples in the batch.

    An anchor is a proxy here, so ``"none"`` gives one value per class. The first sum is scaled by |P| / |P⁺|, so that
    the mean over all proxies is L. The proxies are the loss's parameters: give them to an optimiser; the paper's rate
    for them is 100 times the network's.

    Args:
        classes: number of classes; labels are 0 to ``classes`` - 1.
        dim: of the embeddings.
        margin: δ.
        alpha: how sharply the hardest sample dominates.
        seed: the first proxies follow from it.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per proxy.
    """

    takes_reference: bool = False

    def __init__(
        self,
        classes: int,
        dim: int,
        *,
        margin: float = 0.1,
        alpha: float = 32.0,
        seed: int = 0,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        self.classes, self.dim, self.margin, self.alpha, self.seed = classes, dim, margin, alpha, seed
        self.proxies = initial_proxies(classes, dim, seed=seed)

    def compare(
        self, anchors: Float[Tensor, "n d"], others: Float[Tensor, "m d"] | Float[Tensor, "n m d"] | None = None
    ) -> Float[Tensor, "n m"]:
        return cosine_similarity(anchors, others)

    def comparisons(
        self,
        embeddings: Float[Tensor, "n d"],
        labels: Integer[Tensor, "n"],
        reference: Float[Tensor, "m d"] | None = None,
        reference_labels: Integer[Tensor, "m"] | None = None,
        own: Integer[Tensor, "n"] | None = None,
    ) -> Comparisons:
        """Each proxy as an anchor with the samples of its class and with all others."""
        refuse_reference(self, reference)
        _, _, others = columns_of(labels, self.classes)
        compared = self.compare(beside(self.proxies, embeddings), embeddings)
        return Comparisons(compared, ~others.T, compared, others.T)

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        pull = log_one_plus_sum_exp(-self.alpha * (c.positive - self.margin), c.keep_positive, c.positive_weights)
        push = log_one_plus_sum_exp(self.alpha * (c.negative + self.margin), c.keep_negative, c.negative_weights)
        with_positives = c.keep_positive.any(dim=1).sum().clamp(min=1).to(pull.dtype)
        sums = pull * (len(pull) / with_positives) + push
        return Terms(sums, torch.ones_like(sums))
