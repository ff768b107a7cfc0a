"""Clustering loss by facility location (Song et al., CVPR 2017)."""

from dataclasses import KW_ONLY, dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import relu

from vicinal.losses.loss import Comparisons, Loss, Terms
from vicinal.tuples import Embeddings, Labels, Reference, Scalar, other_class

# of n times an entropy: below it there is only rounding, for one sample apart makes it log n at
# least
TINY = 1e-6
EXCHANGES = 5  # sweeps over all medoids, each as long as the greedy choice, O(n² classes)


@dataclass(eq=False, repr=False)
class ClusteringLoss(Loss):
    """Clustering loss (Song et al. 2017): no clustering of the batch may score better than its
    classes.

        L = [ max_S (F(S) + γ Δ(S)) - F~ ]_+                                        Song et al. 2017
        F(S) = -Σ_i min_{j ∈ S} d_ij,     F~ = Σ_c max_{j ∈ c} (-Σ_{i ∈ c} d_ij),
            Δ(S) = 1 - NMI(S, classes)

    S runs over sets of as many samples (medoids) as the batch has classes; each gathers the samples
    nearest to it. The maximum is sought greedily, then by exchanging one medoid at a time until
    none helps, five sweeps at most.
    The search has no gradient: what learns are the distances to the medoids that it chose.

    NMI is mutual information over the geometric mean of the two entropies. L is one number for the
    batch: ``"sum"`` is L, ``"mean"`` is L over the number of samples, and ``"none"`` gives each
        sample this same share.

    Differs: an exchange tries every sample and is judged by F + γΔ of the whole batch, so that it
        never makes S worse;
    the authors try the members of the medoid's cluster, and judge by F within it.

    Args:
        gamma: γ.
        squared: whether distances are squared.
        normalize: whether embeddings are put on the unit sphere first.
        reduction: as in ``torch.nn``.
    """

    takes_reference = False
    capturable = False  # the search waits for the distances
    indivisible = "it clusters the batch"

    gamma: float = 1.0
    _: KW_ONLY
    squared: bool = False
    normalize: bool = True

    def comparisons(
        self, embeddings: Embeddings, labels: Labels, reference: Reference | None = None
    ) -> Comparisons:
        """Compare each sample with all medoids that it may have, itself included; its class's are
        positives."""
        compared = self.distance(embeddings)
        others = other_class(labels)
        return Comparisons(compared, ~others, compared, others)

    def core(self, c: Comparisons) -> Terms:
        costs = torch.where(c.keep_positive, c.positive, c.negative)
        there = c.keep_positive.any(dim=1)
        if not there.any():
            return Terms(0 * costs.sum(dim=1), there.to(costs.dtype))
        medoids, disagreement = best_clustering(costs.detach(), c.keep_positive, self.gamma)
        # What a medoid costs all of its class.
        for_class = costs.detach().masked_fill(~c.keep_positive, 0).sum(dim=0)
        in_class = for_class.expand_as(costs).masked_fill(~c.keep_positive, torch.inf)
        ideal = in_class.argmin(dim=1, keepdim=True)
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
) -> tuple[Int[Tensor, "k"], Scalar]:
    """Medoids that (nearly) maximize F + γΔ, and their Δ; one for each class that ``same``
    marks."""
    classes = np.unique(same.cpu().numpy().argmax(axis=1), return_inverse=True)[1]
    held = costs.detach().cpu().double().numpy()
    medoids = np.zeros(0, dtype=np.int64)
    for _ in range(int(classes.max()) + 1):  # one after another, each the best beside those before
        medoids = np.append(medoids, _scores(held, classes, gamma, medoids)[0].argmax())
    unchanged = 0  # places since the last exchange
    for place in [*range(len(medoids))] * EXCHANGES:
        score, _ = _scores(held, classes, gamma, np.delete(medoids, place))
        sample = int(score.argmax())
        unchanged += 1
        if score[sample] > score[medoids[place]]:
            medoids[place] = sample
            unchanged = 0
        elif unchanged >= len(medoids):
            break
    _, disagreement = _scores(held, classes, gamma, medoids[:-1])
    return torch.from_numpy(medoids).to(costs.device), costs.new_tensor(disagreement[medoids[-1]])


def _scores(
    costs: Float[np.ndarray, "n n"],
    classes: Int[np.ndarray, "n"],
    gamma: float,
    medoids: Int[np.ndarray, "k"],
) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """F + γΔ and Δ of the medoids with each sample added to them; -inf for a sample that is among
    them already.

    On the CPU, for a search takes hundreds of small steps that each wait for the last. A candidate
    gathers the samples that are nearer to it than to their medoid. Every count of the new
    clustering follows from how many it gathers of each class, of each cluster, and of each class
    within a cluster.

    Args:
        costs: of sample i with medoid j.
        classes: class of each sample, counted from 0.
        gamma: γ.
        medoids: the samples chosen so far.
    """
    n = len(costs)
    numbers = np.arange(n + 1)
    powers = numbers * np.log(np.maximum(numbers, 1))  # x log x
    offered = np.column_stack([costs[:, medoids], np.full(n, costs.max() + 1)])
    cluster = offered.argmin(axis=1)
    cost = offered.min(axis=1)
    taken = (costs < cost[:, None]).astype(np.float32)  # sample by candidate
    value = -np.minimum(costs, cost[:, None]).sum(axis=0)

    def counted(groups: Int[np.ndarray, "n"]) -> Int[np.ndarray, "groups n"]:
        """Count the samples of each group that each candidate takes."""
        members = groups == np.arange(groups.max() + 1)[:, None]
        return (members.astype(np.float32) @ taken).astype(np.int64)

    def entropy(*sizes: np.ndarray) -> Float[np.ndarray, "m"]:
        """n·H = n log n - Σ N log N of partitions, each a column of sizes."""
        return powers[n] - powers[np.concatenate(sizes)].sum(axis=0)

    of_class = counted(classes)
    parts = np.unique(cluster * n + classes, return_inverse=True)[1]
    left, left_of_parts = (
        np.bincount(groups)[:, None] - counted(groups) for groups in (cluster, parts)
    )
    of_clusters = entropy(left, of_class.sum(axis=0, keepdims=True))
    of_classes = float(entropy(np.bincount(classes)[:, None])[0])
    # Mutual information is H(K) + H(C) - H(K, C).
    shared = of_clusters + of_classes - entropy(left_of_parts, of_class)
    shared /= np.sqrt(np.maximum(of_clusters * of_classes, TINY**2))
    alone = float(of_classes <= TINY)  # one class, one cluster: they agree
    both = np.minimum(of_clusters, of_classes) > TINY
    disagreement = 1 - np.where(both, shared, alone).clip(0, 1)
    score = value + gamma * disagreement
    score[medoids] = -np.inf
    return score, disagreement
