"""Losses that look at a positive pair from both ends: lifted structure (Song et al., CVPR 2016) and
HPHN.

Lifted structure has a smooth form (Hermans et al., 2017), improved by ANML (Song et al., TPAMI
2022), and the min form of LoOp (Vasudeva et al., ICCV 2021), which also builds on HPHN, hardest
positive against hardest negative of a pair.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import relu

from vicinal.arguments import Positive
from vicinal.distances import Cosine, Distance, Euclidean, Negative
from vicinal.geometry import log_sum_exp
from vicinal.losses.loss import Comparisons, Loss, Terms


@dataclass(eq=False, repr=False)
class LiftedStructureLoss(Loss):
    """Lifted structure loss (Song et al. 2016): each positive pair against all negatives of both
    members.

        original:  l_ij = 1/2 [D_ij + log(Σ_{k ∈ N_i} exp(m - D_ik) + Σ_{l ∈ N_j} exp(m - D_jl))]_+²
            Song et al. 2016
        min:       l_ij = [D_ij + m - min(min_{k ∈ N_i} D_ik, min_{l ∈ N_j} D_jl)]_+  LoOp, Eq. (16)
        smooth:    l_i  = [log Σ_{k ∈ P_i} exp(-S_ik) + log Σ_{k ∈ N_i} exp(S_ik) + m]_+
            ANML, Eq. (23)

    The mean is over positive pairs, both orders of each, or, ``"smooth"``, over anchors that have
    positives and negatives. The smooth form with S = -D is the generalized lifted loss of Hermans
    et al. 2017; ANML's own S is the cosine. Arc distances (LoOp) enter the core as negatives of
    rows without ``partner``, each row a pair.

    Differs: an anchor is not its own positive in Eq. (23).

    Args:
        margin: m.
        form: which of the three.
        similarity: ``"distance"``, D is the Euclidean distance, or ``"cosine"``, D is minus the
            cosine.
        squared: whether the distance is squared; ignored by ``"cosine"``.
        normalize: whether embeddings are put on the unit sphere first; ignored by ``"cosine"``.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its
            pairs.
    """

    pair_rows = "pair"

    margin: float = 1.0
    _: KW_ONLY
    form: Literal["original", "smooth", "min"] = "original"
    similarity: Literal["distance", "cosine"] = "distance"
    squared: bool = False
    normalize: bool = True

    @property
    def both_members(self) -> bool:  # type: ignore[override]
        return self.form != "smooth"

    @cached_property
    def distance(self) -> Distance:
        return Negative(Cosine()) if self.similarity == "cosine" else super().distance

    def core(self, c: Comparisons) -> Terms:
        if self.form == "smooth":
            pull = log_sum_exp(c.positive, c.keep_positive)
            push = log_sum_exp(-c.negative, c.keep_negative)
            # The logarithm of a sum over nothing is so low that this is 0.
            losses = relu(pull + push + self.margin)
            return Terms.of_anchors(losses, c.formed())
        if self.form == "min":
            near = of_both_members(c, nearest_negative)
            losses = relu(c.positive + near.hardness + self.margin)
        else:
            near = of_both_members(c, _all_negatives, join=torch.logaddexp)
            losses = relu(c.positive + near.hardness + self.margin).square() / 2
        return c.per_positive(losses, near.there)


@dataclass(eq=False, repr=False)
class ImprovedLiftedStructureLoss(Loss):
    """Improved lifted structure loss (Song et al. 2022): smooth, with a dial and a constant in each
    sum.

        l_i = [ 1/γ1 log(exp(-γ1 λ1) + Σ_{k ∈ P_i} exp(-γ1 S_ik))
              + 1/γ2 log(exp(γ2 λ2) + Σ_{k ∈ N_i} exp(γ2 S_ik)) + m ]_+        Song et al., Eq. (25)

    with the cosine S, or S = -D. With γ1 = γ2 = 1 and without λ it is Eq. (23),
    ``LiftedStructureLoss(form="smooth")``. Sums, not means as in ``AdaptiveNeighborhoodLoss``: a
    larger batch raises the loss. The mean is over anchors that have positives and negatives.

    Differs: an anchor is not its own positive.

    Args:
        margin: m.
        gamma1: γ1 > 0; the larger, the more the least similar positive dominates. Its values are
            not printed.
        gamma2: γ2 > 0; the larger, the more the most similar negative dominates.
        lambda1: λ1, a cosine, or, without ``cosine``, a distance; None leaves it out.
        lambda2: λ2, likewise.
        cosine: whether S is the cosine; otherwise it is minus the Euclidean distance on the unit
            sphere.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor.
    """

    margin: float = 1.0
    gamma1: Positive = 2.0
    gamma2: Positive = 30.0
    lambda1: float | None = 0.55
    lambda2: float | None = 0.57
    _: KW_ONLY
    cosine: bool = True

    @cached_property
    def distance(self) -> Distance:
        return Negative(Cosine()) if self.cosine else Euclidean()

    def core(self, c: Comparisons) -> Terms:
        sign = -1 if self.cosine else 1  # of λ among distances
        pull = _soft_maximum(c.positive, c.keep_positive, self.gamma1, self.lambda1, sign)
        push = _soft_maximum(-c.negative, c.keep_negative, self.gamma2, self.lambda2, -sign)
        return Terms.of_anchors(relu(pull + push + self.margin), c.formed())


@dataclass(eq=False, repr=False)
class HPHNLoss(Loss):
    """HPHN (Vasudeva et al. 2021): the hardest positive and negative that either member of a pair
    has.

        l_ij = [max(max_{k ∈ P_i} D_ik, max_{l ∈ P_j} D_jl) + m - min(min_{k ∈ N_i} D_ik, min_{l ∈
        N_j} D_jl)]_+

    for each positive pair (i, j), where P_i and N_i are the others of i's class and all of other
    classes; the mean is over pairs, both orders of each. LoOp's arc distances enter the core as the
    negatives of rows without ``partner``: each row is then a pair with the positives of both
    members, and one term.

    Args:
        margin: m.
        squared: whether distances are squared.
        normalize: whether embeddings are put on the unit sphere first.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its
            pairs.
    """

    both_members = True
    pair_rows = "class"

    margin: float = 0.2
    _: KW_ONLY
    squared: bool = False
    normalize: bool = True

    def core(self, c: Comparisons) -> Terms:
        far = of_both_members(c, farthest_positive)
        near = of_both_members(c, nearest_negative)
        losses = relu(far.hardness + near.hardness + self.margin)
        pairs = c.keep_positive.any(dim=1, keepdim=True) if c.partner is None else c.keep_positive
        formed = pairs & near.there
        return Terms(losses.masked_fill(~formed, 0).sum(dim=1), formed.sum(dim=1).to(losses.dtype))


class Hardest(NamedTuple):
    """The hardest of an anchor's, or of a pair's, positives or negatives: the larger ``hardness``,
    the harder."""

    hardness: Float[Tensor, "*rows"]
    there: Bool[Tensor, "*rows"]


def farthest_positive(c: Comparisons) -> Hardest:
    """Of each anchor; its hardness is its distance."""
    return _hardest(c.positive, c.keep_positive)


def nearest_negative(c: Comparisons) -> Hardest:
    """Of each anchor; its hardness is minus its distance."""
    return _hardest(-c.negative, c.keep_negative)


def of_both_members(
    c: Comparisons,
    find: Callable[[Comparisons], Hardest],
    join: Callable[[Tensor, Tensor], Tensor] = torch.maximum,
) -> Hardest:
    """What ``find`` finds for the anchor and for its partner, joined: one for each positive, ``[n
    p]``.

    Without partners a row is a pair already: ``[n 1]``.
    """
    found = find(c)
    ours = Hardest(*(part[:, None] for part in found))
    if c.partner is None:
        return ours
    theirs = Hardest(
        *(part[c.partner] for part in (found if c.partners is None else find(c.partners)))
    )
    return Hardest(join(ours.hardness, theirs.hardness), ours.there | theirs.there)


def _hardest(hardness: Tensor, keep: Tensor) -> Hardest:
    low = torch.finfo(hardness.dtype).min / 4  # -inf would turn into NaN where two meet
    if not hardness.shape[1]:
        return Hardest(hardness.sum(dim=1) + low, keep.any(dim=1))
    return Hardest(hardness.masked_fill(~keep, low).max(dim=1).values, keep.any(dim=1))


def _all_negatives(c: Comparisons) -> Hardest:
    """log Σ exp(-D) over an anchor's negatives: the soft counterpart of the nearest one."""
    return Hardest(log_sum_exp(-c.negative, c.keep_negative), c.keep_negative.any(dim=1))


def _soft_maximum(
    values: Tensor,
    keep: Tensor,
    gamma: float,
    constant: float | None,
    sign: int,
) -> Float[Tensor, "n"]:
    """Compute 1/γ log(exp(γ · sign · λ) + Σ exp(γ a)) over the kept entries of each row."""
    summed = log_sum_exp(gamma * values, keep)
    if constant is not None:
        summed = torch.logaddexp(summed, torch.full_like(summed, gamma * sign * constant))
    return summed / gamma
