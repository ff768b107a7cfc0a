"""Batches of P classes with K samples each, of pairs, and of disjoint triplets."""

from dataclasses import KW_ONLY, dataclass

import numpy as np
from jaxtyping import Int

from vicinal.arguments import Count
from vicinal.errors import ConfigError
from vicinal.samplers.sampler import FEWEST, BatchSampler, BatchShape, Labels, class_sizes, shrink


@dataclass(eq=False, repr=False)
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

    _: KW_ONLY
    classes: Count
    per_class: Count
    strata: Labels | None = None

    layout = "classes"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.strata is not None and len(self.strata) != len(self.labels):
            raise ConfigError(f"each of {len(self.labels)} rows has a stratum, got {len(self.strata)} strata.")
        self._stratum = None if self.strata is None else self.members.strata(np.asarray(self.strata))

    def shape(self) -> BatchShape:
        return BatchShape(self.classes, self.per_class, self.classes * self.per_class)

    @classmethod
    def fitted(
        cls,
        labels: Labels,
        *,
        batch_size: int,
        seed: int,
        classes: int | None = None,
        per_class: int = 4,
        batches: int | None = None,
        strata: Labels | None = None,
    ) -> "PKSampler":
        """Return batches of ``batch_size // per_class`` classes unless ``classes`` is given, smaller where data are.

        First as many classes as were asked for, or all that have two samples; then as many samples of each, up to
        ``per_class``, as that many classes have.

        >>> sampler = PKSampler.fitted([0, 0, 0, 1, 1, 1], batch_size=64, seed=0)
        >>> sampler.classes, sampler.per_class
        (2, 3)
        """
        asked = batch_size // max(1, per_class) if classes is None else classes
        fits, samples = fit(labels, asked, per_class, batch_size)
        sampler = cls(labels, classes=fits, per_class=samples, seed=seed, batches=batches, strata=strata)
        if (fits, samples) == (asked, per_class):
            return sampler
        return sampler.noted(
            f"batches have {fits} classes x {samples} samples instead of {asked} x {per_class}: the training part has "
            f"no more."
        )

    def plan(self, rng: np.random.Generator, batches: int) -> Int[np.ndarray, "batches rows"]:
        chosen = self.members.deal_classes(rng, batches=batches, classes=self.classes, strata=self._stratum)
        return self.members.deal_rows(rng, chosen, per_class=self.per_class).reshape(batches, -1)


@dataclass(eq=False, repr=False)
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

    _: KW_ONLY
    classes: Count

    layout = "pairs"

    def shape(self) -> BatchShape:
        return BatchShape(self.classes, 2, 2 * self.classes)

    @classmethod
    def fitted(
        cls, labels: Labels, *, batch_size: int, seed: int, classes: int | None = None, batches: int | None = None
    ) -> "NPairSampler":
        """Return batches of ``batch_size // 2`` pairs unless ``classes`` is given, fewer where classes are fewer."""
        asked, there = batch_size // 2 if classes is None else classes, int((class_sizes(labels) >= 2).sum())
        fits, note = shrink("pairs", asked, there, least=2, batch_size=batch_size, rows=2)
        return cls(labels, classes=fits, seed=seed, batches=batches).noted(note)

    def plan(self, rng: np.random.Generator, batches: int) -> Int[np.ndarray, "batches rows"]:
        chosen = self.members.deal_classes(rng, batches=batches, classes=self.classes)
        pairs = self.members.deal_rows(rng, chosen, per_class=2)
        return pairs.swapaxes(1, 2).reshape(batches, -1)


@dataclass(eq=False, repr=False)
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

    _: KW_ONLY
    triplets: Count

    layout = "triplets"

    def shape(self) -> BatchShape:
        return BatchShape(2 * self.triplets, 2, 3 * self.triplets)

    @classmethod
    def fitted(
        cls, labels: Labels, *, batch_size: int, seed: int, triplets: int | None = None, batches: int | None = None
    ) -> "TripletSampler":
        """Return batches of ``batch_size // 3`` triplets unless ``triplets`` is given, fewer where classes are."""
        asked, there = batch_size // 3 if triplets is None else triplets, int((class_sizes(labels) >= 2).sum()) // 2
        fits, note = shrink("triplets", asked, there, least=1, batch_size=batch_size, rows=3)
        return cls(labels, triplets=fits, seed=seed, batches=batches).noted(note)

    def plan(self, rng: np.random.Generator, batches: int) -> Int[np.ndarray, "batches rows"]:
        chosen = self.members.deal_classes(rng, batches=batches, classes=2 * self.triplets)
        pairs = self.members.deal_rows(rng, chosen[:, : self.triplets], per_class=2)
        negatives = self.members.deal_rows(rng, chosen[:, self.triplets :], per_class=1)
        return np.concatenate([pairs[..., 0], pairs[..., 1], negatives[..., 0]], axis=1)


def fit(labels: Labels, classes: int, per_class: int, batch_size: int) -> tuple[int, int]:
    """Return P and K that the data fill; raise an error where not even the smallest batch can be formed.

    >>> labels = np.repeat(np.arange(5), [8, 8, 8, 8, 3])
    >>> fit(labels, 4, 4, 16), fit(labels, 5, 4, 20)
    ((4, 4), (5, 3))
    """
    if per_class < FEWEST:
        raise ConfigError(f"sampler.per_class is at least {FEWEST}, got {per_class}.")
    sizes = class_sizes(labels)
    there = int((sizes >= FEWEST).sum())
    fits, _ = shrink("classes", classes, there, least=FEWEST, batch_size=batch_size, rows=per_class)
    return fits, max(k for k in range(FEWEST, per_class + 1) if (sizes >= k).sum() >= fits)
