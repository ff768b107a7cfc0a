"""Batches of classes and samples for data that nobody has counted yet: as large as asked for, or as there is."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from vicinal.errors import ConfigError
from vicinal.samplers.pk import PKSampler
from vicinal.samplers.sampler import class_sizes, shrink

FEWEST = 2  # classes to tell apart, and samples of each to bring together


class FittedSampler(PKSampler):
    """``PKSampler`` where the data may be smaller than the batch; ``note`` says so when they are.

    First as many classes as were asked for, or all that have two samples; then as many samples of each, up to
    ``per_class``, as that many classes have.

    Args:
        labels: class of each row; classes with one sample are left out.
        classes: P at most.
        per_class: K at most.
        seed: with the epoch it determines every batch.
        batches: batches per epoch; None for as many as the data fills once.
        strata: as of ``PKSampler``.

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
        strata: Sequence[int] | np.ndarray | None = None,
    ) -> None:
        if min(classes, per_class) < FEWEST:
            raise ConfigError(
                f"a batch needs {FEWEST} classes with {FEWEST} samples each, got classes={classes} and "
                f"per_class={per_class}."
            )
        fitted = fit(class_sizes(labels), classes, per_class)
        super().__init__(labels, classes=fitted[0], per_class=fitted[1], seed=seed, batches=batches, strata=strata)
        if fitted != (classes, per_class):
            self.shrunk = (
                f"batches have {fitted[0]} classes x {fitted[1]} samples instead of {classes} x {per_class}: "
                f"the training part has no more."
            )

    @classmethod
    def fitted(
        cls,
        labels: Sequence[int] | np.ndarray,
        *,
        batch_size: int,
        seed: int,
        classes: int | None = None,
        per_class: int = 4,
        batches: int | None = None,
        strata: Sequence[int] | np.ndarray | None = None,
    ) -> "FittedSampler":
        """Batches of ``batch_size // per_class`` classes unless ``classes`` is given, smaller where the data are."""
        asked = batch_size // max(1, per_class) if classes is None else classes
        check_fits(labels, asked, per_class, batch_size)
        return cls(labels, classes=asked, per_class=per_class, seed=seed, batches=batches, strata=strata)


def check_fits(labels: Sequence[int] | np.ndarray, classes: int, per_class: int, batch_size: int) -> None:
    """Raise an error that names the setting to change where not even the smallest batch can be formed."""
    if per_class < FEWEST:
        raise ConfigError(f"sampler.per_class is at least {FEWEST}, got {per_class}.")
    there = int((class_sizes(labels) >= FEWEST).sum())
    shrink("classes", classes, there, least=FEWEST, batch_size=batch_size, rows=per_class)


def fit(sizes: Int[np.ndarray, "c"], classes: int, per_class: int) -> tuple[int, int]:
    """P and K that classes of these sizes fill; the least that means something where even that does not fit.

    >>> fit(np.array([8, 8, 8, 8, 3]), 4, 4), fit(np.array([8, 8, 8, 8, 3]), 5, 4), fit(np.array([9]), 16, 4)
    ((4, 4), (5, 3), (2, 2))
    """
    fitted = max(FEWEST, min(classes, int((sizes >= FEWEST).sum())))
    enough = [k for k in range(FEWEST, per_class + 1) if (sizes >= k).sum() >= fitted]
    return fitted, max(enough, default=FEWEST)
