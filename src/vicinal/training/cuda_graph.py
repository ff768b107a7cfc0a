"""A training step captured as a CUDA graph: the host launches one graph instead of a thousand
kernels.

On a GPU the kernels of a step are shorter than the time a host takes to launch them, so the GPU
waits. Replayed, a step costs what its kernels cost; no compiler has to run first.
"""

import warnings
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from vicinal.data.records import Batch
from vicinal.methods.method import Method, StepResult

# Before a capture: in the first ones libraries choose kernels and allocate workspaces.
EAGER_STEPS = 3
# Each holds the activations of a step: batches of ever other shapes must not fill a GPU.
MOST_GRAPHS = 2


@dataclass
class _Graph:
    graph: "torch.cuda.CUDAGraph"
    batch: Batch
    names: tuple[str, ...]
    values: Tensor
    result: StepResult

    def replay(self, batch: Batch) -> StepResult:
        for mine, theirs in zip(_tensors(self.batch), _tensors(batch), strict=True):
            mine.copy_(theirs)
        self.graph.replay()
        scalars = dict(zip(self.names, self.values.clone().unbind(), strict=True))
        return self.result._replace(scalars=scalars)


class CUDAGraphStep:
    """Take training steps of a method, from the fourth of one shape on by replaying a CUDA graph.

    The graph holds the whole of ``Method.step``, updates included. Two shapes are captured, those
    that come four times first; batches of any further one are computed as they come. When the
    method enters another phase, graphs are captured anew. A step that waits for the device cannot
    be captured: it is then computed as before, with a warning.
    """

    def __init__(self, method: Method) -> None:
        self.method = method
        self._calls: dict[object, int] = {}
        self._graphs: dict[object, _Graph | None] = {}
        self._phase = method.phase

    def __call__(self, batch: Batch) -> StepResult:
        method = self.method
        batch = method.prepare(batch)
        result = self._step(batch)
        method.advance(batch)
        return result

    def _step(self, batch: Batch) -> StepResult:
        embedder = self.method.embedder
        if self.method.phase != self._phase:
            self._phase = self.method.phase
            self._calls.clear()
            self._graphs.clear()
        key = (
            batch.inputs.shape,
            batch.inputs.dtype,
            batch.inputs.stride(),
            batch.largest_class,
            embedder.training,
        )
        if key not in self._graphs and len(self._graphs) < MOST_GRAPHS:
            self._calls[key] = self._calls.get(key, 0) + 1
            if self._calls[key] <= EAGER_STEPS:
                return self._aside(batch)
            self._graphs[key] = self._capture(batch)
        graph = self._graphs.get(key)
        return self.method.step(batch) if graph is None else graph.replay(batch)

    def _aside(self, batch: Batch) -> StepResult:
        """Compute on the stream of captures: torch remembers on which one a parameter was first
        used."""
        here = torch.cuda.current_stream()
        stream = _side_stream(batch.inputs.device)
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            result = self.method.step(batch)
        here.wait_stream(stream)
        return result

    def _capture(self, batch: Batch) -> _Graph | None:
        mine = replace(
            batch,
            inputs=batch.inputs.detach().clone(),
            labels=batch.labels.clone(),
            extras={name: column.clone() for name, column in batch.extras.items()},
        )
        torch.cuda.empty_cache()  # what eager steps needed: a graph has memory of its own
        graph = torch.cuda.CUDAGraph()
        side = _side_stream(batch.inputs.device)
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        state = generator.clone_state()
        try:
            with warnings.catch_warnings():
                # A step that fails at once; see below.
                warnings.filterwarnings("ignore", "The CUDA Graph is empty")
                with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                    result = self.method.step(mine)
                    values = torch.stack(
                        [value.detach().float() for value in result.scalars.values()]
                    )
        except RuntimeError as error:
            torch.cuda.synchronize()
            # Torch leaves it in the capture, where it draws no numbers.
            generator.graphsafe_set_state(state)
            reason = str(error).strip().splitlines()[0]
            warnings.warn(
                f"the step cannot be captured as a CUDA graph: {reason} Training goes on without, "
                "more slowly. A loss "
                "that waits for the device or counts in Python has `capturable = False`; "
                "training.cuda_graph=off "
                f"switches capturing off.",
                RuntimeWarning,
                stacklevel=2,
            )
            return None
        return _Graph(graph, mine, tuple(result.scalars), values, result)


def _tensors(batch: Batch) -> tuple[Tensor, ...]:
    return batch.inputs, batch.labels, *batch.extras.values()


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """Return one stream for all captures: libraries keep a workspace for each stream that they have
    seen."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
