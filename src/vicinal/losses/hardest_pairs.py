"""Hardest positive against hardest negative of a pair, HPHN, as LoOp (Vasudeva et al., ICCV 2021) builds on it."""

from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import relu

from vicinal.distances import Euclidean
from vicinal.losses.loss import Comparisons, Loss, Reduction, Terms


class HPHNLoss(Loss):
    """HPHN (Vasudeva et al. 2021): the hardest positive and negative that either member of a pair has.

        l_ij = [max(max_{k ∈ P_i} D_ik, max_{l ∈ P_j} D_jl) + m - min(min_{k ∈ N_i} D_ik, min_{l ∈ N_j} D_jl)]_+

    for each positive pair (i, j), where P_i and N_i are the others of i's class and all of other classes; the mean is
    over pairs, both orders of each. LoOp's arc distances enter the core as the negatives of rows without ``partner``:
    each row is then a pair with the positives of both members, and one term.

    Args:
        margin: m.
        squared: whether distances are squared.
        normalize: whether embeddings are put on the unit sphere first.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its pairs.
    """

    both_members = True
    pair_rows: ClassVar[Literal["pair", "class"] | None] = "class"

    def __init__(
        self,
        margin: float = 0.2,
        *,
        squared: bool = False,
        normalize: bool = True,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(Euclidean(squared=squared, normalize=normalize), reduction)
        self.margin, self.squared, self.normalize = margin, squared, normalize

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        far, near = of_both_members(c, farthest_positive), of_both_members(c, nearest_negative)
        losses = relu(far.hardness + near.hardness + self.margin) * far.weight * near.weight
        pairs = c.keep_positive.any(dim=1, keepdim=True) if c.partner is None else c.keep_positive
        formed = pairs & near.there
        return Terms(losses.masked_fill(~formed, 0).sum(dim=1), formed.sum(dim=1).to(losses.dtype))


class Hardest(NamedTuple):
    """The hardest of an anchor's, or of a pair's, positives or negatives: the larger ``hardness``, the harder."""

    hardness: Float[Tensor, "*rows"]
    weight: Float[Tensor, "*rows"]
    there: Bool[Tensor, "*rows"]


def farthest_positive(c: Comparisons) -> Hardest:
    """Of each anchor; its hardness is its distance."""
    return _hardest(c.positive, c.keep_positive, c.positive_weights)


def nearest_negative(c: Comparisons) -> Hardest:
    """Of each anchor; its hardness is minus its distance."""
    return _hardest(-c.negative, c.keep_negative, c.negative_weights)


def of_both_members(
    c: Comparisons,
    find: Callable[[Comparisons], Hardest],
    join: Callable[[Tensor, Tensor], Tensor] = torch.maximum,
) -> Hardest:
    """What ``find`` finds for the anchor and for its partner, joined: one for each positive, ``[n p]``.

    Without partners a row is a pair already: ``[n 1]``.
    """
    found = find(c)
    ours = Hardest(*(part[:, None] for part in found))
    if c.partner is None:
        return ours
    theirs = Hardest(*(part[c.partner] for part in (found if c.partners is None else find(c.partners))))
    return Hardest(
        join(ours.hardness, theirs.hardness),
        torch.where(ours.hardness >= theirs.hardness, ours.weight, theirs.weight),
        ours.there | theirs.there,
    )


def _hardest(hardness: Tensor, keep: Tensor, weights: Tensor | None) -> Hardest:
    low = torch.finfo(hardness.dtype).min / 4  # -inf would turn into NaN where two meet
    if not hardness.shape[1]:
        nothing = hardness.sum(dim=1)
        return Hardest(nothing + low, torch.ones_like(nothing), keep.any(dim=1))
    most, chosen = hardness.masked_fill(~keep, low).max(dim=1)
    weight = torch.ones_like(most) if weights is None else weights.gather(1, chosen[:, None]).squeeze(dim=1)
    return Hardest(most, weight, keep.any(dim=1))
