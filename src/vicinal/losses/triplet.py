"""Triplet losses: FaceNet and its semi-hard triplets (Schroff et al., CVPR 2015), batch-all and
batch-hard (Hermans et al., 2017), and the hierarchical triplet loss (Ge et al., ECCV 2018).
"""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor
from torch.nn.functional import relu, softplus

from vicinal.geometry import hinge_sums
from vicinal.losses.loss import Comparisons, Loss, Terms
from vicinal.tuples import Embeddings, Labels, Reference, SingleLabels, block_triplets

Average = Literal["nonzero", "all"]


@dataclass(eq=False, repr=False)
class TripletLoss(Loss):
    """Triplet loss (Schroff et al. 2015): a negative farther from the anchor than a positive, by a
    margin.

        l_apn = [‖a - p‖² - ‖a - n‖² + α]_+                      Schroff et al. 2015; HDML, Eq. (12)

    on the unit sphere; the mean is over triplets, active or not. Triplets are all of the batch, or
    explicit ones (``on_triplets``), or, with ``blocks``, the disjoint ones of a batch laid out
    ``[a; p; n]`` (``TripletSampler``), where a row whose label does not fit forms no triplet.

    Differs: FaceNet sums over triplets (``reduction="sum"``); HDML prints the distance, its
        authors' code squares it.

    Args:
        margin: α.
        squared: whether distances are squared.
        normalize: whether embeddings are put on the unit sphere first.
        soft: log(1 + exp(excess)) instead of the hinge.
        blocks: whether rows lie in blocks ``[a; p; n]``.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its
            triplets.
    """

    layout = "triplets"
    pair_rows = "pair"

    margin: float = 0.2
    _: KW_ONLY
    squared: bool = True
    normalize: bool = True
    soft: bool = False
    blocks: bool = False

    def comparisons(
        self, embeddings: Embeddings, labels: Labels, reference: Reference | None = None
    ) -> Comparisons:
        if not self.blocks or reference is not None:
            return super().comparisons(embeddings, labels, reference)
        anchor, positive, negative = block_triplets(labels)
        fits = ((anchor == positive) & (anchor != negative))[:, None]
        rows, distance = self.distance.normalized_once(embeddings)
        anchors, positives, negatives = block_triplets(rows)
        return Comparisons(
            distance(anchors, positives[:, None]), fits, distance(anchors, negatives[:, None]), fits
        )

    def core(self, c: Comparisons) -> Terms:
        return _all_triplets(c, self.margin, soft=self.soft, average="all")


@dataclass(eq=False, repr=False)
class BatchAllTripletLoss(Loss):
    """Batch-all triplet loss (Hermans et al. 2017): every triplet of the batch, without listing
    them.

        L = Σ_a Σ_{p ≠ a} Σ_n [m + D(a, p) - D(a, n)]_+               Hermans et al. 2017, Eq. (6)

    The mean is over the triplets with a loss above 0, or over all of them.

    Args:
        margin: m.
        squared: whether distances are squared; the paper found the plain distance more stable.
        normalize: whether embeddings are put on the unit sphere first; the paper does not.
        soft: log(1 + exp(excess)) instead of the hinge; the paper then has margin 0. Every triplet
            costs something.
        average: what a mean divides by: the ``"nonzero"`` triplets or ``"all"``.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its
            triplets.
    """

    pair_rows = "pair"

    margin: float = 0.2
    _: KW_ONLY
    squared: bool = False
    normalize: bool = False
    soft: bool = False
    average: Average = "nonzero"

    def core(self, c: Comparisons) -> Terms:
        return _all_triplets(c, self.margin, soft=self.soft, average=self.average)


