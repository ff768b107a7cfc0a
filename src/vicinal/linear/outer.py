"""Outer functions: what a query's excess, similar radius minus dissimilar radius, costs."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from vicinal.linear.neighbourhoods import Array


@dataclass(frozen=True)
class Hinge:
    """[t + m]_+, rounded at its kink.

        ℓ(t) = max_{0 ≤ a ≤ 1} a (t + m) - a² w / 2 = 0 | u² / 2w | u - w / 2   for u = t + m below 0, below w, above

    It lies between [u]_+ - w/2 and [u]_+, is convex and does not fall, with a slope that a gradient method can follow.

    Attributes:
        margin: m.
        width: w; 0 is the hinge itself.
    """

    margin: float
    width: float

    def __call__(self, excess: Array) -> tuple[Array, Array]:
        above = excess + self.margin
        if self.width == 0:
            return np.maximum(above, 0), (above > 0).astype(float)
        slope = np.clip(above / self.width, 0, 1)
        return slope * above - slope**2 * (self.width / 2), slope


def sigmoid(excess: Array) -> tuple[Array, Array]:
    """1 - p of NCA: σ(t) with p = 1 - σ(t), the probability of a right neighbour."""
    wrong = expit(excess)
    return wrong, wrong * (1 - wrong)
