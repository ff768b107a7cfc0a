"""Hard exemplar reweighting triplet loss, HER (Cai et al., ICCV 2019), with its orientation
regression."""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import relu, softplus

from vicinal.arguments import NonNegative, Positive
from vicinal.distances import Euclidean, at_least_float32
from vicinal.losses.loss import Comparisons, Loss, Terms, reduce
from vicinal.tuples import Embeddings, Reference, SingleLabels, other_class

THRESHOLD = 40.0  # of softplus: e^-40 is 0 beside 1 in float64, too


@dataclass(eq=False, repr=False)
class HardExemplarLoss(Loss):
    """HER (Cai et al. 2019): a soft-margin triplet loss in which hard triplets weigh more, up to a
    bound.

        gap = d_n - d_p                                                              Cai et al. 2019
        L = w_hard · log(1 + exp(-gap))
        w_hard = ε/B if gap ≥ m;  log2(1 + e^β) if gap ≤ 0;  else log2(1 + exp(β - gap)),    β = m/2

    with squared distances of embeddings of length ``scale``, over all triplets of the batch. -log2
    of the sigmoid of gap - β is how surprising it would be to match the triplet rightly: 1 where
    gap = m/2. It is continuous at gap = 0 and falls from log2(1 + e^{-m/2}) to ε/B at gap = m. B is
    the number of rows with which an anchor is compared.

    Paper to code: m = ``margin`` · ``scale``², so that 0.15 on the unit sphere is 3.75 as in the
        authors' code.

    Differs: weights pass no gradient (``detach_weights=False`` is the authors' code, which leaves
        open whether it means
    to). The mean is over triplets; their code divides by B² with one match for each of B anchors,
    (B - 1)/B of ours.

    Args:
        margin: m on the unit sphere, where gaps begin to be of no interest.
        epsilon: ε.
        epsilon_over: what divides ε: B of the ``"batch"``, as in the authors' code, or β, as in
            the paper.
        scale: length of the embeddings, which sets how sharply the soft margin and the weights
            change.
        weighted: False for w_hard = 1, the plain soft-margin triplet loss.
        detach_weights: whether weights are constants to the gradient.
        squared: whether distances are squared.
        normalize: whether embeddings are put on the unit sphere before they are scaled.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its
            triplets.
    """

    margin: float = 0.15
    _: KW_ONLY
    epsilon: NonNegative = 0.1
    epsilon_over: Literal["batch", "beta"] = "batch"
    scale: Positive = 5.0
    weighted: bool = True
    detach_weights: bool = True
    squared: bool = True
    normalize: bool = True

    @cached_property
    def distance(self) -> Euclidean:
        return Euclidean(
            self.normalize, self.squared, self.scale**2 if self.squared else self.scale
        )

    @property
    def scaled_margin(self) -> float:
        """m, in the distances that the core sees."""
        return self.margin * self.distance.scale

    def core(self, c: Comparisons) -> Terms:
        weigh = self._weigher(c)
        return Terms(
            c.sum_triplets(lambda excess: weigh(excess) * softplus(excess, threshold=THRESHOLD)),
            c.count_triplets(),
        )

    def weigh(
        self, gap: Float[Tensor, "*rows"], compared: Float[Tensor, "*rows"]
    ) -> Float[Tensor, "*rows"]:
        """Return w_hard of gaps, for anchors that are compared with so many rows (B).

        >>> loss = HardExemplarLoss()
        >>> gaps = torch.tensor([-9.0, 0.0, 1.875, 3.74, 3.75])
        >>> [round(weight, 3) for weight in loss.weigh(gaps, torch.tensor(10.0).expand(5)).tolist()]
        [2.911, 2.911, 1.0, 0.208, 0.01]
        """
        if not self.weighted:
            return torch.ones_like(gap)
        gap = gap.detach() if self.detach_weights else gap
        margin = self.scaled_margin
        easy = self.epsilon / (
            compared.clamp(min=1) if self.epsilon_over == "batch" else margin / 2
        )
        # relu holds the weight at that of gap 0, and is flat there; the logarithm's argument never
        # overflows.
        surprise = softplus(margin / 2 - relu(gap), threshold=THRESHOLD) / math.log(2)
        return torch.where(gap >= margin, easy, surprise)

    def with_orientation(
        self,
        queries: Embeddings,
        gallery: Embeddings,
        labels: SingleLabels,
        errors: Float[Tensor, "n"],
    ) -> "MatchedPairs":
        """Return the two terms of a batch of pairs, of which λ1 and λ2 make the whole loss.

            L_OR = w_hard · ((sin^ - sin)² + (cos^ - cos)²),    L_HER = λ1 L_hard + λ2 L_OR
                Cai et al. 2019

        Args:
            queries: ground views.
            gallery: aerial views; row i is the match of query i.
            labels: class of each pair.
            errors: of each pair's orientation, ``orientation_errors``; each of its triplets has it.
        """
        Reference.checked(queries, labels)
        compared = self.distance(at_least_float32(queries), at_least_float32(gallery))
        # Nothing is searched by label, so that a GPU is not waited for; other pairs of a class are
        # neither positives nor negatives.
        own = compared.diagonal()[:, None]
        pairs = Comparisons(own, torch.ones_like(own).bool(), compared, other_class(labels))
        weights = pairs.sum_triplets(self._weigher(pairs))
        counts = pairs.count_triplets()
        return MatchedPairs(
            self.score(pairs),
            reduce(Terms(weights * errors, counts), self.reduction),
            reduce(Terms(weights.detach(), counts), "mean"),
        )

    def _weigher(self, c: Comparisons) -> Callable[[Tensor], Tensor]:
        """Return w_hard as a function of d_p - d_n of each anchor."""
        compared = c.count_pairs()[:, None].expand_as(c.negative)
        return lambda excess: self.weigh(-excess, compared)


class MatchedPairs(NamedTuple):
    """The losses of a batch of pairs.

    Attributes:
        match: L_hard.
        orientation: L_OR.
        weight: the mean of w_hard.
    """

    match: Tensor
    orientation: Tensor
    weight: Float[Tensor, ""]


def orientation_errors(
    predicted: Float[Tensor, "n 2"], angles: Float[Tensor, "n"]
) -> Float[Tensor, "n"]:
    """Return (sin^ - sin)² + (cos^ - cos)² of unit vectors (sin^, cos^) and angles in radians.

    It is 2 - 2 cos of the difference: 0 if the angle is right, 4 if it points the other way.

    >>> predicted, angles = torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.tensor([0.0, math.pi])
    >>> orientation_errors(predicted, angles).round().tolist()
    [0.0, 4.0]
    """
    truth = torch.stack([angles.sin(), angles.cos()], dim=1)
    return (predicted - truth).square().sum(dim=1)
