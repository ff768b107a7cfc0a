"""k-means: rows to clusters, by faiss where it is installed, by our own chunked torch code elsewhere."""

import importlib.util
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vicinal.errors import ConfigError, unknown
from vicinal.evaluation.neighbors import require_finite

Engine = Literal["auto", "faiss", "torch"]

_CHUNK_BYTES = 2**25
_ROUNDS = 1024  # of seeding; up to so many clusters, each seed is drawn knowing all before it


def kmeans(
    embeddings: Float[Tensor, "n d"],
    clusters: int,
    *,
    seed: int,
    restarts: int = 5,
    iterations: int = 30,
    engine: Engine = "auto",
) -> Int[Tensor, "n"]:
    """The cluster of each row, from the best of several runs of Lloyd's algorithm, k-means++ seeded.

    Equal seeds give equal assignments on one machine; the two engines draw differently, so their assignments differ.
    Where there are fewer different rows than clusters, some clusters stay empty.

    Args:
        embeddings: rows to cluster, by Euclidean distance; half precision is computed as float32.
        clusters: how many, at most as many as rows.
        seed: of all draws.
        restarts: runs from new seeds, of which the one with the least sum of squared distances counts.
        iterations: at most so many per run; our own engine stops sooner when nothing moves.
        engine: ``"auto"`` is faiss for rows in main memory where it is installed, else torch on the rows' device.
    """
    if engine not in ("auto", "faiss", "torch"):
        raise ConfigError(unknown("k-means engine", engine, ("auto", "faiss", "torch")))
    if not 1 <= clusters <= len(embeddings):
        raise ConfigError(f"k-means of {len(embeddings)} rows finds 1 to {len(embeddings)} clusters, not {clusters}.")
    if restarts < 1 or iterations < 1:
        raise ConfigError(f"k-means needs restarts and iterations of at least 1, not {restarts} and {iterations}.")
    require_finite(embeddings, "embeddings")
    rows = embeddings.detach().float()
    if clusters == len(rows):
        return torch.arange(clusters, device=rows.device)
    installed = importlib.util.find_spec("faiss") is not None
    if engine == "faiss" and not installed:
        raise ConfigError(
            "k-means was asked of faiss, which is not installed. `pip install faiss-cpu`, or engine='torch'."
        )
    if engine == "faiss" or (engine == "auto" and installed and rows.device.type == "cpu"):
        return _faiss(rows, clusters, seed, restarts, iterations)
    return _torch(rows, clusters, seed, restarts, iterations)


def _faiss(rows: Tensor, clusters: int, seed: int, restarts: int, iterations: int) -> Tensor:
    import faiss

    few = clusters <= _ROUNDS
    method = getattr(faiss, f"ClusteringInitMethod_{'KMEANS_PLUS_PLUS' if few else 'AFK_MC2'}", None)
    settings = {} if method is None else {"init_method": method}  # older versions seed with random rows
    engine = faiss.Kmeans(
        rows.shape[1],
        clusters,
        niter=iterations,
        nredo=restarts,
        seed=seed % 2**31,
        min_points_per_centroid=1,  # few rows per cluster are usual here: no warning
        max_points_per_centroid=len(rows),  # the default would train on a sample
        **settings,
    )
    points = rows.cpu().numpy()
    engine.train(points)
    return torch.from_numpy(engine.index.search(points, 1)[1].squeeze(1)).to(rows.device)


def _torch(rows: Tensor, clusters: int, seed: int, restarts: int, iterations: int) -> Tensor:
    rows = rows - rows.mean(dim=0)  # distances do not change, the product's rounding shrinks
    squares = rows.square().sum(dim=1)
    best, least = None, torch.inf
    for restart in range(restarts):
        rng = torch.Generator().manual_seed(seed * 1_000_003 + restart)
        centres = rows[_seeds(rows, squares, clusters, rng)]
        assigned, spread = _assign(rows, squares, centres)
        for _ in range(iterations):
            centres = _centres(rows, assigned, spread, clusters)
            before, (assigned, spread) = assigned, _assign(rows, squares, centres)
            if bool((assigned == before).all()):
                break
        cost = float(spread.sum(dtype=torch.float64))
        if best is None or cost < least:
            best, least = assigned, cost
    if best is None:
        raise ConfigError("k-means ran no restart.")
    return best


def _seeds(rows: Tensor, squares: Tensor, clusters: int, rng: torch.Generator) -> Tensor:
    """Different rows, each drawn with probability proportional to its squared distance from those before.

    That is k-means++ (Arthur and Vassilvitskii 2007). Beyond 1,024 clusters several are drawn per round, all knowing
    the rounds before (as in k-means||, Bahmani et al. 2012), because each round passes over all rows.
    """
    per_round = -(-clusters // _ROUNDS)
    chosen = torch.randint(len(rows), (1,), generator=rng)
    nearest = torch.full_like(squares, torch.inf)
    drawn = chosen
    while len(chosen) < clusters:
        place = drawn.to(rows.device)
        distance = squares.unsqueeze(1) - (rows @ rows[place].T) * 2 + squares[place]
        nearest = torch.minimum(nearest, distance.amin(dim=1).clamp(min=0))
        nearest[place] = 0  # exactly: no row is drawn twice
        steps = nearest.double().cpu().cumsum(dim=0)  # on the CPU, where the order of summation is fixed
        if steps[-1] == 0:  # only duplicates of seeds are left: any will do
            left = torch.ones(len(rows), dtype=torch.bool).index_fill(0, chosen, False).nonzero().flatten()
            return torch.cat([chosen, left[: clusters - len(chosen)]]).to(rows.device)
        throws = torch.rand(per_round, generator=rng, dtype=torch.float64) * steps[-1]
        drawn = torch.unique(torch.searchsorted(steps, throws, right=True).clamp(max=len(rows) - 1))
        drawn = drawn[nearest.cpu()[drawn] > 0][: clusters - len(chosen)]
        chosen = torch.cat([chosen, drawn])
    return chosen.to(rows.device)


def _assign(rows: Tensor, squares: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest centre of each row and the squared distance to it."""
    lengths = centres.square().sum(dim=1)
    assigned, spread = [], []
    for part in torch.split(rows, max(1, _CHUNK_BYTES // (4 * len(centres)))):
        values = part @ centres.T
        nearest = torch.add(lengths, values, alpha=-2, out=values).min(dim=1)
        assigned.append(nearest.indices)
        spread.append(nearest.values)
    return torch.cat(assigned), (torch.cat(spread) + squares).clamp(min=0)


def _centres(rows: Tensor, assigned: Tensor, spread: Tensor, clusters: int) -> Tensor:
    """Means of the clusters; an empty one moves to one of the rows farthest from their centres."""
    sizes = torch.bincount(assigned, minlength=clusters)
    order = assigned.argsort(stable=True)
    centres = torch.segment_reduce(rows[order], "sum", lengths=sizes, axis=0)  # in a fixed order, also on a GPU
    centres /= sizes.clamp(min=1).unsqueeze(1)
    empty = (sizes == 0).nonzero().flatten()
    centres[empty] = rows[spread.argsort(descending=True, stable=True)[: len(empty)]]
    return centres
