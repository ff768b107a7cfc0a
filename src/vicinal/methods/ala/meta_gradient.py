"""The gradient of a validation loss after one step in the weights of that step, exact and without
second-order memory.

An assessor weighs the tuples T of a training subset; one step of gradient descent follows the
weighted losses,

    θ'(w) = θ - α Σ_T w_T ∇L(T; θ)                                       Zheng et al. 2020, Eq. (10)

and a validation subset says how good that step was. By the chain rule

    ∂/∂w_T L_va(θ') = -⟨α ∇L_va(θ'), ∇L(T; θ)⟩ = -d/dε L(T; θ + ε u),  u = α ∇L_va(θ')

since the weights do not depend on θ (embeddings reach the assessor detached). So what Eqs. (11) and
(12) need of the network is one number for each tuple, its *slope* along u, and all slopes together
are one derivative of the vector of losses in one direction. Forward mode gives it in one pass,
without a graph and without second derivatives.

A slope splits at the embeddings: the network's derivative ż = dz/dε, then that of the losses along
ż, which is cheap and always exact. Hence a finite difference, where it is asked for, never meets
the kink of a hinge.
"""

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
from vicinal.methods.ala.assessment import Head, Scored, Scoring
from vicinal.methods.method import tensor_cores
from vicinal.models.embedder import Embedder
from vicinal.tuples import Embeddings, SingleLabels, being_captured

Route = Literal["forward", "double_backward", "difference"]
Unroll = Literal["all", "head"]
Parameters = dict[str, Tensor]

PILOT_ROWS = 4  # on which a difference finds out how fast embeddings change
PILOT_STEP = 1e-6  # length of the pilot's displacement over that of the parameters
LONGEST = 1e3  # in pilot steps, where embeddings hardly change at all
CHANGE: float | None = (
    None  # of embeddings across half a difference, relative; None is the rule, √ε / 3
)


