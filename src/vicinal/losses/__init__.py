"""Losses over labelled embeddings; each ``loss(embeddings, labels)`` is a front over a pure ``core``."""

from vicinal.losses.adaptive_neighborhood import AdaptiveNeighborhoodLoss
from vicinal.losses.angular import AngularLoss
from vicinal.losses.circle import CircleLoss
from vicinal.losses.clustering import ClusteringLoss
from vicinal.losses.contrastive import ContrastiveLoss
from vicinal.losses.diagnostics import Inseparable, active_share, inseparable_shares
from vicinal.losses.discriminative_deep_metric import DiscriminativeDeepMetricLoss
from vicinal.losses.hard_exemplar import HardExemplarLoss, orientation_errors
from vicinal.losses.lifted import HPHNLoss, ImprovedLiftedStructureLoss, LiftedStructureLoss
from vicinal.losses.loss import Comparisons, Loss, Reduction, Terms, reduce, tuple_loss
from vicinal.losses.margin import MarginLoss
from vicinal.losses.memory import CrossBatchMemory
from vicinal.losses.multi_similarity import MultiSimilarityLoss
from vicinal.losses.n_pair import ImprovedNPairLoss, NPairLoss
from vicinal.losses.proxies import (
    ImprovedProxyNCALoss,
    NormalizedSoftmaxLoss,
    ProxyAnchorLoss,
    ProxyLoss,
    ProxyNCALoss,
    SoftTripleLoss,
)
from vicinal.losses.ranked_list import RankedListLoss
from vicinal.losses.supervised_contrastive import SupervisedContrastiveLoss
from vicinal.losses.triplet import (
    BatchAllTripletLoss,
    BatchHardTripletLoss,
    HierarchicalTripletLoss,
    SemiHardTripletLoss,
    TripletLoss,
)

LOSSES: dict[str, type[Loss]] = {
    "multi_similarity": MultiSimilarityLoss,
    "danml": AdaptiveNeighborhoodLoss,
    "triplet": TripletLoss,
    "batch_all_triplet": BatchAllTripletLoss,
    "batch_hard_triplet": BatchHardTripletLoss,
    "semi_hard_triplet": SemiHardTripletLoss,
    "hierarchical_triplet": HierarchicalTripletLoss,
    "hard_exemplar": HardExemplarLoss,
    "n_pair": NPairLoss,
    "improved_n_pair": ImprovedNPairLoss,
    "lifted_structure": LiftedStructureLoss,
    "improved_lifted_structure": ImprovedLiftedStructureLoss,
    "contrastive": ContrastiveLoss,
    "margin": MarginLoss,
    "circle": CircleLoss,
    "angular": AngularLoss,
    "clustering": ClusteringLoss,
    "discriminative_deep_metric": DiscriminativeDeepMetricLoss,
    "hphn": HPHNLoss,
    "ranked_list": RankedListLoss,
    "supervised_contrastive": SupervisedContrastiveLoss,
    "normalized_softmax": NormalizedSoftmaxLoss,
    "proxy_anchor": ProxyAnchorLoss,
    "proxy_nca": ProxyNCALoss,
    "improved_proxy_nca": ImprovedProxyNCALoss,
    "soft_triple": SoftTripleLoss,
}

__all__ = [
    "LOSSES",
    "AdaptiveNeighborhoodLoss",
    "AngularLoss",
    "BatchAllTripletLoss",
    "BatchHardTripletLoss",
    "CircleLoss",
    "ClusteringLoss",
    "Comparisons",
    "ContrastiveLoss",
    "CrossBatchMemory",
    "DiscriminativeDeepMetricLoss",
    "HPHNLoss",
    "HardExemplarLoss",
    "HierarchicalTripletLoss",
    "ImprovedLiftedStructureLoss",
    "ImprovedNPairLoss",
    "ImprovedProxyNCALoss",
    "Inseparable",
    "LiftedStructureLoss",
    "Loss",
    "MarginLoss",
    "MultiSimilarityLoss",
    "NPairLoss",
    "NormalizedSoftmaxLoss",
    "ProxyAnchorLoss",
    "ProxyLoss",
    "ProxyNCALoss",
    "RankedListLoss",
    "Reduction",
    "SemiHardTripletLoss",
    "SoftTripleLoss",
    "SupervisedContrastiveLoss",
    "Terms",
    "TripletLoss",
    "active_share",
    "inseparable_shares",
    "orientation_errors",
    "reduce",
    "tuple_loss",
]
