"""All that several processes need: gather embeddings with gradient, average gradients.

Methods differentiate with ``torch.autograd.grad`` and forward mode, which DistributedDataParallel's hooks do not
see, so nothing here hides in a hook. With one process every function is the identity.
"""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor, nn


def processes() -> int:
    """How many processes train together (1 without ``torchrun``)."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """This process's number, 0 for the one that writes files."""
    return dist.get_rank() if processes() > 1 else 0


def gather(embeddings: Float[Tensor, "n d"], labels: Int[Tensor, "n"]) -> tuple[Float[Tensor, "m d"], Int[Tensor, "m"]]:
    """The embeddings and labels of all processes, in the order of their ranks.

    The gradient of the gathered rows flows back to the process that made them, summed over the processes' equal
    losses: it is ``processes()`` times too large, and ``average_gradients`` divides by just that.
    """
    if processes() == 1:
        return embeddings, labels
    from torch.distributed.nn.functional import all_gather  # not built on every platform

    together = [torch.empty_like(labels) for _ in range(processes())]
    dist.all_gather(together, labels.contiguous())
    rows: tuple[Tensor, ...] = all_gather(embeddings.contiguous())  # type: ignore[no-untyped-call]
    return torch.cat(rows), torch.cat(together)


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace each ``.grad`` by its mean over the processes, in one flat exchange."""
    if processes() == 1:
        return
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients]) / processes()
    dist.all_reduce(flat)
    for gradient, mean in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))
