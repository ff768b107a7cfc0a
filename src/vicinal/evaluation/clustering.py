"""k-means, and clustering scores from the counts of classes in clusters: NMI, AMI and pairwise F1.

Only pairs (class, cluster) that occur are kept, so 60,000 rows in 11,000 classes and as many
clusters take a few megabytes. Names of classes and clusters do not matter, only who is together
with whom.
"""

import statistics
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vicinal.distances import square_range
from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.neighbors import require_finite

_CHUNK_BYTES = 2**25
_ROUNDS = 1024  # of seeding; up to so many clusters, each seed is drawn knowing all before it
_SHARED_ROUNDS = 64  # where there are more clusters
_RUN = 64  # columns of which only the least value is looked at first


def kmeans(
    embeddings: Float[Tensor, "n d"],
    clusters: int,
    *,
    seed: int,
    restarts: int = 5,
    iterations: int = 30,
) -> Int[Tensor, "n"]:
    """Return the cluster of each row, from the best of several runs; arguments as in
    ``kmeans_runs``."""
    return kmeans_runs(embeddings, clusters, seed=seed, restarts=restarts, iterations=iterations)[0]


def kmeans_runs(
    embeddings: Float[Tensor, "n d"],
    clusters: int,
    *,
    seed: int,
    restarts: int = 5,
    iterations: int = 30,
) -> list[Int[Tensor, "n"]]:
    """Return the cluster of each row in several runs of Lloyd's algorithm, k-means++ seeded, the
    best run first.

    Our own, so that a run, ``evaluate`` and every installation score alike: faiss and scikit-learn
    draw other seeds, and faiss is optional. Equal seeds give equal assignments on one machine, on a
    GPU as well. Where there are fewer different rows than clusters, some clusters stay empty.

    Args:
        embeddings: rows to cluster, by Euclidean distance; half precision is computed as float32.
        clusters: how many, at most as many as rows.
        seed: of all draws.
        restarts: runs from new seeds; the best has the least sum of squared distances.
        iterations: at most so many per run; it stops sooner when nothing moves.
    """
    if not 1 <= clusters <= len(embeddings):
        raise ConfigError(
            f"k-means of {len(embeddings)} rows finds 1 to {len(embeddings)} clusters, got "
            f"{clusters}."
        )
    if restarts < 1 or iterations < 1:
        raise ConfigError(
            f"k-means needs restarts and iterations of at least 1, got {restarts} and {iterations}."
        )
    require_finite(embeddings, "embeddings")
    rows = embeddings.detach().float()
    if clusters == len(rows):
        return [torch.arange(clusters, device=rows.device)]
    rows = rows - rows.mean(dim=0)  # distances do not change, the product's rounding shrinks
    largest, (low, high) = rows.abs().amax(), square_range(rows.dtype)
    if not low < largest < high and largest > 0:  # squares would leave the range of the type
        rows = rows / largest
    squares = rows.square().sum(dim=1)
    found = [
        _lloyd(rows, squares, clusters, seed * 1_000_003 + restart, iterations)
        for restart in range(restarts)
    ]
    return [assigned for assigned, _ in sorted(found, key=lambda one: one[1])]


def _lloyd(
    rows: Tensor, squares: Tensor, clusters: int, seed: int, iterations: int
) -> tuple[Tensor, float]:
    """One run: the assignment and its sum of squared distances."""
    centers = rows[_seeds(rows, squares, clusters, torch.Generator().manual_seed(seed))]
    assigned, spread = _assign(rows, squares, centers)
    for _ in range(iterations):
        former, before = centers, assigned
        centers = _centers(rows, assigned, spread, clusters)
        moved = (centers != former).any(dim=1)
        if clusters > _ROUNDS and 4 * int(moved.sum()) < clusters:
            assigned, spread = _reassign(rows, squares, centers, moved, assigned, spread)
        else:
            assigned, spread = _assign(rows, squares, centers)
        if bool((assigned == before).all()):
            break
    return assigned, float(spread.sum(dtype=torch.float64))


