"""Batches of classes with the classes nearest to them, as HTL samples (Ge et al., ECCV 2018)."""

from dataclasses import KW_ONLY, dataclass, field

import numpy as np
import torch
from jaxtyping import Int

from vicinal.arguments import Count
from vicinal.errors import DataError
from vicinal.samplers.class_tree import ClassTree
from vicinal.samplers.sampler import BatchSampler, BatchShape, Labels, fit

BLOCK = 1024  # classes whose distances to all others are held at once


@dataclass(eq=False, repr=False)
class AnchorNeighborSampler(BatchSampler):
    """``anchors`` random classes, each with its nearest classes, ``per_class`` samples of each,
    class by class.

    A batch has exactly l'm different classes: the anchors, the m - 1 nearest of each, and, where
    neighborhoods overlap, the next nearest of each anchor in turn until there are as many. Anchors
    are dealt from a shuffled deck. An epoch is a function of the seed, its number and the tree:
    ``epoch(number, tree)``, or ``sampler.tree = tree`` before each pass of a ``DataLoader``. While
    there is no tree, all classes of a batch are random.

    Paper to code: l' = ``anchors``, m = ``neighborhood``, t = ``per_class``.

    Differs: the paper does not discuss classes that are near to two anchors; without more classes
        in their place its
    number of triplets Z_M would not be that of the batch.

    Args:
        labels: class of each row; classes with fewer than ``per_class`` samples are left out.
        anchors: l'.
        neighborhood: m, an anchor and its m - 1 nearest classes.
        per_class: t.
        seed: with the epoch and the tree it determines every batch.
        batches: batches per epoch; None for as many as the data fills once.
    """

    _: KW_ONLY
    anchors: Count
    neighborhood: Count
    per_class: Count
    tree: ClassTree | None = field(default=None, init=False)

    layout = "anchor_neighbors"

    def __post_init__(self) -> None:
        super().__post_init__()
        found, sizes = np.unique(self.labels, return_counts=True)
        self._classes = found[sizes >= self.per_class]  # as the decks number them

    def shape(self) -> BatchShape:
        classes = self.anchors * self.neighborhood
        return BatchShape(classes, self.per_class, classes * self.per_class)

    @classmethod
    def fitted(
        cls,
        labels: Labels,
        *,
        batch_size: int,
        seed: int,
        anchors: int | None = None,
        neighborhood: int | None = None,
        per_class: int = 4,
        batches: int | None = None,
    ) -> "AnchorNeighborSampler":
        """Return batches of ``batch_size // per_class`` classes in neighborhoods of 4, smaller
        where the data are.

        ``anchors`` and ``neighborhood`` take the place of that number of classes.
        """
        near = 4 if neighborhood is None else neighborhood
        if anchors is None:
            anchors = max(1, batch_size // max(1, per_class * near))
            near = min(near, batch_size // max(1, per_class)) if neighborhood is None else near
        classes, samples = fit(labels, anchors * near, per_class, batch_size)
        asked = (anchors, near, per_class)
        near = min(near, classes)
        got = max(1, min(anchors, classes // near)), near, samples
        sizes = dict(zip(("anchors", "neighborhood", "per_class"), got, strict=True))
        made = cls(labels, **sizes, seed=seed, batches=batches)
        return made.noted("{} neighborhoods of {} classes x {} samples", got, asked)

    def epoch(self, number: int, tree: ClassTree | None = None) -> list[list[int]]:
        """Return the batches of epoch ``number``, by the classes' distances in ``tree`` or in
        ``self.tree``."""
        self.tree = tree or self.tree
        return super().epoch(number)

    def plan(self, rng: np.random.Generator, batches: int) -> Int[np.ndarray, "batches rows"]:
        if self.tree is None:
            chosen = self.members.deal_classes(rng, batches=batches, classes=self.shape().classes)
        else:
            anchors = self.members.deal_classes(rng, batches=batches, classes=self.anchors)
            ranked = self._ranked(self.tree)
            chosen = np.array([self._neighborhoods(batch, ranked) for batch in anchors])
        return self.members.deal_rows(rng, chosen, per_class=self.per_class).reshape(batches, -1)

    def _ranked(self, tree: ClassTree) -> Int[np.ndarray, "c k"]:
        """Return for each class in use the classes in use from near to far, as many as a batch
        could ask for."""
        known = tree.classes.numpy()
        places = np.searchsorted(known, self._classes).clip(max=len(known) - 1)
        if (known[places] != self._classes).any():
            missing = self._classes[known[places] != self._classes]
            raise DataError(
                f"neighbors of {len(self._classes)} classes were asked for, but {len(missing)} of "
                "them are not in the "
                f"tree, class {missing[0]} first. Build it from samples of all classes."
            )
        here = torch.from_numpy(places)
        wanted = min(self.anchors * self.neighborhood, len(places)) - 1
        blocks = []
        for start in range(0, len(places), BLOCK):
            part = torch.arange(start, min(start + BLOCK, len(places)))
            distances = tree.distances(here[part])[:, here]
            distances[torch.arange(len(part)), part] = torch.inf
            blocks.append(distances.topk(wanted, largest=False, sorted=True).indices)
        return np.asarray(torch.cat(blocks))

    def _neighborhoods(
        self, anchors: Int[np.ndarray, "l"], ranked: Int[np.ndarray, "c k"]
    ) -> list[int]:
        """Return the anchors and their neighbors: first all that must be there, then, in turn, the
        next nearest."""
        near = self.neighborhood - 1
        musts = ranked[anchors, :near].ravel()
        more = ranked[anchors, near:].T.ravel()
        different = dict.fromkeys([*anchors.tolist(), *musts.tolist(), *more.tolist()])
        return list(different)[: self.anchors * self.neighborhood]
