"""The gradient of a validation loss after one step in the weights of that step, exact and without second-order memory.

An assessor weighs the tuples T of a training subset; one step of gradient descent follows the weighted losses,

    θ'(w) = θ - α Σ_T w_T ∇L(T; θ)                                                   Zheng et al. 2020, Eq. (10)

and a validation subset says how good that step was. By the chain rule

    ∂/∂w_T L_va(θ') = -⟨α ∇L_va(θ'), ∇L(T; θ)⟩ = -d/dε L(T; θ + ε u),  u = α ∇L_va(θ')

since the weights do not depend on θ (embeddings reach the assessor detached). So what Eqs. (11) and (12) need of the
network is one number for each tuple, its *slope* along u, and all slopes together are one derivative of the vector of
losses in one direction. Forward mode gives it in one pass, without a graph and without second derivatives.

A slope splits at the embeddings: the network's derivative ż = dz/dε, then that of the losses along ż, which is cheap
and always exact. Hence a finite difference, where it is asked for, never meets the kink of a hinge.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.func import functional_call, jvp

from vicinal.methods.ala.metric import Metric, Parameters, load_forward_mode
from vicinal.methods.ala.scoring import Scored, Scoring

Route = Literal["forward", "double_backward", "difference"]

PILOT_ROWS = 4  # on which a difference finds out how fast embeddings change
PILOT_STEP = 1e-6  # length of the pilot's displacement over that of the parameters
LONGEST = 1e3  # in pilot steps, where embeddings hardly change at all
CHANGE: float | None = None  # of embeddings across half a difference, relative; None is the rule, √ε / 3


def embedding_tangents(
    metric: Metric, inputs: Tensor, direction: list[Tensor], *, route: Route = "forward"
) -> Float[Tensor, "n d"]:
    """dz/dε of every row of ``inputs`` at θ + ε u: exact in forward mode, or by a central difference.

    The difference is (z(θ + hu) - z(θ - hu)) / 2h in full float32. Rounding costs ε/(relative change of z); the ReLUs
    that switch on the way cost a multiple of that change. So h is such that z changes by √ε / 3, 1e-4 of its length,
    as a pilot of a few rows finds it. A rule by the parameters' length fails: the direction is the network's steepest,
    and a thousandth of their length along it turns GoogLeNet into another network (experiments/ala.md).
    """
    if route == "forward":
        return metric.tangents(direction, inputs)
    with torch.no_grad(), full_float32():
        step = _step(metric, inputs[:PILOT_ROWS], direction)
        ahead, behind = (_displaced(metric, direction, scale * step, inputs) for scale in (1.0, -1.0))
    return (ahead - behind) / (2 * step)


def slopes(
    metric: Metric,
    scoring: Scoring,
    direction: list[Tensor],
    embeddings: Float[Tensor, "n d"],
    tangents: Float[Tensor, "n d"],
    labels: Integer[Tensor, "n"],
) -> Float[Tensor, "t"]:
    """d/dε L(T; θ + ε u) of every tuple, from the embeddings' own derivative ``tangents`` along u = ``direction``."""
    parameters = metric.parameters()
    along = dict(zip(parameters, direction, strict=True))
    of_head = {name: value for name, value in parameters.items() if name.startswith("head.")}

    def losses(rows: Tensor, head: Parameters) -> Tensor:
        untouched = {name: buffer.clone() for name, buffer in scoring.named_buffers()}  # of a generator's batch norm
        scored: Scored = functional_call(scoring, untouched, (rows, labels, metric.head(head)))
        return scored.losses

    load_forward_mode()
    with torch.no_grad():
        given, moving = (embeddings.detach(), of_head), (tangents, {name: along[name] for name in of_head})
        result: Tensor = jvp(losses, given, moving)[1]
    return result


def slopes_by_double_backward(
    losses: Float[Tensor, "t"], leaves: list[nn.Parameter], direction: list[Tensor]
) -> Float[Tensor, "t"]:
    """The same slopes from the graph of the losses, by differentiating a gradient in its own cotangent.

    ∇ Σ_T c_T L(T) is linear in c, so its derivative in c along u is ⟨u, ∇L(T)⟩. It needs no forward mode of any
    operator, but a graph of the backward pass: the reference, and what is left where forward mode is missing.
    """
    cotangent = torch.zeros_like(losses, requires_grad=True)
    gradients = gradient(losses, leaves, cotangent, create_graph=True)
    reached = [(g, u) for g, u in zip(gradients, direction, strict=True) if g.requires_grad]
    if not reached:
        return torch.zeros_like(losses)
    outputs, directions = zip(*reached, strict=True)
    (result,) = torch.autograd.grad(outputs, [cotangent], directions, retain_graph=True, materialize_grads=True)
    return result


def lacks_forward_mode(error: RuntimeError) -> bool:
    """Whether torch says by this that an operator, its own or a user's ``autograd.Function``, has no forward mode."""
    return isinstance(error, NotImplementedError) or "setup_context" in str(error)


def gradient(
    losses: Tensor, leaves: list[nn.Parameter], cotangent: Tensor | None = None, *, create_graph: bool = False
) -> list[Tensor]:
    """∇ in ``leaves``, the graph kept for those to come; 0 for what the losses do not reach."""
    found = torch.autograd.grad(
        losses,
        leaves,
        cotangent,
        retain_graph=True,
        create_graph=create_graph,
        allow_unused=True,
        materialize_grads=True,
    )
    return list(found)


def norm(parts: list[Tensor]) -> Float[Tensor, ""]:
    """Length of all parts together."""
    length: Tensor = torch.stack(torch._foreach_norm(parts)).norm()
    return length


@contextmanager
def full_float32() -> Iterator[None]:
    """Matrix products and convolutions without TF32: a difference of two passes would lose to its 10 bits."""
    products, convolutions = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = products, convolutions


def _step(metric: Metric, inputs: Tensor, direction: list[Tensor]) -> Float[Tensor, ""]:
    """h of the difference, from how far a short step moves these rows."""
    smallest = torch.finfo(inputs.dtype).tiny
    pilot = PILOT_STEP * norm(list(metric.parameters().values())) / norm(direction).clamp(min=smallest)
    here, there = (_displaced(metric, direction, scale * pilot, inputs) for scale in (0.0, 1.0))
    change = (there - here).norm() / here.norm().clamp(min=smallest)
    wanted = torch.finfo(inputs.dtype).eps ** 0.5 / 3 if CHANGE is None else CHANGE
    step: Tensor = pilot * (wanted / change.clamp(min=smallest)).clamp(max=LONGEST)
    return step


def _displaced(metric: Metric, direction: list[Tensor], scale: Tensor, inputs: Tensor) -> Tensor:
    with metric.replayed():
        return metric.embed(metric.moved([scale * part for part in direction], 1.0), inputs, precise=True)
