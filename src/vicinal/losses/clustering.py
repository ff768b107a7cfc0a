"""Clustering loss by facility location (Song et al., CVPR 2017)."""

import math
from dataclasses import KW_ONLY, dataclass

import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor
from torch.nn.functional import relu

from vicinal.arguments import Natural
from vicinal.errors import ConfigError
from vicinal.losses.loss import Comparisons, Loss, Terms
from vicinal.tuples import Reference, other_class

TINY = 1e-6  # of n times an entropy: below it there is only rounding, for one sample apart makes it log n at least


@dataclass(eq=False, repr=False)
class ClusteringLoss(Loss):
    """Clustering loss (Song et al. 2017): no clustering of the batch may score better than its classes.

        L = [ max_S (F(S) + γ Δ(S)) - F~ ]_+                                         Song et al. 2017
        F(S) = -Σ_i min_{j ∈ S} d_ij,     F~ = Σ_c max_{j ∈ c} (-Σ_{i ∈ c} d_ij),     Δ(S) = 1 - NMI(S, classes)

    S runs over sets of as many samples (medoids) as the batch has classes; each gathers the samples nearest to it. The
    maximum is sought greedily, then by exchanging one medoid at a time until none helps, ``exchanges`` sweeps at most.
    The search has no gradient: what learns are the distances to the medoids that it chose.

    NMI is mutual information over the geometric mean of the two entropies. L is one number for the batch: ``"sum"`` is
    L, ``"mean"`` is L over the number of samples, and ``"none"`` gives each sample this same share.

    Differs: an exchange tries every sample and is judged by F + γΔ of the whole batch, so that it never makes S worse;
    the authors try the members of the medoid's cluster, and judge by F within it.

    Args:
        gamma: γ.
        exchanges: sweeps over all medoids; each costs as much as the greedy choice, O(n² classes).
        restarts: further searches, each from medoids drawn at random, of which the best result is taken. Of 60 batches
            of 8 samples the greedy search alone misses the maximum in about a third, with 8 restarts in none.
        squared: whether distances are squared.
        normalize: whether embeddings are put on the unit sphere first.
        reduction: as in ``torch.nn``.
    """

    takes_reference = False

    gamma: float = 1.0
    _: KW_ONLY
    exchanges: Natural = 5
    restarts: Natural = 0
    squared: bool = False
    normalize: bool = True

    def comparisons(
        self, embeddings: Float[Tensor, "n d"], labels: Integer[Tensor, "n"], reference: Reference | None = None
    ) -> Comparisons:
        """Compare each sample with all medoids that it may have, itself included; its class's are positives."""
        if reference is not None:
            raise ConfigError("ClusteringLoss clusters the batch itself: `reference` rows have no meaning for it.")
        compared, others = self.distance(embeddings), other_class(labels)
        return Comparisons(compared, ~others, compared, others)

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        costs = torch.where(
            c.keep_positive,
            c.positive if c.positive_weights is None else c.positive * c.positive_weights,
            c.negative if c.negative_weights is None else c.negative * c.negative_weights,
        ).masked_fill(~c.keep_positive & ~c.keep_negative, 0)
        there = c.keep_positive.any(dim=1)
        if not there.any():
            return Terms(0 * costs.sum(dim=1), there.to(costs.dtype))
        medoids, disagreement = best_clustering(
            costs.detach(), c.keep_positive, self.gamma, self.exchanges, self.restarts
        )
        for_class = costs.detach().masked_fill(~c.keep_positive, 0).sum(dim=0)  # what a medoid costs all of its class
        ideal = for_class.expand_as(costs).masked_fill(~c.keep_positive, torch.inf).argmin(dim=1, keepdim=True)
        excess = costs.gather(1, ideal).sum() - costs[:, medoids].amin(dim=1).sum() + self.gamma * disagreement
        return Terms((relu(excess) / len(costs)).expand(len(costs)), there.to(costs.dtype))


