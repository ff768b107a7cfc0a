"""Losses by the names and arguments of pytorch-metric-learning (Musgrave et al., 2020), for
programs written for it.

    from vicinal.compat.pml import distances, losses, reducers
    loss = losses.ArcFaceLoss(num_classes=100, embedding_size=128)       # the value that the package's own would have
    loss = losses.TripletMarginLoss(0.2, distance=distances.CosineSimilarity(),
    reducer=reducers.MeanReducer())

Margins in degrees become radians. Here are the losses that agree with the package's to 1e-6. Of the
others that have a class of ours, ``P2SGradLoss`` is 2 / classes of ours, ``VICRegLoss`` halves the
variance, ``InstanceLoss`` has the batch's rows for proxies, and ``ProxyNCALoss`` has the class's
own proxy in the denominator.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from vicinal import losses
from vicinal.compat.pml import LossForPML, without_own
from vicinal.compat.pml_parts import (
    AnyDistance,
    AnyReducer,
    AvgNonZeroReducer,
    BaseDistance,
    BaseReducer,
    CosineSimilarity,
    DivisorReducer,
    LpDistance,
    MeanReducer,
    Number,
    SNRDistance,
    for_each,
)
from vicinal.errors import ConfigError, DataError
from vicinal.losses import Comparisons, Loss, Terms
from vicinal.tuples import other_class, same_class

Unit = Literal["triplet", "pair", "pos_pair", "element"]
Parts = dict[str, Any]


class TupleLoss(nn.Module):
    """A loss of ours over the distance, the tuples and the reducer of the package.

    Args:
        loss: its core scores what ``distance`` compares.
        unit: what has one value: a triplet, a pair of either kind, a positive pair among the
            negatives of its anchor, or a row (``"element"``) with all of its pairs.
        distance: of ``vicinal.compat.pml.distances``.
        reducer: of ``vicinal.compat.pml.reducers``.
    """

    def __init__(
        self, loss: Loss, unit: Unit, distance: BaseDistance, reducer: BaseReducer
    ) -> None:
        super().__init__()
        self.loss, self.unit, self.distance = loss, unit, distance
        self.reducer = for_each(reducer, ("pos_loss", "neg_loss") if unit == "pair" else ("loss",))

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        indices_tuple: Sequence[Tensor] | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Any:
        """Return the reduced loss; arguments as in the package."""
        if ref_emb is embeddings:
            ref_emb = ref_labels = None
        if indices_tuple is None:
            if labels is None:
                raise DataError(
                    "a loss needs `labels` or tuples, got neither. Give labels, or columns of a "
                    "miner."
                )
            masks = same_class(labels, ref_labels), other_class(labels, ref_labels)
            indices_tuple = tuple(
                column for mask in masks for column in mask.nonzero().unbind(dim=1)
            )
        compared = self.distance(embeddings, ref_emb)
        if self.distance.is_inverted != self.loss.distance.larger_is_closer:
            compared = -compared
        score = self._triplets if self.unit == "triplet" else self._pairs
        return self.reducer(score(compared, indices_tuple), embeddings, labels)

    def _triplets(self, compared: Tensor, indices: Sequence[Tensor]) -> Parts:
        anchor, positive, negative = triplets = joined(indices)
        one = torch.ones(len(anchor), 1, dtype=torch.bool, device=compared.device)
        seen = Comparisons(
            compared[anchor, positive][:, None], one, compared[anchor, negative][:, None], one
        )
        sums, counts = self.loss.core(seen)
        return _parts(loss=(sums, triplets, "triplet", counts.sum()))

    def _pairs(self, compared: Tensor, indices: Sequence[Tensor]) -> Parts:
        if len(indices) == 3:
            indices = indices[0], indices[1], indices[0], indices[2]
        a1, p, a2, n = indices
        if self.unit == "pair":
            pull, push = self._apart(compared[a1, p], 0), self._apart(compared[a2, n], 1)
            return _parts(
                pos_loss=(pull, (a1, p), "pos_pair"), neg_loss=(push, (a2, n), "neg_pair")
            )
        times = torch.zeros_like(compared).index_put(
            (a2, n), compared.new_ones(()), accumulate=True
        )
        keep = times > 0
        if self.unit == "pos_pair":
            if not len(a1) or not len(a2):
                return _parts(loss=(0, None, "already_reduced"))
            one = torch.ones(len(a1), 1, dtype=torch.bool, device=compared.device)
            seen = Comparisons(
                compared[a1, p][:, None], one, compared[a1], keep[a1], negative_weights=times[a1]
            )
            return _parts(loss=(self.loss.core(seen).sums, (a1, p), "pos_pair"))
        positive = torch.zeros_like(keep).index_put((a1, p), torch.tensor(True))
        sums, counts = self.loss.core(Comparisons(compared, positive, compared, keep))
        rows = torch.arange(len(compared), device=compared.device)
        return _parts(loss=(sums / counts.clamp(min=1), rows, "element"))

    def _apart(self, values: Tensor, side: int) -> Tensor:
        """Return the loss of each pair of one kind, without pairs of the other kind."""
        there, nothing = values[:, None], values.new_zeros(len(values), 0)
        sides = [(there, torch.ones_like(there, dtype=torch.bool)), (nothing, nothing.bool())]
        (positive, keep_positive), (negative, keep_negative) = sides if side == 0 else sides[::-1]
        return self.loss.core(Comparisons(positive, keep_positive, negative, keep_negative)).sums


def _parts(**found: tuple[Any, ...]) -> Parts:
    names = "losses", "indices", "reduction_type", "divisor"
    return {name: dict(zip(names, values, strict=False)) for name, values in found.items()}


def joined(indices: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return triplets as they are, and pairs as every triplet of a positive and a negative pair of
    one anchor."""
    if len(indices) == 3:
        return tuple(indices)  # type: ignore[return-value]
    a1, p, a2, n = indices
    a2, order = a2.sort(stable=True)
    first = torch.searchsorted(a2, a1)
    count = torch.searchsorted(a2, a1, right=True) - first
    pair = torch.repeat_interleave(torch.arange(len(a1), device=a1.device), count)
    within = torch.arange(len(pair), device=a1.device) - (count.cumsum(dim=0) - count)[pair]
    return a1[pair], p[pair], n[order[first[pair] + within]]


