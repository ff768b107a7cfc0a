"""Losses over statistics of pairs, of a batch or of a row: the intra-pair variance loss (Yu and Tao, ICCV 2019), the
threshold-consistent margin loss (Zhang et al., ICLR 2024), the signal-to-noise contrastive loss (Yuan et al., CVPR
2019) and VICReg (Bardes et al., ICLR 2022).
"""

from dataclasses import KW_ONLY, dataclass, replace

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.nn.functional import relu

from vicinal.arguments import NonNegative, Positive
from vicinal.distances import Cosine, Euclidean, SignalToNoise, inner_products
from vicinal.errors import ConfigError
from vicinal.losses.loss import Comparisons, Loss, Terms
from vicinal.tuples import Reference, block_pairs


def _two_means(
    c: Comparisons,
    pull: Float[Tensor, "n p"],
    of: Bool[Tensor, "n p"],
    push: Float[Tensor, "n m"],
    against: Bool[Tensor, "n m"],
) -> Terms:
    """Return terms whose mean is the mean of ``pull`` over the pairs ``of``, plus that of ``push`` over ``against``."""
    there = (c.count_pairs() > 0).to(pull.dtype)
    rows = there.sum()
    pull = pull * (rows / of.sum().clamp(min=1))
    return Terms(c.add_up(pull, push * (rows / against.sum().clamp(min=1))), there)


def _mean(values: Tensor, keep: Tensor) -> Tensor:
    return values.masked_fill(~keep, 0).sum() / keep.sum().clamp(min=1)


@dataclass(eq=False, repr=False)
class IntraPairVarianceLoss(Loss):
    """Intra-pair variance loss (Yu and Tao 2019): positives as similar as their mean, negatives as dissimilar.

        L = E_pos [(1 - ε) E_pos[s] - s_ip]_+² + E_neg [s_in - (1 + ε) E_neg[s]]_+²              Yu and Tao 2019

    with the cosine s; means are over all positive and all negative pairs of the batch, so that an anchor's value
    depends on the other anchors. To be added to another loss, in the paper `TupletMarginLoss`.

    Args:
        positive_slack: ε of positive pairs.
        negative_slack: ε of negative pairs.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, whose mean is L.
    """

    positive_slack: NonNegative = 0.01
    negative_slack: NonNegative = 0.01

    distance = Cosine()

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        lacking = (1 - self.positive_slack) * _mean(c.positive, c.keep_positive) - c.positive
        exceeding = c.negative - (1 + self.negative_slack) * _mean(c.negative, c.keep_negative)
        return _two_means(c, relu(lacking).square(), c.keep_positive, relu(exceeding).square(), c.keep_negative)


@dataclass(eq=False, repr=False)
class ThresholdConsistentMarginLoss(Loss):
    """Threshold-consistent margin (Zhang et al. 2024): the same thresholds for the hard pairs of every class.

        L = λ⁺ · mean of (m⁺ - s) over positive pairs with s ≤ m⁺
          + λ⁻ · mean of (s - m⁻) over negative pairs with s ≥ m⁻                                Zhang et al. 2024

    with the cosine s; means are over the hard pairs of the batch, so that an anchor's value depends on the other
    anchors. To be added to another loss.

    Args:
        positive_margin: m⁺.
        negative_margin: m⁻.
        positive_weight: λ⁺.
        negative_weight: λ⁻.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, whose mean is L.
    """

    positive_margin: float = 0.9
    negative_margin: float = 0.5
    positive_weight: NonNegative = 1.0
    negative_weight: NonNegative = 1.0

    distance = Cosine()

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        lacking, exceeding = relu(self.positive_margin - c.positive), relu(c.negative - self.negative_margin)
        weak = c.keep_positive & (c.positive <= self.positive_margin)
        strong = c.keep_negative & (c.negative >= self.negative_margin)
        return _two_means(c, self.positive_weight * lacking, weak, self.negative_weight * exceeding, strong)


