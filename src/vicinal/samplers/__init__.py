"""Samplers: index lists for an epoch, a function of the seed and the epoch alone."""

from vicinal.samplers.class_tree import AnchorNeighborSampler, ClassTree
from vicinal.samplers.sampler import (
    BatchSampler,
    CategoryBalancedSampler,
    CrossViewSampler,
    EpisodeSampler,
    HierarchicalSampler,
    NPairSampler,
    PKSampler,
    TripletSampler,
    episode_triplets,
)

# By name; with ``batch_size`` they make batches of what there is.
SAMPLERS: dict[str, type[BatchSampler]] = {
    "classes": PKSampler,
    "pairs": NPairSampler,
    "triplets": TripletSampler,
    "category_balanced": CategoryBalancedSampler,
    "hierarchical": HierarchicalSampler,
    "episodes": EpisodeSampler,
    "anchor_neighbors": AnchorNeighborSampler,
    "cross_view": CrossViewSampler,
}

__all__ = [
    "SAMPLERS",
    "AnchorNeighborSampler",
    "BatchSampler",
    "CategoryBalancedSampler",
    "ClassTree",
    "CrossViewSampler",
    "EpisodeSampler",
    "HierarchicalSampler",
    "NPairSampler",
    "PKSampler",
    "TripletSampler",
    "episode_triplets",
]
