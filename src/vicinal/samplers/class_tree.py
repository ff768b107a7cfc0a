"""The hierarchical class tree of HTL (Ge et al., ECCV 2018): how far classes lie apart, and at
which level they meet; and batches of classes with those nearest to them.

The tree is made of class means alone, so it costs little beside the embeddings that they are of.
"""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from numpy.random import Generator
from torch import Tensor

from vicinal.arguments import Count, Limits, Natural, coerce
from vicinal.distances import squared_lengths, unit_rows
from vicinal.errors import DataError
from vicinal.samplers.sampler import BatchSampler, BatchShape, Chosen

FARTHEST = 4.0  # squared distance of opposite points of the unit sphere
MOST_LEVELS = 255  # a level is held as a byte
CLASSES = 1024  # whose distances to all others are held at once
BLOCK = 2**22  # entries of a block of rows: of all classes x all classes at most one matrix is held


@dataclass(frozen=True)
class ClassTree:
    """All classes of a training set as leaves, merged level by level where they are nearer than
    d_l.

        d(p, q) = mean_{i ∈ p, j ∈ q} ‖r_i - r_j‖² = 2 - 2 μ_p·μ_q                    Ge et al. 2018
        S_c = 1/(n² - n) Σ_{i,j ∈ c} ‖r_i - r_j‖² = 2n (1 - |μ_c|²) / (n - 1),    d_0 = mean_c S_c
        d_l = d_0 + l (4 - d_0) / L,    l = 0 ... L

    for unit vectors r with class means μ, so C classes cost O(C² D) for any number of
    samples. H(p, q), the level from which the two classes are one node in the next, is the first l
    at which they are merged with d_l.

    Differs: the paper does not say what merging is once nodes hold several classes. Here what a
    chain of classes nearer than d_l connects is merged. Of a given hierarchy, H counts the levels
    at which two classes are of different groups, and d_l is the mean distance of classes that meet
    at l, but no less than d_{l-1} and d_0: evenly spaced, a few levels would ask most classes to be
    opposite points.

    Attributes:
        classes: label of each class, rising.
        means: μ.
        spreads: S; 0 of a class with one sample, which d_0 leaves out.
        thresholds: d_0 ... d_L.
        merges: the two nodes that meet at each of the C - 1 merges, and their distance, as SciPy's
            ``linkage`` gives them.
        groups: of a given hierarchy the group of each class, from the narrowest level to the
            widest; None of one that is built.
    """

    classes: Int[Tensor, "c"]
    means: Float[Tensor, "c d"]
    spreads: Float[Tensor, "c"]
    thresholds: Float[Tensor, "levels"]
    merges: Float[Tensor, "m 4"]
    groups: Int[Tensor, "c h"] | None = None

    @classmethod
    def build(
        cls,
        embeddings: Float[Tensor, "n d"],
        labels: Integer[Tensor, "n"],
        *,
        levels: int = 16,
        groups: Int[Tensor, "n h"] | None = None,
    ) -> "ClassTree":
        """The tree of some embeddings, which are put on the unit sphere first.

        Args:
            levels: L.
            groups: of a given hierarchy the groups of each row, from the narrowest to the widest.
        """
        coerce(levels, Annotated[int, Limits(f"[1, {MOST_LEVELS}]")], "levels of a class tree")
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
        merges = _single_linkage(means.float()) if groups is None else torch.zeros(0, 4)
        tree = cls(classes, means.float(), spreads.float(), thresholds.float(), merges)
        if groups is None:
            return tree
        of_class = groups.new_zeros(len(classes), groups.shape[1]).cpu()
        tree = replace(tree, groups=of_class.index_put_((numbers,), groups.cpu()))
        apart = tree.mean_distances(of_class).clamp(min=first).cummax(dim=0).values
        return replace(tree, thresholds=apart.float())

    def mean_distances(self, groups: Int[Tensor, "c h"]) -> Float[Tensor, "levels"]:
        """Return the mean d of classes that meet at each level of a given hierarchy."""
        every = torch.arange(len(groups))
        sums = torch.zeros(groups.shape[1] + 1, dtype=torch.float64)
        counts = torch.zeros_like(sums)
        for place, far in zip(torch.split(every, CLASSES), self.apart(every), strict=True):
            level = self.levels_between(place, every).flatten().long()
            apart = far.flatten().double()
            sums += level.bincount(apart.nan_to_num(posinf=0.0), len(sums))
            counts += level.bincount(apart.isfinite().double(), len(sums))
        return sums / counts.clamp(min=1)

    def levels_between(
        self, places: Integer[Tensor, "k"], others: Integer[Tensor, "m"]
    ) -> Integer[Tensor, "k m"]:
        """H of some classes and others, in a given hierarchy; 0 in one that is built."""
        found = torch.zeros(len(places), len(others), dtype=torch.uint8)
        for group in () if self.groups is None else self.groups.unbind(dim=1):
            found += group[places][:, None] != group[others]
        return found

    def distances(self, places: Integer[Tensor, "k"]) -> Float[Tensor, "k c"]:
        """d(p, q) of some classes, by their places, and every class."""
        return 2 - 2 * self.means[places] @ self.means.T

    def nearest_distances(self) -> Float[Tensor, "c"]:
        """Of each class d to the nearest other one; 0 where there is no other."""
        every = torch.arange(len(self.classes))
        nearest = torch.cat([part.amin(dim=1) for part in self.apart(every)])
        return nearest.nan_to_num(posinf=0.0)

    def apart(self, places: Integer[Tensor, "k"]) -> Iterator[Float[Tensor, "b k"]]:
        """Give d of some classes and all of these, block by block; of a class and itself it is
        infinite."""
        for part in torch.split(torch.arange(len(places)), CLASSES):
            distances = self.distances(places[part])[:, places]
            distances[torch.arange(len(part)), part] = torch.inf
            yield distances

    def levels(self) -> Integer[Tensor, "c c"]:
        """H of each two classes, as bytes: of 11,318 classes 128 MB."""
        from scipy.cluster.hierarchy import fcluster

        count = len(self.classes)
        every = torch.arange(count)
        result = self.levels_between(every, every)
        if self.groups is not None:
            return result
        # Nodes only ever merge: they are apart at first.
        for threshold in self.thresholds[:-1].tolist() if count > 1 else ():
            below = np.nextafter(threshold, -np.inf)
            node = torch.from_numpy(fcluster(self.merges.numpy(), below, "distance"))
            result += node[:, None] != node
        return result


