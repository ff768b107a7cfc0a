"""Smart mining: negatives from the neighbor graph of the whole training set (after Harwood et al.,
ICCV 2017)."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from vicinal.arguments import Count, Share, check_arguments
from vicinal.distances import pairwise_distances
from vicinal.errors import ConfigError, DataError
from vicinal.tuples import Embeddings, Triplets, positives

# neighbors asked for to step over an anchor's own class; bounds the graph for huge classes
MOST_OF_A_CLASS = 1024
Search = Callable[
    [Tensor, int], Tensor
]  # rows [n d] and k -> the k nearest other rows of each [n k], -1 for none
CHUNK = 2**24  # distances held at once: 64 MiB of float32
FLAT = (
    2000  # rows up to which faiss searches all of them; below 39 rows a cell its clustering warns
)


@torch.no_grad()
def exact_neighbors(rows: Embeddings, k: int) -> Int[Tensor, "n k"]:
    """Return the ``k`` nearest other rows of each row, nearest first; -1 where there are no more.

    >>> exact_neighbors(torch.tensor([[0.0], [1.0], [3.0]]), 2).tolist()
    [[1, 2], [0, 2], [1, 0]]
    """
    found, most = [], min(k, len(rows) - 1)
    step = max(1, CHUNK // max(1, len(rows)))
    for start in range(0, len(rows), step):
        distances = pairwise_distances(rows[start : start + step], rows, squared=True)
        distances.diagonal(start).fill_(torch.inf)
        found.append(distances.topk(most, dim=1, largest=False).indices)
    together = torch.cat(found) if found else rows.new_empty(0, max(0, most), dtype=torch.long)
    return torch.nn.functional.pad(together, (0, k - together.shape[1]), value=-1)


@torch.no_grad()
def approximate_neighbors(rows: Embeddings, k: int) -> Int[Tensor, "n k"]:
    """Return the same from faiss, equal in every run: √n cells of rows, of which a sixteenth, at
    least 16, is searched.

    Neighbors beyond these cells are missed, which for mining hardly matters.
    """
    try:
        import faiss
    except ImportError as error:
        raise ConfigError(
            "approximate neighbors need faiss, which is not installed. "
            "Run `pip install 'vicinal[faiss]'`, or search with `exact_neighbors`."
        ) from error
    host = rows.detach().float().cpu().contiguous().numpy()
    cells = int(len(host) ** 0.5)
    index = faiss.index_factory(host.shape[1], f"IVF{cells},Flat" if len(host) > FLAT else "Flat")
    if len(host) > FLAT:
        index.train(host)
        faiss.extract_index_ivf(index).nprobe = max(16, cells // 16)
    index.add(host)
    _, ids = index.search(host, k + 1)  # a row finds itself, or a duplicate before itself
    found = torch.from_numpy(ids).to(rows.device)
    itself = found == torch.arange(len(found), device=found.device)[:, None]
    return found.gather(1, itself.int().argsort(dim=1, stable=True)[:, :k])


@dataclass(eq=False)
class SmartMiner:
    """Negatives that stand a wanted number of places from the anchor among all rows of other
    classes.

    A batch hardly ever holds the rows that an anchor is confused with; the neighbors of the anchor
    in the training set are just those. Once an epoch ``refresh`` takes the embeddings of all rows
    and keeps for each the ``neighbors`` nearest rows of other classes, in order. ``mine`` gives
    triplets of training rows to load: a positive drawn from the anchor's class, and a negative
        drawn around the place that ``hardness`` names, 1 for the nearest and 0 for the last
    in the list. ``adapt`` moves it by what training reports: harder when few triplets still have a
    loss, easier when nearly all do.

    Differs: the paper builds its own approximate graph (FANNG) and lets a controller set the place
        from the loss; here
    the search is handed in, and the controller is proportional, hardness += rate · (target -
    active).

    >>> labels = torch.tensor([0, 0, 1, 1])
    >>> miner = SmartMiner(labels, neighbors=2, hardness=1.0, spread=0.0)
    >>> miner.refresh(torch.tensor([[0.0], [1.0], [3.0], [9.0]]))
    >>> triplets = miner.mine(torch.tensor([1]), torch.Generator().manual_seed(0))
    >>> [rows.tolist() for rows in triplets]  # anchor, positive and the nearest negative, as rows of the training set
    [[1], [0], [2]]

    Args:
        labels: class of each training row.
        neighbors: rows of other classes kept for each row.
        hardness: the wanted place at the start, 0 to 1.
        spread: half the width of the drawing about that place, as a share of the list.
        target: share of mined triplets that should have a loss above 0.
        rate: how fast hardness follows.
        search: ``exact_neighbors``, ``approximate_neighbors`` (faiss), or any function of rows and
            k like them.
    """

    labels: Integer[Tensor, "rows"]
    _: KW_ONLY
    neighbors: Count = 64
    hardness: Share = 0.5
    spread: Share = 0.1
    target: Share = 0.5
    rate: float = 0.1
    search: Search = exact_neighbors
    graph: Int[Tensor, "rows k"] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        check_arguments(self)
        self.labels = self.labels.long()

    @torch.no_grad()
    def refresh(self, embeddings: Float[Tensor, "rows d"]) -> None:
        """Take the neighbors of all training rows from their present embeddings, in the rows'
        order."""
        if len(embeddings) != len(self.labels):
            raise DataError(
                f"smart mining was set up for {len(self.labels)} training rows, got "
                f"{len(embeddings)} embeddings. "
                f"Embed the training rows, all of them and in their order."
            )
        labels = self.labels.to(embeddings.device)
        largest = int(torch.unique(labels, return_counts=True)[1].max()) if len(labels) else 0
        found = self.search(embeddings, self.neighbors + min(largest, MOST_OF_A_CLASS))
        other = (labels[found.clamp(min=0)] != labels[:, None]) & (found >= 0)
        order = (
            (~other).int().argsort(dim=1, stable=True)[:, : self.neighbors]
        )  # other classes first, nearest first
        self.graph = found.gather(1, order).masked_fill_(~other.gather(1, order), -1)

    def mine(self, rows: Integer[Tensor, "n"], generator: torch.Generator) -> Triplets:
        """Mine one triplet for each of these training rows that has a positive and a neighbor of
        another class."""
        if self.graph is None:
            raise ConfigError(
                "smart mining has no neighbors yet. Call `refresh` with all rows' embeddings first."
            )
        rows = rows.long().to(self.graph.device)
        labels, listed = self.labels.to(self.graph.device), self.graph[rows]
        columns, keep = positives(labels[rows], labels, rows)
        same, others = keep.sum(dim=1), (listed >= 0).sum(dim=1)
        formed = (same > 0) & (others > 0)
        if not columns.shape[1] or not formed.any():
            return Triplets(*rows.new_empty(3, 0))
        draws = torch.rand(2, len(rows), generator=generator, device=generator.device).to(
            rows.device
        )
        positive = torch.minimum((draws[0] * same).long(), same - 1).clamp(min=0)
        wanted = 1 - self.hardness + self.spread * (2 * draws[1] - 1)
        place = (wanted.clamp(0, 1) * (others - 1)).round().long().clamp(min=0)
        chosen = (
            part.gather(1, at[:, None]).squeeze(dim=1)
            for part, at in ((columns, positive), (listed, place))
        )
        return Triplets(*(part[formed] for part in (rows, *chosen)))

    def adapt(self, active: float) -> None:
        """Ask for harder negatives if fewer than ``target`` of the triplets have a loss, else for
        easier ones."""
        self.hardness = min(1.0, max(0.0, self.hardness + self.rate * (self.target - active)))

    def state_dict(self) -> dict[str, Any]:
        return {"hardness": self.hardness, "graph": self.graph}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.hardness, self.graph = state["hardness"], state["graph"]
