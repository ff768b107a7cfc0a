"""Proxy-NCA (Movshovitz-Attias et al., ICCV 2017) and its full-softmax form, ProxyNCA++ (Teh et al., ECCV 2020)."""

from torch.nn.functional import softplus

from vicinal.distances import Euclidean
from vicinal.geometry import log_sum_exp
from vicinal.losses.loss import Comparisons, Reduction, Terms
from vicinal.losses.proxies import ProxyLoss


class ProxyNCALoss(ProxyLoss):
    """Proxy-NCA (Movshovitz-Attias et al. 2017): a sample nearer to its class's proxy than to all others.

        l_i = -log( exp(-d(x_i, p_y)/T) / Σ_{z ≠ y} exp(-d(x_i, p_z)/T) )           Movshovitz-Attias et al. 2017

    with squared distances on the unit sphere and T = 1. The class's own proxy is left out of the sum, as printed, so
    the loss is not a probability's logarithm and may be negative. Many implementations have it in; that is
    ``full_softmax``, and with T = 1/9 the loss of ProxyNCA++.

    The mean is over samples. The proxies are the loss's parameters: give them to an optimiser.

    Args:
        classes: number of classes.
        dim: dimension of the embeddings.
        temperature: T.
        full_softmax: whether the sum is over all proxies.
        squared: whether distances are squared.
        normalize: whether embeddings and proxies are put on the unit sphere first.
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
        temperature: float = 1.0,
        full_softmax: bool = False,
        squared: bool = True,
        normalize: bool = True,
        known: tuple[int, ...] | None = None,
        seed: int = 0,
        reduction: Reduction = "mean",
    ) -> None:
        distance = Euclidean(squared=squared, normalize=normalize)
        super().__init__(classes, dim, distance, known=known, seed=seed, reduction=reduction)
        self.temperature, self.full_softmax = temperature, full_softmax
        self.squared, self.normalize = squared, normalize

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        against = log_sum_exp(-c.negative / self.temperature, c.keep_negative, c.negative_weights)
        losses = c.positive / self.temperature + against[:, None]
        if self.full_softmax:
            losses = softplus(losses, threshold=40.0)  # -log(p / (p + Σ)) = log(1 + Σ / p)
        if c.positive_weights is not None:
            losses = losses * c.positive_weights
        rivals = c.keep_negative if c.negative_weights is None else c.keep_negative & (c.negative_weights > 0)
        formed = c.keep_positive & rivals.any(dim=1, keepdim=True)
        return Terms(losses.masked_fill(~formed, 0).sum(dim=1), formed.sum(dim=1).to(losses.dtype))
