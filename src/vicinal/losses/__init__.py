"""Losses over labelled embeddings; each ``loss(embeddings, labels)`` is a front over a pure
``core``."""

from vicinal.losses.adaptive_neighborhood import AdaptiveNeighborhoodLoss
from vicinal.losses.clustering import ClusteringLoss
from vicinal.losses.contrastive import ContrastiveLoss
from vicinal.losses.diagnostics import active_share, inseparable_shares
from vicinal.losses.hard_exemplar import HardExemplarLoss, orientation_errors
from vicinal.losses.info_nce import (
    InfoNCELoss,
    SigmoidLoss,
    SupervisedContrastiveLoss,
    TupletMarginLoss,
)
from vicinal.losses.lifted import HPHNLoss, ImprovedLiftedStructureLoss, LiftedStructureLoss
from vicinal.losses.loss import Comparisons, Loss, Reduction, Terms, reduce, tuple_loss
from vicinal.losses.multi_similarity import MultiSimilarityLoss
from vicinal.losses.n_pair import AngularLoss, ImprovedNPairLoss, NPairLoss
from vicinal.losses.pairs import (
    CircleLoss,
    DiscriminativeDeepMetricLoss,
    IntraPairVarianceLoss,
    MarginLoss,
    RankedListLoss,
    SignalToNoiseContrastiveLoss,
    ThresholdConsistentMarginLoss,
    VICRegLoss,
)
from vicinal.losses.proxies import (
    ArcFaceLoss,
    CosFaceLoss,
    ImprovedProxyNCALoss,
    InstanceLoss,
    NormalizedSoftmaxLoss,
    P2SGradLoss,
    ProxyAnchorLoss,
    ProxyLoss,
    ProxyNCALoss,
    SoftTripleLoss,
    SubCenterArcFaceLoss,
)
from vicinal.losses.ranking import FastAPLoss, PNPLoss, RecallAtKLoss, ROADMAPLoss, SmoothAPLoss
from vicinal.losses.triplet import (
    BatchAllTripletLoss,
    BatchHardTripletLoss,
    HierarchicalTripletLoss,
    SemiHardTripletLoss,
    TripletLoss,
)
from vicinal.losses.wrappers import CrossBatchMemory, NestedLoss

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
    "arcface": ArcFaceLoss,
    "cosface": CosFaceLoss,
    "sub_center_arcface": SubCenterArcFaceLoss,
    "p2s_grad": P2SGradLoss,
    "instance": InstanceLoss,
    "info_nce": InfoNCELoss,
    "sigmoid": SigmoidLoss,
    "tuplet_margin": TupletMarginLoss,
    "intra_pair_variance": IntraPairVarianceLoss,
    "threshold_consistent_margin": ThresholdConsistentMarginLoss,
    "signal_to_noise_contrastive": SignalToNoiseContrastiveLoss,
    "vicreg": VICRegLoss,
    "fast_ap": FastAPLoss,
    "smooth_ap": SmoothAPLoss,
    "roadmap": ROADMAPLoss,
    "recall_at_k": RecallAtKLoss,
    "pnp": PNPLoss,
}

__all__ = [
    "LOSSES",
    "AdaptiveNeighborhoodLoss",
    "AngularLoss",
    "ArcFaceLoss",
    "BatchAllTripletLoss",
]
__all__ += [
    "BatchHardTripletLoss",
    "CircleLoss",
    "ClusteringLoss",
    "Comparisons",
    "ContrastiveLoss",
    "CosFaceLoss",
]
__all__ += [
    "CrossBatchMemory",
    "DiscriminativeDeepMetricLoss",
    "FastAPLoss",
    "HPHNLoss",
    "HardExemplarLoss",
]
__all__ += [
    "HierarchicalTripletLoss",
    "ImprovedLiftedStructureLoss",
    "ImprovedNPairLoss",
    "ImprovedProxyNCALoss",
]
__all__ += [
    "InfoNCELoss",
    "InstanceLoss",
    "IntraPairVarianceLoss",
    "LiftedStructureLoss",
    "Loss",
    "MarginLoss",
]
__all__ += [
    "MultiSimilarityLoss",
    "NPairLoss",
    "NestedLoss",
    "NormalizedSoftmaxLoss",
    "P2SGradLoss",
    "PNPLoss",
]
__all__ += [
    "ProxyAnchorLoss",
    "ProxyLoss",
    "ProxyNCALoss",
    "ROADMAPLoss",
    "RankedListLoss",
    "RecallAtKLoss",
]
__all__ += [
    "Reduction",
    "SemiHardTripletLoss",
    "SigmoidLoss",
    "SignalToNoiseContrastiveLoss",
    "SmoothAPLoss",
]
__all__ += ["SoftTripleLoss", "SubCenterArcFaceLoss", "SupervisedContrastiveLoss", "Terms"]
__all__ += [
    "ThresholdConsistentMarginLoss",
    "TripletLoss",
    "TupletMarginLoss",
    "VICRegLoss",
    "active_share",
]
__all__ += ["inseparable_shares", "orientation_errors", "reduce", "tuple_loss"]
