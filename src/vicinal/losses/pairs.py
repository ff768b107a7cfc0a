"""Losses over pairs and their statistics.

DDML (Hu et al., CVPR 2014), the margin loss (Wu et al., ICCV 2017), the ranked list loss (Wang et
al., CVPR 2019), circle loss (Sun et al., CVPR 2020), the intra-pair variance loss (Yu and Tao, ICCV
2019), the threshold-consistent margin loss (Zhang et al., ICLR 2024), the signal-to-noise
contrastive loss (Yuan et al., CVPR 2019) and VICReg (Bardes et al., ICLR 2022).
"""

from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Annotated

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import relu, softplus

from vicinal.arguments import Count, Limits, NonNegative, Positive, Share
from vicinal.distances import Cosine, Euclidean, SignalToNoise, inner_products
from vicinal.errors import DataError
from vicinal.geometry import log_sum_exp
from vicinal.losses.loss import Comparisons, Loss, Terms
from vicinal.tuples import Embeddings, Labels, Reference, SingleLabels, Triplets


@dataclass(eq=False, repr=False)
class DiscriminativeDeepMetricLoss(Loss):
    """DDML (Hu et al. 2014): positives nearer than τ - 1, negatives farther than τ + 1, by a smooth
    hinge.

        l_ij = 1/2 g(1 - y_ij (τ - D_ij²)),  y_ij = 1 of a positive pair, -1 of a negative pair
        g(z) = 1/β · log(1 + exp(β z))                                                Hu et al. 2014

    with the Euclidean distance D of unnormalized embeddings; the mean is over pairs. The paper sums
    over pairs and adds the squared lengths of all weights, which is the optimizer's weight decay
    here.

    Args:
        tau: τ, greater than 1.
        beta: β, how sharp the hinge is.
        squared: whether distances are squared.
        normalize: whether embeddings are put on the unit sphere first; the paper does not.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its
            pairs.
    """

    tau: Annotated[float, Limits("(1, inf)")] = 3.0
    beta: Positive = 10.0
    _: KW_ONLY
    squared: bool = True
    normalize: bool = False

    def core(self, c: Comparisons) -> Terms:
        pull = self._hinge(1 - self.tau + c.positive) / 2
        push = self._hinge(1 + self.tau - c.negative) / 2
        return Terms(c.add_up(pull, push), c.count_pairs())

    def _hinge(self, excess: Tensor) -> Tensor:
        # E^-40 is 0 beside 1 in float64, too.
        return softplus(excess, beta=self.beta, threshold=40.0)


@dataclass(eq=False, repr=False)
class MarginLoss(Loss):
    """Margin loss (Wu et al. 2017): positives inside a learned boundary β - α, negatives outside β
    + α.

        l_ij = [α + y_ij (D_ij - β_i)]_+,  y_ij = 1 of a positive pair, -1 of a negative pair
        β_i  = β_0 + β_class(i)                                                       Wu et al. 2017

    with the Euclidean distance D on the unit sphere; the mean is over the pairs with a loss above
    0. β_0 and, with ``class_boundaries``, the class's deviation from it are parameters, to be given
       to the optimizer (the authors: rate
    5e-4). Explicit triplets without labels part at β_0.

    Differs: the paper learns one more deviation for each image, and may hold all of β down by ν Σ
        β.

    Args:
        class_boundaries: how many classes have a boundary of their own, labels 0 to
            ``class_boundaries - 1``; None: one boundary for all.
        margin: α.
        beta: where β_0 starts.
        squared: whether distances are squared.
        normalize: whether embeddings are put on the unit sphere first.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its
            pairs that cost.
    """

    class_boundaries: Count | None = None
    margin: float = 0.2
    beta: float = 1.2
    _: KW_ONLY
    squared: bool = False
    normalize: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        count = self.class_boundaries
        self.boundary = nn.Parameter(torch.tensor(float(self.beta)))
        self.deviations = None if count is None else nn.Parameter(torch.zeros(count))

    @property
    def multi_label(self) -> bool:
        return self.class_boundaries is None

    def comparisons(
        self, embeddings: Embeddings, labels: Labels, reference: Reference | None = None
    ) -> Comparisons:
        found = super().comparisons(embeddings, labels, reference)
        return replace(found, boundary=self.boundaries(labels))

    def triplet_comparisons(
        self, embeddings: Embeddings, triplets: Triplets, labels: SingleLabels | None = None
    ) -> Comparisons:
        found = super().triplet_comparisons(embeddings, triplets)
        return (
            found
            if labels is None
            else replace(found, boundary=self.boundaries(labels[triplets.anchor]))
        )

    def boundaries(self, labels: Labels) -> Float[Tensor, "n"]:
        """β of each class in ``labels``."""
        if self.deviations is None or not len(labels):
            return self.boundary.expand(len(labels))
        low, high = (int(label) for label in torch.aminmax(labels))
        last = len(self.deviations) - 1
        if low < 0 or high > last:
            raise DataError(
                f"a boundary is learnt for each of the classes 0 to {last}, got labels from {low} "
                f"to {high}. "
                f"Raise `class_boundaries`, number the classes from 0, or leave it out."
            )
        return self.boundary + self.deviations[labels.long()]

    def core(self, c: Comparisons) -> Terms:
        boundary = (self.boundary[None] if c.boundary is None else c.boundary).to(c.negative.dtype)[
            :, None
        ]
        pull = relu(self.margin + c.positive - boundary)
        push = relu(self.margin - c.negative + boundary)
        costing = ((pull > 0) & c.keep_positive).sum(dim=1) + ((push > 0) & c.keep_negative).sum(
            dim=1
        )
        return Terms(c.add_up(pull, push), costing.to(pull.dtype))


