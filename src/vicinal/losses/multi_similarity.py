"""Multi-similarity loss (Wang et al., CVPR 2019)."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from vicinal.arguments import Positive
from vicinal.distances import Cosine
from vicinal.geometry import log_one_plus_sum_exp
from vicinal.losses.loss import Comparisons, Loss, Terms


@dataclass(eq=False, repr=False)
class MultiSimilarityLoss(Loss):
    """Multi-similarity loss (Wang et al. 2019): soft maxima of weak positives and of strong
    negatives.

        l_i = 1/α · log(1 + Σ_{k ∈ P_i} exp(-α (S_ik - λ)))
            + 1/β · log(1 + Σ_{k ∈ N_i} exp(+β (S_ik - λ)))         Wang et al. 2019; ANML, Eq. (26)

    Paper to code: S = cosine similarity, λ = ``base``; P_i and N_i are what mining leaves of the
        positives and
    negatives: a negative stays if S + ε > min over positives, a positive if S - ε < max over
        negatives. Where one
    kind is missing nothing stays of the other. The mean is over all anchors of the batch, mined
    empty or not.

    Differs: ANML's print has the sign of S reversed. The paper's λ is 1 and β 50; its authors' code
        has 0.5 and 40,
    and drops positives above 1 - 1e-5, which removes the anchor but also its duplicates; here
    labels decide.

    Args:
        alpha: how sharply the least similar positive dominates.
        beta: how sharply the most similar negative dominates.
        base: similarity at which positives and negatives should part.
        epsilon: how far from the hardest a pair may be to stay; None keeps all pairs.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor.
    """

    alpha: Positive = 2.0
    beta: Positive = 50.0
    base: float = 0.5
    epsilon: float | None = 0.1

    distance = Cosine()
    pair_rows = "class"
    separate_sums = True

    def core(self, c: Comparisons) -> Terms:
        similar = c.keep_positive
        dissimilar = c.keep_negative
        if self.epsilon is not None:
            similar, dissimilar = informative(c, self.epsilon)
        pull = log_one_plus_sum_exp(
            -self.alpha * (c.positive - self.base), similar, c.positive_weights
        )
        push = log_one_plus_sum_exp(
            self.beta * (c.negative - self.base), dissimilar, c.negative_weights
        )
        sums = pull / self.alpha + push / self.beta
        return Terms(sums, torch.ones_like(sums))


def informative(c: Comparisons, epsilon: float) -> tuple[Bool[Tensor, "n p"], Bool[Tensor, "n m"]]:
    """Return which pairs are no easier than ``epsilon`` beyond the hardest of the other kind, by
    similarities."""
    if not c.positive.shape[1] or not c.negative.shape[1]:
        return torch.zeros_like(c.keep_positive), torch.zeros_like(c.keep_negative)
    weakest = c.positive.masked_fill(~c.keep_positive, torch.inf).amin(dim=1, keepdim=True)
    strongest = c.negative.masked_fill(~c.keep_negative, -torch.inf).amax(dim=1, keepdim=True)
    # What is not easier, rather than what is harder: NaN is neither, and must reach the loss
    # instead of a loss of 0.
    return c.keep_positive & ~(c.positive - epsilon >= strongest), c.keep_negative & ~(
        c.negative + epsilon <= weakest
    )
