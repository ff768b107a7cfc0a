"""An embedder as a function of its parameters, for steps that are tried and never taken."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.optim import Optimizer

from vicinal.distances import at_least_float32
from vicinal.errors import ConfigError
from vicinal.methods.ala.scoring import Head
from vicinal.models.embedder import Embedder
from vicinal.tuples import being_captured

Unroll = Literal["all", "head"]
Parameters = dict[str, Tensor]


class Metric:
    """z = f(x; θ) for the θ that a virtual step moves; the embedder, its buffers and its optimiser are never touched.

    The backbone is called as it is, not compiled: graphs are kept for several gradients and passed in forward mode.

    Args:
        embedder: the network.
        optimizer: what trains it; a virtual step is plain gradient descent with the learning rate of each group.
        unroll: ``"all"`` moves the whole network, as the paper does; ``"head"`` only the last layer, over features that
            stay as they are: cheap, and no longer the gradient of the paper's Eq. (11).
        factor: of the learning rates in a virtual step.
        compiled: whether ``torch.compile`` makes kernels for ``tangents``, where a GPU spends its time between small
            operations; a minute or more at the first step, and not for networks that draw random numbers.
    """

    def __init__(
        self,
        embedder: Embedder,
        optimizer: Optimizer,
        *,
        unroll: Unroll = "all",
        factor: float = 1.0,
        compiled: bool = False,
    ) -> None:
        self.embedder, self.optimizer, self.unroll, self.factor = embedder, optimizer, unroll, factor
        trained = {id(p): place for place, group in enumerate(optimizer.param_groups) for p in group["params"]}
        prefix = "head." if unroll == "head" else ""
        named = [(n, p) for n, p in embedder.named_parameters() if n.startswith(prefix) and p.requires_grad]
        self._leaves = {name: parameter for name, parameter in named if id(parameter) in trained}
        if not self._leaves:
            raise ConfigError(
                f"a virtual step moves {'the head' if prefix else 'the network'}, but the optimizer does not train it. "
                f"Set model.dim, or method.unroll=all."
            )
        groups = [trained[id(leaf)] for leaf in self._leaves.values()]
        self._members = {group: [place for place, own in enumerate(groups) if own == group] for group in set(groups)}
        self._network = _Network(embedder)
        self._draws = False  # whether the network drew random numbers when it was last called
        self._random: tuple[Tensor, Tensor | None] | None = None
        self._tangents = torch.compile(self._derived) if compiled else self._derived

    @property
    def leaves(self) -> list[nn.Parameter]:
        """The parameters themselves, for differentiation."""
        return list(self._leaves.values())

    def parameters(self) -> Parameters:
        """θ by name, cut from any graph."""
        return {name: leaf.detach() for name, leaf in self._leaves.items()}

    def scaled(self, gradients: list[Tensor]) -> list[Tensor]:
        """α ∇, with the present learning rate of each group."""
        found: dict[int, Tensor] = {}
        for group, places in self._members.items():
            rate = self.factor * self.optimizer.param_groups[group]["lr"]
            parts = torch._foreach_mul([gradients[place] for place in places], rate)
            found |= dict(zip(places, parts, strict=True))
        return [found[place] for place in range(len(gradients))]

    def moved(self, steps: list[Tensor], scale: float = -1.0) -> Parameters:
        """θ + scale · steps; by default a step downhill, Eq. (10)."""
        parameters = self.parameters()
        values = torch._foreach_add(list(parameters.values()), steps, alpha=scale)
        return dict(zip(parameters, values, strict=True))

    def features(self, inputs: Tensor) -> Float[Tensor, "n c"]:
        """y of the real network: part of the graph, and running statistics move."""
        before = None if being_captured(inputs) else _random_state(inputs)  # which cannot be read during capture
        if before is None and self._draws:
            raise RuntimeError("the network draws random numbers, which a virtual step draws once more.")
        features: Tensor = self._network(inputs, self._precision(), features_only=True)
        if before is not None:
            pairs = zip(before, _random_state(inputs), strict=True)
            self._draws = any(a is not None and b is not None and not torch.equal(a, b) for a, b in pairs)
        self._random = before if self._draws else None
        return features

    def frozen_features(self, inputs: Tensor) -> Float[Tensor, "n c"]:
        """y as a constant; running statistics stay."""
        with torch.no_grad():
            named, given = self._copies(), (inputs, self._precision(), True)
            features: Tensor = functional_call(self._network, named, given)
        return features

    def embed(self, parameters: Parameters, inputs: Tensor, *, precise: bool = False) -> Float[Tensor, "n d"]:
        """z with other parameters; running statistics stay.

        Args:
            parameters: θ' by name; what is not named keeps its value.
            inputs: inputs of the network, or features where only the head moves.
            precise: whether the backbone runs in float32 whatever it trains in.
        """
        if self.unroll == "head":
            return self.head(parameters)(inputs)
        named = self._copies() | {f"embedder.{name}": value for name, value in parameters.items()}
        given = (inputs, None if precise else self._precision())
        embeddings: Tensor = functional_call(self._network, named, given)
        return embeddings

    def head(self, parameters: Parameters) -> Head:
        """z = g(y) with other parameters."""
        named = {name.removeprefix("head."): p for name, p in parameters.items() if name.startswith("head.")}
        return lambda features: functional_call(self.embedder.head, named, (features,))

    def tangents(self, direction: list[Tensor], inputs: Tensor) -> Float[Tensor, "n d"]:
        """dz/dε at θ + ε ``direction``, in forward mode: one pass, no graph."""
        load_forward_mode()
        parameters = self.parameters()
        along = dict(zip(parameters, direction, strict=True))
        with torch.no_grad(), self.replayed():
            return self._tangents(parameters, along, inputs)

    def _derived(self, parameters: Parameters, along: Parameters, inputs: Tensor) -> Tensor:
        tangents: Tensor = jvp(lambda moved: self.embed(moved, inputs), (parameters,), (along,))[1]
        return tangents

    @contextmanager
    def replayed(self) -> Iterator[None]:
        """The random numbers of the last ``features`` once more: what was dropped there is dropped again."""
        if self._random is None:
            yield
            return
        on_host, on_device = self._random
        with torch.random.fork_rng(devices=[] if on_device is None else [torch.cuda.current_device()]):
            torch.set_rng_state(on_host)
            if on_device is not None:
                torch.cuda.set_rng_state(on_device)
            yield

    def _precision(self) -> torch.dtype | None:
        """What the backbone trains in, as ``Embedder.features`` would have it."""
        return self.embedder.precision if self.embedder.training else None

    def _copies(self) -> Parameters:
        """Copies of the buffers that a forward pass may change: those of modules in training mode."""
        return {
            ".".join(filter(None, ("embedder", path, name))): buffer.clone()
            for path, module in self.embedder.named_modules()
            if module.training
            for name, buffer in module.named_buffers(recurse=False)
        }


def _random_state(inputs: Tensor) -> tuple[Tensor, Tensor | None]:
    """On the host, and on the device of ``inputs``."""
    return torch.get_rng_state(), torch.cuda.get_rng_state(inputs.device) if inputs.is_cuda else None


@cache
def load_forward_mode() -> None:
    """torch compiles its rules at their first use, with a deprecation warning about its own way of doing so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        jvp(torch.sin, (torch.zeros(()),), (torch.zeros(()),))


class _Network(nn.Module):
    """An embedder as losses see it, before normalisation."""

    def __init__(self, embedder: Embedder) -> None:
        super().__init__()
        self.embedder = embedder

    def forward(self, inputs: Tensor, precision: torch.dtype | None, features_only: bool = False) -> Tensor:
        with torch.autocast(inputs.device.type, precision, enabled=precision is not None):
            maps = self.embedder.backbone(inputs)
        features = self.embedder.pool(at_least_float32(maps))
        return features if features_only else self.embedder.embed(features)
