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

With ∇L_va(θ) in the place of ∇L_va(θ') it is the derivative at w = 0 (Ren et al. 2018): the form
``first_order``, which needs no virtual step.

A slope splits at the embeddings: the network's derivative ż = dz/dε, then that of the losses along
ż, which is cheap.
"""

from itertools import islice

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.optim import Optimizer

from vicinal.distances import at_least_float32
from vicinal.methods.ala.assessment import PerTuple, Scoring
from vicinal.models.backbone import Features
from vicinal.models.embedder import Embedder
from vicinal.tuples import Embeddings, SingleLabels

Parameters = dict[str, Tensor]


class Metric:
    """z = f(x; θ) for the θ that a virtual step moves; the embedder, its buffers and its optimizer
    are never touched.

    The backbone is called as it is, not compiled: graphs are kept for several gradients and passed
    in forward mode. A network that draws random numbers (dropout) draws anew in each pass.

    Args:
        embedder: the network.
        optimizer: what trains it; a virtual step is plain gradient descent with the learning rate
            of each group.
    """

    def __init__(self, embedder: Embedder, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self._network = _Network(embedder)
        named = self._network.named_parameters()
        names = {id(p): name for name, p in named if p.requires_grad}
        self._groups = [
            [p for p in group["params"] if id(p) in names] for group in optimizer.param_groups
        ]
        self._leaves = {names[id(p)]: p for members in self._groups for p in members}

    @property
    def leaves(self) -> list[nn.Parameter]:
        """The parameters themselves, for differentiation."""
        return list(self._leaves.values())

    def parameters(self) -> Parameters:
        """Return θ by name in the network, cut from any graph."""
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

    def features(self, inputs: Tensor) -> Features:
        """Compute y of the real network: part of the graph, and running statistics move."""
        return self._network.features(inputs)

    def embed(self, parameters: Parameters, inputs: Tensor) -> Embeddings:
        """Compute z with other parameters by name; what is not named keeps its value, and running
        statistics stay."""
        return functional_call(self._network, self._copies() | parameters, (inputs,))

    def tangents(self, direction: list[Tensor], inputs: Tensor) -> Embeddings:
        """Compute dz/dε of every row at θ + ε ``direction`` in forward mode: one pass, no graph."""
        parameters = self.parameters()
        along = dict(zip(parameters, direction, strict=True))
        with torch.no_grad():
            tangents: Tensor = jvp(lambda at: self.embed(at, inputs), (parameters,), (along,))[1]
        return tangents

    def _copies(self) -> Parameters:
        """Return copies of the buffers that a forward pass may change: those of modules in training
        mode."""
        return {
            f"{path}.{name}": buffer.clone()
            for path, module in self._network.named_modules()
            if module.training
            for name, buffer in module.named_buffers(recurse=False)
        }


class _Network(nn.Module):
    """An embedder as losses see it, before normalization."""

    def __init__(self, embedder: Embedder) -> None:
        super().__init__()
        self.embedder = embedder

    def features(self, inputs: Tensor) -> Features:
        embedder = self.embedder
        precision = embedder.precision if embedder.training else None
        with torch.autocast(inputs.device.type, precision, enabled=precision is not None):
            maps = embedder.backbone(inputs)
        return embedder.pool(at_least_float32(maps))

    def forward(self, inputs: Tensor) -> Embeddings:
        return self.embedder.embed(self.features(inputs))


def slopes(
    scoring: Scoring, embeddings: Embeddings, tangents: Embeddings, labels: SingleLabels
) -> PerTuple:
    """Compute d/dε L(T; θ + ε u) of every tuple from ``tangents``, the embeddings' derivative along
    u."""
    with torch.no_grad():
        result: Tensor = jvp(
            lambda rows: scoring(rows, labels).losses, (embeddings.detach(),), (tangents,)
        )[1]
    return result
