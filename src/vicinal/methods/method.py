"""The interfaces of methods: settings (`MethodConfig`), what they are built from (`Parts`), the running `Method`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from vicinal.data.records import Batch, Records
from vicinal.data.resident import Resident
from vicinal.data.transforms import Transform
from vicinal.errors import ConfigError
from vicinal.exhibits import Exhibit
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models.embedder import Embedder


class Sampler(Protocol):
    """Index lists for an epoch, a function of the seed and the epoch alone."""

    @property
    def note(self) -> str | None:
        """What a user should know before training, or None."""
        ...

    def epoch(self, number: int) -> Sequence[Sequence[int]]: ...

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        ...


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


@dataclass(frozen=True)
class Parts:
    """Everything that a method is built from besides its own settings.

    Attributes:
        embedder: the network, already built, so that one seed gives every method the same weights.
        loss: the loss; methods over tuples need a `vicinal.losses.Loss`.
        sampler: the batches.
        optimizer: settings of the optimizer and its schedule.
        train: the training records.
        preprocessing: the evaluation transform, for methods that embed the training set.
        steps: total number of updates, for schedules.
        seed: seed of everything that the method draws itself.
        batch_size: rows at a time when embedding without training.
        skip_corrupt: whether to leave unreadable records out instead of raising.
    """

    embedder: Embedder
    loss: nn.Module
    sampler: Any  # a Sampler; AnchorNeighbourSampler also takes the tree
    optimizer: OptimizerConfig
    train: Records
    preprocessing: Transform
    steps: int
    seed: int
    batch_size: int = 256
    skip_corrupt: bool = False


ANY_LAYOUT = ("classes", "pairs", "triplets", "episodes", "cross_view")


def check_batches(method: str, loss: nn.Module, sampler: object, layouts: Sequence[str] = ANY_LAYOUT) -> None:
    """Raise a ConfigError where batches of ``sampler`` do not fit the method or the loss.

    Samplers say what their batches are by the attribute ``layout``, a key of `vicinal.sampling.SAMPLERS`. A sampler
    without it, such as a user's own, is not checked; None stands for the default sampler.
    """
    layout = getattr(sampler, "layout", None)
    if layout is not None and layout not in layouts:
        raise ConfigError(f"{method} cannot train on batches of sampler={layout}. Set sampler={layouts[0]}.")
    expected = getattr(loss, "layout", None) if getattr(loss, "blocks", False) else None
    if layout is not None and expected is not None and layout != expected:
        raise ConfigError(
            f"{type(loss).__name__} has blocks=True and expects batches of sampler={expected}, got sampler={layout}. "
            f"Set loss.blocks=false, or sampler={expected}."
        )
    if getattr(loss, "reduction", "mean") == "none":
        raise ConfigError(
            f'training needs one number, but {type(loss).__name__} has reduction="none". Set loss.reduction=mean.'
        )


class MethodConfig(Protocol):
    """The settings of a method: what the method slot of an experiment holds."""

    default_loss: ClassVar[str]  # its name in `vicinal.losses.LOSSES`

    def sampler_for(self, loss: type[nn.Module]) -> str:
        """Return the name of the default sampler over losses of this class, a key of `vicinal.sampling.SAMPLERS`."""
        ...

    def check(self, loss: nn.Module, sampler: object) -> None:
        """Raise a ConfigError with the reason where this method cannot train this loss on these batches."""
        ...

    def build(self, parts: Parts) -> Method:
        """Build the running method."""
        ...
