"""Batches of classes with the classes nearest to them, as HTL samples (Ge et al., ECCV 2018)."""

from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Int

from vicinal.errors import ConfigError, DataError
from vicinal.samplers.class_tree import ClassTree
from vicinal.samplers.sampler import Labels, PKSampler, fit, generator

BLOCK = 1024  # classes whose distances to all others are held at once


class AnchorNeighborSampler:
    """``anchors`` random classes, each with its nearest classes, ``per_class`` samples of each, class by class.

    A batch has exactly l'm different classes: the anchors, the m - 1 nearest of each, and, where neighborhoods
    overlap, the next nearest of each anchor in turn until there are as many. Anchors are dealt from a shuffled deck. An
    epoch is a function of the seed, its number and the tree.

    Paper to code: l' = ``anchors``, m = ``neighborhood``, t = ``per_class``.

    Differs: the paper does not discuss classes that are near to two anchors; without more classes in their place its
    number of triplets Z_M would not be that of the batch.

    Args:
        labels: class of each row; classes with fewer than ``per_class`` samples are left out.
        anchors: l'.
        neighborhood: m, an anchor and its m - 1 nearest classes.
        per_class: t.
        seed: with the epoch and the tree it determines every batch.
        batches: batches per epoch; None for as many as the data fills once.
    """

    layout: ClassVar[str | None] = "anchor_neighbors"
    shrunk: str | None = None  # how a fitted sampler differs from what was asked for

    def __init__(
        self,
        labels: Labels,
        *,
        anchors: int,
        neighborhood: int,
        per_class: int,
        seed: int,
        batches: int | None = None,
    ) -> None:
        for name, value in (("anchors", anchors), ("neighborhood", neighborhood)):
            if value < 1:
                raise ConfigError(f"AnchorNeighborSampler needs {name} of at least 1, got {value}.")
        self.anchors, self.neighborhood, self.per_class, self.seed = anchors, neighborhood, per_class, seed
        found, sizes = np.unique(np.asarray(labels), return_counts=True)
        self._classes = found[sizes >= per_class]  # as the decks number them
        classes = anchors * neighborhood
        self._rows = PKSampler(labels, classes=classes, per_class=per_class, seed=seed, batches=batches)

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
        """Return batches of ``batch_size // per_class`` classes in neighborhoods of 4, smaller where the data are.

        ``anchors`` and ``neighborhood`` take the place of that number of classes.
        """
        near = 4 if neighborhood is None else neighborhood
        if anchors is None:
            anchors = max(1, batch_size // max(1, per_class * near))
            near = min(near, batch_size // max(1, per_class)) if neighborhood is None else near
        classes, samples = fit(labels, anchors * near, per_class, batch_size)
        asked, near = (anchors, near, per_class), min(near, classes)
        made = cls(
            labels,
            anchors=max(1, min(anchors, classes // near)),
            neighborhood=near,
            per_class=samples,
            seed=seed,
            batches=batches,
        )
        if (got := (made.anchors, made.neighborhood, made.per_class)) != asked:
            made.shrunk = (
                f"batches have {got[0]} neighborhoods of {got[1]} classes x {got[2]} samples instead of {asked[0]} of "
                f"{asked[1]} x {asked[2]}: the training part has no more."
            )
        return made

    @property
    def note(self) -> str | None:
        return " ".join(note for note in (self._rows.note, self.shrunk) if note) or None

    @property
    def batch_size(self) -> int:
        return self._rows.batch_size

    def __len__(self) -> int:
        return len(self._rows)

    def epoch(self, number: int, tree: ClassTree) -> list[list[int]]:
        """Return the batches of epoch ``number``, by the classes' distances in ``tree``."""
        rng, members = generator(self.seed, number), self._rows.members
        anchors = members.deal_classes(rng, batches=len(self), classes=self.anchors)
        ranked = self._ranked(tree)
        chosen = np.array([self._neighborhoods(batch, ranked) for batch in anchors])
        plan: list[list[int]] = members.deal_rows(rng, chosen, per_class=self.per_class).reshape(len(self), -1).tolist()
        return plan

    def _ranked(self, tree: ClassTree) -> Int[np.ndarray, "c k"]:
        """Return for each class in use the classes in use from near to far, as many as a batch could ask for."""
        known = tree.classes.numpy()
        places = np.searchsorted(known, self._classes).clip(max=len(known) - 1)
        if (known[places] != self._classes).any():
            missing = self._classes[known[places] != self._classes]
            raise DataError(
                f"neighbors of {len(self._classes)} classes were asked for, but {len(missing)} of them are not in the "
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

    def _neighborhoods(self, anchors: Int[np.ndarray, "l"], ranked: Int[np.ndarray, "c k"]) -> list[int]:
        """Return the anchors and their neighbors: first all that must be there, then, in turn, the next nearest."""
        near = self.neighborhood - 1
        musts, more = ranked[anchors, :near].ravel(), ranked[anchors, near:].T.ravel()
        different = dict.fromkeys([*anchors.tolist(), *musts.tolist(), *more.tolist()])
        return list(different)[: self.anchors * self.neighborhood]
