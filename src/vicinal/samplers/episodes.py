"""Episodes of two subsets, one to train on and one to validate on (Zheng et al., CVPR 2020)."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Int

from vicinal.errors import ConfigError
from vicinal.samplers.sampler import BatchSampler, class_sizes, shrink
from vicinal.tuples import Triplets

FEWEST = 2  # classes of a subset: a negative has to come from another class of the same subset


class EpisodeSampler(BatchSampler):
    """A training and a validation subset of disjoint labels, two samples of each class (DML-ALA, Sect. 3.3).

    Rows lie in blocks ``[a; p]`` of the training classes, then ``[a; p]`` of the validation classes; row t and row
    c + t of a block of c classes are a pair, and ``episode_triplets`` gives each pair its negative. The defaults are
    the paper's 100 and 20 samples. Where there are fewer classes than an episode asks for, both subsets shrink in
    proportion, and ``note`` says so.

    The paper does not say how it forms tuples. One pair of each class fills 100 + 20 samples evenly, and makes the
    "tuples of disjoint labels" on which it trains its baselines.

    Args:
        labels: class of each row; classes with one sample are left out.
        training_classes: half the training subset.
        validation_classes: half the validation subset.
        disjoint: whether no class comes up twice in an episode; False is the paper's "random" (Table 1): every class of
            both subsets is drawn anew, only neighbours differ, and a small class may show a sample twice.
        seed: with the epoch it determines every batch.
        batches: batches per epoch; None for as many as the data fills once.

    >>> sampler = EpisodeSampler(np.repeat(np.arange(6), 2), training_classes=4, validation_classes=2, seed=0)
    >>> sampler.training_rows, sampler.batch_size
    (8, 12)
    """

    layout: ClassVar[str | None] = "episodes"

    def __init__(
        self,
        labels: Sequence[int] | np.ndarray,
        *,
        training_classes: int = 50,
        validation_classes: int = 10,
        disjoint: bool = True,
        seed: int,
        batches: int | None = None,
    ) -> None:
        if min(training_classes, validation_classes) < FEWEST:
            raise ConfigError(
                f"a subset of an episode needs {FEWEST} classes to form a negative pair, got training_classes="
                f"{training_classes} and validation_classes={validation_classes}."
            )
        asked = training_classes + validation_classes
        available = int((class_sizes(labels) > 1).sum())
        training_classes, validation_classes = _fit(training_classes, validation_classes, available)
        classes = training_classes + validation_classes
        super().__init__(labels, classes=classes, least=2, batch_size=2 * classes, seed=seed, batches=batches)
        self.training_classes, self.validation_classes, self.disjoint = training_classes, validation_classes, disjoint
        if classes < asked:
            self.shrunk = (
                f"an episode of {asked} classes was asked for, but there are {len(self.members)}: it is scaled to "
                f"{training_classes} for training and {validation_classes} for validation."
            )

    @classmethod
    def fitted(
        cls,
        labels: Sequence[int] | np.ndarray,
        *,
        batch_size: int,
        seed: int,
        training_classes: int | None = None,
        validation_classes: int | None = None,
        disjoint: bool = True,
        batches: int | None = None,
    ) -> "EpisodeSampler":
        """Episodes of ``batch_size // 2`` classes, 5 for training to 1 for validation, fewer where there are fewer."""
        asked, available = batch_size // 2, int((class_sizes(labels) >= 2).sum())
        validation = max(FEWEST, round(asked / 6)) if validation_classes is None else validation_classes
        training = max(FEWEST, asked - validation) if training_classes is None else training_classes
        asked = asked if training_classes is None else training + validation
        shrink("pairs", asked, available, least=2 * FEWEST, batch_size=batch_size, rows=2)
        return cls(
            labels,
            training_classes=training,
            validation_classes=validation,
            disjoint=disjoint,
            seed=seed,
            batches=batches,
        )

    @property
    def training_rows(self) -> int:
        """Rows of the training subset; the rest of a batch is for validation."""
        return 2 * self.training_classes

    def plan(self, rng: np.random.Generator, batches: int) -> Int[np.ndarray, "batches rows"]:
        subsets = self.training_classes, self.validation_classes
        if self.disjoint:
            chosen = self.members.deal_classes(rng, batches=batches, classes=sum(subsets))
        else:
            walks = [_closed_walks(rng, batches, length, len(self.members)) for length in subsets]
            chosen = np.concatenate(walks, axis=1)
        pairs = self.members.deal_rows(rng, chosen, per_class=2)
        blocks = np.split(pairs, [self.training_classes], axis=1)
        return np.concatenate([block.swapaxes(1, 2).reshape(batches, -1) for block in blocks], axis=1)


def episode_triplets(rows: int, device: torch.device | None = None) -> Triplets:
    """One triplet for each pair of a block ``[a; p]``: its negative is the next pair's positive, in a circle.

    The sampler deals classes in random order, so the next class is a random other one: a derangement of the subset.

    >>> [part.tolist() for part in episode_triplets(6)]
    [[0, 1, 2], [3, 4, 5], [4, 5, 3]]
    """
    anchors, positives = torch.arange(rows, device=device).view(2, -1)
    return Triplets(anchors, positives, positives.roll(-1))


def _fit(training: int, validation: int, available: int) -> tuple[int, int]:
    """Both numbers as asked, or in proportion to what there is; where even the least does not fit, the least."""
    if available >= training + validation:
        return training, validation
    smaller = max(FEWEST, round(available * validation / (training + validation)))
    return max(FEWEST, available - smaller), smaller


def _closed_walks(
    rng: np.random.Generator, batches: int, length: int, classes: int
) -> Int[np.ndarray, "batches length"]:
    """Random classes of which no two neighbours are the same, the last and the first being neighbours, too."""
    walks = np.empty((batches, length), dtype=np.int64)
    open_ends = np.arange(batches)
    while len(open_ends):
        steps = rng.integers(1, classes, (len(open_ends), length))  # never 0: the next class is another one
        steps[:, 0] = rng.integers(0, classes, len(open_ends))
        walks[open_ends] = steps.cumsum(axis=1) % classes
        open_ends = open_ends[walks[open_ends, 0] == walks[open_ends, -1]]
    return walks
