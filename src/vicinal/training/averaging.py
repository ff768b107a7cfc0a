"""An exponential moving average of the weights (Polyak and Juditsky 1992), as the model that is evaluated and saved."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class WeightAverage:
    """The running average of a network's trained parameters and of its buffers.

        θ̄ ← d θ̄ + (1 - d) θ,   d = min(decay, (1 + t) / (10 + t))        at update t = 0, 1, ...

    The smaller d of the first updates lets the average forget the initial weights. Frozen parameters are left out;
    integer buffers are copied. Nothing waits for the device.

    Args:
        embedder: the network, on the device that trains it and with the weights that training starts from.
        decay: between 0 and 1; 0.999 averages over about the last thousand steps.
    """

    def __init__(self, embedder: nn.Module, decay: float) -> None:
        self.decay, self.updates = decay, 0
        self._average = {name: tensor.clone() for name, tensor in _averaged(embedder).items()}

    @torch.no_grad()
    def update(self, embedder: nn.Module) -> None:
        """Take the weights after an optimizer step into the average."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        self.updates += 1
        current = _averaged(embedder)
        real = [name for name, tensor in current.items() if tensor.is_floating_point()]
        whole = [name for name in current if name not in real]
        if real:
            torch._foreach_lerp_([self._average[n] for n in real], [current[n] for n in real], 1 - decay)
        if whole:
            torch._foreach_copy_([self._average[n] for n in whole], [current[n] for n in whole])

    @contextmanager
    def applied(self, embedder: nn.Module) -> Iterator[None]:
        """Let ``embedder`` have the averaged weights for a while, and afterwards its own again, bit for bit.

        Values are copied into the same storage, which compiled code and captured CUDA graphs refer to.
        """
        current = _averaged(embedder)
        own = [tensor.clone() for tensor in current.values()]
        try:
            _copy(current.values(), [self._average[name] for name in current])
            yield
        finally:
            _copy(current.values(), own)

    def state_dict(self) -> dict[str, Any]:
        """Return the average and the number of updates behind it."""
        return {"updates": self.updates, "average": dict(self._average)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state`` was saved."""
        self.updates = int(state["updates"])
        _copy(self._average.values(), [state["average"][name] for name in self._average])


@torch.no_grad()
def _copy(targets: Iterable[Tensor], sources: list[Tensor]) -> None:
    torch._foreach_copy_(list(targets), sources)


def _averaged(module: nn.Module) -> dict[str, Tensor]:
    """Return what training changes, by name: parameters that are not frozen, and all buffers."""
    parameters = {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}
    return parameters | dict(module.named_buffers())