@dataclass(eq=False, repr=False)
class BatchHardTripletLoss(Loss):
    """Batch-hard triplet loss (Hermans et al. 2017): farthest positive against nearest negative.

        L = Σ_a [m + max_p D(a, p) - min_n D(a, n)]_+                 Hermans et al. 2017, Eq. (5)

    The mean is over anchors that have both. Stuck at ``margin`` (soft: log(1 + e^margin), ln 2 for
    margin 0), all embeddings have collapsed to a point.

    Args:
        margin: m.
        squared: whether distances are squared; the paper found the plain distance more stable.
        normalize: whether embeddings are put on the unit sphere first; the paper does not.
        soft: log(1 + exp(excess)) instead of the hinge; the paper then has margin 0.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor.
    """

    pair_rows = "pair"

    margin: float = 0.2
    _: KW_ONLY
    squared: bool = False
    normalize: bool = False
    soft: bool = False

    def core(self, c: Comparisons) -> Terms:
        if not c.positive.shape[1] or not c.negative.shape[1]:
            return Terms(c.nothing(), c.nothing().detach())
        farthest = c.positive.masked_fill(~c.keep_positive, -torch.inf).max(dim=1).values
        nearest = c.negative.masked_fill(~c.keep_negative, torch.inf).min(dim=1).values
        losses = _penalize(farthest - nearest + self.margin, soft=self.soft)
        # Without one of them the excess was -inf, the loss is 0.
        return Terms.of_anchors(losses, c.formed())


@dataclass(eq=False, repr=False)
class SemiHardTripletLoss(Loss):
    """Semi-hard triplets (Schroff et al. 2015): negatives beyond the positive, but within the
    margin.

        l_apn = [d_ap - d_an + α]_+   for all n with  d_ap < d_an < d_ap + α     Schroff et al. 2015

    Negatives nearer than the positive are left out: early in training they are outliers and wrong
    labels, and pull all embeddings into one point. The mean is over the semi-hard triplets, each of
    which costs something.

    With ``rule="nearest_else_farthest"`` each positive has one negative, the nearest that is
    farther than it or, where there is none, the farthest of all: ``tf.contrib``'s
    ``triplet_semihard_loss``. The mean is then over all pairs.

    Args:
        margin: α.
        rule: ``"all"`` semi-hard negatives, or ``"nearest_else_farthest"``.
        squared: whether distances are squared.
        normalize: whether embeddings are put on the unit sphere first.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its
            triplets.
    """

    margin: float = 0.2
    _: KW_ONLY
    rule: Literal["all", "nearest_else_farthest"] = "all"
    squared: bool = True
    normalize: bool = True

    def core(self, c: Comparisons) -> Terms:
        if not c.positive.shape[1] or not c.negative.shape[1]:
            return Terms(c.nothing(), c.nothing().detach())
        if self.rule == "nearest_else_farthest":
            chosen, there = nearest_else_farthest(c.positive, c.negative, c.keep_negative)
            losses = relu(c.positive - c.negative.gather(1, chosen) + self.margin)
            return c.per_positive(losses, there[:, None])
        return Terms(c.sum_triplets(self._term), c.sum_triplets(self._costs).detach())

    def _term(self, excess: Tensor) -> Tensor:
        """Return the loss of d_p - d_n, 0 where the negative is not beyond the positive."""
        return relu(excess + self.margin).masked_fill(excess >= 0, 0)

    def _costs(self, excess: Tensor) -> Tensor:
        """Return 1 for each semi-hard triplet."""
        return (self._term(excess.detach()) > 0).to(excess.dtype)


