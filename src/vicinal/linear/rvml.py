"""RVML, regressive virtual metric learning (Perrot & Habrard, NIPS 2015): a closed form."""

from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.linear.mahalanobis import MahalanobisTransformer, require
from vicinal.linear.objective import Array, require_classes


class RVML(MahalanobisTransformer):
    """Regress every sample onto a virtual point of its class.

        min_L  1/N Σ_i |L x_i - v_i|² + λ |L|_F²,   so  Lᵀ = (Xᵀ X + λ N I)⁻¹ Xᵀ V

    with the class-based virtual points: v_i is the unit vector of the class of x_i. The linear form; the paper also has
    a kernelized one and virtual points by optimal transport.

    Differs: X and V are taken about their means, so that the map does not depend on where the origin lies.

    Args:
        regularization: λ > 0.

    Attributes:
        components_: L, one row for each class.
    """

    def __init__(self, regularization: float = 0.01) -> None:
        self.regularization = regularization

    def _check_settings(self, features: int) -> None:
        require("regularization", self.regularization, least=0, open=True)

    def _fit(self, samples: Array, labels: npt.NDArray[Any], directions: Array) -> None:
        names, codes = np.unique(labels, return_inverse=True)
        require_classes(names)
        virtual = np.eye(len(names))[codes]
        # Rows of L lie in the span of the samples, and with many features that is the smaller problem.
        centered, targets = (samples - samples.mean(axis=0)) @ directions, virtual - virtual.mean(axis=0)
        penalty = self.regularization * len(samples) * np.eye(directions.shape[1])
        self.components_ = np.linalg.solve(centered.T @ centered + penalty, centered.T @ targets).T @ directions.T
