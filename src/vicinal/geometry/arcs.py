"""The nearest points of two arcs on the unit sphere, exactly, as LoOp needs them (Vasudeva et al., ICCV 2021)."""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.errors import ConfigError

Ends = Float[Tensor, "p d"]
OtherEnds = Float[Tensor, "q d"] | None
BLOCK = 2**20  # pairs of arcs that are solved in one go; their intermediate values take some 40 times this
MET = 64 * torch.finfo(torch.float64).eps  # squared distance below which there is only rounding
POINT = 2**-26  # sine below which an arc is a point: root of float64's last digit, so the sine itself is rounding
HALF_CIRCLE = 1e-4  # the same for opposite ends: on the way between them the gradient grows like 1 / sine


def shift_angle(cosine: Float[Tensor, "*shape"], angle: float) -> Float[Tensor, "*shape"]:
    """Return cos(θ + angle) of cos θ. Where rows meet or are opposite, it has no derivative: its gradient is 0 there.

        cos(θ + m) = cos θ cos m - sin θ sin m

    >>> shift_angle(torch.tensor([0.0]), math.pi / 2)
    tensor([-1.])
    """
    squares = 1 - cosine.square()
    flat = squares <= 0
    sine = squares.masked_fill(flat, 1).sqrt().masked_fill(flat, 0)
    return cosine * math.cos(angle) - sine * math.sin(angle)


def arc_distances(
    starts: Ends, ends: Ends, other_starts: OtherEnds = None, other_ends: OtherEnds = None, *, squared: bool = False
) -> Float[Tensor, "p q"]:
    """Smallest Euclidean distance, or its square, between a point of each arc and a point of each other arc.

        d = min ‖p₁ - p₂‖ = √(2 - 2 max p₁·p₂)                                        Vasudeva et al. 2021, Eq. (1)

    Arguments and gradient as of ``arc_similarity``. Arcs that meet up to rounding have distance 0 and gradient 0.

    >>> east, north, up = torch.eye(3).split(1)
    >>> arc_distances(east, north, up, -up)
    tensor([[1.4142]])
    >>> arc_distances(east, north, up, (east + north) / 2 - up)
    tensor([[0.]])
    """
    squares = 2 - 2 * _similarity(starts, ends, other_starts, other_ends)
    met = squares <= MET
    far = squares if squared else squares.masked_fill(met, 1).sqrt()  # the root has no slope at 0
    return far.masked_fill(met, 0).to(torch.promote_types(starts.dtype, torch.float32))


def arc_similarity(
    starts: Ends, ends: Ends, other_starts: OtherEnds = None, other_ends: OtherEnds = None
) -> Float[Tensor, "p q"]:
    """Largest cosine between a point of each arc and a point of each other arc (default: of the arcs themselves).

    An arc is the shorter great circle from a start to its end; rows need not be of unit length, their directions count.
    Equal ends make a point. Opposite ends have no shortest way between them: only the two ends themselves count.

    The gradient is that of p₁·p₂ with the nearest points held at their places on the arcs (envelope theorem): exact
    wherever there is a gradient. It can be taken once, and not in forward mode.

    All in float64 on inner products of rows alone, so that a pair of arcs costs the same in any dimension.

    >>> east, north, up = torch.eye(3).split(1)
    >>> arc_similarity(east, north, up, east + north + up).item() ** 2  # (1 1 0)/√2 and (1 1 1)/√3
    0.666...
    """
    return _similarity(starts, ends, other_starts, other_ends).to(torch.promote_types(starts.dtype, torch.float32))


def _similarity(starts: Tensor, ends: Tensor, other_starts: Tensor | None, other_ends: Tensor | None) -> Tensor:
    with torch.autocast(starts.device.type, enabled=False):
        x, y = _unit(torch.stack([starts, ends]).double()), None
        if other_starts is not None and other_ends is not None:
            y = _unit(torch.stack([other_starts, other_ends]).double())
        best, *_ = _ArcSimilarity.apply(x, y)  # type: ignore[no-untyped-call]
    similarity: Tensor = best
    return similarity


