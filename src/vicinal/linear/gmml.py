"""GMML, geometric mean metric learning (Zadeh, Hosseini & Sra, ICML 2016): a closed form."""

import numpy as np
import numpy.typing as npt

from vicinal.linear.mahalanobis import MahalanobisTransformer, as_map, require, span
from vicinal.linear.neighbourhoods import Array, Neighbourhoods


class GMML(MahalanobisTransformer):
    """The metric midway between pulling similar pairs together and pushing dissimilar pairs apart.

        M = S⁻¹ ♯_t D = S^{-1/2} (S^{1/2} D S^{1/2})^t S^{-1/2}

    with S and D the mean of (x_i - x_j)(x_i - x_j)ᵀ over similar and over dissimilar pairs: the point at share t of the
    geodesic from S⁻¹ to D on the cone of positive definite matrices. At t = 1/2 it minimises tr(M S) + tr(M⁻¹ D).

    Differs: all pairs take part, in closed form, where the authors draw some 40 c (c - 1) of them at random; means in
    the place of sums change M by a factor only.

    Args:
        t: share of the way from S⁻¹ (0) to D (1).
        ridge: share of the mean variance added to S and D, so that S has an inverse.

    Attributes:
        components_: L, rows by falling length.
    """

    def __init__(self, t: float = 0.5, ridge: float = 1e-4) -> None:
        self.t, self.ridge = t, ridge

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> "GMML":
        """Learn the metric from samples and their classes."""
        samples, labels = self._checked(X, y)
        require("t", self.t, least=0, most=1)
        require("ridge", self.ridge, least=0)
        directions = span(samples)
        sets = Neighbourhoods.among(samples @ directions, labels, None)
        similar, dissimilar = self._ridged(*_scatters(sets))
        root, inverse = _power(similar, 0.5), _power(similar, -0.5)
        metric = inverse @ _power(root @ dissimilar @ root, self.t) @ inverse
        self.components_ = as_map(metric, directions)
        return self

    def _ridged(self, similar: Array, dissimilar: Array) -> tuple[Array, Array]:
        share = self.ridge * np.trace(dissimilar) / len(dissimilar) * np.eye(len(dissimilar))
        return similar + share, dissimilar + share


def _scatters(sets: Neighbourhoods) -> tuple[Array, Array]:
    """Means of outer products over all similar and over all dissimilar pairs, from sums over single samples."""
    samples, count = sets.samples, len(sets.samples)
    everything = 2 * count * samples.T @ samples  # over all ordered pairs; the samples are centred
    similar, pairs = np.zeros_like(everything), 0
    for group in sets.groups:
        own = samples[group.start : group.stop] - samples[group.start : group.stop].mean(axis=0)
        similar += 2 * len(own) * own.T @ own
        pairs += len(own) * (len(own) - 1)
    singles = count - sets.queries
    apart = count**2 - sum((group.stop - group.start) ** 2 for group in sets.groups) - singles
    return similar / pairs, (everything - similar) / apart


def _power(matrix: Array, exponent: float) -> Array:
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    powers: Array = (vectors * np.maximum(values, np.finfo(float).tiny) ** exponent) @ vectors.T
    return powers
