"""k-means, and clustering scores from the counts of classes in clusters: NMI, AMI and pairwise F1.

Only pairs (class, cluster) that occur are kept, so 60,000 rows in 11,000 classes and as many
clusters take a few megabytes. Names of classes and clusters do not matter, only who is together
with whom.
"""

import statistics

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vicinal import parallel
from vicinal.distances import square_range
from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.neighbors import require_finite

_CHUNK_BYTES = 2**25
_ROUNDS = 1024  # of seeding; up to so many clusters, each seed is drawn knowing all before it
_SHARED_ROUNDS = 64  # where there are more clusters


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
    together: bool = False,
) -> list[Int[Tensor, "n"]]:
    """Return the cluster of each row in several runs of Lloyd's algorithm, k-means++ seeded, the
    best run first.

    Our own, since scikit-learn's takes 1.6 to 3.8 times as long (docs/benchmarks.md) and knows no
    GPU: a run, ``evaluate`` and every installation score alike. Equal seeds
    give equal assignments on one machine, on a GPU as well. Where there are fewer different rows
    than clusters, some clusters stay empty.

    Args:
        embeddings: rows to cluster, by Euclidean distance; half precision is computed as float32.
        clusters: how many, at most as many as rows.
        seed: of all draws.
        restarts: runs from new seeds; the best has the least sum of squared distances.
        iterations: at most so many per run; it stops sooner when nothing moves.
        together: whether all processes call this with equal rows, to assign a part of them each.
    """
    if not 1 <= clusters <= len(embeddings):
        raise ConfigError(
            f"k-means of {len(embeddings)} rows finds 1 to {len(embeddings)} clusters, got "
            f"{clusters}."
        )
    require_finite(embeddings, "embeddings")
    rows = embeddings.detach().float()
    if clusters == len(rows):
        return [torch.arange(clusters, device=rows.device)]
    rows = rows - rows.mean(dim=0)  # distances do not change, the product's rounding shrinks
    largest = rows.abs().amax()
    low, high = square_range(rows.dtype)
    if not low < largest < high and largest > 0:  # squares would leave the range of the type
        rows = rows / largest
    squares = rows.square().sum(dim=1)
    found = [
        _lloyd(rows, squares, clusters, seed * 1_000_003 + restart, iterations, together)
        for restart in range(restarts)
    ]
    return [assigned for assigned, _ in sorted(found, key=lambda one: one[1])]


def _lloyd(
    rows: Tensor, squares: Tensor, clusters: int, seed: int, iterations: int, together: bool
) -> tuple[Tensor, float]:
    """One run: the assignment and its sum of squared distances."""
    centers = rows[_seeds(rows, squares, clusters, torch.Generator().manual_seed(seed))]
    assigned, spread = _assign(rows, squares, centers, together)
    for _ in range(iterations):
        before = assigned
        centers = _centers(rows, assigned, spread, clusters)
        assigned, spread = _assign(rows, squares, centers, together)
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
        # On the CPU, where the order of summation is fixed.
        steps = nearest.double().cpu().cumsum(dim=0)
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


