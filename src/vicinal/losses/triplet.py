"""Triplet losses: FaceNet (Schroff et al., CVPR 2015), batch-all and batch-hard (Hermans et al., 2017)."""

from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.nn.functional import relu, softplus
from torch.utils.checkpoint import checkpoint

from vicinal.distances import Euclidean
from vicinal.errors import ConfigError, unknown
from vicinal.geometry import hinge_sums
from vicinal.losses.loss import Comparisons, Layout, Loss, Reduction, Terms
from vicinal.tuples import block_triplets

Average = Literal["nonzero", "all"]
BLOCK = 2**22  # triplets whose intermediate values may be kept for the backward pass


class TripletLoss(Loss):
    """Triplet loss (Schroff et al. 2015): a negative farther from the anchor than a positive, by a margin.

        l_apn = [‖a - p‖² - ‖a - n‖² + α]_+                           Schroff et al. 2015; HDML, Eq. (12)

    on the unit sphere; the mean is over triplets, active or not. Triplets are all of the batch, or explicit ones
    (``on_triplets``), or, with ``blocks``, the disjoint ones of a batch laid out ``[a; p; n]`` (``TripletSampler``),
    where a row whose label does not fit forms no triplet.

    Differs: FaceNet sums over triplets (``reduction="sum"``); HDML prints the distance, its authors' code squares it.

    Args:
        margin: α.
        squared: whether distances are squared.
        normalize: whether embeddings are put on the unit sphere first.
        soft: log(1 + exp(excess)) instead of the hinge.
        blocks: whether rows lie in blocks ``[a; p; n]``.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its triplets.
    """

    layout: ClassVar[Layout | None] = "triplets"
    pair_rows: ClassVar[Literal["pair", "class"] | None] = "pair"

    def __init__(
        self,
        margin: float = 0.2,
        *,
        squared: bool = True,
        normalize: bool = True,
        soft: bool = False,
        blocks: bool = False,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(Euclidean(squared=squared, normalize=normalize), reduction)
        self.margin, self.squared, self.normalize, self.soft, self.blocks = margin, squared, normalize, soft, blocks

    def comparisons(
        self,
        embeddings: Float[Tensor, "n d"],
        labels: Integer[Tensor, "n"],
        reference: Float[Tensor, "m d"] | None = None,
        reference_labels: Integer[Tensor, "m"] | None = None,
        own: Integer[Tensor, "n"] | None = None,
    ) -> Comparisons:
        if not self.blocks or reference is not None:
            return super().comparisons(embeddings, labels, reference, reference_labels, own)
        triplets = block_triplets(labels)
        anchor, positive, negative = (labels[rows] for rows in triplets)
        fits = ((anchor == positive) & (anchor != negative))[:, None]
        compared = self.triplet_comparisons(embeddings, triplets)
        return Comparisons(compared.positive, fits, compared.negative, fits)

    def core(self, comparisons: Comparisons) -> Terms:
        return _all_triplets(comparisons, self.margin, soft=self.soft, average="all")


class BatchAllTripletLoss(Loss):
    """Batch-all triplet loss (Hermans et al. 2017): every triplet of the batch, without listing them.

        L = Σ_a Σ_{p ≠ a} Σ_n [m + D(a, p) - D(a, n)]_+               Hermans et al. 2017, Eq. (6)

    The mean is over the triplets that cost something, or over all of them.

    Args:
        margin: m.
        squared: whether distances are squared; the paper found the plain distance more stable.
        normalize: whether embeddings are put on the unit sphere first; the paper does not.
        soft: log(1 + exp(excess)) instead of the hinge; the paper then has margin 0. Every triplet costs something.
        average: what a mean divides by: the ``"nonzero"`` triplets or ``"all"``.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its triplets.
    """

    pair_rows: ClassVar[Literal["pair", "class"] | None] = "pair"

    def __init__(
        self,
        margin: float = 0.2,
        *,
        squared: bool = False,
        normalize: bool = False,
        soft: bool = False,
        average: Average = "nonzero",
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(Euclidean(squared=squared, normalize=normalize), reduction)
        if average not in get_args(Average):
            raise ConfigError(unknown("average", str(average), get_args(Average)))
        self.margin, self.squared, self.normalize, self.soft, self.average = margin, squared, normalize, soft, average

    def core(self, comparisons: Comparisons) -> Terms:
        return _all_triplets(comparisons, self.margin, soft=self.soft, average=self.average)


class BatchHardTripletLoss(Loss):
    """Batch-hard triplet loss (Hermans et al. 2017): farthest positive against nearest negative.

        L = Σ_a [m + max_p D(a, p) - min_n D(a, n)]_+                 Hermans et al. 2017, Eq. (5)

    The mean is over anchors that have both. Stuck at ``margin`` (soft: log(1 + e^margin), ln 2 for margin 0), all
    embeddings have collapsed to a point.

    Args:
        margin: m.
        squared: whether distances are squared; the paper found the plain distance more stable.
        normalize: whether embeddings are put on the unit sphere first; the paper does not.
        soft: log(1 + exp(excess)) instead of the hinge; the paper then has margin 0.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor.
    """

    pair_rows: ClassVar[Literal["pair", "class"] | None] = "pair"

    def __init__(
        self,
        margin: float = 0.2,
        *,
        squared: bool = False,
        normalize: bool = False,
        soft: bool = False,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(Euclidean(squared=squared, normalize=normalize), reduction)
        self.margin, self.squared, self.normalize, self.soft = margin, squared, normalize, soft

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        if not c.positive.shape[1] or not c.negative.shape[1]:
            return _no_triplets(c)
        farthest, positive = c.positive.masked_fill(~c.keep_positive, -torch.inf).max(dim=1)
        nearest, negative = c.negative.masked_fill(~c.keep_negative, torch.inf).min(dim=1)
        losses = _penalise(farthest - nearest + self.margin, soft=self.soft)
        for weights, chosen in ((c.positive_weights, positive), (c.negative_weights, negative)):
            if weights is not None:
                losses = losses * weights.gather(1, chosen[:, None]).squeeze(dim=1)
        formed = c.keep_positive.any(dim=1) & c.keep_negative.any(dim=1)  # else the excess was -inf, the loss is 0
        return Terms(losses, formed.to(losses.dtype))


def _penalise(excess: Tensor, *, soft: bool) -> Tensor:
    return softplus(excess, threshold=40.0) if soft else relu(excess)  # threshold: e^-40 is 0 beside 1 in float64, too


def _no_triplets(c: Comparisons) -> Terms:
    nothing = 0 * (c.positive.sum(dim=1) + c.negative.sum(dim=1))
    return Terms(nothing, nothing.detach())


def _all_triplets(c: Comparisons, margin: float, *, soft: bool, average: Average) -> Terms:
    """Every (anchor, positive, negative): the plain hinge in closed form, other terms positive by positive."""
    every = (c.keep_positive.sum(dim=1) * c.keep_negative.sum(dim=1)).to(c.negative.dtype)
    if soft:
        return Terms(_sums_by_positive(c, margin, soft=True), every)
    sums, active = hinge_sums(c.positive, c.negative, c.keep_positive, c.keep_negative, margin)
    if c.positive_weights is not None or c.negative_weights is not None:
        sums = _sums_by_positive(c, margin, soft=False)
    return Terms(sums, active if average == "nonzero" else every)


def _sums_by_positive(c: Comparisons, margin: float, *, soft: bool) -> Float[Tensor, "n"]:
    """Terms without a closed form: one positive of each anchor at a time against all negatives.

    A large batch keeps nothing but the inputs for its backward pass, so memory stays n x m; time is n x m x p.
    """

    def sums_of(positive: Tensor, negative: Tensor, weights: Tensor | None) -> Tensor:
        terms = _penalise(positive[:, None] - negative + margin, soft=soft)
        return (terms if weights is None else terms * weights).masked_fill(~c.keep_negative, 0).sum(dim=1)

    total = _no_triplets(c).sums
    large = c.positive.shape[1] * c.negative.numel() > BLOCK
    for column in range(c.positive.shape[1]):
        given = c.positive[:, column], c.negative, c.negative_weights
        sums = checkpoint(sums_of, *given, use_reentrant=False, preserve_rng_state=False) if large else sums_of(*given)
        if c.positive_weights is not None:
            sums = sums * c.positive_weights[:, column]
        total = total + sums.masked_fill(~c.keep_positive[:, column], 0)
    return total
