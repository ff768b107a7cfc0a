"""Clustering loss by facility location (Song et al., CVPR 2017)."""

from dataclasses import KW_ONLY, dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import relu

from vicinal.arguments import Natural
from vicinal.losses.loss import Comparisons, Loss, Terms
from vicinal.tuples import Embeddings, Labels, Reference, other_class

# of n times an entropy: below it there is only rounding, for one sample apart makes it log n at
# least
TINY = 1e-6


@dataclass(eq=False, repr=False)
class ClusteringLoss(Loss):
    """Clustering loss (Song et al. 2017): no clustering of the batch may score better than its
    classes.

        L = [ max_S (F(S) + γ Δ(S)) - F~ ]_+                                        Song et al. 2017
        F(S) = -Σ_i min_{j ∈ S} d_ij,     F~ = Σ_c max_{j ∈ c} (-Σ_{i ∈ c} d_ij),     Δ(S) = 1 - NMI(S, classes)

    S runs over sets of as many samples (medoids) as the batch has classes; each gathers the samples
    nearest to it. The maximum is sought greedily, then by exchanging one medoid at a time until
    none helps, ``exchanges`` sweeps at most.
    The search has no gradient: what learns are the distances to the medoids that it chose.

    NMI is mutual information over the geometric mean of the two entropies. L is one number for the
    batch: ``"sum"`` is L, ``"mean"`` is L over the number of samples, and ``"none"`` gives each
        sample this same share.

    Differs: an exchange tries every sample and is judged by F + γΔ of the whole batch, so that it
        never makes S worse;
    the authors try the members of the medoid's cluster, and judge by F within it.

    Args:
        gamma: γ.
        exchanges: sweeps over all medoids; each costs as much as the greedy choice, O(n² classes).
        restarts: further searches, each from medoids drawn at random, of which the best result is
            taken. Of 60 batches of 8 samples the greedy search alone misses the maximum in about a
            third, with 8 restarts in none.
        squared: whether distances are squared.
        normalize: whether embeddings are put on the unit sphere first.
        reduction: as in ``torch.nn``.
    """

    takes_reference = False
    capturable = False  # the search waits for the distances

    gamma: float = 1.0
    _: KW_ONLY
    exchanges: Natural = 5
    restarts: Natural = 0
    squared: bool = False
    normalize: bool = True

    def comparisons(
        self, embeddings: Embeddings, labels: Labels, reference: Reference | None = None
    ) -> Comparisons:
        """Compare each sample with all medoids that it may have, itself included; its class's are
        positives."""
        compared, others = self.distance(embeddings), other_class(labels)
        return Comparisons(compared, ~others, compared, others)

    def core(self, c: Comparisons) -> Terms:
        costs = torch.where(c.keep_positive, c.of_positives(c.positive), c.of_negatives(c.negative))
        there = c.keep_positive.any(dim=1)
        if not there.any():
            return Terms(0 * costs.sum(dim=1), there.to(costs.dtype))
        settings = self.gamma, self.exchanges, self.restarts
        medoids, disagreement = best_clustering(costs.detach(), c.keep_positive, *settings)
        for_class = (
            costs.detach().masked_fill(~c.keep_positive, 0).sum(dim=0)
        )  # what a medoid costs all of its class
        ideal = (
            for_class.expand_as(costs)
            .masked_fill(~c.keep_positive, torch.inf)
            .argmin(dim=1, keepdim=True)
        )
        excess = (
            costs.gather(1, ideal).sum()
            - costs[:, medoids].amin(dim=1).sum()
            + self.gamma * disagreement
        )
        return Terms((relu(excess) / len(costs)).expand(len(costs)), there.to(costs.dtype))


def best_clustering(
    costs: Float[Tensor, "n n"],
    same: Bool[Tensor, "n n"],
    gamma: float,
    exchanges: int,
    restarts: int = 0,
) -> tuple[Int[Tensor, "k"], Float[Tensor, ""]]:
    """Medoids that (nearly) maximize F + γΔ, and their Δ; one for each class that ``same``
    marks."""
    classes = np.unique(same.cpu().numpy().argmax(axis=1), return_inverse=True)[1]
    search = _Search(costs.detach().cpu().double().numpy(), classes, gamma)
    count = int(classes.max()) + 1
    rng = torch.Generator().manual_seed(0)
    drawn = [torch.randperm(len(costs), generator=rng)[:count].numpy() for _ in range(restarts)]
    found = [search.exchanged(start, exchanges) for start in (search.greedy(count), *drawn)]
    medoids, _, disagreement = max(found, key=lambda one: one[1])
    return torch.from_numpy(medoids).to(costs.device), costs.new_tensor(disagreement)


