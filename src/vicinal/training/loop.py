"""The training loop. It knows nothing of losses, networks, logging or disks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torch import Tensor

from vicinal.data.records import Batch
from vicinal.methods.method import Method


@dataclass(frozen=True)
class Step:
    """One update: its number since the start of training, what it saw and what it was worth."""

    number: int
    batch: Batch
    scalars: dict[str, Tensor]


def train(method: Method, batches: Iterable[Batch], *, start: int = 0) -> Iterator[Step]:
    """Yield one record per update.

    The caller's ``for`` is the whole callback system: log, evaluate, save or ``break`` there.
    """
    for number, batch in enumerate(batches, start):
        yield Step(number, batch, method.step(batch))
