"""What every sampler is: index lists for an epoch, a function of the seed and the epoch alone."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
from jaxtyping import Int
from torch.utils.data import Sampler

from vicinal.errors import ConfigError, DataError
from vicinal.samplers.decks import Members, generator


class BatchSampler(Sampler[list[int]], ABC):
    """Index lists, each a batch; a resumed run sees the very batches that the interrupted one would have seen.

    For a method: ``epoch(number)``. For torch: ``DataLoader(data, batch_sampler=sampler)``, where each pass is the next
    epoch; a loop that resumes says which one comes with ``set_epoch(number)``.

    Attributes:
        layout: what a batch is, by the sampler's name in ``SAMPLERS``; None where methods need not know.
        members: the rows of the classes that are used.
        batch_size: rows in a batch.
    """

    layout: ClassVar[str | None] = None
    shrunk: str | None = None  # how a fitted sampler differs from what was asked for

    def __init__(
        self,
        labels: Sequence[int] | np.ndarray,
        *,
        classes: int,
        least: int,
        batch_size: int,
        seed: int,
        batches: int | None,
    ) -> None:
        for name, value in (("samples per class", least), ("classes", classes), ("batches", batches)):
            if value is not None and value < 1:
                raise ConfigError(f"{type(self).__name__} needs at least 1 of {name}, got {value}.")
        self.labels = np.asarray(labels)
        self.members, self._least = Members(self.labels, least=least), least
        if len(self.members) < classes:
            raise ConfigError(
                f"a batch of {type(self).__name__} needs {classes} classes with at least {least} samples each, but "
                f"only {len(self.members)} of the {self.members.total} classes here have that many. "
                f"Ask for fewer classes or fewer samples of each, or add data."
            )
        self.batch_size, self.seed, self.batches, self._epoch = batch_size, seed, batches, 0

    @abstractmethod
    def plan(self, rng: np.random.Generator, batches: int) -> Int[np.ndarray, "batches rows"]:
        """The rows of so many batches, drawn with ``rng``."""

    def epoch(self, number: int) -> list[list[int]]:
        """The batches of epoch ``number``."""
        plan: list[list[int]] = self.plan(generator(self.seed, number), len(self)).tolist()
        return plan

    def set_epoch(self, number: int) -> None:
        """Which epoch the next pass gives."""
        self._epoch = number

    def __iter__(self) -> Iterator[list[int]]:
        plan = self.epoch(self._epoch)
        self._epoch += 1  # or a loop that never calls ``set_epoch`` would see the same batches for ever
        return iter(plan)

    def __len__(self) -> int:
        """Batches in an epoch: as many as were asked for, or as the rows of the classes in use fill once."""
        return self.batches if self.batches is not None else max(1, int(self.members.sizes.sum()) // self.batch_size)

    @property
    def note(self) -> str | None:
        """What a user should know before training, or None."""
        excluded = None
        if self.members.excluded:
            excluded = (
                f"{self.members.excluded} of {self.members.total} classes have fewer than {self._least} samples "
                f"and are left out of training batches."
            )
        return " ".join(note for note in (excluded, self.shrunk) if note) or None


def shrink(
    unit: str, asked: int, available: int, *, least: int, batch_size: int, rows: int, samples: str = "2 samples"
) -> tuple[int, str | None]:
    """Return how many ``unit`` of different classes a batch has, and a note where that is less than ``asked``.

    Args:
        unit: what is counted, for messages.
        asked: how many the settings ask for.
        available: how many the data can fill.
        least: the least that makes sense.
        batch_size: rows of a batch, from which ``asked`` may follow.
        rows: rows of one unit.
        samples: what a class must have to be counted, for messages.
    """
    if asked < least:
        raise ConfigError(
            f"a batch needs at least {least} {unit} of {rows} rows, got {asked} with batch_size={batch_size}. "
            f"Set training.batch_size={least * rows} or more."
        )
    if available < least:
        raise DataError(
            f"a batch needs at least {least} {unit} of different classes, but the training classes that have {samples} "
            f"are enough for {available}. Add data, or hold fewer classes out (training.validation)."
        )
    if available >= asked:
        return asked, None
    return available, f"batches have {available} {unit} instead of {asked}: the training part has no more classes."


def class_sizes(labels: Sequence[int] | np.ndarray) -> Int[np.ndarray, "c"]:
    """Return the number of rows of each class."""
    sizes: np.ndarray = np.unique(np.asarray(labels), return_counts=True)[1]
    return sizes
