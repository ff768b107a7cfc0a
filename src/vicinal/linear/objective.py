"""What LANML and PNCA minimise: an outer function of similar radius minus dissimilar radius, summed over queries.

    t_i(M) = - 1/γ1 log(1/|S_i| Σ_{j ∈ S_i} exp(-γ1 d_M(x_i, x_j)))
             + 1/γ2 log(1/|D_i| Σ_{l ∈ D_i} exp(-γ2 d_M(x_i, x_l)))

with the squared distance d_M(x, y) = (x - y)ᵀ M (x - y); F(M) = 1/N Σ_i ℓ(t_i(M)) (Song et al., Eqs. 15-19). Its
gradient is that of a weighted graph. With w_ij = ℓ'(t_i) (∂t_i/∂d_ij), softmax weights,

    ∂F/∂M = 1/N Σ_ij w_ij (x_i - x_j)(x_i - x_j)ᵀ = 1/N Xᵀ (diag(Wᵀ1) - W - Wᵀ) X,

where diag(W1) is missing because the weights of S_i and of D_i both sum to ℓ'(t_i) and cancel. All of it is computed
for a block of queries at a time: two matrix products per block, and no N x N matrix.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vicinal.linear.graph import Graph
from vicinal.linear.neighbourhoods import Array, Group, Neighbourhoods, Piece
from vicinal.linear.radii import Radii, radii

Outer = Callable[[Array], tuple[Array, Array]]
"""ℓ and ℓ' of the excess t of each query."""


class Evaluation(NamedTuple):
    """The objective at one M.

    Attributes:
        value: F(M).
        gradient: ∂F/∂M, symmetric; zeros where it was not asked for.
        excess: t_i of each query, in the order of the sorted samples.
    """

    value: float
    gradient: Array
    excess: Array


@dataclass(frozen=True)
class Objective:
    """F(M) over given neighbourhoods.

    Attributes:
        sets: samples and who is similar to whom.
        gamma1: γ1, the dial of the similar radius.
        gamma2: γ2 > 0, the dial of the dissimilar radius.
        outer: ℓ.
        sums: whether radii are log-exp sums, without 1/|S_i| and 1/|D_i| (NCA's form, Eq. 21), not means.
        threads: how many blocks of queries are computed at a time.
    """

    sets: Neighbourhoods
    gamma1: float
    gamma2: float
    outer: Outer
    sums: bool = False
    threads: int = 1

    def at(self, factor: Array, *, gradient: bool = True) -> Evaluation:
        """Value, and gradient if asked for, at M = factorᵀ factor."""
        samples = self.sets.samples
        mapped = samples @ factor.T
        squares = np.einsum("ij,ij->i", mapped, mapped)[:, None]
        ones = np.ones_like(squares)
        # d_ij = |z_i|² + |z_j|² - 2 z_i·z_j as one product of longer rows.
        left, right = np.hstack([-2 * mapped, squares, ones]), np.hstack([mapped, ones, squares])

        def part(block: tuple[int, list[Piece]]) -> tuple[Array, Array, Graph]:
            start, pieces = block
            distances = left[start : pieces[-1].stop] @ right.T
            np.maximum(distances, 0, out=distances)  # rounding may take rows that meet below 0
            graph = Graph(samples)
            found = [
                self._piece(piece, distances[piece.start - start : piece.stop - start], graph, gradient)
                for piece in pieces
            ]
            losses, excesses = zip(*found, strict=True)
            return np.concatenate(losses), np.concatenate(excesses), graph

        losses, excesses, graph = [], [], Graph(samples)
        for loss, excess, edges in _mapped(part, self.sets.blocks(), self.threads):
            losses.append(loss)
            excesses.append(excess)
            graph.add(edges)
        queries = self.sets.queries
        return Evaluation(np.concatenate(losses).sum() / queries, graph.gradient() / queries, np.concatenate(excesses))

    def _piece(self, piece: Piece, distances: Array, graph: Graph, gradient: bool) -> tuple[Array, Array]:
        """Loss and excess of some queries of one class; their edges go into the graph."""
        group, start, stop = piece
        similar = self._similar(distances, group, start, stop)
        dissimilar = radii(distances, self.gamma2, dropped=slice(group.start, group.stop))
        excess = similar.values - dissimilar.values
        if self.sums:
            others = distances.shape[1] - (group.stop - group.start)
            excess += np.log(others) / self.gamma2 - np.log(group.similar_count) / self.gamma1
        loss, slope = self.outer(excess)
        if gradient:
            active = np.flatnonzero(slope)
            graph.connect(start, active, slope[active], similar)
            graph.connect(start, active, -slope[active], dissimilar)
        return loss, excess

    def _similar(self, distances: Array, group: Group, start: int, stop: int) -> Radii:
        """Radii over S_i, before the block of distances is used up; their terms lie in columns of all samples."""
        rows = np.arange(stop - start)
        if group.similar is None:
            found = radii(
                distances[:, group.start : group.stop].copy(), self.gamma1, dropped=rows + start - group.start
            )
            return found._replace(columns=slice(group.start, group.stop))
        chosen = group.similar[start - group.start : stop - group.start]
        return radii(distances[rows[:, None], chosen], self.gamma1)._replace(columns=chosen)


def _mapped(
    part: Callable[[tuple[int, list[Piece]]], tuple[Array, Array, Graph]],
    blocks: Iterable[tuple[int, list[Piece]]],
    threads: int,
) -> Iterator[tuple[Array, Array, Graph]]:
    """Results in the order of the blocks, so that sums do not depend on the number of threads."""
    if threads == 1:
        yield from map(part, blocks)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(part, blocks)