@dataclass(eq=False, repr=False)
class SignalToNoiseContrastiveLoss(Loss):
    """Signal-to-noise contrastive loss (Yuan et al. 2019): a pair is as far apart as its difference is noise.

        d_ij = var(x_i - x_j) / var(x_i)                                                         Yuan et al. 2019
        l_ij = d_ij of a positive pair,  [m - d_ij]_+ of a negative pair

    where var is over the dimensions of one row: how much noise makes one embedding of the other. The mean is over
    pairs, both orders of a pair and both kinds together. d is ``distances.SignalToNoise``.

    Differs: the paper also keeps the mean of each embedding near 0, which the variance ignores.

    Args:
        margin: m.
        normalize: whether embeddings are put on the unit sphere first; the paper does not.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its pairs.
    """

    margin: float = 1.0
    _: KW_ONLY
    normalize: bool = False

    @property
    def distance(self) -> SignalToNoise:
        return SignalToNoise(self.normalize)

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        return Terms(c.add_up(c.positive, relu(self.margin - c.negative)), c.count_pairs())


@dataclass(eq=False, repr=False)
class VICRegLoss(Loss):
    """VICReg (Bardes et al. 2022): positives together, dimensions spread and uncorrelated, and no negatives.

        L  = λ mean_{(i, p)} 1/d ‖x_i - x_p‖² + Σ_Z (µ v(Z) + ν c(Z))                   Bardes et al. 2022
        v(Z) = 1/d Σ_j [γ - √(var(z_j) + ε)]_+,      c(Z) = 1/d Σ_{j ≠ k} cov(z_j, z_k)²

    v and c keep embeddings from collapsing to a point or into few dimensions. Rows of one class are each other's views.
    Z is the batch; with ``blocks`` Z runs over the two halves of a batch in blocks ``[a; p]`` (``NPairSampler``), as in
    the paper. The mean is over positive pairs.

    Args:
        invariance: λ.
        variance: µ; the authors' code halves it.
        covariance: ν.
        spread: γ, the standard deviation that each dimension should reach.
        epsilon: ε.
        blocks: whether rows lie in blocks ``[a; p]``.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor.
    """

    layout = "pairs"
    takes_reference = False

    invariance: NonNegative = 25.0
    variance: NonNegative = 25.0
    covariance: NonNegative = 1.0
    _: KW_ONLY
    spread: Positive = 1.0
    epsilon: Positive = 1e-4
    blocks: bool = False

    distance = Euclidean(normalize=False, squared=True)

    def comparisons(
        self, embeddings: Float[Tensor, "n d"], labels: Integer[Tensor, "n"], reference: Reference | None = None
    ) -> Comparisons:
        if reference is not None:
            raise ConfigError(
                "VICRegLoss is about the batch's own statistics: `reference` rows have no meaning for it."
            )
        views, others = [embeddings], None
        if self.blocks:
            embeddings, labels, others = block_pairs(embeddings, labels)
            views = [embeddings, others.rows]
        found, _ = self._pairs(embeddings, labels, others, self.largest_class)
        penalty = sum((self.collapse(view) for view in views), start=embeddings.new_zeros(()))
        return replace(
            found, positive=found.positive / max(1, embeddings.shape[1]), penalty=penalty.expand(len(embeddings))
        )

    def collapse(self, rows: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
        """Return µ v + ν c of one set of rows."""
        if not rows.numel():
            return rows.sum()
        centered = rows - rows.mean(dim=0)
        covariance = inner_products(centered.T) / max(1, len(rows) - 1)
        variances = covariance.diagonal()
        lacking = relu(self.spread - (variances + self.epsilon).sqrt()).sum()
        shared = (covariance - variances.diag_embed()).square().sum()
        return (self.variance * lacking + self.covariance * shared) / rows.shape[1]

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        return c.per_positive(self.invariance * c.positive, torch.ones_like(c.keep_positive[:, :1]))
