"""Discriminative deep metric learning, DDML (Hu et al., CVPR 2014)."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from torch import Tensor
from torch.nn.functional import softplus

from vicinal.arguments import Limits, Positive
from vicinal.losses.loss import Comparisons, Loss, Terms


@dataclass(eq=False, repr=False)
class DiscriminativeDeepMetricLoss(Loss):
    """DDML (Hu et al. 2014): positives nearer than τ - 1, negatives farther than τ + 1, by a smooth hinge.

        l_ij = 1/2 g(1 - y_ij (τ - D_ij²)),  y_ij = 1 of a positive pair, -1 of a negative pair
        g(z) = 1/β · log(1 + exp(β z))                                                     Hu et al. 2014

    with the Euclidean distance D of unnormalised embeddings; the mean is over pairs. The paper sums over pairs and adds
    the squared lengths of all weights, which is the optimiser's weight decay here.

    Args:
        tau: τ, greater than 1.
        beta: β, how sharp the hinge is.
        squared: whether distances are squared.
        normalize: whether embeddings are put on the unit sphere first; the paper does not.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its pairs.
    """

    tau: Annotated[float, Limits("(1, inf)")] = 3.0
    beta: Positive = 10.0
    _: KW_ONLY
    squared: bool = True
    normalize: bool = False

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        pull, push = self._hinge(1 - self.tau + c.positive) / 2, self._hinge(1 + self.tau - c.negative) / 2
        return Terms(c.add_up(pull, push), c.count_pairs())

    def _hinge(self, excess: Tensor) -> Tensor:
        return softplus(excess, beta=self.beta, threshold=40.0)  # e^-40 is 0 beside 1 in float64, too