class Metric:
    """z = f(x; θ) for the θ that a virtual step moves; the embedder, its buffers and its optimizer
    are never touched.

    The backbone is called as it is, not compiled: graphs are kept for several gradients and passed
    in forward mode.

    Args:
        embedder: the network.
        optimizer: what trains it; a virtual step is plain gradient descent with the learning rate
            of each group.
        unroll: ``"all"`` moves the whole network, as the paper does; ``"head"`` only the last
            layer, over features that
            stay as they are: cheap, and no longer the gradient of the paper's Eq. (11).
        factor: of the learning rates in a virtual step.
        compiled: whether ``torch.compile`` makes kernels for ``tangents``, where a GPU spends its
            time between small operations; a minute or more at the first step, and not for networks
            that draw random numbers.
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
        self.embedder, self.optimizer, self.unroll, self.factor = (
            embedder,
            optimizer,
            unroll,
            factor,
        )
        trained = {
            id(p): place
            for place, group in enumerate(optimizer.param_groups)
            for p in group["params"]
        }
        prefix = "head." if unroll == "head" else ""
        named = [
            (n, p)
            for n, p in embedder.named_parameters()
            if n.startswith(prefix) and p.requires_grad
        ]
        self._leaves = {name: parameter for name, parameter in named if id(parameter) in trained}
        if not self._leaves:
            raise ConfigError(
                f"a virtual step moves {'the head' if prefix else 'the network'}, but the "
                "optimizer does not train it. "
                f"Set model.dim, or method.unroll=all."
            )
        groups = [trained[id(leaf)] for leaf in self._leaves.values()]
        self._members = {
            group: [place for place, own in enumerate(groups) if own == group]
            for group in set(groups)
        }
        self._network = _Network(embedder)
        self._draws = False  # whether the network drew random numbers when it was last called
        self._random: tuple[Tensor, Tensor | None] | None = None
        self._tangents = torch.compile(self._derived) if compiled else self._derived

    @property
    def leaves(self) -> list[nn.Parameter]:
        """The parameters themselves, for differentiation."""
        return list(self._leaves.values())

    def parameters(self) -> Parameters:
        """Return θ by name, cut from any graph."""
        return {name: leaf.detach() for name, leaf in self._leaves.items()}

    def scaled(self, gradients: list[Tensor]) -> list[Tensor]:
        """Return α ∇, with the present learning rate of each group."""
        found: dict[int, Tensor] = {}
        for group, places in self._members.items():
            rate = self.factor * self.optimizer.param_groups[group]["lr"]
            parts = torch._foreach_mul([gradients[place] for place in places], rate)
            found |= dict(zip(places, parts, strict=True))
        return [found[place] for place in range(len(gradients))]

    def moved(self, steps: list[Tensor], scale: float = -1.0) -> Parameters:
        """Return θ + scale · steps; by default a step downhill, Eq. (10)."""
        parameters = self.parameters()
        values = torch._foreach_add(list(parameters.values()), steps, alpha=scale)
        return dict(zip(parameters, values, strict=True))

    def features(self, inputs: Tensor) -> Float[Tensor, "n c"]:
        """Compute y of the real network: part of the graph, and running statistics move."""
        before = (
            None if being_captured(inputs) else _random_state(inputs)
        )  # which cannot be read during capture
        if before is None and self._draws:
            raise RuntimeError(
                "the network draws random numbers, which a virtual step draws once more."
            )
        features: Tensor = self._network(inputs, self._precision(), features_only=True)
        if before is not None:
            pairs = zip(before, _random_state(inputs), strict=True)
            self._draws = any(
                a is not None and b is not None and not torch.equal(a, b) for a, b in pairs
            )
        self._random = before if self._draws else None
        return features

    def frozen_features(self, inputs: Tensor) -> Float[Tensor, "n c"]:
        """Compute y as a constant; running statistics stay."""
        with torch.no_grad():
            named, given = self._copies(), (inputs, self._precision(), True)
            features: Tensor = functional_call(self._network, named, given)
        return features

    def embed(self, parameters: Parameters, inputs: Tensor, *, precise: bool = False) -> Embeddings:
        """Compute z with other parameters; running statistics stay.

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
        """Return z = g(y) with other parameters."""
        named = {
            name.removeprefix("head."): p
            for name, p in parameters.items()
            if name.startswith("head.")
        }
        return lambda features: functional_call(self.embedder.head, named, (features,))

    def tangents(self, direction: list[Tensor], inputs: Tensor) -> Embeddings:
        """Compute dz/dε at θ + ε ``direction``, in forward mode: one pass, no graph."""
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
        """Draw the random numbers of the last ``features`` once more: what was dropped there is
        dropped again."""
        if self._random is None:
            yield
            return
        on_host, on_device = self._random
        with torch.random.fork_rng(
            devices=[] if on_device is None else [torch.cuda.current_device()]
        ):
            torch.set_rng_state(on_host)
            if on_device is not None:
                torch.cuda.set_rng_state(on_device)
            yield

    def _precision(self) -> torch.dtype | None:
        """Return what the backbone trains in, as ``Embedder.features`` would have it."""
        return self.embedder.precision if self.embedder.training else None

    def _copies(self) -> Parameters:
        """Return copies of the buffers that a forward pass may change: those of modules in training
        mode."""
        return {
            ".".join(filter(None, ("embedder", path, name))): buffer.clone()
            for path, module in self.embedder.named_modules()
            if module.training
            for name, buffer in module.named_buffers(recurse=False)
        }


def _random_state(inputs: Tensor) -> tuple[Tensor, Tensor | None]:
    """On the host, and on the device of ``inputs``."""
    return torch.get_rng_state(), torch.cuda.get_rng_state(
        inputs.device
    ) if inputs.is_cuda else None


