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
ż, which is cheap.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.optim import Optimizer

from vicinal.distances import at_least_float32
from vicinal.methods.ala.assessment import Head, Scored, Scoring
from vicinal.models.embedder import Embedder
from vicinal.tuples import Embeddings, SingleLabels, being_captured

Parameters = dict[str, Tensor]


class Metric:
    """z = f(x; θ) for the θ that a virtual step moves; the embedder, its buffers and its optimizer
    are never touched.

    The backbone is called as it is, not compiled: graphs are kept for several gradients and passed
    in forward mode.

    Args:
        embedder: the network.
        optimizer: what trains it; a virtual step is plain gradient descent with the learning rate
            of each group.
    """

    def __init__(self, embedder: Embedder, optimizer: Optimizer) -> None:
        self.embedder = embedder
        self.optimizer = optimizer
        names = {id(p): name for name, p in embedder.named_parameters() if p.requires_grad}
        self._groups = [
            [p for p in group["params"] if id(p) in names] for group in optimizer.param_groups
        ]
        self._leaves = {names[id(p)]: p for members in self._groups for p in members}
        self._network = _Network(embedder)
        self._random: list[Tensor] = []  # before the last pass, if that drew random numbers

    @property
    def leaves(self) -> list[nn.Parameter]:
        """The parameters themselves, for differentiation."""
        return list(self._leaves.values())

    def parameters(self) -> Parameters:
        """Return θ by name, cut from any graph."""
        return {name: leaf.detach() for name, leaf in self._leaves.items()}

    def scaled(self, gradients: list[Tensor]) -> list[Tensor]:
        """Return α ∇, with the present learning rate of each group."""
        scaled: list[Tensor] = []
        rest = iter(gradients)
        for members, group in zip(self._groups, self.optimizer.param_groups, strict=True):
            if members:
                scaled += torch._foreach_mul(list(islice(rest, len(members))), group["lr"])
        return scaled

    def moved(self, steps: list[Tensor]) -> Parameters:
        """Return θ' = θ - steps, Eq. (10)."""
        parameters = self.parameters()
        values = torch._foreach_sub(list(parameters.values()), steps)
        return dict(zip(parameters, values, strict=True))

    def features(self, inputs: Tensor) -> Float[Tensor, "n c"]:
        """Compute y of the real network: part of the graph, and running statistics move."""
        captured = being_captured(inputs)  # when the state of a generator cannot be read
        if captured and self._random:
            raise RuntimeError(
                "the network draws random numbers, which a virtual step draws once more."
            )
        before = [] if captured else _random_state(inputs)
        features: Tensor = self._network(inputs, self._precision(), features_only=True)
        if not captured:
            drew_none = all(map(torch.equal, before, _random_state(inputs)))
            self._random = [] if drew_none else before
        return features

    def embed(self, parameters: Parameters, inputs: Tensor) -> Embeddings:
        """Compute z with other parameters by name; what is not named keeps its value, and running
        statistics stay."""
        named = self._copies() | {f"embedder.{name}": value for name, value in parameters.items()}
        embeddings: Tensor = functional_call(self._network, named, (inputs, self._precision()))
        return embeddings

    def head(self, parameters: Parameters) -> Head:
        """Return z = g(y) with other parameters."""
        named = _of_head(parameters)
        return lambda features: functional_call(self.embedder.head, named, (features,))

    def tangents(self, direction: list[Tensor], inputs: Tensor) -> Embeddings:
        """Compute dz/dε of every row at θ + ε ``direction`` in forward mode: one pass, no graph."""
        load_forward_mode()
        parameters = self.parameters()
        along = dict(zip(parameters, direction, strict=True))
        with torch.no_grad(), self._replayed():
            tangents: Tensor = jvp(lambda at: self.embed(at, inputs), (parameters,), (along,))[1]
        return tangents

    @contextmanager
    def _replayed(self) -> Iterator[None]:
        """Draw the random numbers of the last ``features`` once more: what was dropped there is
        dropped again."""
        with torch.random.fork_rng(
            devices=[torch.cuda.current_device()] if len(self._random) > 1 else [],
            enabled=bool(self._random),
        ):
            for state, restore in zip(
                self._random, (torch.set_rng_state, torch.cuda.set_rng_state), strict=False
            ):
                restore(state)
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


def _of_head(parameters: Parameters) -> Parameters:
    """Return the parameters of the head by their names in it."""
    return {
        name.removeprefix("head."): value
        for name, value in parameters.items()
        if name.startswith("head.")
    }


def _random_state(inputs: Tensor) -> list[Tensor]:
    """Return the state of torch's generator on the host, and on the GPU of ``inputs``."""
    on_device = [torch.cuda.get_rng_state(inputs.device)] if inputs.is_cuda else []
    return [torch.get_rng_state(), *on_device]


@cache
def load_forward_mode() -> None:
    """torch compiles its rules at their first use, with a deprecation warning about its own way of
    doing so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        jvp(torch.sin, (torch.zeros(()),), (torch.zeros(()),))


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
    head = metric.embedder.head

    def losses(rows: Tensor, of_head: Parameters) -> Tensor:
        # of a generator's batch norm, which must not move
        untouched = {name: buffer.clone() for name, buffer in scoring.named_buffers()}
        given = rows, labels, lambda features: functional_call(head, of_head, (features,))
        scored: Scored = functional_call(scoring, untouched, given)
        return scored.losses

    load_forward_mode()
    with torch.no_grad():
        at = embeddings.detach(), _of_head(parameters)
        result: Tensor = jvp(losses, at, (tangents, _of_head(along)))[1]
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