class _Search:
    """Sets of medoids of one batch, on the CPU: a search takes hundreds of small steps that each
    wait for the last.

    Args:
        costs: of sample i with medoid j.
        classes: class of each sample, counted from 0.
        gamma: γ.
    """

    def __init__(
        self, costs: Float[np.ndarray, "n n"], classes: Int[np.ndarray, "n"], gamma: float
    ) -> None:
        self.costs, self.classes, self.gamma, self.n = costs, classes, gamma, len(costs)
        self.powers = np.arange(self.n + 1) * np.log(
            np.maximum(np.arange(self.n + 1), 1)
        )  # x log x
        self.whole = self.powers[self.n]
        self.of_classes = self.whole - self.powers[np.bincount(classes)].sum()
        self.class_count = int(classes.max()) + 1
        self.order = costs.argsort(axis=1)
        self.sorted = np.take_along_axis(costs, self.order, axis=1)
        self.cost, self.nearer = (
            np.full(self.n, np.nan),
            np.zeros(self.n, dtype=np.int64),
        )  # as ``near`` left them

    def greedy(self, count: int) -> Int[np.ndarray, "k"]:
        """Choose one medoid after another, each the best beside those before."""
        medoids = np.zeros(count, dtype=np.int64)
        cost, cluster = np.full(self.n, self.costs.max() + 1), np.zeros(self.n, dtype=np.int64)
        for place in range(count):
            medoids[place] = self.scores(cost, cluster, medoids[:place])[0].argmax()
            own = self.costs[:, medoids[place]]
            nearer = own < cost
            cost, cluster = np.where(nearer, own, cost), np.where(nearer, place, cluster)
        return medoids

    def exchanged(
        self, medoids: Int[np.ndarray, "k"], exchanges: int
    ) -> tuple[Int[np.ndarray, "k"], float, float]:
        """Exchange one medoid at a time until none helps; return the medoids, their F + γΔ and
        their Δ."""
        medoids, unchanged = medoids.copy(), 0  # places since the last exchange
        two = self.nearest_two(medoids)
        for place in list(range(len(medoids))) * exchanges:
            score, _ = self.scores(*self.without(place, *two), np.delete(medoids, place))
            sample = int(score.argmax())
            unchanged += 1
            if score[sample] > score[medoids[place]]:
                medoids[place], unchanged = sample, 0
                two = self.nearest_two(medoids)
            elif unchanged >= len(medoids):
                break
        score, disagreement = self.scores(*self.without(len(medoids) - 1, *two), medoids[:-1])
        return medoids, float(score[medoids[-1]]), float(disagreement[medoids[-1]])

    def nearest_two(self, medoids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the two nearest medoids of each sample and what they cost, ``[n 2]``."""
        offered = np.column_stack([self.costs[:, medoids], np.full(self.n, self.costs.max() + 1)])
        places, rows = np.empty((self.n, 2), dtype=np.int64), np.arange(self.n)
        places[:, 0] = offered.argmin(axis=1)
        costs = np.empty((self.n, 2))
        costs[:, 0] = offered[rows, places[:, 0]]
        offered[rows, places[:, 0]] = np.inf
        places[:, 1] = offered.argmin(axis=1)
        costs[:, 1] = offered[rows, places[:, 1]]
        return places, costs

    def without(
        self, place: int, places: np.ndarray, costs: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return each sample's cost and cluster without one of the medoids."""
        lost = places[:, 0] == place
        return np.where(lost, costs[:, 1], costs[:, 0]), np.where(lost, places[:, 1], places[:, 0])

    def scores(
        self,
        cost: Float[np.ndarray, "n"],
        cluster: Int[np.ndarray, "n"],
        medoids: Int[np.ndarray, "k"],
    ) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
        """F + γΔ and Δ of the medoids with each sample added to them; -inf for a sample that is
        among them already.

        A candidate gathers the samples that are nearer to it than to their medoid, few of them
        where medoids are many. Every count of the new clustering follows from how many it gathers
        of each class, of each cluster, and of each class within a cluster.
        """
        n, classes = self.n, self.classes
        sample, candidate, saved = self.near(cost)
        value = np.bincount(candidate, saved, n) - cost.sum()
        part = cluster * self.class_count + classes
        # With counts N of a partition n·H = n log n - Σ N log N, and mutual information is H(K) +
        # H(C) - H(K, C).
        own = self.powers[np.bincount(candidate, minlength=n)]
        of_clusters = self.whole - self.left(cluster, sample, candidate) - own
        _, column, count = self.counted(classes[sample], candidate)
        of_both = (
            self.whole
            - self.left(part, sample, candidate)
            - np.bincount(column, self.powers[count], n)
        )
        shared = (of_clusters + self.of_classes - of_both) / np.sqrt(
            np.maximum(of_clusters * self.of_classes, TINY**2)
        )
        alone = float(self.of_classes <= TINY)  # one class, one cluster: they agree
        disagreement = 1 - np.where(
            np.minimum(of_clusters, self.of_classes) > TINY, shared, alone
        ).clip(0, 1)
        score = value + self.gamma * disagreement
        score[medoids] = -np.inf
        return score, disagreement

    def near(self, cost: Float[np.ndarray, "n"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return samples, the candidates that are nearer to them than their medoid, and what each
        of these saves.

        Between two calls the costs of a few samples change, and only theirs are compared again.
        """
        rows = np.flatnonzero(cost != self.cost)
        self.nearer[rows] = (self.sorted[rows] < cost[rows, None]).sum(axis=1)
        self.cost, ends = cost, self.nearer.cumsum()
        sample = np.arange(self.n).repeat(self.nearer)
        places = np.arange(ends[-1]) + (np.arange(self.n) * self.n - ends + self.nearer)[sample]
        return sample, self.order.ravel()[places], cost[sample] - self.sorted.ravel()[places]

    def left(
        self, groups: np.ndarray, sample: np.ndarray, candidate: np.ndarray
    ) -> Float[np.ndarray, "n"]:
        """Σ N log N over the groups of what each candidate leaves in them."""
        sizes = np.bincount(groups)
        group, column, count = self.counted(groups[sample], candidate)
        taken = self.powers[sizes[group]] - self.powers[sizes[group] - count]
        found: np.ndarray = self.powers[sizes].sum() - np.bincount(column, taken, self.n)
        return found

    def counted(
        self, groups: np.ndarray, candidate: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return group, candidate and number of the pairs that occur."""
        keys = np.sort(groups * self.n + candidate)
        bounds = np.flatnonzero(np.concatenate([[len(keys) > 0], keys[1:] != keys[:-1], [True]]))
        return *np.divmod(keys[bounds[:-1]], self.n), bounds[1:] - bounds[:-1]