@dataclass(eq=False, repr=False)
class _Hinges(Loss):
    """[d - m_+]_+ of positive pairs and [m_- - d]_+ of negative pairs."""

    positive_margin: float = 0.0
    negative_margin: float = 1.0

    def core(self, c: Comparisons) -> Terms:
        pull, push = (
            relu(c.positive - self.positive_margin),
            relu(self.negative_margin - c.negative),
        )
        return Terms(c.add_up(pull, push), c.count_pairs())


@dataclass(eq=False, repr=False)
class _TripletHinge(Loss):
    """[d_ap - d_an + m]_+, or its smooth form."""

    margin: float = 0.05
    smooth: bool = False

    def core(self, c: Comparisons) -> Terms:
        excess = c.positive - c.negative + self.margin
        return c.per_positive(nn.functional.softplus(excess) if self.smooth else relu(excess))


def TripletMarginLoss(
    margin: Number = 0.05,
    smooth_loss: bool = False,
    distance: AnyDistance = None,
    reducer: AnyReducer = None,
) -> TupleLoss:
    """All triplets, or those of a miner."""
    loss = _TripletHinge(float(margin), smooth_loss)
    return TupleLoss(loss, "triplet", distance or LpDistance(), reducer or AvgNonZeroReducer())


def ContrastiveLoss(
    pos_margin: Number = 0.0,
    neg_margin: Number = 1.0,
    distance: AnyDistance = None,
    reducer: AnyReducer = None,
) -> TupleLoss:
    """Hinges of the distances; margins are similarities where the distance is one."""
    distance = distance or LpDistance()
    margins = (-pos_margin, -neg_margin) if distance.is_inverted else (pos_margin, neg_margin)
    return TupleLoss(
        _Hinges(*map(float, margins)), "pair", distance, reducer or AvgNonZeroReducer()
    )


def SignalToNoiseRatioContrastiveLoss(
    pos_margin: Number = 0.0, neg_margin: Number = 1.0, reducer: AnyReducer = None
) -> TupleLoss:
    """Signal-to-noise contrastive."""
    return ContrastiveLoss(pos_margin, neg_margin, SNRDistance(), reducer)


def MultiSimilarityLoss(
    alpha: Number = 2.0,
    beta: Number = 50.0,
    base: Number = 0.5,
    distance: AnyDistance = None,
    reducer: AnyReducer = None,
) -> TupleLoss:
    """Multi-similarity without its mining, which is ``miners.MultiSimilarityMiner``."""
    distance = distance or CosineSimilarity()
    base = float(base if distance.is_inverted else -base)
    loss = losses.MultiSimilarityLoss(float(alpha), float(beta), base, epsilon=None)
    return TupleLoss(loss, "element", distance, reducer or MeanReducer())


def CircleLoss(m: Number = 0.4, gamma: Number = 80.0, reducer: AnyReducer = None) -> TupleLoss:
    """Circle."""
    loss = losses.CircleLoss(float(m), float(gamma))
    return TupleLoss(loss, "element", CosineSimilarity(), reducer or AvgNonZeroReducer())


