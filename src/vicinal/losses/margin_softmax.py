"""Classification by the angle to a proxy of each class, with a margin: ArcFace (Deng et al., CVPR 2019), CosFace (Wang
et al., CVPR 2018), sub-center ArcFace (Deng et al., ECCV 2020), P2SGrad (Zhang et al., CVPR 2019) and the instance loss
(Zheng et al., TOMM 2020).
"""

import math
from dataclasses import KW_ONLY, dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import softplus

from vicinal.arguments import Count, NonNegative, Positive
from vicinal.distances import Cosine, DotProduct
from vicinal.geometry import log_sum_exp, shift_angle
from vicinal.losses.loss import Comparisons, Terms
from vicinal.losses.proxies import ProxyLoss


def _cross_entropy(c: Comparisons, own: Float[Tensor, "n 1"], others: Float[Tensor, "n c"]) -> Terms:
    """Return -log(exp(own) / (exp(own) + Σ exp(others))) of each sample."""
    against = log_sum_exp(others, c.keep_negative, c.negative_weights)
    return c.per_positive(softplus(against[:, None] - own, threshold=40.0))  # log(1 + Σ / p)


@dataclass(eq=False, repr=False)
class CosFaceLoss(ProxyLoss):
    """CosFace (Wang et al. 2018): classify by the cosine to one proxy for each class, the right one less a margin.

        l_i = -log(exp(s (cos θ_y - m)) / (exp(s (cos θ_y - m)) + Σ_{z ≠ y} exp(s cos θ_z)))   Wang et al. 2018, Eq. (4)

    θ_z is the angle between the sample and the proxy of class z. The mean is over samples. The proxies are the loss's
    parameters: give them to an optimizer.

    Args:
        classes: number of classes.
        dim: dimension of the embeddings.
        margin: m.
        scale: s.
        known: the labels of the classes in increasing order; None for 0 to ``classes`` - 1.
        seed: seed of the initial proxies.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per sample.
    """

    _: KW_ONLY
    margin: NonNegative = 0.35
    scale: Positive = 64.0

    distance = Cosine()

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        return _cross_entropy(c, self.scale * (c.positive - self.margin), self.scale * c.negative)


@dataclass(eq=False, repr=False)
class ArcFaceLoss(ProxyLoss):
    """ArcFace (Deng et al. 2019): classify by the angle to one proxy for each class, the right one plus a margin.

        l_i = -log( exp(s cos(θ_y + m)) / (exp(s cos(θ_y + m)) + Σ_{z ≠ y} exp(s cos θ_z)) )   Deng et al. 2019, Eq. (3)

    θ_z is the angle between the sample and the proxy of class z. Beyond θ_y = π - m, where cos(θ_y + m) would rise
    again, cos θ_y - m sin m takes its place, as in the authors' code. The mean is over samples. The proxies are the
    loss's parameters: give them to an optimizer.

    Args:
        classes: number of classes.
        dim: dimension of the embeddings.
        margin: m in radians; 0.5 is 28.6 degrees.
        scale: s.
        known: the labels of the classes in increasing order; None for 0 to ``classes`` - 1.
        seed: seed of the initial proxies.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per sample.
    """

    _: KW_ONLY
    margin: NonNegative = 0.5
    scale: Positive = 64.0

    distance = Cosine()

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        beyond = c.positive < -math.cos(self.margin)
        falling = c.positive - self.margin * math.sin(self.margin)
        own = torch.where(beyond, falling, shift_angle(c.positive, self.margin))
        return _cross_entropy(c, self.scale * own, self.scale * c.negative)


@dataclass(eq=False, repr=False)
class SubCenterArcFaceLoss(ArcFaceLoss):
    """Sub-center ArcFace (Deng et al. 2020): ArcFace with several centers for each class, of which the nearest counts.

        cos θ_z = max_k x_i·w_z^k                                                         Deng et al. 2020

    and then as `ArcFaceLoss`: mislabeled samples gather at a center of their own and pull the others less.

    Args:
        classes: number of classes.
        dim: dimension of the embeddings.
        margin: m in radians; 0.5 is 28.6 degrees.
        scale: s.
        centers: how many centers a class has.
        known: the labels of the classes in increasing order; None for 0 to ``classes`` - 1.
        seed: seed of the initial centers.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per sample.
    """

    _: KW_ONLY
    centers: Count = 3

    @property
    def shape(self) -> tuple[int, ...]:
        return self.classes, self.centers, self.dim

    def with_proxies(
        self, embeddings: Float[Tensor, "n d"], own: Int[Tensor, "n 1"], others: Bool[Tensor, "n c"]
    ) -> Comparisons:
        """Compare each sample with the nearest center of its own class, and with that of each other class."""
        to_centers = self.distance(embeddings, self.beside(embeddings).flatten(end_dim=1))
        to_classes = to_centers.view(-1, self.classes, self.centers).amax(dim=2)
        return Comparisons(to_classes.gather(1, own), torch.ones_like(own, dtype=torch.bool), to_classes, others)


@dataclass(eq=False, repr=False)
class P2SGradLoss(ProxyLoss):
    """P2SGrad (Zhang et al. 2019): the gradient of a softmax over angles with cosines in place of probabilities.

        l_i  = 1/2 Σ_z (cos θ_z - 1[z = y])²
        ∇l_i = Σ_z (cos θ_z - 1[z = y]) ∇cos θ_z                                          Zhang et al. 2019, Eq. (11)

    A sample pulls by how far its cosine is off, whatever the scale and the number of classes. The paper gives the
    gradient alone. The mean is over samples. The proxies are the loss's parameters: give them to an optimizer.

    Args:
        classes: number of classes.
        dim: dimension of the embeddings.
        known: the labels of the classes in increasing order; None for 0 to ``classes`` - 1.
        seed: seed of the initial proxies.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per sample.
    """

    distance = Cosine()

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        sums = c.add_up((1 - c.positive).square() / 2, c.negative.square() / 2)
        return Terms(sums, (c.count_pairs() > 0).to(sums.dtype))


@dataclass(eq=False, repr=False)
class InstanceLoss(ProxyLoss):
    """Instance loss (Zheng et al. 2020): every instance is a class of its own, of which views or texts are samples.

        l_i = -log softmax(s W x_i)_y                                                     Zheng et al. 2020

    with one row of W for each instance y, shared by the modalities, and no bias. The mean is over samples. W is the
    loss's parameter: give it to an optimizer.

    Args:
        classes: number of instances.
        dim: dimension of the embeddings.
        scale: s; 1 in the paper, some 64 for normalized rows.
        normalize: whether embeddings and W are put on the unit sphere first; the paper does not.
        known: the labels of the instances in increasing order; None for 0 to ``classes`` - 1.
        seed: seed of the initial W.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per sample.
    """

    _: KW_ONLY
    scale: Positive = 1.0
    normalize: bool = False

    @property
    def distance(self) -> DotProduct:
        return DotProduct(self.normalize)

    def core(self, comparisons: Comparisons) -> Terms:
        return _cross_entropy(comparisons, self.scale * comparisons.positive, self.scale * comparisons.negative)
