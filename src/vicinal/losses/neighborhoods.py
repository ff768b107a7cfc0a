"""Radii of neighbourhoods: the mean of the K nearest or farthest, and its smooth form, with weights."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vicinal.geometry import log_exp_mean


class Neighbors(NamedTuple):
    """Each anchor's distances to others of one kind; ``weights`` None is 1."""

    distances: Float[Tensor, "n m"]
    keep: Bool[Tensor, "n m"]
    weights: Float[Tensor, "n m"] | None = None

    def with_one_at(self, distance: float) -> "Neighbors":
        """Each anchor with one more neighbour, at a distance that does not depend on the batch."""
        one = self.distances.new_full((len(self.distances), 1), distance)
        return Neighbors(
            torch.cat([self.distances, one], dim=1),
            torch.cat([self.keep, torch.ones_like(one, dtype=torch.bool)], dim=1),
            None if self.weights is None else torch.cat([self.weights, torch.ones_like(one)], dim=1),
        )


def mean_of_k(neighbors: Neighbors, k: int | Int[Tensor, "n"]) -> Float[Tensor, "n"]:
    """Of each anchor the mean distance of its K nearest, or of its -K farthest for K < 0.

        r(S, K) = 1/|K| Σ_{k ≤ |K|} d^[k], from below for K > 0 and from above for K < 0            Song et al., Eq. (6)

    More than an anchor has counts as all; an anchor that has none yields 0 and passes no gradient. A neighbour of
    weight w counts w times, so the last one may count in part.

    >>> distances = torch.tensor([[4.0, 1.0, 2.0, 9.0]])
    >>> kept = Neighbors(distances, distances < 9)
    >>> [mean_of_k(kept, k).item() for k in (1, 2, 3, 4, -2, -1)]
    [1.0, 1.5, 2.3333332538604736, 2.3333332538604736, 3.0, 4.0]
    """
    distances, keep, weights = neighbors
    wanted = distances.new_full((len(distances),), k) if isinstance(k, int) else k.to(distances.dtype)
    facing = distances.detach() * wanted.sign()[:, None]
    order = facing.masked_fill(~keep, torch.inf).argsort(dim=1)
    mass = (keep.to(distances.dtype) if weights is None else weights.masked_fill(~keep, 0)).gather(1, order)
    before = mass.cumsum(dim=1) - mass
    taken = (wanted.abs()[:, None] - before).clamp(min=0).minimum(mass)
    total = taken.sum(dim=1)
    ordered = distances.masked_fill(~keep, 0).gather(1, order)  # 0 times what is not kept may be NaN
    return (taken * ordered).sum(dim=1) / total.masked_fill(total == 0, 1)


def soft_radius(neighbors: Neighbors, gamma: float | Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """The log-exp mean of each anchor's distances, Song et al., Eq. (12); a neighbour of weight w counts w times.

        b(γ) = -1/γ log(Σ w exp(-γ d) / Σ w)

    >>> distances = torch.tensor([[1.0, 3.0]])
    >>> soft_radius(Neighbors(distances, distances > 0, torch.tensor([[3.0, 1.0]])), 0.0)
    tensor([1.5000])
    """
    distances, keep, weights = neighbors
    return log_exp_mean(distances, keep, gamma, weights)
