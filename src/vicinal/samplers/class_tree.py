"""The hierarchical class tree of HTL (Ge et al., ECCV 2018): how far classes lie apart, and at
which level they meet.

It is made of class means alone, so it costs little beside the embeddings that it is made from.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from vicinal.arguments import Limits, coerce
from vicinal.distances import squared_lengths, unit_rows
from vicinal.errors import DataError

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

    Differs: the paper does not say what merging is once nodes hold several classes. Here whatever a
    chain of classes nearer than d_l connects is merged.

    Attributes:
        classes: label of each class, rising.
        means: μ.
        spreads: S; 0 of a class with one sample, which d_0 leaves out.
        thresholds: d_0 ... d_L.
        merges: the two classes, by their places, whose nodes meet at each of the C - 1 merges.
        heights: the distance of the two nodes at each merge.
    """

    classes: Int[Tensor, "c"]
    means: Float[Tensor, "c d"]
    spreads: Float[Tensor, "c"]
    thresholds: Float[Tensor, "levels"]
    merges: Int[Tensor, "m 2"]
    heights: Float[Tensor, "m"]

    @classmethod
    def build(
        cls,
        embeddings: Float[Tensor, "n d"],
        labels: Integer[Tensor, "n"],
        *,
        levels: int = 16,
    ) -> "ClassTree":
        """The tree of some embeddings, which are put on the unit sphere first.

        Args:
            levels: L.
        """
        coerce(levels, Annotated[int, Limits(f"[1, {MOST_LEVELS}]")], "levels of a class tree")
        if not len(labels):
            raise DataError("a class tree needs at least one embedding, got none.")
        classes, numbers, sizes = torch.unique(
            labels.cpu(), return_inverse=True, return_counts=True
        )
        sums = torch.zeros(len(classes), embeddings.shape[1], dtype=torch.float64)
        # rows of zeros have no direction, and length 0
        directed = torch.zeros(len(classes), dtype=torch.float64)
        step = max(1, BLOCK // embeddings.shape[1])
        for start in range(0, len(labels), step):
            rows = slice(start, start + step)
            unit = unit_rows(embeddings[rows].double()).cpu()
            sums.index_add_(0, numbers[rows], unit)
            directed.index_add_(0, numbers[rows], unit.any(dim=1).double())
        means = sums / sizes[:, None]
        several = sizes > 1
        inner = 2 * sizes * (directed / sizes - squared_lengths(means)) / (sizes - 1).clamp(min=1)
        spreads = inner.clamp(min=0).masked_fill(~several, 0)
        first = float(spreads.sum() / several.sum().clamp(min=1))
        shares = torch.arange(levels + 1, dtype=torch.float64) / levels
        thresholds = first + shares * (FARTHEST - first)
        merges, heights = _single(means)
        return cls(
            classes, means.float(), spreads.float(), thresholds.float(), merges, heights.float()
        )

    def distances(self, places: Integer[Tensor, "k"]) -> Float[Tensor, "k c"]:
        """d(p, q) of some classes, by their places, and every class."""
        return 2 - 2 * self.means[places] @ self.means.T

    def nearest_distances(self) -> Float[Tensor, "c"]:
        """Of each class d to the nearest other one; 0 where there is no other."""
        found = []
        for part in torch.split(torch.arange(len(self.classes)), BLOCK // len(self.classes) + 1):
            distances = self.distances(part)
            distances[torch.arange(len(part)), part] = torch.inf
            found.append(distances.amin(dim=1))
        return torch.cat(found).nan_to_num(posinf=0.0)

    def levels(self) -> Integer[Tensor, "c c"]:
        """H of each two classes, as bytes: of 11,318 classes 128 MB."""
        from scipy.sparse import coo_matrix
        from scipy.sparse.csgraph import connected_components

        count = len(self.classes)
        result = torch.zeros(count, count, dtype=torch.uint8)
        for threshold in self.thresholds[:-1]:  # nodes only ever merge: they are apart at first
            ends = self.merges[self.heights < threshold].numpy()
            graph = coo_matrix((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(count, count))
            node = torch.from_numpy(connected_components(graph, directed=False)[1])
            for rows in torch.split(torch.arange(count), BLOCK // count + 1):
                result[rows] += node[rows, None] != node
        return result


def _single(means: Float[Tensor, "c d"]) -> tuple[Int[Tensor, "m 2"], Float[Tensor, "m"]]:
    """Merges by the nearest two classes of two nodes."""
    from scipy.cluster.hierarchy import linkage

    count = len(means)
    if count < 2:
        return torch.zeros(0, 2, dtype=torch.int64), torch.zeros(0, dtype=torch.float64)
    condensed = np.empty(count * (count - 1) // 2)
    at = 0
    for row, mean in enumerate(means.float()[:-1], 1):
        others = (2 - 2 * means[row:].float() @ mean).clamp(min=0)
        condensed[at : at + count - row] = others
        at += count - row
    merged = linkage(condensed, "single")
    # A class of each node, so that a merge is an edge between two classes.
    leaf = np.arange(2 * count - 1)
    for node, (one, _, _, _) in enumerate(merged, count):
        leaf[node] = leaf[int(one)]
    edges = torch.from_numpy(leaf[merged[:, :2].astype(np.int64)])
    return edges, torch.from_numpy(merged[:, 2].copy())
