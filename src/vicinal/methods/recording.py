"""A step's work, recorded once as a CUDA graph and replayed: the host starts one thing instead of a thousand kernels.

On a GPU the kernels of a step are shorter than the time a host takes to start them, so the GPU waits. Recorded, a
step costs what its kernels cost; no compiler has to run first.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vicinal.data.records import Batch
from vicinal.models.embedder import Embedder
from vicinal.parallel import processes
from vicinal.tuples import one_batch

UNRECORDED = 3  # calls before a recording: in the first ones libraries choose kernels and take their work space

MOST_RECORDINGS = 2  # each holds the activations of a step: batches of ever other shapes must not fill a GPU


class Work(NamedTuple):
    """What the work of a step leaves behind, besides gradients in its parameters.

    Attributes:
        scalars: what the step was worth; ``loss`` among them.
        seen: tensors of the batch that a method keeps for a picture. Of a replay they are overwritten by the next one.
    """

    scalars: Mapping[str, Tensor]
    seen: tuple[Tensor, ...] = ()


@dataclass
class _Recording:
    graph: "torch.cuda.CUDAGraph"
    given: tuple[Tensor, ...]
    names: tuple[str, ...]
    values: Tensor
    seen: tuple[Tensor, ...]
    gradients: list[Tensor | None]

    def replay(self, given: Sequence[Tensor], parameters: Sequence[nn.Parameter]) -> Work:
        for mine, theirs in zip(self.given, given, strict=True):
            mine.copy_(theirs)
        self.graph.replay()
        for parameter, gradient in zip(parameters, self.gradients, strict=True):
            parameter.grad = gradient  # a step of another shape may have put its own there
        return Work(dict(zip(self.names, self.values.clone().unbind(), strict=True)), self.seen)


class Recorder:
    """Does the work of steps, from the fourth of one shape on by replaying a recording, where that is possible.

    Two shapes are recorded, those that come four times first; batches of any further one are done as they come.

    ``work(inputs, labels, *more)`` puts gradients into ``parameters`` and changes tensors in place only. What it counts
    or decides in Python would stand still in a replay, so whoever calls says whether it is ``pure``; what it draws for
    each batch is among ``more``. Work that waits for the device cannot be recorded: it is then done as before, with a
    warning. So it is, without one, with several processes, whose gathering is not recorded, and wherever
    ``Embedder.accelerate`` did not ask for it.
    """

    def __init__(self, embedder: Embedder, parameters: Sequence[nn.Parameter], *, pure: bool) -> None:
        self.embedder, self.parameters, self.pure = embedder, list(parameters), pure
        self._calls: dict[object, int] = {}
        self._recordings: dict[object, _Recording | None] = {}

    def __call__(self, work: Callable[..., Work], batch: Batch, *more: Tensor) -> Work:
        """Do ``work`` on the batch; always the same work, whose owner is not kept: a recording dies with its method.

        ``more`` are further tensors of each batch, on its device and of one shape wherever the batch is of one.
        """
        given = batch.inputs, batch.labels, *more
        if not (self.pure and self.embedder.recorded and batch.inputs.is_cuda and processes() == 1):
            return _done(work, given, batch.largest_class)
        key = self._key(batch)
        if key not in self._recordings and len(self._recordings) < MOST_RECORDINGS:
            self._calls[key] = self._calls.get(key, 0) + 1
            if self._calls[key] <= UNRECORDED:
                return self._aside(work, given, batch.largest_class)
            self._recordings[key] = self._recorded(work, given, batch.largest_class)
        recording = self._recordings.get(key)
        if recording is None:
            return _done(work, given, batch.largest_class)
        return recording.replay(given, self.parameters)

    def _aside(self, work: Callable[..., Work], given: Sequence[Tensor], largest_class: int | None) -> Work:
        """On another stream, as a recording will be: torch remembers on which one a parameter was first used."""
        here = torch.cuda.current_stream()
        stream = _side_stream(given[0].device)
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            found = _done(work, given, largest_class)
        here.wait_stream(stream)
        return found

    def _recorded(
        self, work: Callable[..., Work], given: Sequence[Tensor], largest_class: int | None
    ) -> _Recording | None:
        mine = tuple(tensor.detach().clone() for tensor in given)
        torch.cuda.empty_cache()  # what steps needed so far: a recording has memory of its own
        graph, before = torch.cuda.CUDAGraph(), [parameter.grad for parameter in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        side = _side_stream(given[0].device)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "The CUDA Graph is empty")  # work that fails at once; said below
                with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                    found = _done(work, mine, largest_class)
                    values = torch.stack([value.detach().float() for value in found.scalars.values()])
        except RuntimeError as error:
            torch.cuda.synchronize()
            reason = str(error).strip().splitlines()[0]
            warnings.warn(
                f"steps were to be recorded and replayed, but this one cannot be: {reason} Training goes on without, "
                f"more slowly. A loss that waits for the device or counts in Python says so by `replayable = False`; "
                f"`record=off` switches recording off.",
                RuntimeWarning,
                stacklevel=2,
            )
            for parameter, gradient in zip(self.parameters, before, strict=True):
                parameter.grad = gradient
            return None
        gradients = [parameter.grad for parameter in self.parameters]
        return _Recording(graph, mine, tuple(found.scalars), values, found.seen, gradients)

    def _key(self, batch: Batch) -> object:
        embedder = self.embedder
        how = embedder.training, embedder.precision, embedder.compiled
        return batch.inputs.shape, batch.inputs.dtype, batch.inputs.stride(), batch.largest_class, how


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all recordings: libraries keep work space for each stream that they have seen."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _done(work: Callable[..., Work], given: Sequence[Tensor], largest_class: int | None) -> Work:
    with one_batch(largest_class):
        return work(*given)


def differentiate(loss: Tensor, parameters: Sequence[nn.Parameter], *, keep: bool = False) -> None:
    """Put the gradient of ``loss`` into ``parameters`` and nowhere else; ``keep`` leaves the graph for another loss."""
    wanted = [parameter for parameter in parameters if parameter.requires_grad]
    gradients = torch.autograd.grad(loss, wanted, retain_graph=keep, allow_unused=True)
    for parameter, gradient in zip(wanted, gradients, strict=True):
        parameter.grad = gradient


def learnt(*optimizers: Optimizer) -> list[nn.Parameter]:
    """All that these optimisers update."""
    return [parameter for optimizer in optimizers for group in optimizer.param_groups for parameter in group["params"]]
