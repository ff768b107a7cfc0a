"""Losses by the names and arguments of pytorch-metric-learning (Musgrave et al., 2020), for programs written for it.

    from vicinal.compat import pml_losses as losses
    loss = losses.ArcFaceLoss(num_classes=100, embedding_size=128)       # the value that the package's own would have

Margins in degrees become radians. Here are the losses that agree with the package's to 1e-6. Of the others that have a
class of ours, ``P2SGradLoss`` is 2 / classes of ours, ``SignalToNoiseRatioContrastiveLoss`` adds the means of both
kinds of pairs, ``VICRegLoss`` halves the variance, and ``InstanceLoss`` has the batch's rows for proxies.
"""

import math
from typing import Any

from vicinal import losses
from vicinal.compat.pml import LossForPML


def ArcFaceLoss(num_classes: int, embedding_size: int, margin: float = 28.6, scale: float = 64.0) -> LossForPML:
    """ArcFace; the margin is in degrees."""
    return LossForPML(losses.ArcFaceLoss(num_classes, embedding_size, margin=math.radians(margin), scale=scale))


def CosFaceLoss(num_classes: int, embedding_size: int, margin: float = 0.35, scale: float = 64.0) -> LossForPML:
    """CosFace."""
    return LossForPML(losses.CosFaceLoss(num_classes, embedding_size, margin=margin, scale=scale))


def SubCenterArcFaceLoss(
    num_classes: int, embedding_size: int, margin: float = 28.6, scale: float = 64.0, sub_centers: int = 3
) -> LossForPML:
    """Sub-center ArcFace; the margin is in degrees."""
    settings: dict[str, Any] = {"margin": math.radians(margin), "scale": scale, "centers": sub_centers}
    return LossForPML(losses.SubCenterArcFaceLoss(num_classes, embedding_size, **settings))


def NTXentLoss(temperature: float = 0.07) -> LossForPML:
    """InfoNCE."""
    return LossForPML(losses.InfoNCELoss(temperature))


def TupletMarginLoss(margin: float = 5.73, scale: float = 64.0) -> LossForPML:
    """Tuplet margin; the margin, here called slack, is in degrees."""
    return LossForPML(losses.TupletMarginLoss(math.radians(margin), scale))


def IntraPairVarianceLoss(pos_eps: float = 0.01, neg_eps: float = 0.01) -> LossForPML:
    """Intra-pair variance."""
    return LossForPML(losses.IntraPairVarianceLoss(pos_eps, neg_eps))


def ThresholdConsistentMarginLoss(
    lambda_plus: float = 1.0, lambda_minus: float = 1.0, margin_plus: float = 0.9, margin_minus: float = 0.5
) -> LossForPML:
    """Threshold-consistent margin."""
    return LossForPML(losses.ThresholdConsistentMarginLoss(margin_plus, margin_minus, lambda_plus, lambda_minus))


def FastAPLoss(num_bins: int = 10) -> LossForPML:
    """FastAP."""
    return LossForPML(losses.FastAPLoss(num_bins))


def SmoothAPLoss(temperature: float = 0.01) -> LossForPML:
    """SmoothAP with the anchor among its positives; classes may differ in size here."""
    return LossForPML(losses.SmoothAPLoss(temperature, anchor=True))


def PNPLoss(b: float = 2.0, alpha: float = 1.0, anneal: float = 0.01, variant: Any = "O") -> LossForPML:
    """PNP with the anchor among its positives."""
    return LossForPML(losses.PNPLoss(variant, anneal, alpha=alpha, b=b, anchor=True))
