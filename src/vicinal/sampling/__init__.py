"""Samplers: index lists for an epoch, a function of the seed and the epoch alone."""

from vicinal.sampling.n_pair import NPairSampler
from vicinal.sampling.pk import PKSampler
from vicinal.sampling.sampler import BatchSampler
from vicinal.sampling.triplets import TripletSampler

__all__ = ["BatchSampler", "NPairSampler", "PKSampler", "TripletSampler"]
