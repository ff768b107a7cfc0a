"""Pure functions of tensors: nearest points of arcs, smooth means, and exact sums over tuples."""

from vicinal.geometry.arcs import arcs_among, shift_angle
from vicinal.geometry.hinge_sums import hinge_sums
from vicinal.geometry.means import (
    log_exp_mean,
    log_one_plus_sum_exp,
    log_sum_exp,
    mean_of_k,
)

__all__ = [
    "arcs_among",
    "hinge_sums",
    "log_exp_mean",
    "log_one_plus_sum_exp",
    "log_sum_exp",
    "mean_of_k",
    "shift_angle",
]
