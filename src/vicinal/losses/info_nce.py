"""Softmax and sigmoid losses over pairs: InfoNCE or NT-Xent (van den Oord et al., 2018; Chen et
al., ICML 2020), the supervised contrastive loss (Khosla et al., NeurIPS 2020), the sigmoid loss of
SigLIP (Zhai et al., ICCV 2023) and the tuplet margin loss (Yu and Tao, ICCV 2019).
"""

import math
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import nn
from torch.nn.functional import softplus

from vicinal.arguments import NonNegative, Positive
from vicinal.distances import Cosine, DotProduct
from vicinal.geometry import log_sum_exp, shift_angle
from vicinal.losses.loss import Comparisons, Loss, PairRows, Terms


@dataclass(eq=False, repr=False)
class InfoNCELoss(Loss):
    """InfoNCE or NT-Xent (van den Oord et al. 2018; Chen et al. 2020): each positive among the
    negatives of its anchor.

        l_ip = -log( exp(s_ip / τ) / (exp(s_ip / τ) + Σ_{n ∈ N_i} exp(s_in / τ)) )
            Chen et al. 2020, Eq. (1)

    with the cosine s; views of one image are rows with the same label. The mean is over positive
    pairs in both orders. Other positives of the anchor are not in the sum:
    `SupervisedContrastiveLoss` has them there.

    Args:
        temperature: τ.
        normalize: whether embeddings are put on the unit sphere first.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its
            positives.
    """

    pair_rows: ClassVar[PairRows] = "pair"
    relative = True

    temperature: Positive = 0.07
    _: KW_ONLY
    normalize: bool = True

    @cached_property
    def distance(self) -> DotProduct:
        return DotProduct(self.normalize)

    def core(self, c: Comparisons) -> Terms:
        return c.per_positive(
            c.cross_entropy(c.positive / self.temperature, c.negative / self.temperature)
        )


@dataclass(eq=False, repr=False)
class SupervisedContrastiveLoss(InfoNCELoss):
    """Supervised contrastive loss (Khosla et al. 2020): each positive against all other samples.

        l_i = -1/|P_i| · Σ_{p ∈ P_i} log(exp(s_ip / τ) / Σ_{a ≠ i} exp(s_ia / τ))
            Khosla et al. 2020, Eq. (2)

    with the inner product s on the unit sphere: the paper's "out" form, its better one. The mean is
    over anchors that have positives; the paper's views of one image are rows with the same label
    here.

    Args:
        temperature: τ.
        normalize: whether embeddings are put on the unit sphere first.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor.
    """

    temperature: Positive = 0.1

    pair_rows: ClassVar[PairRows] = None

    def core(self, c: Comparisons) -> Terms:
        positive = c.positive / self.temperature
        negative = c.negative / self.temperature
        everyone = torch.logaddexp(
            log_sum_exp(positive, c.keep_positive),
            log_sum_exp(negative, c.keep_negative),
        )
        count = c.keep_positive.sum(dim=1)
        sums = c.of_positives(everyone[:, None] - positive).sum(dim=1) / count.clamp(min=1)
        return Terms.of_anchors(sums, count > 0)


@dataclass(eq=False, repr=False)
class TupletMarginLoss(Loss):
    """Tuplet margin loss (Yu and Tao 2019): all negatives farther than a positive, whose angle is
    eased by a slack.

        l_ip = log(1 + Σ_{n ∈ N_i} exp(s (cos θ_in - cos(θ_ip - β))))                Yu and Tao 2019

    The slack β lets positives that are near anyway pull less, so that a class does not shrink to a
    point. The mean is over positive pairs in both orders.

    Args:
        slack: β in radians; 0.1 is 5.7 degrees.
        scale: s.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its
            positives.
    """

    slack: NonNegative = 0.1
    scale: Positive = 64.0

    distance = Cosine()
    pair_rows: ClassVar[PairRows] = "pair"

    def core(self, c: Comparisons) -> Terms:
        eased = self.scale * shift_angle(c.positive, -self.slack)
        return c.per_positive(c.cross_entropy(eased, self.scale * c.negative))


@dataclass(eq=False, repr=False)
class SigmoidLoss(Loss):
    """Sigmoid loss (SigLIP, Zhai et al. 2023): every pair is a decision of its own, same or not.

        l_i = -Σ_j log σ(z_ij (t s_ij + b)),   z_ij = 1 of a positive pair, -1 of a negative pair
            Zhai et al. 2023

    with the cosine s. log t and b are parameters: give them to an optimizer. b starts so low that
    the many negatives do not dominate at first. The mean is over anchors.

    Args:
        temperature: where t starts.
        bias: where b starts.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor.
    """

    temperature: Positive = 10.0
    bias: float = -10.0

    distance = Cosine()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.log_temperature = nn.Parameter(torch.tensor(math.log(self.temperature)))
        self.offset = nn.Parameter(torch.tensor(float(self.bias)))

    def core(self, c: Comparisons) -> Terms:
        scale, offset = (
            value.to(c.negative.dtype) for value in (self.log_temperature.exp(), self.offset)
        )
        pull = softplus(-(scale * c.positive + offset), threshold=40.0)
        push = softplus(scale * c.negative + offset, threshold=40.0)
        return Terms.of_anchors(c.add_up(pull, push), c.count_pairs() > 0)