@dataclass(eq=False, repr=False)
class HierarchicalTripletLoss(Loss):
    """HTL (Ge et al. 2018): all triplets of the batch, with a margin that depends on their two
    classes.

        L = 1/(2 Z) Σ_{(a, p, n)} [‖a - p‖² - ‖a - n‖² + α_z]_+,  α_z = β + d_H(y_a, y_n) - S_{y_a}
            Ge et al. 2018

    Z is the number of triplets, l'm (l'm - 1) t (t - 1) t in a batch of l'm classes with t samples
    each. The margins are set from a class tree (``set_margins``). Without them every α_z is
    ``margin``, as in the paper's first epoch, and the loss is one half of the mean over all
    triplets. Real negatives meet their margin α_z; a synthetic one (HDML), which lies between
    classes, meets ``margin``.

    Summed exactly through ``geometry.hinge_sums``, without listing triplets.

    Differs: the paper prints distances without squares, but d_H and S are squared distances, and
        the 1/2 is what goes
    with squares; ``squared=False`` is the print.

    Args:
        margin: α where no margins are given.
        squared: whether distances are squared.
        normalize: whether embeddings are put on the unit sphere first.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its
            triplets.
    """

    margin: float = 0.2
    _: KW_ONLY
    squared: bool = True
    normalize: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.place: Tensor
        self.levels: Tensor
        self.margins: Tensor
        self.spreads: Tensor
        for name, kind in (
            ("place", torch.long),
            ("levels", torch.uint8),
            ("margins", None),
            ("spreads", None),
        ):
            # Follow from the tree.
            self.register_buffer(name, torch.empty(0, dtype=kind), persistent=False)

    def set_margins(
        self,
        classes: Integer[Tensor, "c"],
        levels: Integer[Tensor, "c c"],
        margins: Float[Tensor, "levels"],
        spreads: Float[Tensor, "c"],
    ) -> None:
        """Give each two classes a margin, α_z = ``margins[levels[a, n]] - spreads[a]``; no gradient
        flows to it.

        Args:
            classes: the labels, in the order of the other arguments.
            levels: at which level of a tree two classes merge.
            margins: β + d_H of each level.
            spreads: S of each class.
        """
        device = self.place.device
        place = torch.zeros(int(classes.max()) + 1, dtype=torch.int64)
        place[classes.cpu()] = torch.arange(len(classes))
        for name, value in (
            ("place", place),
            ("levels", levels),
            ("margins", margins),
            ("spreads", spreads),
        ):
            held = getattr(self, name)
            if held.shape == value.shape:
                held.copy_(value)  # in place: a CUDA graph reads it there
            else:
                setattr(self, name, value.to(device))

    def margins_of(
        self, labels: SingleLabels, others: Integer[Tensor, "m"] | None = None
    ) -> Float[Tensor, "n m"]:
        """Return α_z of each anchor (row) and negative (column)."""
        others = labels if others is None else others
        if not len(self.place):
            return torch.full((len(labels), len(others)), self.margin, device=labels.device)
        rows = self.place[labels.long()]
        columns = self.place[others.long()]
        return (
            self.margins[self.levels[rows[:, None], columns].long()] - self.spreads[rows][:, None]
        )

    @property
    def multi_label(self) -> bool:
        return not len(self.place)

    def comparisons(
        self, embeddings: Embeddings, labels: Labels, reference: Reference | None = None
    ) -> Comparisons:
        found = super().comparisons(embeddings, labels, reference)
        if not len(self.place):
            return found
        # An own margin of each negative is a nearer negative: [d_p - (d_n + α - α_z) + α]_+
        margins = self.margins_of(labels, None if reference is None else reference.labels).to(
            found.negative.dtype
        )
        return replace(found, negative=found.negative + self.margin - margins)

    def core(self, c: Comparisons) -> Terms:
        sums, counts = _all_triplets(c, self.margin, soft=False, average="all")
        return Terms(sums / 2, counts)


def _penalize(excess: Tensor, *, soft: bool) -> Tensor:
    # Threshold: e^-40 is 0 beside 1 in float64, too.
    return softplus(excess, threshold=40.0) if soft else relu(excess)


def _all_triplets(c: Comparisons, margin: float, *, soft: bool, average: Average) -> Terms:
    """Sum over every (anchor, positive, negative): the plain hinge in closed form, other terms
    positive by positive."""
    if c.positive.shape[1] == c.negative.shape[1] == 1:  # nothing to sum
        excess = c.positive - c.negative + margin
        keep = c.keep_positive & c.keep_negative
        losses = _penalize(excess, soft=soft).masked_fill(~keep, 0)
        counted = keep if soft or average == "all" else keep & (excess > 0)
        return Terms(losses.squeeze(dim=1), counted.squeeze(dim=1).to(losses.dtype))
    if soft:
        return Terms(
            c.sum_triplets(lambda excess: _penalize(excess + margin, soft=True)), c.count_triplets()
        )
    sums, active = hinge_sums(c.positive, c.negative, c.keep_positive, c.keep_negative, margin)
    return Terms(sums, active if average == "nonzero" else c.count_triplets())


def nearest_else_farthest(
    positive: Float[Tensor, "n p"],
    negative: Float[Tensor, "n m"],
    keep_negative: Bool[Tensor, "n m"],
) -> tuple[Int[Tensor, "n p"], Bool[Tensor, "n"]]:
    """Return for each positive the column of the nearest negative beyond it, else of the farthest;
    and who has any."""
    ordered, order = (
        negative.detach().contiguous().masked_fill(~keep_negative, torch.inf).sort(dim=1)
    )
    last = keep_negative.sum(dim=1, keepdim=True) - 1
    beyond = torch.searchsorted(ordered, positive.detach().contiguous(), right=True)
    return order.gather(1, torch.minimum(beyond, last).clamp(min=0)), last.squeeze(dim=1) >= 0
