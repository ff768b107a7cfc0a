"""Contrastive loss (Hadsell et al., CVPR 2006)."""

from dataclasses import KW_ONLY, dataclass

from torch.nn.functional import relu

from vicinal.losses.loss import Comparisons, Loss, Terms


@dataclass(eq=False, repr=False)
class ContrastiveLoss(Loss):
    """Contrastive loss (Hadsell et al. 2006): positives together, negatives at least a margin
    apart.

        l_ij = 1/2 D_ij² of a positive pair,  1/2 [m - D_ij]_+² of a negative pair
            Hadsell et al. 2006

    with the Euclidean distance D; the mean is over pairs, both orders of a pair and both kinds
    together.

    Args:
        margin: m; about 0.5 on the unit sphere.
        normalize: whether embeddings are put on the unit sphere first; the paper does not.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its
            pairs.
    """

    margin: float = 1.0
    _: KW_ONLY
    normalize: bool = False

    separate_sums = True

    def core(self, c: Comparisons) -> Terms:
        pull = c.positive.square() / 2
        push = relu(self.margin - c.negative).square() / 2
        return Terms(c.add_up(pull, push), c.count_pairs())
