"""What the loop asks of a method. Training loops fork at the update step, so the seam is there."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from vicinal.data.records import Batch
from vicinal.data.resident import Resident
from vicinal.exhibits import Exhibit
from vicinal.models.embedder import Embedder


class Method(Protocol):
    """One way of training an embedder, with everything that needs: losses, optimisers, memories, schedules.

    The loop moves batches and writes files; it never sees a loss or an optimiser. HDML (three updates from one
    forward pass) and ALA (a bilevel step) are files beside ``plain.py``, not branches of the loop.
    """

    @property
    def embedder(self) -> Embedder:
        """The network that is measured, selected and deployed; auxiliary networks stay private."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of its results should know (classes left out of batches, ...)."""
        ...

    @property
    def readings(self) -> Mapping[str, str]:
        """How to read the chart of a group of its scalars: one or two sentences by the group's name, for the report."""
        ...

    def to(self, device: torch.device) -> None:
        """Move all it computes with, once, before the first step.

        Methods are built on the CPU whatever trains them, so that a seed draws the same weights everywhere.
        """
        ...

    def batches(self, epoch: int) -> Sequence[Sequence[int]]:
        """What it wants to see in ``epoch``: positions in the training records, batch by batch.

        The order inside a batch reaches ``step`` unchanged, so blocks such as ``[a; p]`` may carry meaning. It is a
        function of the seed, the epoch and the method's state alone: a resumed run asks again and must get the same.
        """
        ...

    def step(self, batch: Batch) -> dict[str, Tensor]:
        """One update. Returns scalars still on the device, ``loss`` among them; ``group/name`` groups the rest."""
        ...

    def collapsed_loss(self, batch: Batch) -> float:
        """The loss this batch would have if all embeddings were equal: where a collapsed run gets stuck."""
        ...

    def exhibits(self) -> Sequence[Exhibit]:
        """Pictures of what it does inside, asked for once when training has ended; there may be none."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """All that the next step depends on, as nested dictionaries and lists of tensors and plain values."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@runtime_checkable
class ReadsRecords(Protocol):
    """A method that embeds training records to plan an epoch (HTL's tree); told how, before ``batches`` is asked."""

    def read_by(
        self, resident: Resident | None, *, workers: int, progress: Callable[[int], None] | None = None
    ) -> None:
        """Take images from the device where they are, read files with ``workers`` processes, say how many are done."""
        ...
