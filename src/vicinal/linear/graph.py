"""Sums of weighted outer products (x_i - x_j)(x_i - x_j)ᵀ, as matrix products over a graph's Laplacian."""

import numpy as np
from scipy.sparse import csr_array

from vicinal.linear.neighbourhoods import Array, Positions
from vicinal.linear.radii import Radii


class Graph:
    """Collects Σ w_ij (x_i - x_j)(x_i - x_j)ᵀ of a graph whose rows sum to 0, some rows at a time."""

    def __init__(self, samples: Array) -> None:
        self._samples = samples
        self._cross = np.zeros((samples.shape[1], samples.shape[1]))  # Xᵀ W X
        self._inward = np.zeros(len(samples))  # Wᵀ 1

    def connect(self, start: int, active: Positions, slopes: Array, found: Radii) -> None:
        """Add the edges of queries ``start + active``: each query's slope, shared out by its radius's derivative."""
        if not len(active):
            return
        terms = found.terms if len(active) == len(found.sums) else found.terms[active]
        share = slopes / found.sums[active]
        columns = found.columns
        if not isinstance(columns, slice):
            dense = terms.toarray() if isinstance(terms, csr_array) else terms
            starts = np.arange(len(active) + 1) * dense.shape[1]
            shape = (len(active), len(self._samples))
            terms, columns = csr_array((dense.ravel(), columns[active].ravel(), starts), shape=shape), slice(None)
        self._cross += (self._samples[start + active] * share[:, None]).T @ (terms @ self._samples[columns])
        self._inward[columns] += terms.T @ share

    def add(self, other: "Graph") -> None:
        """Take the edges of another graph over the same samples."""
        self._cross += other._cross
        self._inward += other._inward

    def gradient(self) -> Array:
        """Xᵀ (diag(Wᵀ1) - W - Wᵀ) X."""
        return (self._samples.T * self._inward) @ self._samples - self._cross - self._cross.T
