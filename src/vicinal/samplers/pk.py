"""Batches of P classes with K samples each."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from vicinal.errors import ConfigError
from vicinal.samplers.sampler import BatchSampler


class PKSampler(BatchSampler):
    """``classes`` classes with ``per_class`` samples each, class by class (Hermans et al. 2017).

    Classes are dealt from a shuffled deck, and so are the samples of each class, so that all come up before one comes
    up again. A class with fewer than ``per_class`` samples is left out; ``note`` says how many are.

    Args:
        labels: class of each row.
        classes: P.
        per_class: K.
        seed: with the epoch it determines every batch.
        batches: batches per epoch; None for as many as the data fills once.
        strata: a coarser class of each row (a super-class, an alphabet); then every batch has classes of each in
            proportion to how many there are, within one.

    >>> batch = PKSampler([0, 0, 1, 1, 1], classes=2, per_class=2, seed=0).epoch(0)[0]
    >>> sorted(batch)[:2], len(batch)
    ([0, 1], 4)
    """

    layout: ClassVar[str | None] = "classes"

    def __init__(
        self,
        labels: Sequence[int] | np.ndarray,
        *,
        classes: int,
        per_class: int,
        seed: int,
        batches: int | None = None,
        strata: Sequence[int] | np.ndarray | None = None,
    ) -> None:
        super().__init__(
            labels, classes=classes, least=per_class, batch_size=classes * per_class, seed=seed, batches=batches
        )
        self.classes, self.per_class, self.strata = classes, per_class, strata
        if strata is not None and len(strata) != len(self.labels):
            raise ConfigError(f"each of {len(self.labels)} rows has a stratum, got {len(strata)} strata.")
        self._stratum = None if strata is None else self.members.strata(np.asarray(strata))

    def plan(self, rng: np.random.Generator, batches: int) -> Int[np.ndarray, "batches rows"]:
        chosen = self.members.deal_classes(rng, batches=batches, classes=self.classes, strata=self._stratum)
        return self.members.deal_rows(rng, chosen, per_class=self.per_class).reshape(batches, -1)