class _ArcSimilarity(torch.autograd.Function):
    """From unit starts and ends ``[2 p d]`` and ``[2 q d]`` to the largest p₁·p₂ of each two arcs, with the weights of

        p₁ = a₁x₁ + a₂x₂,   p₂ = b₁y₁ + b₂y₂.

    Whatever the ends do, (a₁x₁ + a₂x₂) / √(a₁² + a₂² + 2a₁a₂ x₁·x₂) stays on the arc, and at the maximum no motion
    along the arc helps, so the weights may be taken as constants. The root is 1 here, hence

        ∂/∂(x_i·y_j) = a_i b_j,     ∂/∂(x₁·x₂) = -a₁a₂ p₁·p₂,     ∂/∂(y₁·y₂) = -b₁b₂ p₁·p₂.

    ``y = None`` stands for ``x``.
    """

    @staticmethod
    def forward(x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        others = x if y is None else y
        p, q = x.shape[1], others.shape[1]
        gram = (x.flatten(0, 1) @ others.flatten(0, 1).T).view(2, p, 2, q).transpose(1, 2)
        x_arcs, y_arcs = _Arcs.between(*x), _Arcs.between(*others)
        best, x_weights, y_weights = gram.new_empty(p, q), gram.new_empty(2, p, q), gram.new_empty(2, p, q)
        step = max(1, BLOCK // max(1, q))
        for start in range(0, p if q else 0, step):
            rows = slice(start, start + step)
            found = _nearest(gram[:, :, rows], _Arcs(*(part[rows, None] for part in x_arcs)), y_arcs)
            best[rows], x_weights[:, rows], y_weights[:, rows] = found
        return best, x_weights, y_weights

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor | None], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor, Tensor | None]:
        if torch.is_grad_enabled():  # the weights' own derivatives would be missing, without a word
            raise ConfigError(
                "a second derivative of distances between arcs was asked for (create_graph=True), but they have only a "
                "first one. Use them with methods that differentiate once."
            )
        x, y, best, x_weights, y_weights = ctx.saved_tensors
        p, q = best.shape
        pull = ((gradient * x_weights)[:, :, None] * y_weights.transpose(0, 1)).reshape(2 * p, 2 * q)  # of x_i·y_j
        along = -gradient * best
        x_along = (along * x_weights[0] * x_weights[1]).sum(dim=1)[:, None]
        y_along = (along * y_weights[0] * y_weights[1]).sum(dim=0)[:, None]
        if y is None:  # both ends of each inner product are rows of x
            pull, x_along = pull + pull.T, x_along + y_along
        others = x if y is None else y
        to_x = (pull @ others.flatten(0, 1)).view_as(x) + x_along * x.flip(0)
        to_y = None if y is None else (pull.T @ x.flatten(0, 1)).view_as(y) + y_along * y.flip(0)
        return to_x, to_y


class _Arcs(NamedTuple):
    """Cosine, sine and angle between the ends of arcs; the sine is 1 where an arc has no direction."""

    cosine: Tensor
    sine: Tensor
    angle: Tensor
    directed: Bool[Tensor, "..."]

    @classmethod
    def between(cls, starts: Tensor, ends: Tensor) -> "_Arcs":
        cosine = (starts * ends).sum(dim=1)
        sine = ((1 - cosine) * (1 + cosine)).clamp(min=0).sqrt()
        directed = sine > torch.where(cosine > 0, POINT, HALF_CIRCLE)
        # Never an arccos: at a cosine of 1 + 1e-16 it is NaN.
        return cls(cosine, sine.masked_fill(~directed, 1), torch.atan2(sine, cosine), directed)


