"""Large batches in small memory: gradient caching (Gao, Zhang, Han and Callan, RepL4NLP 2021)."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.utils.checkpoint import checkpoint

from vicinal.errors import ConfigError, few


def chunked(function: Callable[[Tensor], Tensor], inputs: Tensor, rows: int) -> Tensor:
    """Apply ``function`` to ``rows`` inputs at a time, with the activations of one chunk in memory.

    The forward pass keeps the outputs alone. The backward pass runs ``function`` again on each chunk, the random
    numbers of dropout included, and differentiates it before the next:

        ∂L/∂θ = Σ_chunks (∂L/∂f(chunk)) (∂f(chunk)/∂θ)                     Gao et al. 2021, Section 3.2

    Because the loss sees the outputs of all rows, the gradient is that of the whole batch. This costs a second forward
    pass. It holds for a ``function`` that treats each row by itself; ``check_chunks`` finds the layers that do not.

    >>> layer, inputs = torch.nn.Linear(3, 2), torch.randn(5, 3)
    >>> (gradient,) = torch.autograd.grad(chunked(layer, inputs, 2).logsumexp((0, 1)), layer.weight)
    >>> torch.testing.assert_close(gradient, torch.autograd.grad(layer(inputs).logsumexp((0, 1)), layer.weight)[0])
    """
    if len(inputs) <= rows:
        return function(inputs)
    return torch.cat([checkpoint(function, chunk, use_reentrant=False) for chunk in torch.split(inputs, rows)])


def check_chunks(embedder: nn.Module, rows: int) -> None:
    """Raise a ConfigError if chunks of ``rows`` rows would not give the gradient of the whole batch.

    Batch norms take their statistics from the rows they are given, and a second forward pass would count these rows
    twice in the running averages. Frozen ones do neither. The head sees the whole batch, so it may have any layers.
    """
    head: nn.Module = embedder.head  # type: ignore[assignment]  # an Embedder, which imports this module
    training, whole = embedder.training, set(head.modules())
    embedder.train()  # a frozen norm shows itself when the network is put in training mode
    names = [
        name
        for name, module in embedder.named_modules()
        if isinstance(module, _NormBase)
        and module not in whole
        and module.training
        and (isinstance(module, _BatchNorm) or module.track_running_stats)
    ]
    embedder.train(training)
    if names:
        raise ConfigError(
            f"training.chunk={rows} embeds {rows} rows at a time, but {len(names)} norms of the network take their "
            f"statistics from a batch ({few(names)}), so its gradients "
            f"would not be those of the whole batch. Freeze them with model.freeze_norm=true, take a model with layer "
            f"norms, or leave training.chunk out."
        )
