"""Nearest rows of a training set, as smart mining asks for them: exact in chunks, or approximate through faiss."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vicinal.distances import pairwise_distances
from vicinal.errors import ConfigError

Search = Callable[[Tensor, int], Tensor]  # rows [n d] and k -> the k nearest other rows of each [n k], -1 for none
CHUNK = 2**24  # distances held at once: 64 MiB of float32
FLAT = 2000  # rows up to which faiss searches all of them; below 39 rows a cell its clustering warns


@torch.no_grad()
def exact_neighbors(rows: Float[Tensor, "n d"], k: int) -> Int[Tensor, "n k"]:
    """The ``k`` nearest other rows of each row, nearest first; -1 where there are no more.

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
def approximate_neighbors(rows: Float[Tensor, "n d"], k: int) -> Int[Tensor, "n k"]:
    """The same from faiss, equal in every run: √n cells of rows, of which a sixteenth, at least 16, is searched.

    Neighbors beyond these cells are missed, which for mining hardly matters.
    """
    try:
        import faiss
    except ImportError as error:
        raise ConfigError(
            "approximate neighbours are sought with faiss, which is not installed. "
            "`pip install faiss-cpu`, or search with `exact_neighbors`."
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