@dataclass(eq=False, repr=False)
class RankedListLoss(Loss):
    """Ranked list loss (Wang et al. 2019): positives into a ball, negatives out of a larger one.

        l_i = (1 - λ) · 1/|P*_i| · Σ_{j ∈ P*_i} (D_ij - (α - m)) + λ · Σ_{k ∈ N*_i} w_ik (α - D_ik)
        w_ik = exp(T (α - D_ik)) / Σ_{l ∈ N*_i} exp(T (α - D_il))                   Wang et al. 2019

    with the Euclidean distance D on the unit sphere; P*_i are the positives beyond α - m, N*_i the
    negatives within α. The weights w pass no gradient, as in the authors' code, which has λ = 1/2
    and α = 1 + m/2. The mean is over all anchors, also those without a loss.

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

    def core(self, c: Comparisons) -> Terms:
        beyond = relu(c.positive - (self.alpha - self.margin))
        within = relu(self.alpha - c.negative)
        outside = c.keep_positive & (beyond > 0)
        inside = c.keep_negative & (within > 0)
        # -inf would make an anchor with all negatives outside NaN.
        low = torch.finfo(within.dtype).min / 4
        weights = (self.temperature * within).masked_fill(~inside, low).softmax(dim=1)
        if self.detach_weights:
            weights = weights.detach()
        pull = (1 - self.balance) * beyond / outside.sum(dim=1, keepdim=True).clamp(min=1)
        sums = c.add_up(pull, self.balance * weights * within)
        return Terms.of_anchors(sums, c.count_pairs() > 0)


@dataclass(eq=False, repr=False)
class CircleLoss(Loss):
    """Circle loss (Sun et al. 2020): pull each similarity the harder, the farther it is from its
    optimum.

        l_i = log(1 + Σ_{n ∈ N_i} exp(γ α_n (s_n - Δ_n)) · Σ_{p ∈ P_i} exp(-γ α_p (s_p - Δ_p)))
        α_p = [O_p - s_p]_+,  α_n = [s_n - O_n]_+                                    Sun et al. 2020
        O_p = 1 + m,  O_n = -m,  Δ_p = 1 - m,  Δ_n = m

    with the cosine s; α are weights, which pass no gradient. The decision boundary is the circle of
    radius √2 m about s_p = 1, s_n = 0. The mean is over anchors that have positives and negatives.

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

    def core(self, c: Comparisons) -> Terms:
        m = self.relaxation
        lacking = relu(1 + m - c.positive)  # α_p
        exceeding = relu(c.negative + m)  # α_n
        if self.detach_weights:
            lacking = lacking.detach()
            exceeding = exceeding.detach()
        pull = log_sum_exp(-self.gamma * lacking * (c.positive - (1 - m)), c.keep_positive)
        push = log_sum_exp(self.gamma * exceeding * (c.negative - m), c.keep_negative)
        # The logarithm of a sum over nothing is so low that this is 0.
        losses = softplus(pull + push, threshold=40.0)
        return Terms.of_anchors(losses, c.formed())


def _two_means(
    c: Comparisons,
    pull: Float[Tensor, "n p"],
    of: Bool[Tensor, "n p"],
    push: Float[Tensor, "n m"],
    against: Bool[Tensor, "n m"],
) -> Terms:
    """Return terms whose mean is the mean of ``pull`` over the pairs ``of``, plus that of ``push``
    over ``against``."""
    there = (c.count_pairs() > 0).to(pull.dtype)
    rows = there.sum()
    pull = pull * (rows / of.sum().clamp(min=1))
    return Terms(c.add_up(pull, push * (rows / against.sum().clamp(min=1))), there)


def _mean(values: Tensor, keep: Tensor) -> Tensor:
    return values.masked_fill(~keep, 0).sum() / keep.sum().clamp(min=1)


@dataclass(eq=False, repr=False)
class IntraPairVarianceLoss(Loss):
    """Intra-pair variance loss (Yu and Tao 2019): positives as similar as their mean, negatives as
    dissimilar.

        L = E_pos [(1 - ε) E_pos[s] - s_ip]_+² + E_neg [s_in - (1 + ε) E_neg[s]]_+²  Yu and Tao 2019

    with the cosine s; means are over all positive and all negative pairs of the batch, so that an
    anchor's value depends on the other anchors. To be added to another loss, in the paper
    `TupletMarginLoss`.

    Args:
        positive_slack: ε of positive pairs.
        negative_slack: ε of negative pairs.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, whose mean is L.
    """

    positive_slack: NonNegative = 0.01
    negative_slack: NonNegative = 0.01

    distance = Cosine()
    indivisible = "its means are over the pairs of all anchors"

    def core(self, c: Comparisons) -> Terms:
        lacking = (1 - self.positive_slack) * _mean(c.positive, c.keep_positive) - c.positive
        exceeding = c.negative - (1 + self.negative_slack) * _mean(c.negative, c.keep_negative)
        return _two_means(
            c, relu(lacking).square(), c.keep_positive, relu(exceeding).square(), c.keep_negative
        )


