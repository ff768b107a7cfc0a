"""Losses over labelled embeddings; each ``loss(embeddings, labels)`` is a front over a pure ``core``."""

from vicinal.losses.activity import active_share
from vicinal.losses.loss import Comparisons, Loss
from vicinal.losses.multi_similarity import MultiSimilarityLoss
from vicinal.losses.n_pair import NPairLoss
from vicinal.losses.reduction import Reduction, Terms, reduce
from vicinal.losses.triplet import BatchAllTripletLoss, BatchHardTripletLoss, TripletLoss

__all__ = [
    "BatchAllTripletLoss",
    "BatchHardTripletLoss",
    "Comparisons",
    "Loss",
    "MultiSimilarityLoss",
    "NPairLoss",
    "Reduction",
    "Terms",
    "TripletLoss",
    "active_share",
    "reduce",
]
