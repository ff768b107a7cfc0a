"""Batches of pairs: a query and a gallery image of each of several classes."""

from dataclasses import KW_ONLY, dataclass

import numpy as np
from jaxtyping import Int

from vicinal.arguments import Natural
from vicinal.errors import ConfigError
from vicinal.samplers.sampler import BatchSampler, BatchShape, Labels, Members, class_sizes, shrink

# In the column ``role`` of records.
QUERY = 1
GALLERY = 2


@dataclass(eq=False, repr=False)
class CrossViewSampler(BatchSampler):
    """``classes`` classes with a query and a gallery image each, pair by pair: ``[q, g, q, g,
    ...]``.

    Pairs stand side by side, so that processes that share a batch share whole pairs. Classes are
    dealt from a shuffled deck, and so are the queries and the gallery images of each; who meets
    whom changes from epoch to epoch. A class without one of the two is left out; ``note`` says how
    many are.

    Args:
        labels: class of each row.
        classes: pairs in a batch, each of another class; 0 for half of ``batch_size``.
        seed: with the epoch it determines every batch.
        roles: 1 for a query, 2 for a gallery image; None lets any two rows of a class be a pair.
        batches: batches per epoch; None for as many as the data fills once.

    >>> CrossViewSampler([0, 0, 1, 1], classes=2, seed=0, roles=[1, 2, 2, 1]).epoch(0)
    [[3, 2, 0, 1]]
    """

    _: KW_ONLY
    classes: Natural = 0
    roles: Labels | None = None

    layout = "cross_view"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.roles is not None:
            labels = np.asarray(self.labels)
            roles = np.asarray(self.roles)
            usable = np.isin(labels, self._seen_from_both(self.classes))
            sides = [np.flatnonzero(usable & (roles == role)) for role in (QUERY, GALLERY)]
            self._sides = [
                (rows, Members(labels[rows], least=1)) for rows in sides
            ]  # the same classes in one order

    def shape(self) -> BatchShape:
        return BatchShape(self.classes, 2, 2 * self.classes)

    def fit(self, batch_size: int) -> None:
        asked = self.classes or batch_size // 2
        if self.roles is None:
            there = int((class_sizes(self.labels) >= 2).sum())
            samples = "2 samples"
        else:
            there = len(self._seen_from_both(0))
            samples = "a query and a gallery image"
        self.classes = shrink(
            "pairs", asked, there, least=2, batch_size=batch_size, rows=2, samples=samples
        )
        self.noted("{} pairs", (self.classes,), (asked,))

    def plan(self, rng: np.random.Generator, batches: int) -> Int[np.ndarray, "batches rows"]:
        if self.roles is None:
            chosen = self.members.deal_classes(rng, batches=batches, classes=self.classes)
            return self.members.deal_rows(rng, chosen, per_class=2).reshape(batches, -1)
        chosen = self._sides[0][1].deal_classes(rng, batches=batches, classes=self.classes)
        dealt = [
            rows[members.deal_rows(rng, chosen, per_class=1)[..., 0]]
            for rows, members in self._sides
        ]
        return np.stack(dealt, axis=2).reshape(batches, -1)

    def excluded(self) -> tuple[int, int, str]:
        if self.roles is None:
            return super().excluded()
        total = len(np.unique(self.labels))
        return total - len(self._sides[0][1]), total, "lack a query or a gallery image"

    def _seen_from_both(self, pairs: int) -> Int[np.ndarray, "c"]:
        """Return the classes with a query and a gallery image, enough for a batch of ``pairs``."""
        labels = np.asarray(self.labels)
        roles = np.asarray(self.roles)
        if len(roles) != len(labels):
            raise ConfigError(f"each of {len(labels)} rows has a role, got {len(roles)} roles.")
        both = np.intersect1d(labels[roles == QUERY], labels[roles == GALLERY])
        if len(both) < pairs:
            raise ConfigError(
                f"a batch of {pairs} pairs needs as many classes with a query and a gallery image "
                f"each, but only {len(both)} of the {len(np.unique(labels))} classes here have "
                "both. Ask for fewer pairs, or add data."
            )
        return both