def _nearest(gram: Float[Tensor, "2 2 p q"], x: _Arcs, y: _Arcs) -> tuple[Tensor, Tensor, Tensor]:
    """The largest p₁·p₂ of each pair of arcs, and the weights of the ends in p₁ and in p₂.

    With p₁ = n₁ cos α + n₂ sin α and p₂ = n₃ cos β + n₄ sin β, Eqs. (3) and (4), m_ij = n_i·n_(j+2) and

        p₁·p₂ = (cos α, sin α) M (cos β, sin β)ᵀ = R₁ cos(α - β - φ₁) + R₂ cos(α + β - φ₂)

    has one maximum inside the rectangle of α and β, or none. The largest value on each of its four edges is that of a
    cosine on an interval; corners are ends of edges. All five candidates are made to lie in the rectangle, where any
    value is admissible, so the best of them is the answer, and no case needs a branch of its own.

    Differs: the paper solves the KKT conditions through a quadratic in tan α that divides by ab + cd, which is 0 where
    arcs lie symmetrically, and tests the signs of the multipliers; this never divides, and needs no test.
    """
    towards_y = (gram[:, 1] - y.cosine * gram[:, 0]) / y.sine  # x₁·n₄ and x₂·n₄
    towards_x = (gram[1] - x.cosine * gram[0]) / x.sine  # n₂·y₁ and n₂·y₂
    beta_edges, betas = _best_on_edge(gram[:, 0], towards_y, gram[:, 1], y)  # at α = 0 and at its end
    alpha_edges, alphas = _best_on_edge(gram[0], towards_x, gram[1], x)  # at β = 0 and at its end

    m11, m12, m21 = gram[0, 0], towards_y[0], towards_x[0]
    m22 = (towards_y[1] - x.cosine * towards_y[0]) / x.sine
    difference, total = torch.atan2(m21 - m12, m11 + m22), torch.atan2(m21 + m12, m11 - m22)  # φ₁ and φ₂
    alpha, beta = (total + difference) / 2, (total - difference) / 2
    half_turns = math.pi * torch.floor(alpha / math.pi)  # both angles may turn by π together
    alpha = torch.minimum(alpha - half_turns, x.angle)
    beta = torch.minimum((beta - half_turns).remainder(2 * math.pi), y.angle)
    inside = alpha.cos() * (m11 * beta.cos() + m12 * beta.sin()) + alpha.sin() * (m21 * beta.cos() + m22 * beta.sin())
    inside = inside.masked_fill(~(x.directed & y.directed), -torch.inf)

    best, chosen = torch.cat([beta_edges, alpha_edges, inside[None]]).max(dim=0)
    nothing, chosen = torch.zeros_like(best), chosen[None]
    alpha = torch.cat([torch.stack([nothing, nothing + x.angle]), alphas, alpha[None]]).gather(0, chosen)[0]
    beta = torch.cat([betas, torch.stack([nothing, nothing + y.angle]), beta[None]]).gather(0, chosen)[0]
    return best, _weights(alpha, x), _weights(beta, y)


def _best_on_edge(start: Tensor, towards: Tensor, end: Tensor, arc: _Arcs) -> tuple[Tensor, Tensor]:
    """Where on an arc a fixed point has its largest inner product A cos θ + B sin θ: the value and the angle.

    Of angles that differ by a whole turn the one nearest to the middle of the arc is clamped, so that the nearer end is
    the better one.
    """
    angle = torch.atan2(towards, start)
    angle = torch.where(angle < arc.angle / 2 - math.pi, angle + 2 * math.pi, angle)
    angle = torch.minimum(angle.clamp(min=0), arc.angle)
    value = start * angle.cos() + towards * angle.sin()
    value = torch.where(arc.directed, value, torch.maximum(start, end))
    return value, torch.where(arc.directed, angle, arc.angle * (end > start))


def _weights(angle: Tensor, arc: _Arcs) -> Float[Tensor, "2 p q"]:
    """Weights of start and end in the point at ``angle``: sin(a - θ) / sin a and sin θ / sin a."""
    weights = torch.stack([(arc.angle - angle).sin(), angle.sin()]) / arc.sine
    at_end = (angle > arc.angle / 2).to(weights.dtype)
    return torch.where(arc.directed, weights, torch.stack([1 - at_end, at_end]))


def _unit(rows: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
    lengths = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    unit: Tensor = rows / lengths.masked_fill(lengths == 0, torch.inf)
    return unit