@dataclass(eq=False, repr=False)
class ThresholdConsistentMarginLoss(Loss):
    """Threshold-consistent margin (Zhang et al. 2024): the same thresholds for the hard pairs of
    every class.

        L = λ⁺ · mean of (m⁺ - s) over positive pairs with s ≤ m⁺
          + λ⁻ · mean of (s - m⁻) over negative pairs with s ≥ m⁻                  Zhang et al. 2024

    with the cosine s; means are over the hard pairs of the batch, so that an anchor's value depends
    on the other anchors. To be added to another loss.

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
    indivisible = IntraPairVarianceLoss.indivisible

    def core(self, c: Comparisons) -> Terms:
        lacking = relu(self.positive_margin - c.positive)
        exceeding = relu(c.negative - self.negative_margin)
        weak = c.keep_positive & (c.positive <= self.positive_margin)
        strong = c.keep_negative & (c.negative >= self.negative_margin)
        return _two_means(
            c, self.positive_weight * lacking, weak, self.negative_weight * exceeding, strong
        )


@dataclass(eq=False, repr=False)
class SignalToNoiseContrastiveLoss(Loss):
    """Signal-to-noise contrastive loss (Yuan et al. 2019): a pair is as far apart as its difference
    is noise.

        d_ij = var(x_i - x_j) / var(x_i)                                            Yuan et al. 2019
        l_ij = d_ij of a positive pair,  [m - d_ij]_+ of a negative pair

    where var is over the dimensions of one row: how much noise makes one embedding of the other.
    The mean is over pairs, both orders of a pair and both kinds together. d is
    ``distances.SignalToNoise``.

    Differs: the paper also keeps the mean of each embedding near 0, which the variance ignores.

    Args:
        margin: m.
        normalize: whether embeddings are put on the unit sphere first; the paper does not.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its
            pairs.
    """

    margin: float = 1.0
    _: KW_ONLY
    normalize: bool = False

    @cached_property
    def distance(self) -> SignalToNoise:
        return SignalToNoise(self.normalize)

    def core(self, c: Comparisons) -> Terms:
        return Terms(c.add_up(c.positive, relu(self.margin - c.negative)), c.count_pairs())


@dataclass(eq=False, repr=False)
class VICRegLoss(Loss):
    """VICReg (Bardes et al. 2022): positives together, dimensions spread and uncorrelated, and no
    negatives.

        L  = λ mean_{(i, p)} 1/d ‖x_i - x_p‖² + Σ_Z (µ v(Z) + ν c(Z))             Bardes et al. 2022
        v(Z) = 1/d Σ_j [γ - √(var(z_j) + ε)]_+,      c(Z) = 1/d Σ_{j ≠ k} cov(z_j, z_k)²

    v and c keep embeddings from collapsing to a point or into few dimensions. Rows of one class are
    each other's views. Z is the batch; with ``blocks`` Z runs over the two halves of a batch in
    blocks ``[a; p]`` (``NPairSampler``), as in the paper. The mean is over positive pairs.

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
    no_tuples = "compares two views, without negatives (Bardes et al. 2022)"
    indivisible = "its covariance is that of the batch"

    invariance: NonNegative = 25.0
    variance: NonNegative = 25.0
    covariance: NonNegative = 1.0
    _: KW_ONLY
    spread: Positive = 1.0
    epsilon: Positive = 1e-4
    blocks: bool = False

    distance = Euclidean(normalize=False, squared=True)

    def comparisons(
        self, embeddings: Embeddings, labels: Labels, reference: Reference | None = None
    ) -> Comparisons:
        found = super().comparisons(embeddings, labels, reference)
        views = embeddings.chunk(2) if self.blocks else [embeddings]
        penalty = torch.stack([self.collapse(view) for view in views]).sum()
        return replace(
            found,
            positive=found.positive / max(1, embeddings.shape[1]),
            penalty=penalty.expand(len(found.positive)),
        )

    def collapse(self, rows: Embeddings) -> Float[Tensor, ""]:
        """Return µ v + ν c of one set of rows."""
        if not rows.numel():
            return rows.sum()
        centered = rows - rows.mean(dim=0)
        covariance = inner_products(centered.T) / max(1, len(rows) - 1)
        variances = covariance.diagonal()
        lacking = relu(self.spread - (variances + self.epsilon).sqrt()).sum()
        shared = (covariance - variances.diag_embed()).square().sum()
        return (self.variance * lacking + self.covariance * shared) / rows.shape[1]

    def core(self, c: Comparisons) -> Terms:
        return c.per_positive(self.invariance * c.positive, torch.ones_like(c.keep_positive[:, :1]))
