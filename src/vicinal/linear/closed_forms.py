"""Metrics in closed form: GMML (Zadeh, Hosseini & Sra, ICML 2016) and RVML (Perrot & Habrard, NIPS
2015)."""

import numpy as np

from vicinal.arguments import NonNegative, Positive, Share
from vicinal.linear.mahalanobis import MahalanobisTransformer
from vicinal.linear.objective import Array, Labels, Neighborhoods, require_classes
from vicinal.linear.solvers import project


class GMML(MahalanobisTransformer):
    """The metric midway between pulling similar pairs together and pushing dissimilar pairs apart.

        M = S⁻¹ ♯_t D = S^{-1/2} (S^{1/2} D S^{1/2})^t S^{-1/2}

    with S and D the mean of (x_i - x_j)(x_i - x_j)ᵀ over similar and over dissimilar pairs: the
    point at share t of the geodesic from S⁻¹ to D on the cone of positive definite matrices. At t =
    1/2 it minimizes tr(M S) + tr(M⁻¹ D).

    Differs: all pairs take part, in closed form, where the authors draw some 40 c (c - 1) of them
    at random; means in the place of sums change M by a factor only.

    Args:
        t: share of the way from S⁻¹ (0) to D (1).
        ridge: share of the mean variance added to S and D, so that S has an inverse.

    Attributes:
        components_: L, rows by falling length.
    """

    def __init__(self, t: Share = 0.5, ridge: NonNegative = 1e-4) -> None:
        self.t = t
        self.ridge = ridge

    def _fit(self, samples: Array, labels: Labels, directions: Array) -> None:
        similar, dissimilar = _scatters(Neighborhoods.among(samples @ directions, labels, None))
        ridge = self.ridge * np.trace(dissimilar) / len(dissimilar) * np.eye(len(dissimilar))
        similar = similar + ridge
        dissimilar = dissimilar + ridge
        root = _power(similar, 0.5)
        inverse = _power(similar, -0.5)
        metric = inverse @ _power(root @ dissimilar @ root, self.t) @ inverse
        self.components_ = project(metric)[1] @ directions.T


class RVML(MahalanobisTransformer):
    """Regress every sample onto a virtual point of its class.

        min_L  1/N Σ_i |L x_i - v_i|² + λ |L|_F²,   so  Lᵀ = (Xᵀ X + λ N I)⁻¹ Xᵀ V

    with the class-based virtual points: v_i is the unit vector of the class of x_i. The linear
    form; the paper also has a kernelized one and virtual points by optimal transport.

    Differs: X and V are taken about their means, so that the map does not depend on where the
    origin lies.

    Args:
        regularization: λ > 0.

    Attributes:
        components_: L, one row for each class.
    """

    def __init__(self, regularization: Positive = 0.01) -> None:
        self.regularization = regularization

    def _fit(self, samples: Array, labels: Labels, directions: Array) -> None:
        names, codes = np.unique(labels, return_inverse=True)
        require_classes(names)
        virtual = np.eye(len(names))[codes]
        # Rows of L lie in the span of the samples, and with many features that is the smaller
        # problem.
        centered = (samples - samples.mean(axis=0)) @ directions
        targets = virtual - virtual.mean(axis=0)
        penalty = self.regularization * len(samples) * np.eye(directions.shape[1])
        self.components_ = (
            np.linalg.solve(centered.T @ centered + penalty, centered.T @ targets).T @ directions.T
        )


def _scatters(sets: Neighborhoods) -> tuple[Array, Array]:
    """Compute means of outer products over all similar and all dissimilar pairs, from sums over
    single samples."""
    samples = sets.samples
    count = len(sets.samples)
    everything = 2 * count * samples.T @ samples  # over all ordered pairs; the samples are centered
    similar = np.zeros_like(everything)
    pairs = 0
    for start, stop, _ in sets.groups:
        own = samples[start:stop] - samples[start:stop].mean(axis=0)
        similar += 2 * len(own) * own.T @ own
        pairs += len(own) * (len(own) - 1)
    apart = count * (count - 1) - pairs
    return similar / pairs, (everything - similar) / apart


def _power(matrix: Array, exponent: float) -> Array:
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    powers: Array = (vectors * np.maximum(values, np.finfo(float).tiny) ** exponent) @ vectors.T
    return powers