def SupConLoss(
    temperature: Number = 0.1, distance: AnyDistance = None, reducer: AnyReducer = None
) -> TupleLoss:
    """Supervised contrastive."""
    loss = losses.SupervisedContrastiveLoss(float(temperature))
    return TupleLoss(
        loss, "element", distance or CosineSimilarity(), reducer or AvgNonZeroReducer()
    )


def NTXentLoss(
    temperature: Number = 0.07, distance: AnyDistance = None, reducer: AnyReducer = None
) -> TupleLoss:
    """InfoNCE."""
    loss = losses.InfoNCELoss(float(temperature))
    return TupleLoss(loss, "pos_pair", distance or CosineSimilarity(), reducer or MeanReducer())


def TupletMarginLoss(
    margin: Number = 5.73, scale: Number = 64.0, reducer: AnyReducer = None
) -> TupleLoss:
    """Tuplet margin; the margin, here called slack, is in degrees."""
    loss = losses.TupletMarginLoss(math.radians(margin), float(scale))
    return TupleLoss(loss, "pos_pair", CosineSimilarity(), reducer or MeanReducer())


def GeneralizedLiftedStructureLoss(
    neg_margin: Number = 1.0, reducer: AnyReducer = None, distance: AnyDistance = None
) -> TupleLoss:
    """The smooth form of lifted structure."""
    distance = distance or LpDistance()
    if distance.is_inverted:
        raise ConfigError(
            "GeneralizedLiftedStructureLoss takes a distance here, got a similarity. Use "
            "LpDistance."
        )
    loss = losses.LiftedStructureLoss(float(neg_margin), form="smooth")
    return TupleLoss(loss, "element", distance, reducer or MeanReducer())


def MarginLoss(
    margin: Number = 0.2,
    beta: Number = 1.2,
    learn_beta: bool = False,
    distance: AnyDistance = None,
    reducer: AnyReducer = None,
) -> TupleLoss:
    """Margin loss with one boundary, over triplets as in the package."""
    distance = distance or LpDistance()
    loss = losses.MarginLoss(
        margin=float(margin), beta=float(-beta if distance.is_inverted else beta)
    )
    loss.boundary.requires_grad_(learn_beta)
    return TupleLoss(loss, "triplet", distance, reducer or DivisorReducer())


def ProxyAnchorLoss(
    num_classes: int, embedding_size: int, margin: Number = 0.1, alpha: Number = 32.0
) -> LossForPML:
    """Proxy-Anchor."""
    return LossForPML(
        losses.ProxyAnchorLoss(
            num_classes, embedding_size, margin=float(margin), alpha=float(alpha)
        )
    )


def NormalizedSoftmaxLoss(
    num_classes: int, embedding_size: int, temperature: Number = 0.05
) -> LossForPML:
    """Normalized softmax."""
    return LossForPML(
        losses.NormalizedSoftmaxLoss(num_classes, embedding_size, temperature=float(temperature))
    )


def SoftTripleLoss(
    num_classes: int,
    embedding_size: int,
    centers_per_class: int = 10,
    la: Number = 20.0,
    gamma: Number = 0.1,
    margin: Number = 0.01,
) -> LossForPML:
    """SoftTriple without the term that merges centers."""
    settings: dict[str, Any] = {
        "scale": float(la),
        "gamma": float(gamma),
        "margin": float(margin),
        "merge": 0.0,
    }
    return LossForPML(
        losses.SoftTripleLoss(num_classes, embedding_size, centers=centers_per_class, **settings)
    )


def ArcFaceLoss(
    num_classes: int, embedding_size: int, margin: Number = 28.6, scale: Number = 64.0
) -> LossForPML:
    """ArcFace; the margin is in degrees."""
    return LossForPML(
        losses.ArcFaceLoss(
            num_classes, embedding_size, margin=math.radians(margin), scale=float(scale)
        )
    )


def CosFaceLoss(
    num_classes: int, embedding_size: int, margin: Number = 0.35, scale: Number = 64.0
) -> LossForPML:
    """CosFace."""
    return LossForPML(
        losses.CosFaceLoss(num_classes, embedding_size, margin=float(margin), scale=float(scale))
    )


def SubCenterArcFaceLoss(
    num_classes: int,
    embedding_size: int,
    margin: Number = 28.6,
    scale: Number = 64.0,
    sub_centers: int = 3,
) -> LossForPML:
    """Sub-center ArcFace; the margin is in degrees."""
    settings: dict[str, Any] = {
        "margin": math.radians(margin),
        "scale": float(scale),
        "centers": sub_centers,
    }
    return LossForPML(losses.SubCenterArcFaceLoss(num_classes, embedding_size, **settings))


def IntraPairVarianceLoss(pos_eps: Number = 0.01, neg_eps: Number = 0.01) -> LossForPML:
    """Intra-pair variance."""
    return LossForPML(losses.IntraPairVarianceLoss(float(pos_eps), float(neg_eps)))


