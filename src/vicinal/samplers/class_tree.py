"""The hierarchical class tree of HTL (Ge et al., ECCV 2018): how far classes lie apart, and at
which level they meet.

It is made of class means alone, so it costs little beside the embeddings that it is made from.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from vicinal.arguments import Limits, coerce
from vicinal.distances import squared_lengths, unit_rows
from vicinal.errors import ConfigError, DataError

Linkage = Literal["single", "average", "pairwise"]
FARTHEST = 4.0  # squared distance of opposite points of the unit sphere
MOST_LEVELS = 255  # a level is held as a byte
BLOCK = 2**22  # entries of a block of rows: of all classes x all classes at most one matrix is held


@dataclass(frozen=True)
class ClassTree:
    """All classes of a training set as leaves, merged level by level where they are nearer than
    d_l.

        d(p, q) = mean_{i ∈ p, j ∈ q} ‖r_i - r_j‖² = 2 - 2 μ_p·μ_q                    Ge et al. 2018
        S_c = 1/(n² - n) Σ_{i,j ∈ c} ‖r_i - r_j‖² = 2n (1 - |μ_c|²) / (n - 1),    d_0 = mean_c S_c
        d_l = d_0 + l (4 - d_0) / L,    l = 0 ... L

    for unit vectors r with class means μ, so C classes cost O(C² D) whatever their number of
    samples. H(p, q), the level from which the two classes are one node in the next, is the first l
    at which they are merged with d_l.

    Differs: the paper does not say what merging is once nodes hold several classes. ``"single"``
        merges whatever a
    chain of classes nearer than d_l connects. ``"average"`` merges the nearest nodes first, by the
    mean distance of all their samples. ``"pairwise"`` lets each two classes have their own first l
    with d(p, q) < d_l, without a tree.

    Attributes:
        classes: label of each class, rising.
        means: μ.
        spreads: S; 0 of a class with one sample, which d_0 leaves out.
        thresholds: d_0 ... d_L.
        merges: the two classes, by their places, whose nodes meet at each of the C - 1 merges; None
            if pairwise.
        heights: the distance of the two nodes at each merge.
    """

    classes: Int[Tensor, "c"]
    means: Float[Tensor, "c d"]
    spreads: Float[Tensor, "c"]
    thresholds: Float[Tensor, "levels"]
    merges: Int[Tensor, "m 2"] | None
    heights: Float[Tensor, "m"] | None

    @classmethod
    def build(
        cls,
        embeddings: Float[Tensor, "n d"],
        labels: Integer[Tensor, "n"],
        *,
        levels: int = 16,
        linkage: Linkage = "single",
    ) -> "ClassTree":
        """The tree of some embeddings, which are put on the unit sphere first.

        Args:
            levels: L.
            linkage: what it means to merge nodes of several classes.
        """
        coerce(levels, Annotated[int, Limits(f"[1, {MOST_LEVELS}]")], "levels of a class tree")
        coerce(linkage, Linkage, "linkage")
        if not len(labels):
            raise DataError("a class tree needs at least one embedding, got none.")
        classes, numbers, sizes = torch.unique(
            labels.cpu(), return_inverse=True, return_counts=True
        )
        sums = torch.zeros(len(classes), embeddings.shape[1], dtype=torch.float64)
        directed = torch.zeros(
            len(classes), dtype=torch.float64
        )  # rows of zeros have no direction, and length 0
        step = max(1, BLOCK // embeddings.shape[1])
        for start in range(0, len(labels), step):
            rows = slice(start, start + step)
            unit = unit_rows(embeddings[rows].double()).cpu()
            sums.index_add_(0, numbers[rows], unit)
            directed.index_add_(0, numbers[rows], unit.any(dim=1).double())
        broken = classes[~sums.isfinite().all(dim=1)]
        if len(broken):  # merging would look for the nearest of them for ever
            raise DataError(
                f"a class tree was asked for, but {len(broken)} of {len(classes)} classes have "
                "embeddings that are not "
                f"finite, class {int(broken[0])} first. The network has diverged, or its inputs "
                "hold such numbers."
            )
        means, several = sums / sizes[:, None], sizes > 1
        inner = 2 * sizes * (directed / sizes - squared_lengths(means)) / (sizes - 1).clamp(min=1)
        spreads = inner.clamp(min=0).masked_fill(~several, 0)
        first = float(spreads.sum() / several.sum().clamp(min=1))
        thresholds = (
            first + torch.arange(levels + 1, dtype=torch.float64) * (FARTHEST - first) / levels
        )
        merges, heights = None, None
        if linkage != "pairwise":
            found = _single(means) if linkage == "single" else _average(means, sizes)
            merges, heights = found[0], found[1].float()
        return cls(classes, means.float(), spreads.float(), thresholds.float(), merges, heights)

    def distances(self, places: Integer[Tensor, "k"]) -> Float[Tensor, "k c"]:
        """d(p, q) of some classes, by their places, and every class."""
        return 2 - 2 * self.means[places] @ self.means.T

    def nearest_distances(self) -> Float[Tensor, "c"]:
        """Of each class d to the nearest other one; 0 where there is no other."""
        places, found = torch.arange(len(self.classes)), []
        for start in range(0, len(places), step := max(1, BLOCK // len(places))):
            part = places[start : start + step]
            distances = self.distances(part)
            distances[torch.arange(len(part)), part] = torch.inf
            found.append(distances.amin(dim=1))
        return torch.cat(found).nan_to_num(posinf=0.0)

    def nodes(self) -> Int[Tensor, "levels c"]:
        """The node in which each class lies once d_l has merged what it merges; at the last level
        there is one."""
        from scipy.sparse import coo_matrix
        from scipy.sparse.csgraph import connected_components

        if self.merges is None or self.heights is None:
            raise ConfigError(
                "nodes were asked for, but linkage='pairwise' makes no tree. Use 'single' or "
                "'average'."
            )
        count, table = len(self.classes), []
        for threshold in self.thresholds[:-1]:
            ends = self.merges[self.heights < threshold].numpy()
            graph = coo_matrix((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(count, count))
            table.append(
                torch.from_numpy(connected_components(graph, directed=False)[1].astype(np.int64))
            )
        return torch.stack([*table, torch.zeros(count, dtype=torch.int64)])

    def levels(self) -> Integer[Tensor, "c c"]:
        """H of each two classes, as bytes: of 11,318 classes 128 MB."""
        count, last = len(self.classes), len(self.thresholds) - 1
        result = torch.zeros(count, count, dtype=torch.uint8)
        step = max(1, BLOCK // count)
        nodes = None if self.merges is None else self.nodes()
        for start in range(0, count, step):
            rows = slice(start, start + step)
            if nodes is None:
                found = torch.bucketize(
                    self.distances(torch.arange(count)[rows]), self.thresholds, right=True
                )
                result[rows] = found.clamp(max=last)
            else:  # nodes only ever merge, so levels at which two are apart are the first ones
                for level in nodes[:-1]:
                    result[rows] += level[rows, None] != level
        return result.fill_diagonal_(0)


def _single(means: Float[Tensor, "c d"]) -> tuple[Int[Tensor, "m 2"], Float[Tensor, "m"]]:
    """Merges by the nearest two classes of two nodes."""
    from scipy.cluster.hierarchy import linkage

    count = len(means)
    if count < 2:
        return torch.zeros(0, 2, dtype=torch.int64), torch.zeros(0, dtype=torch.float64)
    condensed, at = np.empty(count * (count - 1) // 2), 0
    rows, step = means.float(), max(1, BLOCK // count)
    for start in range(0, count, step):
        block = (2 - 2 * rows[start : start + step] @ rows.T).clamp(min=0).numpy()
        for row, line in enumerate(block, start):
            condensed[at : at + count - 1 - row] = line[row + 1 :]
            at += count - 1 - row
    merged = linkage(condensed, "single")
    leaf = np.arange(
        2 * count - 1
    )  # a class of each node, so that a merge is an edge between two classes
    for node, (one, _, _, _) in enumerate(merged, count):
        leaf[node] = leaf[int(one)]
    return torch.from_numpy(leaf[merged[:, :2].astype(np.int64)]), torch.from_numpy(
        merged[:, 2].copy()
    )


def _average(
    means: Float[Tensor, "c d"], sizes: Int[Tensor, "c"]
) -> tuple[Int[Tensor, "m 2"], Float[Tensor, "m"]]:
    """Merges by the mean distance of the samples of two nodes, nearest first.

    By chains of nearest neighbors: two nodes that are each other's nearest merge at some time in
        any case, so their
    order does not matter. Not scipy's, which weighs classes alike whatever their number of samples.
    """
    count = len(means)
    distances = (2 - 2 * means.float() @ means.float().T).numpy()
    np.fill_diagonal(distances, np.inf)
    weight, alive = sizes.double().numpy().copy(), np.ones(count, dtype=bool)
    merges, heights, chain = (
        np.zeros((count - 1, 2), dtype=np.int64),
        np.zeros(count - 1),
        list[int](),
    )
    for number in range(count - 1):
        if not chain:
            chain.append(int(alive.argmax()))
        while True:
            here = chain[-1]
            nearest = int(distances[here].argmin())
            if len(chain) > 1 and distances[here, chain[-2]] <= distances[here, nearest]:
                break
            chain.append(nearest)
        here, there = chain.pop(), chain.pop()
        merges[number], heights[number] = (here, there), distances[here, there]
        joined = (weight[here] * distances[here] + weight[there] * distances[there]) / (
            weight[here] + weight[there]
        )
        distances[here], distances[:, here] = joined, joined
        distances[there], distances[:, there] = np.inf, np.inf
        distances[here, here] = np.inf
        weight[here] += weight[there]
        alive[there] = False
    return torch.from_numpy(merges), torch.from_numpy(heights).clamp(min=0)
