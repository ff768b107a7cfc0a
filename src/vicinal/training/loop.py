"""The training loop. It knows nothing of losses, networks, logging or disks."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from torch import Tensor

from vicinal.data.records import Batch
from vicinal.methods.method import StepResult


@dataclass(frozen=True)
class Step:
    """One update: its number since the start of training, its batch and what it returned."""

    number: int
    batch: Batch
    result: StepResult
    scalars: dict[str, Tensor]


def train(method: Callable[[Batch], StepResult], batches: Iterable[Batch], *, start: int = 0) -> Iterator[Step]:
    """Yield one record per update by ``method``, a `Method` or a `CUDAGraphStep` around one.

    The caller's ``for`` is the whole callback system: log, evaluate, save or ``break`` there.
    """
    for number, batch in enumerate(batches, start):
        result = method(batch)
        yield Step(number, batch, result, dict(result.scalars))