def ThresholdConsistentMarginLoss(
    lambda_plus: Number = 1.0,
    lambda_minus: Number = 1.0,
    margin_plus: Number = 0.9,
    margin_minus: Number = 0.5,
) -> LossForPML:
    """Threshold-consistent margin."""
    settings = map(float, (margin_plus, margin_minus, lambda_plus, lambda_minus))
    return LossForPML(losses.ThresholdConsistentMarginLoss(*settings))


def FastAPLoss(num_bins: int = 10) -> LossForPML:
    """FastAP."""
    return LossForPML(losses.FastAPLoss(num_bins))


def SmoothAPLoss(temperature: Number = 0.01) -> LossForPML:
    """SmoothAP with the anchor among its positives; classes may differ in size here."""
    return LossForPML(losses.SmoothAPLoss(float(temperature), anchor=True))


def PNPLoss(
    b: Number = 2.0, alpha: Number = 1.0, anneal: Number = 0.01, variant: Any = "O"
) -> LossForPML:
    """PNP with the anchor among its positives."""
    return LossForPML(
        losses.PNPLoss(variant, float(anneal), alpha=float(alpha), b=float(b), anchor=True)
    )


class CrossBatchMemory(nn.Module):
    """Compare each batch with the last ``memory_size`` embeddings as well (Wang et al. 2020).

    Args:
        loss: of this module, over tuples.
        embedding_size: of the embeddings.
        memory_size: rows kept.
        miner: chooses among the memory; None: all pairs.
    """

    def __init__(
        self, loss: nn.Module, embedding_size: int, memory_size: int = 1024, miner: Any = None
    ) -> None:
        super().__init__()
        self.miner, self.loss = miner, loss
        self.memory = losses.CrossBatchMemory(
            _Hinges(), size=memory_size, dim=embedding_size
        )  # for its queue

    def forward(
        self, embeddings: Tensor, labels: Tensor, indices_tuple: Sequence[Tensor] | None = None
    ) -> Any:
        """Return the loss of the batch against the memory; tuples of the batch are added to those
        of the memory."""
        own, rows, classes = self.memory.remember(embeddings.detach(), labels)
        rows = rows.to(embeddings.dtype)
        mined = None if self.miner is None else self.miner(embeddings, labels, rows, classes)
        found = without_own(mined, labels, classes, own)
        if indices_tuple is not None:  # the batch's rows stand in the memory
            here = [
                column if side == 0 else own[column]
                for side, column in enumerate(indices_tuple[:3])
            ]
            if len(indices_tuple) == 4:
                here = [here[0], here[1], indices_tuple[2], own[indices_tuple[3]]]
            if len(here) != len(found):
                raise DataError(
                    "tuples of the batch and of the memory are both pairs or both triplets, got "
                    f"{len(here)} and "
                    f"{len(found)} columns. Use miners of one kind."
                )
            found = tuple(torch.cat(columns) for columns in zip(found, here, strict=True))
        return self.loss(embeddings, labels, found, rows, classes)


class SelfSupervisedLoss(nn.Module):
    """Take two views of each input, and no labels, where ``loss`` takes labels."""

    def __init__(self, loss: nn.Module, symmetric: bool = True) -> None:
        super().__init__()
        self.loss, self.symmetric = loss, symmetric

    def forward(self, embeddings: Tensor, ref_emb: Tensor) -> Any:
        """Return the loss of rows and the rows at the same place in ``ref_emb``."""
        labels = torch.arange(len(embeddings), device=embeddings.device)
        if self.symmetric:
            return self.loss(torch.cat([embeddings, ref_emb]), labels.repeat(2))
        return self.loss(embeddings, labels, ref_emb=ref_emb, ref_labels=labels)


class MultipleLosses(nn.Module):
    """The weighted sum of losses, each over the tuples of its miner; all in lists, or in
    dictionaries."""

    def __init__(self, losses: Any, miners: Any = None, weights: Any = None) -> None:
        super().__init__()
        named = (
            losses
            if isinstance(losses, Mapping)
            else {str(i): loss for i, loss in enumerate(losses)}
        )
        self.losses = nn.ModuleDict(dict(named))
        self.miners, self.weights = (
            {str(i): each for i, each in enumerate(given)}
            if isinstance(given, Sequence)
            else dict(given or {})
            for given in (miners, weights)
        )

    def forward(
        self, embeddings: Tensor, labels: Tensor, indices_tuple: Sequence[Tensor] | None = None
    ) -> Any:
        """Return the weighted sum."""
        total: Any = 0
        for name, loss in self.losses.items():
            miner = self.miners.get(name)
            mined = indices_tuple if miner is None else miner(embeddings, labels)
            total = total + self.weights.get(name, 1) * loss(embeddings, labels, mined)
        return total