def _single_linkage(means: Float[Tensor, "c d"]) -> Float[Tensor, "m 4"]:
    """Merge nodes by their two nearest classes."""
    from scipy.cluster.hierarchy import linkage

    count = len(means)
    if count < 2:
        return torch.zeros(0, 4, dtype=torch.float64)
    condensed = np.empty(count * (count - 1) // 2)
    at = 0
    for row, mean in enumerate(means[:-1], 1):
        condensed[at : at + count - row] = (2 - 2 * means[row:] @ mean).clamp(min=0)
        at += count - row
    return torch.from_numpy(linkage(condensed, "single"))


@dataclass(eq=False, repr=False)
class AnchorNeighborSampler(BatchSampler):
    """``anchors`` random classes, each with its nearest classes, ``per_class`` samples of each,
    class by class.

    A batch has exactly l'm different classes: the anchors, the m - 1 nearest of each, and, where
    neighborhoods overlap, the next nearest of each anchor in turn until there are as many. Anchors
    are dealt from a shuffled deck. An epoch is a function of the seed, its number and the tree:
    set ``sampler.tree`` before each. While there is no tree, all classes of a batch are random.

    Paper to code: l' = ``anchors``, m = ``neighborhood``, t = ``per_class``.

    Differs: the paper does not discuss classes that are near to two anchors; without more classes
        in their place its number of triplets Z_M would not be that of the batch.

    Args:
        labels: class of each row; classes with fewer than ``per_class`` samples are left out.
        anchors: l'; 0 for as many as fill ``batch_size``.
        neighborhood: m, an anchor and its m - 1 nearest classes; 0 for 4.
        per_class: t.
        seed: with the epoch and the tree it determines every batch.
        batches: batches per epoch; None for as many as the data fills once.
    """

    _: KW_ONLY
    anchors: Natural = 0
    neighborhood: Natural = 0
    per_class: Count = 4
    tree: ClassTree | None = field(default=None, init=False)

    layout = "anchor_neighbors"

    def shape(self) -> BatchShape:
        classes = self.anchors * self.neighborhood
        return BatchShape(classes, self.per_class, classes * self.per_class)

    def fit(self) -> None:
        """Take neighborhoods of 4 classes unless told otherwise, smaller where the data are."""
        classes = self.batch_size // self.per_class
        near = self.neighborhood or (4 if self.anchors else min(4, classes))
        anchors = self.anchors or max(1, classes // (self.neighborhood or 4))
        asked = (anchors, near, self.per_class)
        classes, self.per_class = self.fill(anchors * near, self.per_class)
        self.neighborhood = min(near, classes)
        self.anchors = max(1, min(anchors, classes // self.neighborhood))
        got = (self.anchors, self.neighborhood, self.per_class)
        self.noted("{} neighborhoods of {} classes x {} samples", got, asked)

    def choose(self, rng: Generator, batches: int) -> Chosen:
        if self.tree is None:
            return super().choose(rng, batches)
        anchors = self.members.deal_classes(rng, batches=batches, classes=self.anchors)
        ranked = self._ranked(self.tree)
        near = self.neighborhood - 1
        neighborhoods = []
        for batch in anchors:  # first all that must be there, then, in turn, the next nearest
            several = [batch, ranked[batch, :near].ravel(), ranked[batch, near:].T.ravel()]
            different = dict.fromkeys(np.concatenate(several).tolist())
            neighborhoods.append(list(different)[: self.anchors * self.neighborhood])
        return np.array(neighborhoods)

    def _ranked(self, tree: ClassTree) -> Int[np.ndarray, "c k"]:
        """Return for each class in use the classes in use from near to far, as many as a batch
        could ask for."""
        known = tree.classes.numpy()
        classes = self.members.classes  # as the decks number them
        places = np.searchsorted(known, classes).clip(max=len(known) - 1)
        if (known[places] != classes).any():
            missing = classes[known[places] != classes]
            raise DataError(
                f"neighbors of {len(classes)} classes were asked for, but {len(missing)} of "
                f"them are not in the tree, class {missing[0]} first. Build it from samples of all "
                "classes."
            )
        here = torch.from_numpy(places)
        wanted = min(self.anchors * self.neighborhood, len(places)) - 1
        near = []
        for place, far in zip(torch.split(here, CLASSES), tree.apart(here), strict=True):
            ranked = far + 2 * FARTHEST * tree.levels_between(place, here)  # kin first
            near.append(ranked.topk(wanted, largest=False).indices)
        return np.asarray(torch.cat(near))
