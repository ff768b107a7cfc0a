"""N-pair loss (Sohn, NIPS 2016), one positive against many negatives, its improved form (Song et
al., 2022), and the angular loss (Wang et al., ICCV 2017), a bound on the angle at the negative of a
triplet.
"""

import math
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from vicinal.arguments import Limits, NonNegative, Positive
from vicinal.distances import Distance, DotProduct, Negative, squared_lengths
from vicinal.geometry import log_sum_exp
from vicinal.losses.loss import Comparisons, Loss, PairRows, Terms
from vicinal.tuples import Embeddings


@dataclass(eq=False, repr=False)
class NPairLoss(Loss):
    """N-pair loss (Sohn 2016): each positive more similar to the anchor than all negatives
    together.

        l_ip = log(1 + Σ_{n ∈ N_i} exp(s_in - s_ip))       Sohn 2016; ANML, Eq. (28); HDML, Eq. (13)
             + r/4 · (|x_i|² + mean_j |x_j|²)

    for each anchor i and each of its positives p; the mean is over these tuples. s is the inner
    product (Sohn) or minus the Euclidean distance, as HDML's Eq. (13) prints it; r = ``l2`` keeps
    the unnormalized embeddings small, j runs over the rows that anchors are compared with.

    With ``blocks`` the batch is taken as the paper lays it, N classes in blocks ``[a; p]``
    (``NPairSampler``): only the a are anchors, compared with the p, which makes it the softmax
    cross-entropy of the N x N matrix a·p. Without, any labels will do: every row is an anchor, and
    all rows of other classes are its negatives.

    An anchor without positives or without negatives forms no tuple.

    Args:
        similarity: ``"dot"``, the inner product, or ``"distance"``, minus the Euclidean distance.
        l2: r; HDML's authors use 3e-3 on Cars196 and 1.5e-2 on CUB.
        squared: whether the distance is squared; ignored by ``"dot"``.
        normalize: whether embeddings are put on the unit sphere first.
        blocks: whether rows lie in blocks ``[a; p]``.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its
            positives.
    """

    layout = "pairs"
    pair_rows: ClassVar[PairRows] = "pair"
    pairs_off_sphere = True
    relative = True

    similarity: Literal["dot", "distance"] = "dot"
    _: KW_ONLY
    l2: NonNegative = 3e-3
    squared: bool = False
    normalize: bool = False
    blocks: bool = False

    @cached_property
    def distance(self) -> Distance:
        return (
            DotProduct(self.normalize) if self.similarity == "dot" else Negative(super().distance)
        )

    def penalty(self, anchors: Embeddings, others: Float[Tensor, "*m d"]) -> Float[Tensor, "n"]:
        return self.l2 / 4 * (squared_lengths(anchors) + squared_lengths(others).mean())

    def core(self, c: Comparisons) -> Terms:
        return c.per_positive(c.cross_entropy(c.positive, c.negative))


@dataclass(eq=False, repr=False)
class ImprovedNPairLoss(NPairLoss):
    """Improved N-pair loss (Song et al. 2022): N-pair loss with an inverse temperature and an
    offset.

        l_ip = 1/γ log(1 + Σ_{n ∈ N_i} exp(γ (s_in - s_ip - λ)))               Song et al., Eq. (31)
             + r/4 · (|x_i|² + mean_j |x_j|²)

    for each anchor i and each of its positives p. γ = 1, λ = 0 is ``NPairLoss``; γ → ∞ is [max_n
    s_in - s_ip - λ]_+. So λ > 0 relaxes, and a margin is λ < 0. Both are known by other names: γ is
    an inverse temperature (with inner products, 1/γ times the N-pair loss of √γ x), and exp(-γ λ)
    is a weight of all negatives.

    Args:
        similarity: ``"dot"``, the inner product, or ``"distance"``, minus the Euclidean distance.
        l2: r.
        squared: whether the distance is squared; ignored by ``"dot"``.
        normalize: whether embeddings are put on the unit sphere first.
        blocks: whether rows lie in blocks ``[a; p]``.
        gamma: γ > 0. No value is printed.
        offset: λ.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its
            positives.
    """

    _: KW_ONLY
    gamma: Positive = 2.0
    offset: float = 0.0

    pair_rows = None
    pairs_off_sphere = False

    def core(self, c: Comparisons) -> Terms:
        losses = c.cross_entropy(self.gamma * c.positive, self.gamma * (c.negative - self.offset))
        return c.per_positive(losses / self.gamma)


@dataclass(eq=False, repr=False)
class AngularLoss(Loss):
    """Angular loss (Wang et al. 2017): bound the angle under which a negative sees a positive pair.

        l_ap = log(1 + Σ_{n ∈ N_a} exp(f_apn))
        f_apn = 4 tan²α (x_a + x_p)·x_n - 2 (1 + tan²α) x_a·x_p                     Wang et al. 2017

    on the unit sphere, for each anchor a and each of its positives p; the mean is over these
    tuples. The paper's best results are of the N-pair loss with λ times this one (``n_pair``):

        l_ap = log(1 + Σ_{n ∈ N_a} exp(x_a·x_n - x_a·x_p)) + λ log(1 + Σ_{n ∈ N_a} exp(f_apn))

    Args:
        angle: α in degrees.
        n_pair: whether the N-pair loss is added.
        weight: λ, the angular loss's factor beside the N-pair loss.
        normalize: whether embeddings are put on the unit sphere first.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its
            positives.
    """

    both_members = True
    single_negatives = False  # a negative is compared with the middle of a pair

    angle: Annotated[float, Limits("(0, 90)")] = 45.0
    _: KW_ONLY
    n_pair: bool = False
    weight: float = 2.0
    normalize: bool = True

    @cached_property
    def distance(self) -> DotProduct:
        return DotProduct(self.normalize)

    def core(self, c: Comparisons) -> Terms:
        steep = math.tan(math.radians(self.angle)) ** 2
        losses = softplus(
            self._against(c, 8 * steep) - 2 * (1 + steep) * c.positive, threshold=40.0
        )
        if self.n_pair:
            losses = c.cross_entropy(c.positive, c.negative) + self.weight * losses
        return c.per_positive(losses)

    def _against(self, c: Comparisons, scale: float) -> Float[Tensor, "n p"]:
        """log Σ_n exp(scale · x_n · (x_a + x_p) / 2), one positive of each anchor at a time."""

        def with_partners(partner: Tensor, negative: Tensor, theirs: Tensor) -> Tensor:
            return log_sum_exp(scale / 2 * (negative + theirs[partner]), c.keep_negative)

        theirs = (c.partners or c).negative
        columns = [*c.one_by_one(with_partners, c.partner, c.negative, theirs)]  # type: ignore[arg-type]
        return torch.stack(columns, dim=1) if columns else c.positive
