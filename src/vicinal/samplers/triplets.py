"""Batches of disjoint triplets, in three blocks."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from vicinal.samplers.sampler import BatchSampler, class_sizes, shrink


class TripletSampler(BatchSampler):
    """``triplets`` triplets of 2T different classes, in blocks ``[a; p; n]`` (as HDML's authors form them).

    Row t and row T + t are of one class, row 2T + t of another; no class stands in two triplets of a batch.

    Args:
        labels: class of each row; classes with one sample are left out.
        triplets: T, a third of the batch.
        seed: with the epoch it determines every batch.
        batches: batches per epoch; None for as many as the data fills once.

    >>> labels = [0, 0, 1, 1]
    >>> anchor, positive, negative = (labels[row] for row in TripletSampler(labels, triplets=1, seed=0).epoch(0)[0])
    >>> anchor == positive, anchor == negative
    (True, False)
    """

    layout: ClassVar[str | None] = "triplets"

    def __init__(
        self, labels: Sequence[int] | np.ndarray, *, triplets: int, seed: int, batches: int | None = None
    ) -> None:
        super().__init__(labels, classes=2 * triplets, least=2, batch_size=3 * triplets, seed=seed, batches=batches)
        self.triplets = triplets

    @classmethod
    def fitted(
        cls,
        labels: Sequence[int] | np.ndarray,
        *,
        batch_size: int,
        seed: int,
        triplets: int | None = None,
        batches: int | None = None,
    ) -> "TripletSampler":
        """Batches of ``batch_size // 3`` triplets unless ``triplets`` is given, fewer where there are fewer classes."""
        asked, there = batch_size // 3 if triplets is None else triplets, int((class_sizes(labels) >= 2).sum()) // 2
        fitted, note = shrink("triplets", asked, there, least=1, batch_size=batch_size, rows=3)
        sampler = cls(labels, triplets=fitted, seed=seed, batches=batches)
        sampler.shrunk = note
        return sampler

    def plan(self, rng: np.random.Generator, batches: int) -> Int[np.ndarray, "batches rows"]:
        chosen = self.members.deal_classes(rng, batches=batches, classes=2 * self.triplets)
        pairs = self.members.deal_rows(rng, chosen[:, : self.triplets], per_class=2)
        negatives = self.members.deal_rows(rng, chosen[:, self.triplets :], per_class=1)
        return np.concatenate([pairs[..., 0], pairs[..., 1], negatives[..., 0]], axis=1)