def _seeds(rows: Tensor, squares: Tensor, clusters: int, rng: torch.Generator) -> Tensor:
    """Different rows, each drawn with probability proportional to its squared distance from those
    before.

    That is k-means++ (Arthur and Vassilvitskii 2007). More than 1,024 clusters are drawn in 64
    rounds, each knowing the rounds before (as in k-means||, Bahmani et al. 2012), because each
    round passes over all rows.
    """
    per_round = 1 if clusters <= _ROUNDS else -(-clusters // _SHARED_ROUNDS)
    chosen = torch.randint(len(rows), (1,), generator=rng)
    nearest = torch.full_like(squares, torch.inf)
    drawn = chosen
    while len(chosen) < clusters:
        place = drawn.to(rows.device)
        distance = squares.unsqueeze(1) - (rows @ rows[place].T) * 2 + squares[place]
        nearest = torch.minimum(nearest, distance.amin(dim=1).clamp(min=0))
        nearest[place] = 0  # exactly: no row is drawn twice
        steps = (
            nearest.double().cpu().cumsum(dim=0)
        )  # on the CPU, where the order of summation is fixed
        if steps[-1] == 0:  # only duplicates of seeds are left: any will do
            left = (
                torch.ones(len(rows), dtype=torch.bool)
                .index_fill(0, chosen, False)
                .nonzero()
                .flatten()
            )
            return torch.cat([chosen, left[: clusters - len(chosen)]]).to(rows.device)
        throws = torch.rand(per_round, generator=rng, dtype=torch.float64) * steps[-1]
        drawn = torch.unique(torch.searchsorted(steps, throws, right=True).clamp(max=len(rows) - 1))
        drawn = drawn[nearest.cpu()[drawn] > 0][: clusters - len(chosen)]
        chosen = torch.cat([chosen, drawn])
    return chosen.to(rows.device)


def _assign(rows: Tensor, squares: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest center of each row and the squared distance to it."""
    lengths = centers.square().sum(dim=1)
    assigned, spread = [], []
    for part in torch.split(rows, max(1, _CHUNK_BYTES // (4 * len(centers)))):
        values = part @ centers.T
        nearest, least = _least(torch.add(lengths, values, alpha=-2, out=values))
        assigned.append(nearest)
        spread.append(least)
    return torch.cat(assigned), (torch.cat(spread) + squares).clamp(min=0)


def _reassign(
    rows: Tensor, squares: Tensor, centers: Tensor, moved: Tensor, assigned: Tensor, spread: Tensor
) -> tuple[Tensor, Tensor]:
    """The same as ``_assign`` where few centers moved: other rows can only have come nearer to one
    of these."""
    assigned, spread = assigned.clone(), spread.clone()
    names, again = moved.nonzero().flatten(), moved[assigned]
    if len(names):
        nearest, least = _assign(rows, squares, centers[names])
        closer = (least < spread) & ~again
        assigned[closer], spread[closer] = names[nearest[closer]], least[closer]
        assigned[again], spread[again] = _assign(rows[again], squares[again], centers)
    return assigned, spread


def _least(values: Float[Tensor, "n k"]) -> tuple[Int[Tensor, "n"], Float[Tensor, "n"]]:
    """Where the least value of each row is, and that value; on a CPU by runs of columns, whose
    minima take one pass."""
    whole = values.shape[1] // _RUN * _RUN
    if whole < 4 * _RUN or values.device.type != "cpu":
        found = values.min(dim=1)
        return found.indices, found.values
    runs = values[:, :whole].view(len(values), -1, _RUN)
    run = runs.amin(dim=2).argmin(dim=1)
    inside = runs[torch.arange(len(values)), run].min(dim=1)
    rest = torch.nn.functional.pad(values[:, whole:], (0, 1), value=torch.inf).min(dim=1)
    first = inside.values <= rest.values
    return torch.where(
        first, run * _RUN + inside.indices, whole + rest.indices
    ), inside.values.minimum(rest.values)


def _centers(rows: Tensor, assigned: Tensor, spread: Tensor, clusters: int) -> Tensor:
    """Means of the clusters; an empty one moves to one of the rows farthest from their centers."""
    sizes = torch.bincount(assigned, minlength=clusters)
    order = assigned.argsort(stable=True)
    centers = torch.segment_reduce(
        rows[order], "sum", lengths=sizes, axis=0
    )  # in a fixed order, also on a GPU
    centers /= sizes.clamp(min=1).unsqueeze(1)
    empty = (sizes == 0).nonzero().flatten()
    centers[empty] = rows[spread.argsort(descending=True, stable=True)[: len(empty)]]
    return centers


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
            raise DataError("clustering scores need at least one row, got none.")
        _, label, classes = torch.unique(labels.cpu(), return_inverse=True, return_counts=True)
        _, cluster, clusters = torch.unique(
            assignments.cpu(), return_inverse=True, return_counts=True
        )
        pairs, together = torch.unique(label * len(clusters) + cluster, return_counts=True)
        of_class, of_cluster = classes[pairs // len(clusters)], clusters[pairs % len(clusters)]
        return cls(together, of_class, of_cluster, classes, clusters)

    @property
    def rows(self) -> int:
        return int(self.classes.sum())

    @property
    def identical(self) -> bool:
        """Whether classes and clusters are the same sets of rows."""
        return bool(
            (self.together == self.of_class).all() and (self.together == self.of_cluster).all()
        )


def clustering_scores(labels: Int[Tensor, "n"], assignments: Int[Tensor, "n"]) -> dict[str, float]:
    """``nmi``, ``ami`` and ``f1`` of an assignment to clusters.

    >>> clustering_scores(torch.tensor([0, 0, 1, 1]), torch.tensor([5, 5, 3, 3]))
    {'nmi': 1.0, 'ami': 1.0, 'f1': 1.0}
    """
    counts = Contingency.of(labels, assignments)
    return {
        "nmi": normalized_mutual_information(counts),
        "ami": adjusted_mutual_information(counts),
        "f1": f1(counts),
    }


def cluster(
    embeddings: Float[Tensor, "n d"], labels: Int[Tensor, "n"], *, seed: int, restarts: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Cluster rows into as many parts as they have classes; return the mean scores of all runs, and
    their spread.

    The spread is the standard deviation over the runs: what another seed of k-means would change.
    One run has none.
    """
    runs = kmeans_runs(embeddings, len(torch.unique(labels)), seed=seed, restarts=restarts)
    scores = [clustering_scores(labels, assigned) for assigned in runs]
    means = {name: statistics.fmean(one[name] for one in scores) for name in scores[0]}
    spread = (
        {name: statistics.stdev(one[name] for one in scores) for name in scores[0]}
        if len(runs) > 1
        else {}
    )
    return means, spread


def normalized_mutual_information(counts: Contingency) -> float:
    """Mutual information over the arithmetic mean of the entropies.

        NMI = 2 I(Ω; C) / (H(Ω) + H(C))                              Manning et al. 2008, Eq. (16.2)

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
    """Harmonic mean of precision and recall of "these two rows are in one class", predicted by "in
    one cluster".

        P = TP / pairs in one cluster,  R = TP / pairs in one class,  F1 = 2 P R / (P + R) = 2 TP /
        (both sums)

    1 where neither side has a pair: then all parts are single rows, and agree.
    """
    both, by_class, by_cluster = (
        int((sizes * (sizes - 1) // 2).sum())
        for sizes in (counts.together, counts.classes, counts.clusters)
    )
    return 2 * both / (by_class + by_cluster) if by_class + by_cluster else 1.0


def expected_information(counts: Contingency) -> float:
    """E[I] over all ways to fill parts of the given sizes at random, the hypergeometric model.

        E[I] = Σ_ij Σ_m  m/n log(n m / (a_i b_j)) · P(m),   P(m) = C(b_j, m) C(n - b_j, a_i - m) / C(n, a_i)

    with m from max(1, a_i + b_j - n) to min(a_i, b_j) (Vinh et al. 2010). A term depends on the two
    sizes alone, so each pair of different sizes is computed once and weighted by how often it
    occurs: exact, and thousands of times cheaper where many classes have one size.
    """
    n = counts.rows
    classes, class_times = torch.unique(counts.classes, return_counts=True)
    clusters, cluster_times = torch.unique(counts.clusters, return_counts=True)
    factorial = torch.lgamma(torch.arange(n + 1, dtype=torch.float64) + 1)  # log m!
    b = clusters.unsqueeze(1)
    total = 0.0
    for a, times in zip(classes.tolist(), class_times.tolist(), strict=True):
        m = torch.arange(
            1, min(a, int(clusters[-1])) + 1
        )  # integers: they index the table of factorials
        possible = (m <= b) & (m >= a + b - n)
        rest, outside = (b - m).clamp(min=0), (n - a - b + m).clamp(min=0)
        log_chance = (
            factorial[a] + factorial[b] + factorial[n - a] + factorial[n - b] - factorial[n]
        )
        log_chance = (
            log_chance - factorial[m] - factorial[a - m] - factorial[rest] - factorial[outside]
        )
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
