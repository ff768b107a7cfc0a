"""Batches of classes and samples for data that nobody has counted yet: as large as asked for, or as there is."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from vicinal.errors import ConfigError
from vicinal.sampling.sampler import BatchSampler

FEWEST = 2  # classes to tell apart, and samples of each to bring together


class FittedSampler(BatchSampler):
    """``PKSampler`` where the data may be smaller than the batch; ``note`` says so when they are.

    First as many classes as were asked for, or all that have two samples; then as many samples of each, up to
    ``per_class``, as that many classes have.

    Args:
        labels: class of each row; classes with one sample are left out.
        classes: P at most.
        per_class: K at most.
        seed: with the epoch it determines every batch.
        batches: batches per epoch; None for as many as the data fills once.

    >>> sampler = FittedSampler([0, 0, 0, 1, 1, 1], classes=16, per_class=4, seed=0)
    >>> sampler.classes, sampler.per_class
    (2, 3)
    """

    def __init__(
        self,
        labels: Sequence[int] | np.ndarray,
        *,
        classes: int,
        per_class: int,
        seed: int,
        batches: int | None = None,
    ) -> None:
        if min(classes, per_class) < FEWEST:
            raise ConfigError(
                f"a batch needs {FEWEST} classes with {FEWEST} samples each, but classes={classes} and "
                f"per_class={per_class} came."
            )
        self._asked = classes, per_class
        _, sizes = np.unique(np.asarray(labels), return_counts=True)
        self.classes, self.per_class = _fit(sizes, classes, per_class)
        super().__init__(
            labels,
            classes=self.classes,
            least=self.per_class,
            batch_size=self.classes * self.per_class,
            seed=seed,
            batches=batches,
        )

    @property
    def note(self) -> str | None:
        """What a person should know before training, or None."""
        classes, per_class = self._asked
        fitted = None
        if (self.classes, self.per_class) != self._asked:
            fitted = (
                f"batches have {self.classes} classes x {self.per_class} samples instead of {classes} x {per_class}: "
                f"the training part has no more."
            )
        return " ".join(note for note in (super().note, fitted) if note) or None

    def plan(self, rng: np.random.Generator, batches: int) -> Int[np.ndarray, "batches rows"]:
        chosen = self.members.deal_classes(rng, batches=batches, classes=self.classes)
        return self.members.deal_rows(rng, chosen, per_class=self.per_class).reshape(batches, -1)


def _fit(sizes: Int[np.ndarray, "c"], classes: int, per_class: int) -> tuple[int, int]:
    """P and K that classes of these sizes fill; the least that means something where even that does not fit.

    >>> _fit(np.array([8, 8, 8, 8, 3]), 4, 4), _fit(np.array([8, 8, 8, 8, 3]), 5, 4), _fit(np.array([9]), 16, 4)
    ((4, 4), (5, 3), (2, 2))
    """
    fitted = max(FEWEST, min(classes, int((sizes >= FEWEST).sum())))
    enough = [k for k in range(FEWEST, per_class + 1) if (sizes >= k).sum() >= fitted]
    return fitted, max(enough, default=FEWEST)
