"""Losses over labelled embeddings; each ``loss(embeddings, labels)`` is a front over a pure ``core``."""

from vicinal.losses.activity import active_share
from vicinal.losses.adaptive_neighborhood import AdaptiveNeighborhoodLoss
from vicinal.losses.angular import AngularLoss
from vicinal.losses.circle import CircleLoss
from vicinal.losses.clustering import ClusteringLoss
from vicinal.losses.contrastive import ContrastiveLoss
from vicinal.losses.discriminative_deep_metric import DiscriminativeDeepMetricLoss
from vicinal.losses.hard_exemplar import HardExemplarLoss, orientation_errors
from vicinal.losses.hardest_pairs import HPHNLoss
from vicinal.losses.hierarchical_triplet import HierarchicalTripletLoss
from vicinal.losses.improved import ImprovedLiftedStructureLoss, ImprovedNPairLoss, ImprovedProxyNCALoss
from vicinal.losses.lifted import LiftedStructureLoss
from vicinal.losses.loss import Comparisons, Loss
from vicinal.losses.margin import MarginLoss
from vicinal.losses.memory import CrossBatchMemory
from vicinal.losses.multi_similarity import MultiSimilarityLoss
from vicinal.losses.n_pair import NPairLoss
from vicinal.losses.normalized_softmax import NormalizedSoftmaxLoss
from vicinal.losses.proxy_anchor import ProxyAnchorLoss
from vicinal.losses.proxy_nca import ProxyNCALoss
from vicinal.losses.ranked_list import RankedListLoss
from vicinal.losses.reduction import Reduction, Terms, reduce
from vicinal.losses.semi_hard import SemiHardTripletLoss
from vicinal.losses.separability import Inseparable, inseparable_shares
from vicinal.losses.soft_triple import SoftTripleLoss
from vicinal.losses.supervised_contrastive import SupervisedContrastiveLoss
from vicinal.losses.triplet import BatchAllTripletLoss, BatchHardTripletLoss, TripletLoss

__all__ = [
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
]