def _assign(
    rows: Tensor, squares: Tensor, centers: Tensor, together: bool
) -> tuple[Tensor, Tensor]:
    """The nearest center of each row and the squared distance to it."""
    lengths = centers.square().sum(dim=1)
    assigned = [squares.new_empty(0, dtype=torch.long)]
    spread = [squares.new_empty(0)]
    blocks = torch.split(rows, max(1, _CHUNK_BYTES // (4 * len(centers))))
    for part in parallel.part(blocks) if together else blocks:
        values = part @ centers.T
        least = torch.add(lengths, values, alpha=-2, out=values).min(dim=1)
        assigned.append(least.indices)
        spread.append(least.values)
    found = torch.cat(assigned), torch.cat(spread)
    places, gaps = map(parallel.join_rows, found) if together else found
    return places, (gaps + squares).clamp(min=0)


def _centers(rows: Tensor, assigned: Tensor, spread: Tensor, clusters: int) -> Tensor:
    """Means of the clusters; an empty one moves to one of the rows farthest from their centers."""
    sizes = torch.bincount(assigned, minlength=clusters)
    order = assigned.argsort(stable=True)
    # In a fixed order, also on a GPU.
    centers = torch.segment_reduce(rows[order], "sum", lengths=sizes, axis=0)
    centers /= sizes.clamp(min=1).unsqueeze(1)
    empty = (sizes == 0).nonzero().flatten()
    centers[empty] = rows[spread.argsort(descending=True, stable=True)[: len(empty)]]
    return centers


def clustering_scores(labels: Int[Tensor, "n"], assignments: Int[Tensor, "n"]) -> dict[str, float]:
    """``nmi``, ``ami`` and ``f1`` of an assignment to clusters; all are 1 for identical partitions.

        NMI = I / H,   AMI = (I - E[I]) / (H - E[I]),   H = (H(Ω) + H(C)) / 2

    I is the mutual information, E[I] what chance gives for parts of these sizes (Vinh et al. 2010;
    NMI: Manning et al. 2008, Eq. (16.2)). F1 is the harmonic mean of precision and recall of "these
    two rows are in one class", predicted by "in one cluster":

        F1 = 2 P R / (P + R) = 2 pairs in both / (pairs in one cluster + pairs in one class)

    and 1 where neither side has a pair.

    >>> clustering_scores(torch.tensor([0, 0, 1, 1]), torch.tensor([5, 5, 3, 3]))
    {'nmi': 1.0, 'ami': 1.0, 'f1': 1.0}
    """
    if len(labels) == 0:
        raise DataError("clustering scores need at least one row, got none.")
    _, label, classes = torch.unique(labels.cpu(), return_inverse=True, return_counts=True)
    _, cluster, clusters = torch.unique(assignments.cpu(), return_inverse=True, return_counts=True)
    places, together = torch.unique(label * len(clusters) + cluster, return_counts=True)
    both, by_class, by_cluster = (
        int((sizes * (sizes - 1) // 2).sum()) for sizes in (together, classes, clusters)
    )
    f1 = 2 * both / (by_class + by_cluster) if by_class + by_cluster else 1.0
    if len(places) == len(classes) == len(clusters):  # also where all entropies are 0
        return {"nmi": 1.0, "ami": 1.0, "f1": f1}
    entropies = [_entropy(sizes) for sizes in (classes, clusters, together)]
    entropy = (entropies[0] + entropies[1]) / 2
    information = max(0.0, 2 * entropy - entropies[2])  # I = H(Ω) + H(C) - H(Ω, C)
    ami = 0.0  # where one part holds all, chance tells as much
    if min(len(classes), len(clusters)) > 1:
        chance = expected_information(classes, clusters)
        ami = (information - chance) / (entropy - chance)
    return {"nmi": information / entropy, "ami": ami, "f1": f1}


def cluster(
    embeddings: Float[Tensor, "n d"],
    labels: Int[Tensor, "n"],
    *,
    seed: int,
    restarts: int,
    together: bool = False,
) -> tuple[dict[str, float], dict[str, float]]:
    """Cluster rows into as many parts as they have classes; return the mean scores of all runs, and
    their spread.

    The spread is the standard deviation over the runs: what another seed of k-means would change.
    One run has none.
    """
    count = len(torch.unique(labels))
    runs = kmeans_runs(embeddings, count, seed=seed, restarts=restarts, together=together)
    scores = [clustering_scores(labels, assigned) for assigned in runs]
    columns = {name: [one[name] for one in scores] for name in scores[0]}
    spread = {name: statistics.stdev(column) for name, column in columns.items() if len(runs) > 1}
    return {name: statistics.fmean(column) for name, column in columns.items()}, spread


def expected_information(class_sizes: Int[Tensor, "c"], cluster_sizes: Int[Tensor, "k"]) -> float:
    """E[I] over all ways to fill parts of the given sizes at random, the hypergeometric model.

        E[I] = Σ_ij Σ_m  m/n log(n m / (a_i b_j)) · P(m),
            P(m) = C(b_j, m) C(n - b_j, a_i - m) / C(n, a_i)

    with m from max(1, a_i + b_j - n) to min(a_i, b_j) (Vinh et al. 2010). A term depends on the two
    sizes alone, so each pair of different sizes is computed once and weighted by how often it
    occurs: exact, and thousands of times cheaper where many classes have one size.
    """
    n = int(class_sizes.sum())
    classes, class_times = torch.unique(class_sizes, return_counts=True)
    clusters, cluster_times = torch.unique(cluster_sizes, return_counts=True)
    factorial = torch.lgamma(torch.arange(n + 1, dtype=torch.float64) + 1)  # log m!
    b = clusters.unsqueeze(1)
    total = 0.0
    for a, times in zip(classes.tolist(), class_times.tolist(), strict=True):
        # Integers: they index the table of factorials.
        m = torch.arange(1, min(a, int(clusters[-1])) + 1)
        possible = (m <= b) & (m >= a + b - n)
        rest = (b - m).clamp(min=0)
        outside = (n - a - b + m).clamp(min=0)
        log_chance = (
            factorial[a] + factorial[b] + factorial[n - a] + factorial[n - b] - factorial[n]
        )
        log_chance = (
            log_chance - factorial[m] - factorial[a - m] - factorial[rest] - factorial[outside]
        )
        term = m.double() / n * torch.log(n * m / (a * b).double()) * log_chance.exp()
        total += times * float((term.masked_fill(~possible, 0.0).sum(dim=1) * cluster_times).sum())
    return total


def _entropy(sizes: Int[Tensor, "parts"]) -> float:
    return float(torch.special.entr(sizes / sizes.sum(dtype=torch.float64)).sum())
