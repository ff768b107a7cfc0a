"""Means over windows of steps that never make the host wait for the device."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


class WindowedMean:
    """The mean over the last completed window of steps, windows not overlapping; values that are NaN are skipped.

    HDML's authors average J_avg and J_gen so, over 64 steps whatever an epoch is. Until the first window is complete
    ``last`` is ``initial``. Values stay on their device, in tensors that a recorded step may read: which step ends a
    window is known without looking at them.

    Args:
        window: steps in a window.
        initial: what stands for the mean that is not known yet.

    >>> mean = WindowedMean(2, initial=1e6)
    >>> for value in (1.0, 3.0, 9.0):
    ...     mean.add(torch.tensor(value))
    >>> mean.last.item(), mean.first.item()
    (2.0, 2.0)
    """

    def __init__(self, window: int, *, initial: float) -> None:
        self.window, self.initial, self.steps = window, initial, 0
        self.last, self.first = torch.tensor(float(initial)), torch.tensor(torch.inf)
        self._sum, self._count = torch.tensor(0.0), torch.tensor(0.0)

    def to(self, device: torch.device) -> None:
        self.last, self.first = self.last.to(device), self.first.to(device)
        self._sum, self._count = self._sum.to(device), self._count.to(device)

    @torch.no_grad()
    def add(self, value: Float[Tensor, ""]) -> None:
        """Count one step's value."""
        value = value.detach().float()
        known = ~value.isnan()
        self._sum += torch.where(known, value, 0.0)
        self._count += known
        self.steps += 1
        if self.steps % self.window == 0:
            self.last.copy_(torch.where(self._count > 0, self._sum / self._count, self.last))
            self.first.copy_(torch.where(self.first.isinf() & (self._count > 0), self.last, self.first))
            self._sum.zero_()
            self._count.zero_()

    def relative(self) -> Float[Tensor, ""]:
        """The last window over the first; infinite until there is one."""
        ratio = self.last / self.first.clamp(min=torch.finfo(torch.float32).tiny)
        return torch.where(self.first.isinf(), torch.inf, ratio)

    def state_dict(self) -> dict[str, Any]:
        tensors = {name: tensor.clone() for name, tensor in self._tensors().items()}
        return {"steps": self.steps, **tensors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = int(state["steps"])
        for name, tensor in self._tensors().items():
            tensor.copy_(state[name])

    def _tensors(self) -> dict[str, Tensor]:
        return {"last": self.last, "first": self.first, "sum": self._sum, "count": self._count}
