"""Lifted structure loss (Song et al., CVPR 2016), its smooth form (Hermans et al., 2017) and its min form (LoOp)."""

from typing import ClassVar, Literal, get_args

import torch
from torch.nn.functional import relu

from vicinal.distances import Cosine, Euclidean, Negative
from vicinal.errors import ConfigError, unknown
from vicinal.geometry import log_sum_exp
from vicinal.losses.hardest_pairs import Hardest, nearest_negative, of_both_members
from vicinal.losses.loss import Comparisons, Loss, Reduction, Terms

Form = Literal["original", "smooth", "min"]
Similarity = Literal["distance", "cosine"]


class LiftedStructureLoss(Loss):
    """Lifted structure loss (Song et al. 2016): each positive pair against all negatives of both members.

        original:  l_ij = 1/2 [D_ij + log(Σ_{k ∈ N_i} exp(m - D_ik) + Σ_{l ∈ N_j} exp(m - D_jl))]_+²   Song et al. 2016
        min:       l_ij = [D_ij + m - min(min_{k ∈ N_i} D_ik, min_{l ∈ N_j} D_jl)]_+                   LoOp, Eq. (16)
        smooth:    l_i  = [log Σ_{k ∈ P_i} exp(-S_ik) + log Σ_{k ∈ N_i} exp(S_ik) + m]_+               ANML, Eq. (23)

    The mean is over positive pairs, both orders of each, or, ``"smooth"``, over anchors that have positives and
    negatives. The smooth form with S = -D is the generalised lifted loss of Hermans et al. 2017; ANML's own S is the
    cosine. Arc distances (LoOp) enter the core as negatives of rows without ``partner``, each row a pair.

    Differs: an anchor is not its own positive in Eq. (23).

    Args:
        margin: m.
        form: which of the three.
        similarity: ``"distance"``, D is the Euclidean distance, or ``"cosine"``, D is minus the cosine.
        squared: whether the distance is squared; of no concern to ``"cosine"``.
        normalize: whether embeddings are put on the unit sphere first; of no concern to ``"cosine"``.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its pairs.
    """

    pair_rows: ClassVar[Literal["pair", "class"] | None] = "pair"

    def __init__(
        self,
        margin: float = 1.0,
        *,
        form: Form = "original",
        similarity: Similarity = "distance",
        squared: bool = False,
        normalize: bool = True,
        reduction: Reduction = "mean",
    ) -> None:
        distance = Negative(Cosine()) if similarity == "cosine" else Euclidean(squared=squared, normalize=normalize)
        super().__init__(distance, reduction)
        for kind, name, known in (("form", form, Form), ("similarity", similarity, Similarity)):
            if name not in get_args(known):
                raise ConfigError(unknown(kind, str(name), get_args(known)))
        self.margin, self.form, self.similarity = margin, form, similarity
        self.squared, self.normalize = squared, normalize
        self.both_members = form != "smooth"

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        if self.form == "smooth":
            return self._smooth(c)
        if self.form == "min":
            near = of_both_members(c, nearest_negative)
            losses = relu(c.positive + near.hardness + self.margin) * near.weight
        else:
            near = of_both_members(c, _all_negatives, join=torch.logaddexp)
            losses = relu(c.positive + near.hardness + self.margin).square() / 2
        if c.positive_weights is not None:
            losses = losses * c.positive_weights
        formed = c.keep_positive & near.there
        return Terms(losses.masked_fill(~formed, 0).sum(dim=1), formed.sum(dim=1).to(losses.dtype))

    def _smooth(self, c: Comparisons) -> Terms:
        pull = log_sum_exp(c.positive, c.keep_positive, c.positive_weights)
        push = log_sum_exp(-c.negative, c.keep_negative, c.negative_weights)
        losses = relu(pull + push + self.margin)  # the logarithm of a sum over nothing is so low that this is 0
        return Terms(losses, (c.keep_positive.any(dim=1) & c.keep_negative.any(dim=1)).to(losses.dtype))


def _all_negatives(c: Comparisons) -> Hardest:
    """log Σ exp(-D) over an anchor's negatives: the soft counterpart of the nearest one."""
    hardness = log_sum_exp(-c.negative, c.keep_negative, c.negative_weights)
    return Hardest(hardness, torch.ones_like(hardness), c.keep_negative.any(dim=1))
