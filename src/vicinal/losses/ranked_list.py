"""Ranked list loss (Wang et al., CVPR 2019)."""

from dataclasses import KW_ONLY, dataclass

import torch
from torch.nn.functional import relu

from vicinal.arguments import NonNegative, Share
from vicinal.losses.loss import Comparisons, Loss, Terms


@dataclass(eq=False, repr=False)
class RankedListLoss(Loss):
    """Ranked list loss (Wang et al. 2019): positives into a ball, negatives out of a larger one.

        l_i = (1 - λ) · 1/|P*_i| · Σ_{j ∈ P*_i} (D_ij - (α - m)) + λ · Σ_{k ∈ N*_i} w_ik (α - D_ik)
        w_ik = exp(T (α - D_ik)) / Σ_{l ∈ N*_i} exp(T (α - D_il))                          Wang et al. 2019

    with the Euclidean distance D on the unit sphere; P*_i are the positives beyond α - m, N*_i the negatives within α.
    The weights w pass no gradient, as in the authors' code, which has λ = 1/2 and α = 1 + m/2. The mean is over all
    anchors, also those that cost nothing.

    Args:
        alpha: α, radius that negatives have to leave.
        margin: m, how much smaller the radius is that positives have to enter.
        temperature: T, how much nearer negatives outweigh farther ones; 0 weighs them alike.
        balance: λ, the negatives' share.
        squared: whether distances are squared.
        normalize: whether embeddings are put on the unit sphere first.
        detach_weights: whether w pass no gradient; False differentiates through them.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor.
    """

    alpha: float = 1.2
    margin: float = 0.4
    temperature: NonNegative = 10.0
    balance: Share = 0.5
    _: KW_ONLY
    squared: bool = False
    normalize: bool = True
    detach_weights: bool = True

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        beyond, within = relu(c.positive - (self.alpha - self.margin)), relu(self.alpha - c.negative)
        outside, inside = c.keep_positive & (beyond > 0), c.keep_negative & (within > 0)
        low = torch.finfo(within.dtype).min / 4  # -inf would make an anchor with all negatives outside NaN
        weights = (self.temperature * within).masked_fill(~inside, low).softmax(dim=1)
        if self.detach_weights:
            weights = weights.detach()
        pull = (1 - self.balance) * beyond / outside.sum(dim=1, keepdim=True).clamp(min=1)
        sums = c.add_up(pull, self.balance * weights * within)
        return Terms(sums, (c.count_pairs() > 0).to(sums.dtype))