@cache
def load_forward_mode() -> None:
    """torch compiles its rules at their first use, with a deprecation warning about its own way of
    doing so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        jvp(torch.sin, (torch.zeros(()),), (torch.zeros(()),))


class _Network(nn.Module):
    """An embedder as losses see it, before normalization."""

    def __init__(self, embedder: Embedder) -> None:
        super().__init__()
        self.embedder = embedder

    def forward(
        self, inputs: Tensor, precision: torch.dtype | None, features_only: bool = False
    ) -> Tensor:
        with torch.autocast(inputs.device.type, precision, enabled=precision is not None):
            maps = self.embedder.backbone(inputs)
        features = self.embedder.pool(at_least_float32(maps))
        return features if features_only else self.embedder.embed(features)


def embedding_tangents(
    metric: Metric, inputs: Tensor, direction: list[Tensor], *, route: Route = "forward"
) -> Embeddings:
    """Compute dz/dε of every row of ``inputs`` at θ + ε u: exact in forward mode, or by a central
    difference.

    The difference is (z(θ + hu) - z(θ - hu)) / 2h in full float32. Rounding costs ε/(relative
    change of z); the ReLUs that switch on the way cost a multiple of that change. So h is such that
    z changes by √ε / 3, 1e-4 of its length, as a pilot of a few rows finds it. A rule by the
    parameters' length fails: the direction is the network's steepest, and a thousandth of their
    length along it turns GoogLeNet into another network (experiments/ala.md).
    """
    if route == "forward":
        return metric.tangents(direction, inputs)
    with (
        torch.no_grad(),
        tensor_cores(False),
    ):  # a difference of two passes would lose to the 10 bits of TF32
        step = _step(metric, inputs[:PILOT_ROWS], direction)
        ahead, behind = (
            _displaced(metric, direction, scale * step, inputs) for scale in (1.0, -1.0)
        )
    return (ahead - behind) / (2 * step)


def slopes(
    metric: Metric,
    scoring: Scoring,
    direction: list[Tensor],
    embeddings: Embeddings,
    tangents: Embeddings,
    labels: SingleLabels,
) -> Float[Tensor, "t"]:
    """Compute d/dε L(T; θ + ε u) of every tuple from ``tangents``, the embeddings' derivative along
    u."""
    parameters = metric.parameters()
    along = dict(zip(parameters, direction, strict=True))
    of_head = {name: value for name, value in parameters.items() if name.startswith("head.")}

    def losses(rows: Tensor, head: Parameters) -> Tensor:
        untouched = {
            name: buffer.clone() for name, buffer in scoring.named_buffers()
        }  # of a generator's batch norm
        scored: Scored = functional_call(scoring, untouched, (rows, labels, metric.head(head)))
        return scored.losses

    load_forward_mode()
    with torch.no_grad():
        given, moving = (
            (embeddings.detach(), of_head),
            (tangents, {name: along[name] for name in of_head}),
        )
        result: Tensor = jvp(losses, given, moving)[1]
    return result


def slopes_by_double_backward(
    losses: Float[Tensor, "t"], leaves: list[nn.Parameter], direction: list[Tensor]
) -> Float[Tensor, "t"]:
    """Compute the same slopes from the graph of the losses, by differentiating a gradient in its
    own cotangent.

    ∇ Σ_T c_T L(T) is linear in c, so its derivative in c along u is ⟨u, ∇L(T)⟩. It needs no forward
    mode of any operator, but a graph of the backward pass: the reference, and what is left where
    forward mode is missing.
    """
    cotangent = torch.zeros_like(losses, requires_grad=True)
    gradients = gradient(losses, leaves, cotangent, create_graph=True)
    reached = [(g, u) for g, u in zip(gradients, direction, strict=True) if g.requires_grad]
    if not reached:
        return torch.zeros_like(losses)
    outputs, directions = zip(*reached, strict=True)
    (result,) = torch.autograd.grad(
        outputs, [cotangent], directions, retain_graph=True, materialize_grads=True
    )
    return result


def lacks_forward_mode(error: RuntimeError) -> bool:
    """Return whether torch says by this that an operator, its own or a user's, has no forward
    mode."""
    return isinstance(error, NotImplementedError) or "setup_context" in str(error)


def gradient(
    losses: Tensor,
    leaves: list[nn.Parameter],
    cotangent: Tensor | None = None,
    *,
    create_graph: bool = False,
) -> list[Tensor]:
    """Return ∇ in ``leaves``, the graph kept for those to come; 0 for what the losses do not
    reach."""
    kept = {"retain_graph": True, "create_graph": create_graph, "materialize_grads": True}
    return list(torch.autograd.grad(losses, leaves, cotangent, **kept))


def norm(parts: list[Tensor]) -> Float[Tensor, ""]:
    """Return the length of all parts together."""
    length: Tensor = torch.stack(torch._foreach_norm(parts)).norm()
    return length


def _step(metric: Metric, inputs: Tensor, direction: list[Tensor]) -> Float[Tensor, ""]:
    """Return h of the difference, from how far a short step moves these rows."""
    smallest = torch.finfo(inputs.dtype).tiny
    pilot = (
        PILOT_STEP * norm(list(metric.parameters().values())) / norm(direction).clamp(min=smallest)
    )
    here, there = (_displaced(metric, direction, scale * pilot, inputs) for scale in (0.0, 1.0))
    change = (there - here).norm() / here.norm().clamp(min=smallest)
    wanted = torch.finfo(inputs.dtype).eps ** 0.5 / 3 if CHANGE is None else CHANGE
    step: Tensor = pilot * (wanted / change.clamp(min=smallest)).clamp(max=LONGEST)
    return step


def _displaced(metric: Metric, direction: list[Tensor], scale: Tensor, inputs: Tensor) -> Tensor:
    with metric.replayed():
        return metric.embed(
            metric.moved([scale * part for part in direction], 1.0), inputs, precise=True
        )
