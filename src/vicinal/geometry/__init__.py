"""Pure functions of tensors: distances, smooth means and exact sums over tuples."""

from vicinal.geometry.arcs import arc_distances, arc_similarity
from vicinal.geometry.distances import (
    at_least_float32,
    cosine_similarity,
    inner_products,
    pairwise_distances,
    row_distances,
    squared_lengths,
    unit_rows,
)
from vicinal.geometry.gamma import gamma_for
from vicinal.geometry.hinge_sums import hinge_sums
from vicinal.geometry.log_exp_mean import log_exp_mean
from vicinal.geometry.log_sum_exp import log_one_plus_sum_exp, log_sum_exp

__all__ = [
    "arc_distances",
    "arc_similarity",
    "at_least_float32",
    "cosine_similarity",
    "gamma_for",
    "hinge_sums",
    "inner_products",
    "log_exp_mean",
    "log_one_plus_sum_exp",
    "log_sum_exp",
    "pairwise_distances",
    "row_distances",
    "squared_lengths",
    "unit_rows",
]
