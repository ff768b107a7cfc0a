"""Episodes of two subsets, one to train on and one to validate on (Zheng et al., CVPR 2020)."""

from dataclasses import KW_ONLY, dataclass

import numpy as np
import torch
from jaxtyping import Int

from vicinal.arguments import Natural
from vicinal.errors import ConfigError
from vicinal.samplers.sampler import FEWEST, BatchSampler, BatchShape, class_sizes, shrink
from vicinal.tuples import Triplets


@dataclass(eq=False, repr=False)
class EpisodeSampler(BatchSampler):
    """A training and a validation subset of disjoint labels, two samples of each class (DML-ALA,
    Sect. 3.3).

    Rows lie in blocks ``[a; p]`` of the training classes, then ``[a; p]`` of the validation
    classes; row t and row c + t of a block of c classes are a pair, and ``episode_triplets`` gives
    each pair its negative. The defaults are the paper's 100 and 20 samples; another ``batch_size``
    is shared out as they are. Where there are fewer
    classes than an episode asks for, both subsets shrink in proportion, and ``note`` says so.

    The paper does not say how it forms tuples. One pair of each class fills 100 + 20 samples
    evenly, and makes the "tuples of disjoint labels" on which it trains its baselines.

    Args:
        labels: class of each row; classes with one sample are left out.
        training_classes: half the training subset; 0 for 5 of 6 classes in ``batch_size``.
        validation_classes: half the validation subset; 0 for the sixth.
        disjoint: whether no class comes up twice in an episode; False is the paper's "random"
            (Table 1): every class of both subsets is drawn anew, only neighbors differ, and a small
            class may show a sample twice.
        seed: with the epoch it determines every batch.
        batches: batches per epoch; None for as many as the data fills once.

    >>> labels = np.repeat(np.arange(6), 2)
    >>> sampler = EpisodeSampler(labels, training_classes=4, validation_classes=2, seed=0)
    >>> sampler.training_rows, sampler.batch_size
    (8, 12)
    """

    _: KW_ONLY
    training_classes: Natural = 0
    validation_classes: Natural = 0
    disjoint: bool = True

    layout = "episodes"

    def __post_init__(self) -> None:
        if not self.batch_size:
            self._share_out(120)
        super().__post_init__()

    def fit(self, batch_size: int) -> None:
        pairs = batch_size // 2
        there = int((class_sizes(self.labels) >= 2).sum())
        shrink("pairs", pairs, there, least=2 * FEWEST, batch_size=batch_size, rows=2)
        self._share_out(batch_size)

    def _share_out(self, batch_size: int) -> None:
        """Set what was not given, and both in proportion to what there is."""
        validation = self.validation_classes or max(FEWEST, round(batch_size // 2 / 6))
        training = self.training_classes or max(FEWEST, batch_size // 2 - validation)
        asked = (training, validation)
        if min(asked) < FEWEST:
            raise ConfigError(
                f"training_classes and validation_classes are at least {FEWEST}, got {asked}."
            )
        there = int((class_sizes(self.labels) >= 2).sum())
        if there < sum(asked):  # where even the least does not fit, the least
            validation = max(FEWEST, round(there * validation / sum(asked)))
            training = max(FEWEST, there - validation)
        self.training_classes = training
        self.validation_classes = validation
        got = (training, validation)
        self.noted("{} classes for training and {} for validation", got, asked)

    def shape(self) -> BatchShape:
        classes = self.training_classes + self.validation_classes
        return BatchShape(classes, 2, 2 * classes)

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
        return np.concatenate(
            [block.swapaxes(1, 2).reshape(batches, -1) for block in blocks], axis=1
        )


def episode_triplets(rows: int, device: torch.device | None = None) -> Triplets:
    """Return one triplet for each pair of a block ``[a; p]``: its negative is the next pair's
    positive, in a circle.

    The sampler deals classes in random order, so the next class is a random other one: a
    derangement of the subset.

    >>> [part.tolist() for part in episode_triplets(6)]
    [[0, 1, 2], [3, 4, 5], [4, 5, 3]]
    """
    anchors, positives = torch.arange(rows, device=device).view(2, -1)
    return Triplets(anchors, positives, positives.roll(-1))


def _closed_walks(
    rng: np.random.Generator, batches: int, length: int, classes: int
) -> Int[np.ndarray, "batches length"]:
    """Draw classes of which no two neighbors are the same, the last and the first being neighbors,
    too."""
    walks = np.empty((batches, length), dtype=np.int64)
    open_ends = np.arange(batches)
    while len(open_ends):
        # Never 0: the next class is another one.
        steps = rng.integers(1, classes, (len(open_ends), length))
        steps[:, 0] = rng.integers(0, classes, len(open_ends))
        walks[open_ends] = steps.cumsum(axis=1) % classes
        open_ends = open_ends[walks[open_ends, 0] == walks[open_ends, -1]]
    return walks
