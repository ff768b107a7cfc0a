"""Clustering scores from the counts of classes in clusters: NMI, AMI and pairwise F1.

Only pairs (class, cluster) that occur are kept, so 60,000 rows in 11,000 classes and as many clusters take a few
megabytes. Names of classes and clusters do not matter, only who is together with whom.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vicinal.errors import DataError


@dataclass(frozen=True)
class Contingency:
    """How many rows of each class lie in each cluster, for the pairs that occur.

    Attributes:
        together: rows of the pair's class in the pair's cluster, at least 1.
        of_class: size of the pair's class.
        of_cluster: size of the pair's cluster.
        classes: sizes of all classes.
        clusters: sizes of all clusters.
    """

    together: Int[Tensor, "pairs"]
    of_class: Int[Tensor, "pairs"]
    of_cluster: Int[Tensor, "pairs"]
    classes: Int[Tensor, "c"]
    clusters: Int[Tensor, "k"]

    @classmethod
    def of(cls, labels: Int[Tensor, "n"], assignments: Int[Tensor, "n"]) -> "Contingency":
        if len(labels) == 0:
            raise DataError("clustering scores need at least one row, but none came.")
        _, label, classes = torch.unique(labels.cpu(), return_inverse=True, return_counts=True)
        _, cluster, clusters = torch.unique(assignments.cpu(), return_inverse=True, return_counts=True)
        pairs, together = torch.unique(label * len(clusters) + cluster, return_counts=True)
        of_class, of_cluster = classes[pairs // len(clusters)], clusters[pairs % len(clusters)]
        return cls(together, of_class, of_cluster, classes, clusters)

    @property
    def rows(self) -> int:
        return int(self.classes.sum())

    @property
    def identical(self) -> bool:
        """Whether classes and clusters are the same sets of rows."""
        return bool((self.together == self.of_class).all() and (self.together == self.of_cluster).all())


def clustering_scores(labels: Int[Tensor, "n"], assignments: Int[Tensor, "n"]) -> dict[str, float]:
    """``nmi``, ``ami`` and ``f1`` of an assignment to clusters.

    >>> clustering_scores(torch.tensor([0, 0, 1, 1]), torch.tensor([5, 5, 3, 3]))
    {'nmi': 1.0, 'ami': 1.0, 'f1': 1.0}
    """
    counts = Contingency.of(labels, assignments)
    return {"nmi": normalised_mutual_information(counts), "ami": adjusted_mutual_information(counts), "f1": f1(counts)}


def normalised_mutual_information(counts: Contingency) -> float:
    """Mutual information over the arithmetic mean of the entropies.

        NMI = 2 I(Ω; C) / (H(Ω) + H(C))                                       Manning et al. 2008, Eq. (16.2)

    1 for identical partitions, also where both have one part and all entropies are 0.
    """
    if counts.identical:
        return 1.0
    return _information(counts) / _mean_entropy(counts)


def adjusted_mutual_information(counts: Contingency) -> float:
    """Mutual information above what chance gives for parts of these sizes (Vinh et al. 2010).

        AMI = (I - E[I]) / ((H(Ω) + H(C)) / 2 - E[I])

    1 for identical partitions; 0 on average for random ones, and where either has one part only.
    """
    if counts.identical:
        return 1.0
    if len(counts.classes) == 1 or len(counts.clusters) == 1:
        return 0.0
    chance = expected_information(counts)
    return (_information(counts) - chance) / (_mean_entropy(counts) - chance)


def f1(counts: Contingency) -> float:
    """Harmonic mean of precision and recall of "these two rows are in one class", told by "in one cluster".

        P = TP / pairs in one cluster,  R = TP / pairs in one class,  F1 = 2 P R / (P + R) = 2 TP / (both sums)

    1 where neither side has a pair: then all parts are single rows, and agree.
    """
    both, by_class, by_cluster = (
        int((sizes * (sizes - 1) // 2).sum()) for sizes in (counts.together, counts.classes, counts.clusters)
    )
    return 2 * both / (by_class + by_cluster) if by_class + by_cluster else 1.0


def expected_information(counts: Contingency) -> float:
    """E[I] over all ways to fill parts of the given sizes at random, the hypergeometric model.

        E[I] = Σ_ij Σ_m  m/n log(n m / (a_i b_j)) · P(m),   P(m) = C(b_j, m) C(n - b_j, a_i - m) / C(n, a_i)

    with m from max(1, a_i + b_j - n) to min(a_i, b_j) (Vinh et al. 2010). A term depends on the two sizes alone, so
    each pair of different sizes is computed once and weighted by how often it occurs: exact, and thousands of times
    cheaper where many classes have one size.
    """
    n = counts.rows
    classes, class_times = torch.unique(counts.classes, return_counts=True)
    clusters, cluster_times = torch.unique(counts.clusters, return_counts=True)
    factorial = torch.lgamma(torch.arange(n + 1, dtype=torch.float64) + 1)  # log m!
    b = clusters.unsqueeze(1)
    total = 0.0
    for a, times in zip(classes.tolist(), class_times.tolist(), strict=True):
        m = torch.arange(1, min(a, int(clusters[-1])) + 1)  # integers: they index the table of factorials
        possible = (m <= b) & (m >= a + b - n)
        rest, outside = (b - m).clamp(min=0), (n - a - b + m).clamp(min=0)
        log_chance = factorial[a] + factorial[b] + factorial[n - a] + factorial[n - b] - factorial[n]
        log_chance = log_chance - factorial[m] - factorial[a - m] - factorial[rest] - factorial[outside]
        term = m.double() / n * torch.log(n * m / (a * b).double()) * log_chance.exp()
        total += times * float((term.masked_fill(~possible, 0.0).sum(dim=1) * cluster_times).sum())
    return total


def _information(counts: Contingency) -> float:
    """I = Σ n_ij/n log(n n_ij / (a_i b_j))."""
    together, n = counts.together.double(), counts.rows
    ratio = n * together / (counts.of_class.double() * counts.of_cluster.double())
    return max(0.0, float((together / n * ratio.log()).sum()))  # rounding may leave -1e-17


def _mean_entropy(counts: Contingency) -> float:
    return (_entropy(counts.classes) + _entropy(counts.clusters)) / 2


def _entropy(sizes: Float[Tensor, "parts"] | Int[Tensor, "parts"]) -> float:
    share = sizes / sizes.sum(dtype=torch.float64)
    return float(-(share * share.log()).sum())
