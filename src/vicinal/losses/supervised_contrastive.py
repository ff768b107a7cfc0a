"""Supervised contrastive loss (Khosla et al., NeurIPS 2020)."""

from dataclasses import KW_ONLY, dataclass

import torch

from vicinal.arguments import Positive
from vicinal.distances import DotProduct
from vicinal.geometry import log_sum_exp
from vicinal.losses.loss import Comparisons, Loss, Terms


@dataclass(eq=False, repr=False)
class SupervisedContrastiveLoss(Loss):
    """Supervised contrastive loss (Khosla et al. 2020): each positive against all other samples.

        l_i = -1/|P_i| · Σ_{p ∈ P_i} log(exp(s_ip / τ) / Σ_{a ≠ i} exp(s_ia / τ))          Khosla et al. 2020, Eq. (2)

    with the inner product s on the unit sphere: the paper's "out" form, its better one. The mean is over anchors that
    have positives; the paper's views of one image are rows with the same label here.

    Args:
        temperature: τ.
        normalize: whether embeddings are put on the unit sphere first.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor.
    """

    temperature: Positive = 0.1
    _: KW_ONLY
    normalize: bool = True

    @property
    def distance(self) -> DotProduct:
        return DotProduct(self.normalize)

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        positive, negative = c.positive / self.temperature, c.negative / self.temperature
        everyone = torch.logaddexp(
            log_sum_exp(positive, c.keep_positive), log_sum_exp(negative, c.keep_negative, c.negative_weights)
        )
        losses = everyone[:, None] - positive
        if c.positive_weights is not None:
            losses = losses * c.positive_weights
        count = c.keep_positive.sum(dim=1)
        sums = losses.masked_fill(~c.keep_positive, 0).sum(dim=1) / count.clamp(min=1)
        return Terms(sums, (count > 0).to(sums.dtype))
