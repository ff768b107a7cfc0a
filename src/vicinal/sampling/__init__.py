"""Samplers: index lists for an epoch, a function of the seed and the epoch alone."""

from typing import Any

from vicinal.sampling.anchor_neighbours import AnchorNeighbourSampler
from vicinal.sampling.class_tree import ClassTree, Linkage
from vicinal.sampling.cross_view import CrossViewSampler
from vicinal.sampling.episodes import EpisodeSampler, episode_triplets
from vicinal.sampling.fitted import FittedSampler
from vicinal.sampling.n_pair import NPairSampler
from vicinal.sampling.pk import PKSampler
from vicinal.sampling.sampler import BatchSampler
from vicinal.sampling.triplets import TripletSampler

# By name: classes with ``fitted(labels, *, batch_size, seed, ...)``, which sizes batches by what there is.
SAMPLERS: dict[str, Any] = {
    "classes": FittedSampler,
    "pairs": NPairSampler,
    "triplets": TripletSampler,
    "episodes": EpisodeSampler,
    "anchor_neighbors": AnchorNeighbourSampler,
    "cross_view": CrossViewSampler,
}

__all__ = [
    "SAMPLERS",
    "AnchorNeighbourSampler",
    "BatchSampler",
    "ClassTree",
    "CrossViewSampler",
    "EpisodeSampler",
    "FittedSampler",
    "Linkage",
    "NPairSampler",
    "PKSampler",
    "TripletSampler",
    "episode_triplets",
]
