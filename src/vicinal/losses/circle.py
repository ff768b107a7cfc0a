"""Circle loss (Sun et al., CVPR 2020)."""

from dataclasses import KW_ONLY, dataclass

from torch.nn.functional import relu, softplus

from vicinal.arguments import Positive
from vicinal.distances import Cosine
from vicinal.geometry import log_sum_exp
from vicinal.losses.loss import Comparisons, Loss, Terms


@dataclass(eq=False, repr=False)
class CircleLoss(Loss):
    """Circle loss (Sun et al. 2020): pull each similarity the harder, the farther it is from its optimum.

        l_i = log(1 + Σ_{n ∈ N_i} exp(γ α_n (s_n - Δ_n)) · Σ_{p ∈ P_i} exp(-γ α_p (s_p - Δ_p)))
        α_p = [O_p - s_p]_+,  α_n = [s_n - O_n]_+                                          Sun et al. 2020
        O_p = 1 + m,  O_n = -m,  Δ_p = 1 - m,  Δ_n = m

    with the cosine s; α are weights, which pass no gradient. The decision boundary is the circle of radius √2 m about
    s_p = 1, s_n = 0. The mean is over anchors that have positives and negatives.

    Args:
        relaxation: m; the paper has 0.4 for fine-grained retrieval, 0.25 for faces and persons.
        gamma: γ, the scale; the paper has 80, 256 and 128.
        detach_weights: whether α pass no gradient; False differentiates through them.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor.
    """

    relaxation: float = 0.4
    gamma: Positive = 80.0
    _: KW_ONLY
    detach_weights: bool = True

    distance = Cosine()

    def core(self, comparisons: Comparisons) -> Terms:
        c, m = comparisons, self.relaxation
        lacking, exceeding = relu(1 + m - c.positive), relu(c.negative + m)  # α_p and α_n
        if self.detach_weights:
            lacking, exceeding = lacking.detach(), exceeding.detach()
        pull = log_sum_exp(-self.gamma * lacking * (c.positive - (1 - m)), c.keep_positive, c.positive_weights)
        push = log_sum_exp(self.gamma * exceeding * (c.negative - m), c.keep_negative, c.negative_weights)
        losses = softplus(pull + push, threshold=40.0)  # the logarithm of a sum over nothing is so low that this is 0
        return Terms(losses, c.formed().to(losses.dtype))
