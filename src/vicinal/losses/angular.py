"""Angular loss (Wang et al., ICCV 2017): a bound on the angle at the negative of a triplet."""

import math
from dataclasses import KW_ONLY, dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from vicinal.distances import DotProduct
from vicinal.errors import ConfigError
from vicinal.geometry import log_sum_exp
from vicinal.losses.loss import Comparisons, Loss, Terms


@dataclass(eq=False, repr=False)
class AngularLoss(Loss):
    """Angular loss (Wang et al. 2017): bound the angle under which a negative sees a positive pair.

        l_ap = log(1 + Σ_{n ∈ N_a} exp(f_apn))
        f_apn = 4 tan²α (x_a + x_p)·x_n - 2 (1 + tan²α) x_a·x_p                            Wang et al. 2017

    on the unit sphere, for each anchor a and each of its positives p; the mean is over these tuples. The paper's best
    results are of the N-pair loss with λ times this one (``n_pair``):

        l_ap = log(1 + Σ_{n ∈ N_a} exp(x_a·x_n - x_a·x_p)) + λ log(1 + Σ_{n ∈ N_a} exp(f_apn))

    Rows without ``partner`` hold, as negatives, the products with the middle (x_a + x_p) / 2 of their pair.

    Args:
        angle: α in degrees.
        n_pair: whether the N-pair loss is added.
        weight: λ, the angular loss's factor beside the N-pair loss.
        normalize: whether embeddings are put on the unit sphere first.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its positives.
    """

    both_members = True
    single_negatives = False  # a negative is compared with the middle of a pair

    angle: float = 45.0
    _: KW_ONLY
    n_pair: bool = False
    weight: float = 2.0
    normalize: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.angle < 90:
            raise ConfigError(f"the angle is between 0 and 90 degrees, got {self.angle}. The paper's is about 45.")

    @property
    def distance(self) -> DotProduct:
        return DotProduct(self.normalize)

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        steep = math.tan(math.radians(self.angle)) ** 2
        losses = softplus(self._against(c, 8 * steep) - 2 * (1 + steep) * c.positive, threshold=40.0)
        if self.n_pair:
            against = log_sum_exp(c.negative, c.keep_negative, c.negative_weights)
            losses = softplus(against[:, None] - c.positive, threshold=40.0) + self.weight * losses
        return c.per_positive(losses)

    def _against(self, c: Comparisons, scale: float) -> Float[Tensor, "n p"]:
        """log Σ_n exp(scale · x_n · (x_a + x_p) / 2), one positive of each anchor at a time."""
        if c.partner is None:
            return log_sum_exp(scale * c.negative, c.keep_negative, c.negative_weights)[:, None].expand_as(c.positive)

        def with_partners(partner: Tensor, negative: Tensor, theirs: Tensor) -> Tensor:
            return log_sum_exp(scale / 2 * (negative + theirs[partner]), c.keep_negative, c.negative_weights)

        columns = list(c.one_by_one(with_partners, c.partner, c.negative, (c.partners or c).negative))
        return torch.stack(columns, dim=1) if columns else c.positive
