"""Losses that rank: FastAP (Cakir et al., CVPR 2019), SmoothAP (Brown et al., ECCV 2020), ROADMAP
(Ramzi et al., NeurIPS 2021), the Recall@k surrogate (Patel et al., CVPR 2022) and PNP (Li et al.,
AAAI 2022).

A rank is how many stand before a positive. One positive of each anchor at a time is held against
all others, so that memory is n x m and never n x m x p.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad, relu

from vicinal.arguments import Count, Positive, Share
from vicinal.distances import Cosine, Euclidean
from vicinal.losses.loss import Comparisons, Loss, Terms

Step = Callable[[Tensor], Tensor]


def ahead(
    c: Comparisons, of_positives: Step | None, of_negatives: Step
) -> tuple[Float[Tensor, "n p"], Float[Tensor, "n p"]]:
    """Return how many positives and how many negatives stand before each positive, itself left out.

    The steps say how much one counts whose similarity exceeds the positive's by so much; None
    counts no positives.
    """
    places = torch.arange(c.positive.shape[1], device=c.positive.device)

    def count(place: Tensor, positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
        own = positive[:, place]
        push = c.of_negatives(of_negatives(negative - own))
        if of_positives is None:
            return torch.zeros_like(own[:, 0]), push.sum(dim=1)
        rivals = of_positives(positive - own).masked_fill(~c.keep_positive | (places == place), 0)
        return rivals.sum(dim=1), push.sum(dim=1)

    found = list(c.one_by_one(count, places[None], c.positive, c.negative))
    if not found:
        return c.positive, c.positive
    positives, negatives = (torch.stack(columns, dim=1) for columns in zip(*found, strict=True))
    return positives, negatives


def with_anchor(c: Comparisons) -> Comparisons:
    """Return comparisons in which each anchor that has positives is one of them, of cosine 1 to
    itself."""
    one = torch.ones_like(c.positive[:, :1]) if c.positive.shape[1] else c.positive
    there = c.keep_positive.any(dim=1, keepdim=True)[:, : one.shape[1]]
    return replace(
        c,
        positive=torch.cat([c.positive, one], dim=1),
        keep_positive=torch.cat([c.keep_positive, there], dim=1),
    )


def _sigmoid(temperature: float) -> Step:
    return lambda difference: (difference / temperature).sigmoid()


def _per_anchor(c: Comparisons, losses: Float[Tensor, "n p"]) -> Terms:
    """Return one term for each anchor that has positives: the mean of their losses."""
    count = c.keep_positive.sum(dim=1)
    sums = losses.masked_fill(~c.keep_positive, 0).sum(dim=1)
    return Terms.of_anchors(sums / count.clamp(min=1), count > 0)


@dataclass(eq=False, repr=False)
class FastAPLoss(Loss):
    """FastAP (Cakir et al. 2019): one minus average precision, by histograms of distances.

        l_i = 1 - 1/|P_i| Σ_j H⁺_j h⁺_j / H_j                                      Cakir et al. 2019

    with squared distances on the unit sphere, in [0, 4]. Each falls into the two of ``bins`` + 1
    bins between which it lies, in part; h⁺_j is what positives leave in bin j, H⁺_j and H_j what
    positives and all leave up to bin j. The mean is over anchors that have positives. O(n²) time.

    Args:
        bins: how many intervals there are.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor.
    """

    bins: Count = 10

    distance = Euclidean(squared=True)

    def core(self, c: Comparisons) -> Terms:
        near = self.histogram(c.positive, c.keep_positive)
        far = self.histogram(c.negative, c.keep_negative)
        within = near.cumsum(dim=1)
        total = (near + far).cumsum(dim=1)
        count = near.sum(dim=1)
        precision = (near * within / total.masked_fill(total == 0, 1)).sum(
            dim=1
        ) / count.masked_fill(count == 0, 1)
        return Terms.of_anchors(1 - precision, c.keep_positive.any(dim=1))

    def histogram(
        self, distances: Float[Tensor, "n m"], keep: Bool[Tensor, "n m"]
    ) -> Float[Tensor, "n bins_and_one"]:
        """Share each kept distance between the bins below and above it."""
        place = (distances * (self.bins / 4)).masked_fill(~keep, 0)
        # A NaN makes the first bin NaN.
        below = place.detach().nan_to_num(0).clamp(0, self.bins - 1).long()
        mass = keep.to(place.dtype)
        none = place.new_zeros(len(place), self.bins)
        above = none.scatter_add(1, below, mass * (place - below))
        return pad(none.scatter_add(1, below, mass) - above, (0, 1)) + pad(above, (1, 0))


@dataclass(eq=False, repr=False)
class SmoothAPLoss(Loss):
    """SmoothAP (Brown et al. 2020): one minus average precision, with a sigmoid in place of the
    step of each rank.

        l_i = 1 - 1/|P_i| Σ_{p ∈ P_i} (1 + Σ_{j ∈ P_i} σ(D_pj/τ)) / (1 + Σ_{j ∈ P_i ∪ N_i}
        σ(D_pj/τ))  Brown et al. 2020

    with D_pj = s_ij - s_ip of cosines s and j ≠ p. The mean is over anchors that have positives.

    Args:
        temperature: τ.
        anchor: whether the anchor is one of its own positives, of rank 1, as in the authors' code.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor.
    """

    temperature: Positive = 0.01
    _: KW_ONLY
    anchor: bool = False

    distance = Cosine()

    def core(self, c: Comparisons) -> Terms:
        c = with_anchor(c) if self.anchor else c
        step = _sigmoid(self.temperature)
        positives, negatives = ahead(c, step, step)
        return _per_anchor(c, negatives / (1 + positives + negatives))


@dataclass(eq=False, repr=False)
class ROADMAPLoss(Loss):
    """ROADMAP (Ramzi et al. 2021): an upper bound of one minus average precision, and calibrated
    similarities.

        l_i     = (1 - λ) (1 - 1/|P_i| Σ_p rank⁺_p / (rank⁺_p + rank⁻_p)) + λ calibration_i
            Ramzi et al. 2021
        rank⁺_p = 1 + Σ_{j ∈ P_i} H(s_ij - s_ip),    rank⁻_p = Σ_{n ∈ N_i} H⁻(s_in - s_ip)
        H⁻(t)   = σ(t/τ) for t ≤ 0,  σ(t/τ) + 1/2 for t ≤ δ,  ρ (t - δ) + σ(δ/τ) + 1/2 beyond
        calibration_i = mean_p [α - s_ip]_+ + mean_n [s_in - β]_+

    with cosines s. H is the exact step, which passes no gradient; H⁻ is nowhere below it, and ρ
    keeps the gradient of a negative that is far ahead. The mean is over anchors that have
    positives.

    Args:
        calibration: λ; 0 is SupAP.
        temperature: τ.
        slope: ρ.
        width: δ.
        positive_margin: α.
        negative_margin: β.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor.
    """

    calibration: Share = 0.5
    _: KW_ONLY
    temperature: Positive = 0.01
    slope: Positive = 100.0
    width: Positive = 0.05
    positive_margin: float = 0.9
    negative_margin: float = 0.6

    distance = Cosine()

    def core(self, c: Comparisons) -> Terms:
        positives, negatives = ahead(
            c, lambda difference: (difference.detach() >= 0).to(difference.dtype), self.bound
        )
        losses = (1 - self.calibration) * negatives / (1 + positives + negatives)
        push = c.of_negatives(relu(c.negative - self.negative_margin))
        strong = push.sum(dim=1) / c.keep_negative.sum(dim=1).clamp(min=1)
        pull = relu(self.positive_margin - c.positive)
        return _per_anchor(c, losses + self.calibration * (pull + strong[:, None]))

    def bound(self, difference: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """H⁻."""
        smooth = (difference.clamp(max=self.width) / self.temperature).sigmoid()
        return smooth + (difference > 0) / 2 + self.slope * relu(difference - self.width)


@dataclass(eq=False, repr=False)
class RecallAtKLoss(Loss):
    """Recall@k surrogate (Patel et al. 2022): one minus the share of positives among the k nearest,
    made smooth.

        l_i = 1 - mean_k min(k, Σ_{p ∈ P_i} σ((k - r_p) / τ₁)) / min(k, |P_i|)     Patel et al. 2022
        r_p = 1 + Σ_{j ≠ p} σ((s_ij - s_ip) / τ₂)

    with cosines s; j runs over the other positives and the negatives. The mean is over anchors that
    have positives. The minimum with k and the division by it are those of the authors' code.

    Args:
        ks: the k over which the mean is.
        temperature: τ₂, of similarities.
        rank_temperature: τ₁, of ranks.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor.
    """

    ks: tuple[Count, ...] = (1, 2, 4, 8, 16)
    _: KW_ONLY
    temperature: Positive = 0.01
    rank_temperature: Positive = 1.0

    distance = Cosine()

    def core(self, c: Comparisons) -> Terms:
        step = _sigmoid(self.temperature)
        positives, negatives = ahead(c, step, step)
        ranks = 1 + positives + negatives
        count = c.keep_positive.sum(dim=1)
        recalls = []
        for k in self.ks:
            within = ((k - ranks) / self.rank_temperature).sigmoid()
            within = within.masked_fill(~c.keep_positive, 0).sum(dim=1)
            recalls.append(within.clamp(max=k) / count.clamp(1, k))
        return Terms.of_anchors(1 - torch.stack(recalls).mean(dim=0), count > 0)


@dataclass(eq=False, repr=False)
class PNPLoss(Loss):
    """PNP (Li et al. 2022): penalize the negatives that stand before a positive, and nothing else
    of average precision.

        l_i = 1/|P_i| Σ_{p ∈ P_i} f(R_p),   R_p = Σ_{n ∈ N_i} σ((s_in - s_ip) / τ)    Li et al. 2022
        O: R    Ds: log(1 + R)    Dq: 1 - (1 + R)^-α    Iu: (1 + R) log(1 + R)
            Ib: (b R - log(1 + b R)) / b²

    with cosines s. Ds and Dq pull positives with few negatives before them the harder, Iu and Ib
    those with many. The mean is over anchors that have positives.

    Args:
        variant: f.
        temperature: τ.
        alpha: α of Dq.
        b: b of Ib.
        anchor: whether the anchor is one of its own positives, as in the authors' code.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor.
    """

    variant: Literal["O", "Ds", "Dq", "Iu", "Ib"] = "O"
    temperature: Positive = 0.01
    _: KW_ONLY
    alpha: Positive = 1.0
    b: Positive = 2.0
    anchor: bool = False

    distance = Cosine()

    def core(self, c: Comparisons) -> Terms:
        c = with_anchor(c) if self.anchor else c
        _, negatives = ahead(c, None, _sigmoid(self.temperature))
        return _per_anchor(c, self.penalize(negatives))

    def penalize(self, before: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """f of the number of negatives before a positive."""
        match self.variant:
            case "O":
                return before
            case "Ds":
                return before.log1p()
            case "Dq":
                return 1 - (1 + before) ** -self.alpha
            case "Iu":
                return (1 + before) * before.log1p()
            case "Ib":
                return (self.b * before - (self.b * before).log1p()) / self.b**2
