"""Batches of N pairs, each of its own class, in two blocks."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from vicinal.samplers.sampler import BatchSampler, class_sizes, shrink


class NPairSampler(BatchSampler):
    """``classes`` classes with two samples each, in blocks ``[a; p]``: row i and row N + i are a pair (Sohn 2016).

    Args:
        labels: class of each row; classes with one sample are left out.
        classes: N, half the batch.
        seed: with the epoch it determines every batch.
        batches: batches per epoch; None for as many as the data fills once.

    >>> labels = [0, 0, 1, 1, 2]
    >>> first, second, third, fourth = (labels[row] for row in NPairSampler(labels, classes=2, seed=0).epoch(0)[0])
    >>> first == third, second == fourth, first == second
    (True, True, False)
    """

    layout: ClassVar[str | None] = "pairs"

    def __init__(
        self, labels: Sequence[int] | np.ndarray, *, classes: int, seed: int, batches: int | None = None
    ) -> None:
        super().__init__(labels, classes=classes, least=2, batch_size=2 * classes, seed=seed, batches=batches)
        self.classes = classes

    @classmethod
    def fitted(
        cls,
        labels: Sequence[int] | np.ndarray,
        *,
        batch_size: int,
        seed: int,
        classes: int | None = None,
        batches: int | None = None,
    ) -> "NPairSampler":
        """Batches of ``batch_size // 2`` pairs unless ``classes`` is given, fewer where there are fewer classes."""
        asked, there = batch_size // 2 if classes is None else classes, int((class_sizes(labels) >= 2).sum())
        fitted, note = shrink("pairs", asked, there, least=2, batch_size=batch_size, rows=2)
        sampler = cls(labels, classes=fitted, seed=seed, batches=batches)
        sampler.shrunk = note
        return sampler

    def plan(self, rng: np.random.Generator, batches: int) -> Int[np.ndarray, "batches rows"]:
        chosen = self.members.deal_classes(rng, batches=batches, classes=self.classes)
        pairs = self.members.deal_rows(rng, chosen, per_class=2)
        return pairs.swapaxes(1, 2).reshape(batches, -1)
