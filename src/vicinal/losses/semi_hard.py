"""Semi-hard triplet loss (Schroff et al., CVPR 2015), and TensorFlow's variant of it."""

from typing import Literal, get_args

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import relu

from vicinal.distances import Euclidean
from vicinal.errors import ConfigError, unknown
from vicinal.losses.loss import Comparisons, Loss, Reduction, Terms
from vicinal.miners.semi_hard import nearest_else_farthest, semi_hard_counts

Rule = Literal["all", "nearest_else_farthest"]


class SemiHardTripletLoss(Loss):
    """Semi-hard triplets (Schroff et al. 2015): negatives beyond the positive, but within the margin.

        l_apn = [d_ap - d_an + α]_+   for all n with  d_ap < d_an < d_ap + α        Schroff et al. 2015

    Negatives nearer than the positive are left out: early in training they are outliers and wrong labels, and pull all
    embeddings into one point. The mean is over the semi-hard triplets, each of which costs something. The sum is linear
    in the distances once it is known how many triplets each stands in (``mining.semi_hard_counts``): O(n m log p) time
    and O(n m) memory instead of n m p.

    With ``rule="nearest_else_farthest"`` each positive has one negative, the nearest that is farther than it or, where
    there is none, the farthest of all: ``tf.contrib``'s ``triplet_semihard_loss``. The mean is then over all pairs.

    Args:
        margin: α.
        rule: ``"all"`` semi-hard negatives, or ``"nearest_else_farthest"``.
        squared: whether distances are squared.
        normalize: whether embeddings are put on the unit sphere first.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its triplets.
    """

    def __init__(
        self,
        margin: float = 0.2,
        *,
        rule: Rule = "all",
        squared: bool = True,
        normalize: bool = True,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(Euclidean(squared=squared, normalize=normalize), reduction)
        if rule not in get_args(Rule):
            raise ConfigError(unknown("rule", str(rule), get_args(Rule)))
        self.margin, self.rule, self.squared, self.normalize = margin, rule, squared, normalize

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        if not c.positive.shape[1] or not c.negative.shape[1]:
            none = 0 * (c.positive.sum(dim=1) + c.negative.sum(dim=1))
            return Terms(none, none.detach())
        if self.rule == "nearest_else_farthest":
            return _nearest_else_farthest(c, self.margin)
        kept = (c.positive.detach(), c.negative.detach(), c.keep_positive, c.keep_negative)
        of_positive, of_negative = semi_hard_counts(*kept, self.margin)
        if c.positive_weights is not None or c.negative_weights is not None:
            return Terms(_weighted_sums(c, self.margin), of_positive.sum(dim=1))
        # Both sides hold as many terms, so any centre cancels; with this one no digits are lost to what they share.
        centre = (of_positive * kept[0]).sum(dim=1, keepdim=True) / of_positive.sum(dim=1, keepdim=True).clamp(min=1)
        pull = (of_positive * (c.positive - centre + self.margin)).sum(dim=1)
        return Terms(pull - (of_negative * (c.negative - centre)).sum(dim=1), of_positive.sum(dim=1))


def _nearest_else_farthest(c: Comparisons, margin: float) -> Terms:
    chosen, there = nearest_else_farthest(c.positive, c.negative, c.keep_negative)
    losses = relu(c.positive - c.negative.gather(1, chosen) + margin)
    if c.positive_weights is not None:
        losses = losses * c.positive_weights
    if c.negative_weights is not None:
        losses = losses * c.negative_weights.gather(1, chosen)
    formed = c.keep_positive & there[:, None]
    return Terms(losses.masked_fill(~formed, 0).sum(dim=1), formed.sum(dim=1).to(losses.dtype))


def _weighted_sums(c: Comparisons, margin: float) -> Float[Tensor, "n"]:
    """With weights a count no longer says all: one positive of each anchor at a time against all negatives."""
    total = 0 * (c.positive.sum(dim=1) + c.negative.sum(dim=1))
    for column in range(c.positive.shape[1]):
        positive, keep = c.positive[:, column, None], c.keep_positive[:, column, None] & c.keep_negative
        outside = ~keep | (c.negative <= positive)
        terms = relu(positive - c.negative + margin).masked_fill(outside, 0)
        sums = (terms if c.negative_weights is None else terms * c.negative_weights).sum(dim=1)
        total = total + (sums if c.positive_weights is None else sums * c.positive_weights[:, column])
    return total
