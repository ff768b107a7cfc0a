"""Normalised softmax (Zhai and Wu, BMVC 2019): a plain classifier on the unit sphere."""

from torch.nn.functional import softplus

from vicinal.distances import Cosine
from vicinal.geometry import log_sum_exp
from vicinal.losses.loss import Comparisons, Reduction, Terms
from vicinal.losses.proxies import ProxyLoss


class NormalizedSoftmaxLoss(ProxyLoss):
    """Normalized softmax (Zhai and Wu 2019): classify by the cosine to one proxy for each class.

        l_i = -log( exp(x_i·p_y / σ) / Σ_z exp(x_i·p_z / σ) )                                 Zhai and Wu 2019

    with x and p on the unit sphere and no bias: the classifier that any metric learning loss should beat. On the sphere
    ‖x - p‖² = 2 - 2 x·p, so it equals ``ProxyNCALoss(full_softmax=True, temperature=2 * temperature)``.

    Differs: the paper normalises x after a layer norm without affine parameters; that belongs to a head, not here.

    The mean is over samples. The proxies are the loss's parameters: give them to an optimiser.

    Args:
        classes: number of classes.
        dim: dimension of the embeddings.
        temperature: σ; the paper's 0.05.
        known: the labels of the classes in increasing order; None for 0 to ``classes`` - 1. Name no class that never
            occurs: its proxy would only push.
        seed: seed of the initial proxies.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per sample.
    """

    def __init__(
        self,
        classes: int,
        dim: int,
        *,
        temperature: float = 0.05,
        known: tuple[int, ...] | None = None,
        seed: int = 0,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(classes, dim, Cosine(), known=known, seed=seed, reduction=reduction)
        self.temperature = temperature

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        against = log_sum_exp(c.negative / self.temperature, c.keep_negative, c.negative_weights)
        losses = softplus(against[:, None] - c.positive / self.temperature, threshold=40.0)  # log(1 + Σ / p)
        if c.positive_weights is not None:
            losses = losses * c.positive_weights
        rivals = c.keep_negative if c.negative_weights is None else c.keep_negative & (c.negative_weights > 0)
        formed = c.keep_positive & rivals.any(dim=1, keepdim=True)
        return Terms(losses.masked_fill(~formed, 0).sum(dim=1), formed.sum(dim=1).to(losses.dtype))
