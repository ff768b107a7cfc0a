"""Hard exemplar reweighting triplet loss, HER (Cai et al., ICCV 2019), with its orientation regression."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.nn.functional import relu, softplus
from torch.utils.checkpoint import checkpoint

from vicinal.distances import Euclidean, at_least_float32
from vicinal.losses.loss import Comparisons, Loss, Reduction, Terms, reduce
from vicinal.tuples import other_class

BLOCK = 2**22  # triplets whose intermediate values may be kept for the backward pass
THRESHOLD = 40.0  # of softplus: e^-40 is 0 beside 1 in float64, too


class HardExemplarLoss(Loss):
    """HER (Cai et al. 2019): a soft-margin triplet loss in which hard triplets weigh more, up to a bound.

        gap = d_n - d_p                                                                              Cai et al. 2019
        L = w_hard · log(1 + exp(-gap))
        w_hard = ε/B if gap ≥ m;  log2(1 + e^β) if gap ≤ 0;  else log2(1 + exp(β - gap)),            β = m/2

    with squared distances of embeddings of length ``scale``, over all triplets of the batch. -log2 of the sigmoid of
    gap - β is how surprising it would be to match the triplet rightly: 1 where gap = m/2. It is continuous at gap = 0
    and falls from log2(1 + e^{-m/2}) to ε/B at gap = m. B is the number of rows with which an anchor is compared.

    Paper to code: m = ``margin`` · ``scale``², so that 0.15 on the unit sphere is 3.75 as in the authors' code; ε/B is
    printed as ε/β in the survey at hand and is ε over the batch size in that code.

    Differs: weights pass no gradient (``detach_weights=False`` is the authors' code, which leaves open whether it means
    to). The mean is over triplets; their code divides by B² with one match for each of B anchors, (B - 1)/B of ours.

    Args:
        margin: m on the unit sphere, where gaps begin to be of no interest.
        epsilon: ε.
        scale: length of the embeddings, which sets how sharply the soft margin and the weights change.
        weighted: False for w_hard = 1, the plain soft-margin triplet loss.
        detach_weights: whether weights are constants to the gradient.
        squared: whether distances are squared.
        normalize: whether embeddings are put on the unit sphere before they are scaled.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its triplets.
    """

    def __init__(
        self,
        margin: float = 0.15,
        *,
        epsilon: float = 0.1,
        scale: float = 5.0,
        weighted: bool = True,
        detach_weights: bool = True,
        squared: bool = True,
        normalize: bool = True,
        reduction: Reduction = "mean",
    ) -> None:
        distance = Euclidean(squared=squared, normalize=normalize, scale=scale**2 if squared else scale)
        super().__init__(distance, reduction)
        self.margin, self.epsilon, self.scale = margin, epsilon, scale
        self.weighted, self.detach_weights = weighted, detach_weights
        self.squared, self.normalize = squared, normalize

    @property
    def scaled_margin(self) -> float:
        """m, in the distances that the core sees."""
        return self.margin * (self.scale**2 if self.squared else self.scale)

    def core(self, comparisons: Comparisons) -> Terms:
        return self._parts(comparisons).triplets

    def weigh(self, gap: Float[Tensor, "*rows"], compared: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
        """w_hard of gaps, for anchors that are compared with so many rows (B).

        >>> loss = HardExemplarLoss()
        >>> gaps = torch.tensor([-9.0, 0.0, 1.875, 3.74, 3.75])
        >>> [round(weight, 3) for weight in loss.weigh(gaps, torch.tensor(10.0).expand(5)).tolist()]
        [2.911, 2.911, 1.0, 0.208, 0.01]
        """
        if not self.weighted:
            return torch.ones_like(gap)
        gap = gap.detach() if self.detach_weights else gap
        margin = self.scaled_margin
        # relu holds the weight at that of gap 0, and is flat there; the logarithm's argument never overflows.
        surprise = softplus(margin / 2 - relu(gap), threshold=THRESHOLD) / math.log(2)
        return torch.where(gap >= margin, self.epsilon / compared.clamp(min=1), surprise)

    def pair_comparisons(
        self,
        queries: Float[Tensor, "n d"],
        gallery: Float[Tensor, "n d"],
        labels: Integer[Tensor, "n"],
        fits: Bool[Tensor, "n"] | None = None,
    ) -> Comparisons:
        """Queries against the gallery images of a batch of pairs: row i of each is the other's match.

        Nothing is searched by label, so that a GPU is not waited for; other pairs of a class are neither positives nor
        negatives. A pair that does not fit takes no part.
        """
        compared = self.distance(queries, gallery)
        fits = torch.ones_like(labels, dtype=torch.bool) if fits is None else fits
        return Comparisons(compared.diagonal()[:, None], fits[:, None], compared, other_class(labels) & fits)

    def with_orientation(
        self,
        queries: Float[Tensor, "n d"],
        gallery: Float[Tensor, "n d"],
        labels: Integer[Tensor, "n"],
        errors: Float[Tensor, "n"],
        fits: Bool[Tensor, "n"] | None = None,
    ) -> "MatchedPairs":
        """The two terms of a batch of pairs, of which λ1 and λ2 make the whole loss.

            L_OR = w_hard · ((sin^ - sin)² + (cos^ - cos)²),    L_HER = λ1 L_hard + λ2 L_OR           Cai et al. 2019

        Args:
            queries: ground views.
            gallery: aerial views; row i is the match of query i.
            labels: class of each pair.
            errors: of each pair's orientation, ``orientation_errors``; each of its triplets has it.
            fits: which pairs are matches at all; the others take no part.
        """
        pairs = self.pair_comparisons(at_least_float32(queries), at_least_float32(gallery), labels, fits)
        (losses, counts), (weights, _) = self._parts(pairs)
        return MatchedPairs(
            reduce(Terms(losses, counts), self.reduction),
            reduce(Terms(weights * errors, counts), self.reduction),
            reduce(Terms(weights.detach(), counts), "mean"),
        )

    def _parts(self, c: Comparisons) -> "_Parts":
        """Of each anchor the sums of w_hard · softplus(-gap) and of w_hard, one positive at a time.

        A large batch keeps nothing but the inputs for its backward pass, so memory stays n x m.
        """
        given = c.keep_positive.sum(dim=1), c.keep_negative.sum(dim=1)
        compared = (given[0] + given[1]).to(c.negative.dtype)[:, None].expand_as(c.negative)

        def sums_of(positive: Tensor, negative: Tensor, factors: Tensor | None) -> tuple[Tensor, Tensor]:
            gap = negative - positive[:, None]
            weights = self.weigh(gap, compared)
            if factors is not None:
                weights = weights * factors
            weights = weights.masked_fill(~c.keep_negative, 0)
            losses = (weights * softplus(-gap, threshold=THRESHOLD)).masked_fill(~c.keep_negative, 0)
            return losses.sum(dim=1), weights.sum(dim=1)

        losses = weights = 0 * (c.positive.sum(dim=1) + c.negative.sum(dim=1))
        large = c.positive.shape[1] * c.negative.numel() > BLOCK
        for column in range(c.positive.shape[1]):
            rows = c.positive[:, column], c.negative, c.negative_weights
            if large:
                sums = checkpoint(sums_of, *rows, use_reentrant=False, preserve_rng_state=False)
            else:
                sums = sums_of(*rows)
            if c.positive_weights is not None:
                sums = tuple(part * c.positive_weights[:, column] for part in sums)
            there = c.keep_positive[:, column]
            losses = losses + sums[0].masked_fill(~there, 0)
            weights = weights + sums[1].masked_fill(~there, 0)
        counts = (given[0] * given[1]).to(losses.dtype)
        return _Parts(Terms(losses, counts), Terms(weights, counts))


class _Parts(NamedTuple):
    triplets: Terms
    weights: Terms


class MatchedPairs(NamedTuple):
    """What a batch of pairs costs.

    Attributes:
        match: L_hard.
        orientation: L_OR.
        weight: the mean of w_hard.
    """

    match: Tensor
    orientation: Tensor
    weight: Float[Tensor, ""]


def orientation_errors(
    predicted: Float[Tensor, "n 2"],
    angles: Float[Tensor, "n"],
) -> Float[Tensor, "n"]:
    """(sin^ - sin)² + (cos^ - cos)² of unit vectors (sin^, cos^) and angles in radians: 2 - 2 cos of the difference.

    0 if the angle is right, 4 if it points the other way.

    >>> orientation_errors(torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.tensor([0.0, math.pi])).round().tolist()
    [0.0, 4.0]
    """
    truth = torch.stack([angles.sin(), angles.cos()], dim=1)
    return (predicted - truth).square().sum(dim=1)