@torch.no_grad()
def best_clustering(
    costs: Float[Tensor, "n n"], same: Bool[Tensor, "n n"], gamma: float, exchanges: int, restarts: int = 0
) -> tuple[Int[Tensor, "k"], Float[Tensor, ""]]:
    """Medoids that (nearly) maximize F + γΔ, and their Δ; one for each class that ``same`` marks."""
    _, classes = torch.unique(same.int().argmax(dim=1), return_inverse=True)
    medoids = torch.zeros(int(classes.max()) + 1, dtype=torch.long, device=costs.device)
    for place in range(len(medoids)):
        score, _ = _scores(costs, classes, medoids[:place], gamma)
        medoids[place] = score.argmax()
    rng = torch.Generator().manual_seed(0)
    drawn = (torch.randperm(len(costs), generator=rng)[: len(medoids)].to(costs.device) for _ in range(restarts))
    found = [_exchanged(costs, classes, start, gamma, exchanges) for start in (medoids, *drawn)]
    best = int(torch.stack([score for _, score, _ in found]).argmax()) if restarts else 0
    return found[best][0], found[best][2]


def _exchanged(
    costs: Float[Tensor, "n n"], classes: Int[Tensor, "n"], medoids: Int[Tensor, "k"], gamma: float, exchanges: int
) -> tuple[Int[Tensor, "k"], Float[Tensor, ""], Float[Tensor, ""]]:
    """Exchange one medoid at a time until none helps; return the medoids, their F + γΔ and their Δ."""
    for _ in range(exchanges):
        before = medoids.clone()
        for place in range(len(medoids)):
            score, _ = _scores(costs, classes, torch.cat([medoids[:place], medoids[place + 1 :]]), gamma)
            best, sample = score.max(dim=0)
            better = best > score.index_select(0, medoids[place : place + 1])
            medoids[place : place + 1] = torch.where(better, sample, medoids[place : place + 1])
        if torch.equal(before, medoids):
            break
    score, disagreement = (
        part.index_select(0, medoids[-1:])[0] for part in _scores(costs, classes, medoids[:-1], gamma)
    )
    return medoids, score, disagreement


def _scores(
    costs: Float[Tensor, "n n"], classes: Int[Tensor, "n"], medoids: Int[Tensor, "k"], gamma: float
) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
    """F + γΔ and Δ of the medoids with each sample added to them; -inf for a sample that is among them already.

    A candidate gathers the samples that are nearer to it than to their medoid. Every count of the new clustering
    follows from how many it gathers of each class, of each cluster, and of each class within a cluster: sums of rows,
    n² for all candidates together.
    """
    if len(medoids):
        cost, cluster = costs[:, medoids].min(dim=1)
    else:
        cost, cluster = costs.new_full((len(costs),), torch.inf), torch.zeros_like(classes)
    gathered = (costs < cost[:, None]).double()
    parts = ((cluster[:, None] == cluster) & (classes[:, None] == classes)).int().argmax(dim=1)  # named by a member
    one = gathered.new_ones(len(costs), 1)
    left = _sums(parts, one) - _sums(parts, gathered)
    clusters = _sums(cluster, one) - _sums(cluster, gathered)
    # With counts N of a partition n·H = n log n - Σ N log N, and mutual information is H(K) + H(C) - H(K, C).
    whole = len(costs) * math.log(len(costs))
    of_clusters = whole - _log_powers(clusters) - _log_powers(gathered.sum(dim=0, keepdim=True))
    of_classes = whole - _log_powers(_sums(classes, one))
    of_both = whole - _log_powers(left) - _log_powers(_sums(classes, gathered))
    shared = (of_clusters + of_classes - of_both) / (of_clusters * of_classes).clamp(min=TINY**2).sqrt()
    alone = (of_classes <= TINY).to(shared.dtype)  # one class, one cluster: they agree
    disagreement = 1 - torch.where(torch.minimum(of_clusters, of_classes) > TINY, shared, alone).clamp(0, 1)
    value = -torch.minimum(costs, cost[:, None]).sum(dim=0)
    return (value + gamma * disagreement).index_fill(0, medoids, -torch.inf), disagreement.to(costs.dtype)


def _sums(groups: Int[Tensor, "n"], rows: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]:
    """Rows added up by group; as many rows as samples, so that nobody has to wait for the number of groups."""
    return torch.zeros_like(rows).index_add_(0, groups, rows)


def _log_powers(counts: Float[Tensor, "n m"]) -> Float[Tensor, "m"]:
    """Σ x log x of each column."""
    return torch.xlogy(counts, counts).sum(dim=0)
