"""Improved lifted, N-pair and Proxy-NCA losses of ANML (Song, Han, Cheng, Lu & Nie, TPAMI 2022)."""

from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.nn.functional import relu, softplus

from vicinal.distances import Cosine, Euclidean, Negative
from vicinal.errors import ConfigError
from vicinal.geometry import log_sum_exp
from vicinal.losses.loss import Comparisons, Layout, Loss, Reduction, Terms
from vicinal.losses.n_pair import NPairLoss, Similarity
from vicinal.losses.proxies import ProxyLoss


class ImprovedLiftedStructureLoss(Loss):
    """Improved lifted structure loss (Song et al. 2022): smooth, with a dial and a constant in each sum.

        l_i = [ 1/γ1 log(exp(-γ1 λ1) + Σ_{k ∈ P_i} exp(-γ1 S_ik))
              + 1/γ2 log(exp(γ2 λ2) + Σ_{k ∈ N_i} exp(γ2 S_ik)) + m ]_+                            Song et al., Eq. (25)

    with the cosine S, or S = -D. With γ1 = γ2 = 1 and without λ it is Eq. (23), ``LiftedStructureLoss(form="smooth")``.
    Sums, not means as in ``AdaptiveNeighborhoodLoss``: a larger batch raises the loss. The mean is over anchors that
    have positives and negatives.

    Differs: an anchor is not its own positive.

    Args:
        margin: m.
        gamma1: γ1 > 0; the larger, the more the least similar positive dominates. Its values are not printed.
        gamma2: γ2 > 0; the larger, the more the most similar negative dominates.
        lambda1: λ1, a cosine, or, without ``cosine``, a distance; None leaves it out.
        lambda2: λ2, likewise.
        cosine: whether S is the cosine; otherwise it is minus the Euclidean distance on the unit sphere.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor.
    """

    def __init__(
        self,
        margin: float = 1.0,
        gamma1: float = 2.0,
        gamma2: float = 30.0,
        lambda1: float | None = 0.55,
        lambda2: float | None = 0.57,
        *,
        cosine: bool = True,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(Negative(Cosine()) if cosine else Euclidean(), reduction)
        _check_gamma(gamma1=gamma1, gamma2=gamma2)
        self.margin, self.gamma1, self.gamma2 = margin, gamma1, gamma2
        self.lambda1, self.lambda2, self.cosine = lambda1, lambda2, cosine

    def core(self, comparisons: Comparisons) -> Terms:
        c, sign = comparisons, -1 if self.cosine else 1  # of λ among distances
        pull = _soft_maximum(c.positive, c.keep_positive, c.positive_weights, self.gamma1, self.lambda1, sign)
        push = _soft_maximum(-c.negative, c.keep_negative, c.negative_weights, self.gamma2, self.lambda2, -sign)
        formed = c.keep_positive.any(dim=1) & c.keep_negative.any(dim=1)
        losses = relu(pull + push + self.margin).masked_fill(~formed, 0)
        return Terms(losses, formed.to(losses.dtype))


class ImprovedNPairLoss(Loss):
    """Improved N-pair loss (Song et al. 2022): N-pair loss with an inverse temperature and an offset.

        l_ip = 1/γ log(1 + Σ_{n ∈ N_i} exp(γ (s_in - s_ip - λ)))                                 Song et al., Eq. (31)
             + r/4 · (|x_i|² + mean_j |x_j|²)

    for each anchor i and each of its positives p. γ = 1, λ = 0 is ``NPairLoss``; γ → ∞ is [max_n s_in - s_ip - λ]_+.
    So λ > 0 relaxes, and a margin is λ < 0. Both are known by other names: γ is an inverse temperature (with inner
    products, 1/γ times the N-pair loss of √γ x), and exp(-γ λ) is a weight of all negatives.

    Args:
        gamma: γ > 0. No value is printed.
        offset: λ.
        similarity: ``"dot"``, the inner product, or ``"distance"``, minus the Euclidean distance.
        l2: r.
        squared: whether the distance is squared; of no concern to ``"dot"``.
        normalize: whether embeddings are put on the unit sphere first.
        blocks: whether rows lie in blocks ``[a; p]``.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its positives.
    """

    layout: ClassVar[Layout | None] = "pairs"

    def __init__(
        self,
        gamma: float = 2.0,
        offset: float = 0.0,
        similarity: Similarity = "dot",
        *,
        l2: float = 3e-3,
        squared: bool = False,
        normalize: bool = False,
        blocks: bool = False,
        reduction: Reduction = "mean",
    ) -> None:
        # Its tuples, similarities and penalty are the original's.
        original = NPairLoss(similarity, l2=l2, squared=squared, normalize=normalize, blocks=blocks)
        super().__init__(original.distance, reduction)
        _check_gamma(gamma=gamma)
        self.original = original
        self.gamma, self.offset, self.similarity, self.l2 = gamma, offset, similarity, l2
        self.squared, self.normalize, self.blocks = squared, normalize, blocks

    def comparisons(
        self,
        embeddings: Float[Tensor, "n d"],
        labels: Integer[Tensor, "n"],
        reference: Float[Tensor, "m d"] | None = None,
        reference_labels: Integer[Tensor, "m"] | None = None,
        own: Integer[Tensor, "n"] | None = None,
    ) -> Comparisons:
        return self.original.comparisons(embeddings, labels, reference, reference_labels, own)

    def penalty(self, anchors: Float[Tensor, "n d"], others: Float[Tensor, "*m d"]) -> Float[Tensor, "n"]:
        return self.original.penalty(anchors, others)

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        losses, formed = _one_against_many(c, c.positive, c.negative, self.gamma, self.offset)
        if c.penalty is not None:
            losses = losses + c.penalty[:, None]
        return Terms(losses.masked_fill(~formed, 0).sum(dim=1), formed.sum(dim=1).to(losses.dtype))


class ImprovedProxyNCALoss(ProxyLoss):
    """Improved Proxy-NCA (after Song et al. 2022): Proxy-NCA with an inverse temperature and an offset.

        l_i = 1/γ log(1 + Σ_{z ≠ y} exp(γ (d(x_i, p_y) - d(x_i, p_z) - λ)))          by analogy to Song et al., Eq. (31)

    with squared distances on the unit sphere. At λ = 0 it is 1/γ times ``ProxyNCALoss(full_softmax=True)`` of
    temperature 1/γ, that is, ProxyNCA++; γ → ∞ is [d(x_i, p_y) - min_z d(x_i, p_z) - λ]_+.

    Differs: the paper evaluates an improved Proxy-NCA (Table 3) and prints no formula. This one has a sample in place
    of N-pair's anchor and proxies in place of its others.

    The mean is over samples. The proxies are the loss's parameters: give them to an optimiser.

    Args:
        classes: number of classes.
        dim: dimension of the embeddings.
        gamma: γ > 0.
        offset: λ; above 0 it relaxes.
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
        gamma: float = 9.0,
        offset: float = 0.0,
        squared: bool = True,
        normalize: bool = True,
        known: tuple[int, ...] | None = None,
        seed: int = 0,
        reduction: Reduction = "mean",
    ) -> None:
        distance = Euclidean(squared=squared, normalize=normalize)
        super().__init__(classes, dim, distance, known=known, seed=seed, reduction=reduction)
        _check_gamma(gamma=gamma)
        self.gamma, self.offset, self.squared, self.normalize = gamma, offset, squared, normalize

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        losses, formed = _one_against_many(c, -c.positive, -c.negative, self.gamma, self.offset)
        return Terms(losses.masked_fill(~formed, 0).sum(dim=1), formed.sum(dim=1).to(losses.dtype))


def _one_against_many(
    c: Comparisons,
    positive: Float[Tensor, "n p"],
    negative: Float[Tensor, "n m"],
    gamma: float,
    offset: float,
) -> tuple[Float[Tensor, "n p"], Bool[Tensor, "n p"]]:
    """1/γ log(1 + Σ_n exp(γ (s_n - s_p - λ))) of each positive, weighted, and which of them are formed."""
    against = log_sum_exp(gamma * (negative - offset), c.keep_negative, c.negative_weights)
    losses = softplus(against[:, None] - gamma * positive, threshold=40.0) / gamma
    if c.positive_weights is not None:
        losses = losses * c.positive_weights
    rivals = c.keep_negative if c.negative_weights is None else c.keep_negative & (c.negative_weights > 0)
    return losses, c.keep_positive & rivals.any(dim=1, keepdim=True)


def _soft_maximum(
    values: Float[Tensor, "n m"],
    keep: Bool[Tensor, "n m"],
    weights: Float[Tensor, "n m"] | None,
    gamma: float,
    constant: float | None,
    sign: int,
) -> Float[Tensor, "n"]:
    """1/γ log(exp(γ · sign · λ) + Σ exp(γ a)) over the kept entries of each row."""
    summed = log_sum_exp(gamma * values, keep, weights)
    if constant is not None:
        summed = torch.logaddexp(summed, torch.full_like(summed, gamma * sign * constant))
    return summed / gamma


def _check_gamma(**gammas: float) -> None:
    for name, gamma in gammas.items():
        if not 0 < gamma < float("inf"):
            raise ConfigError(f"{name} is a positive, finite dial, got {gamma}.")
