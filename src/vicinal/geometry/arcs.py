"""The nearest points of two arcs on the unit sphere, exactly, as LoOp needs them (Vasudeva et al.,
ICCV 2021)."""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vicinal.errors import ConfigError

# Pairs of arcs that are solved in one go; their intermediate values take some 60 times this.
BLOCK = 2**20
MET = 64 * torch.finfo(torch.float64).eps  # squared distance below which there is only rounding
# Sine below which an arc is a point: root of float64's last digit, so the sine itself is rounding.
POINT = 2**-26
# The same for opposite ends: on the way between them the gradient grows like 1 / sine.
HALF_CIRCLE = 1e-4
NOTHING = 1e-150  # length below which a vector has no direction: its square is rounding


def shift_angle(cosine: Float[Tensor, "*shape"], angle: float) -> Float[Tensor, "*shape"]:
    """Return cos(θ + angle) of cos θ. Where rows meet or are opposite, it has no derivative: its
    gradient is 0 there.

        cos(θ + m) = cos θ cos m - sin θ sin m

    >>> shift_angle(torch.tensor([0.0]), math.pi / 2)
    tensor([-1.])
    """
    squares = 1 - cosine.square()
    flat = squares <= 0
    sine = squares.masked_fill(flat, 1).sqrt().masked_fill(flat, 0)
    return cosine * math.cos(angle) - sine * math.sin(angle)


def arcs_among(
    rows: Float[Tensor, "n d"],
    first: Int[Tensor, "p"],
    second: Int[Tensor, "p"],
    *,
    points: bool = False,
    squared: bool | None = None,
) -> Float[Tensor, "q p"]:
    """Compare arcs from rows ``first`` to rows ``second`` with each other, or with all rows as
    ``points``: by the largest cosine of two of their points, or, where ``squared`` is given, by the
    smallest distance or its square.

        d = min ‖p₁ - p₂‖ = √(2 - 2 max p₁·p₂)                         Vasudeva et al. 2021, Eq. (1)

    An arc is the shorter great circle from a start to its end; rows need not be of unit length,
    their directions count. Equal ends make a point. Opposite ends have no shortest way between
    them: only the two ends themselves count. Arcs that meet up to rounding have distance 0 and
    gradient 0.

    The gradient is that of p₁·p₂ with the nearest points held at their places on the arcs (envelope
    theorem): exact wherever there is a gradient. It can be taken once, and not in forward mode.

    All in float64 on inner products of rows alone, so that a pair of arcs costs the same in any
    dimension.

    >>> rows, pairs = torch.eye(3), (torch.tensor([0, 1]), torch.tensor([1, 2]))
    >>> arcs_among(rows, *pairs, points=True)
    tensor([[1., 0.],
            [1., 1.],
            [0., 1.]])
    """
    with torch.autocast(rows.device.type, enabled=False):
        unit = _unit(rows.double())
        gram = unit @ unit.T
        ends = torch.cat([first, second])
        # Rows are added faster than columns when gradients come back.
        to_ends = gram.index_select(0, ends)
        cosine = to_ends[: len(first)].gather(1, second[:, None])[:, 0]
        if points:
            compared = to_ends.view(2, len(first), len(rows)).transpose(1, 2)[None]
            own = None
        else:
            blocks = to_ends.T.index_select(0, ends).view(2, len(first), 2, len(first))
            compared = blocks.transpose(1, 2)
            own = cosine
        best, *_ = _Nearest.apply(compared, own, cosine)  # type: ignore[no-untyped-call]
    found: Tensor = best if squared is None else _apart(best, squared)
    return found.to(torch.promote_types(rows.dtype, torch.float32))


def _apart(similarity: Float[Tensor, "p q"], squared: bool) -> Float[Tensor, "p q"]:
    squares = 2 - 2 * similarity
    met = squares <= MET
    far = squares if squared else squares.masked_fill(met, 1).sqrt()  # the root has no slope at 0
    return far.masked_fill(met, 0)


class _Nearest(torch.autograd.Function):
    """From inner products of ends to the largest p₁·p₂ of each two arcs, with the weights of

        p₁ = a₁x₁ + a₂x₂,   p₂ = b₁y₁ + b₂y₂.

    However the ends move, (a₁x₁ + a₂x₂) / √(a₁² + a₂² + 2a₁a₂ x₁·x₂) stays on the arc, and at the
    maximum no motion along the arc helps, so the weights may be taken as constants. The root is 1
    here, hence

        ∂/∂(x_i·y_j) = a_i b_j,     ∂/∂(x₁·x₂) = -a₁a₂ p₁·p₂,     ∂/∂(y₁·y₂) = -b₁b₂ p₁·p₂.

    Arguments are x_i·y_j ``[2 2 p q]``, x₁·x₂ ``[p]`` and y₁·y₂ ``[q]``; points ``[1 2 p q]`` have
    no x₁·x₂.
    """

    @staticmethod
    def forward(
        gram: Tensor, x_cosine: Tensor | None, y_cosine: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        p, q = gram.shape[2:]
        best = gram.new_empty(p, q)
        y_weights = gram.new_empty(2, p, q)
        y_arcs = _Arcs.of(y_cosine)
        x_weights = gram.new_ones(1, 1, 1) if x_cosine is None else gram.new_empty(2, p, q)
        step = max(1, BLOCK // max(1, q))
        for start in range(0, p if q else 0, step):
            rows = slice(start, start + step)
            if x_cosine is None:
                begin, end = gram[0, :, rows]
                best[rows], y_weights[:, rows] = _best_on_edge(
                    begin, end, y_arcs.across(begin, end), y_arcs
                )
            else:
                found = _nearest(gram[:, :, rows], _Arcs.of(x_cosine[rows, None]), y_arcs)
                best[rows], x_weights[:, rows], y_weights[:, rows] = found
        return best, x_weights, y_weights

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor | None, Tensor], output: tuple[Tensor, ...]
    ) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor, Tensor | None, Tensor]:
        if torch.is_grad_enabled():  # the weights' own derivatives would be missing, without a word
            raise ConfigError(
                "a second derivative of distances between arcs was asked for (create_graph=True), "
                "but they have only a first one. Use them with methods that differentiate once."
            )
        best, x_weights, y_weights = ctx.saved_tensors
        along = -gradient * best
        to_x = (along * x_weights[0] * x_weights[1]).sum(dim=1) if len(x_weights) == 2 else None
        to_y = (along * y_weights[0] * y_weights[1]).sum(dim=0)
        return (gradient * x_weights)[:, None] * y_weights, to_x, to_y


class _Arcs(NamedTuple):
    """Cotangent and cosecant of the angle between the ends of arcs; 0 and 1 where an arc has no
    direction."""

    cotangent: Tensor
    cosecant: Tensor
    directed: Bool[Tensor, "..."]

    @classmethod
    def of(cls, cosine: Tensor) -> "_Arcs":
        sine = ((1 - cosine) * (1 + cosine)).clamp(min=0).sqrt()
        directed = sine > torch.where(cosine > 0, POINT, HALF_CIRCLE)
        sine = sine.masked_fill(~directed, 1)
        return cls((cosine / sine).masked_fill(~directed, 0), 1 / sine, directed)

    def across(self, start: Tensor, end: Tensor) -> Tensor:
        """Return the inner product with the unit vector across the start, of those with start and
        end."""
        return end * self.cosecant - start * self.cotangent


def _nearest(gram: Float[Tensor, "2 2 p q"], x: _Arcs, y: _Arcs) -> tuple[Tensor, Tensor, Tensor]:
    """The largest p₁·p₂ of each pair of arcs, and the weights of the ends in p₁ and in p₂.

    With p₁ = n₁ cos α + n₂ sin α and p₂ = n₃ cos β + n₄ sin β, Eqs. (3) and (4), and m_ij =
    n_i·n_(j+2),

        p₁·p₂ = uᵀMv,   u = (cos α, sin α),   v = (cos β, sin β)

    has one maximum inside the rectangle of α and β, or none. It is where u and v are the first
    singular vectors of M, and 2α is the angle of the complex number

        (m₁₁ + m₂₂ + i(m₂₁ - m₁₂)) (m₁₁ - m₂₂ + i(m₂₁ + m₁₂)).

    The best of it and of the largest values on the four edges of the rectangle is the answer. No
    angle is computed: points are known by their cosine and sine.

    Differs: the paper solves the KKT conditions through a quadratic in tan α that divides by
        ab + cd, which is 0 where arcs lie symmetrically, and tests the signs of the multipliers.
    """
    shape = gram.shape[2:]
    both = zip(y, x, strict=True)
    arcs = _Arcs(*(torch.stack([part.expand(shape) for part in parts])[:, None] for parts in both))
    begin = torch.stack([gram[:, 0], gram[0]])
    end = torch.stack([gram[:, 1], gram[1]])
    across = arcs.across(begin, end)
    # Along y from x₁ and x₂, along x from y₁ and y₂.
    values, moving = _best_on_edge(begin, end, across, arcs)
    (m12, x2_n4), (m21, _) = across
    m11 = gram[0, 0]
    m22 = x.across(m12, x2_n4)
    a = m11 + m22
    b = m21 - m12
    c = m11 - m22
    d = m21 + m12
    real = a * c - b * d
    imaginary = a * d + b * c
    size = ((a * a + b * b) * (c * c + d * d)).sqrt()
    wide = real < 0  # half of an angle: the longer of two vectors that both point there
    cosine = torch.where(wide, imaginary, size + real)
    sine = torch.where(wide, size - real, imaginary)
    cosine = cosine * sine.sign()  # both points may turn by π together
    sine = sine.abs()
    u = torch.stack([cosine, sine])
    v = torch.stack([m11 * cosine + m21 * sine, m12 * cosine + m22 * sine])
    u_weights, u_inside, u_length = _weights(u, x)
    v_weights, v_inside, v_length = _weights(v, y)
    inside = torch.where(u_inside & v_inside, v_length / u_length, -torch.inf)

    best, chosen = torch.cat([values.flatten(0, 1), inside[None]]).max(dim=0)
    chosen = chosen.expand(2, 1, *shape)
    fixed = torch.eye(2, dtype=gram.dtype, device=gram.device)[:, :, None, None]
    fixed = fixed.expand(2, 2, *shape)
    x_weights = torch.cat([fixed, moving[:, 1], u_weights[:, None]], dim=1).gather(1, chosen)[:, 0]
    y_weights = torch.cat([moving[:, 0], fixed, v_weights[:, None]], dim=1).gather(1, chosen)[:, 0]
    return best, x_weights, y_weights


def _best_on_edge(begin: Tensor, end: Tensor, across: Tensor, arc: _Arcs) -> tuple[Tensor, Tensor]:
    """Return a point's largest inner product with points of an arc, and the weights of its ends.

    Of A cos θ + B sin θ, A at the beginning and B ``across``, it is √(A² + B²), in the direction
    (A, B) if that lies on the arc; else the better end's.
    """
    weights, inside, length = _weights(torch.stack([begin, across]), arc)
    at_end = end > begin
    ends = torch.stack([~at_end, at_end]).to(weights.dtype)
    best = torch.where(inside, length, torch.maximum(begin, end))
    return best, torch.where(inside, weights, ends)


def _weights(
    point: Float[Tensor, "2 ..."], arc: _Arcs
) -> tuple[Tensor, Bool[Tensor, "..."], Tensor]:
    """Return the weights of start and end in the direction of a point (cos θ, sin θ) of any length.

    They are sin(a - θ) / sin a and sin θ / sin a, a the angle between the ends; both are positive
    inside the arc. Also whether it is inside, and the point's length.
    """
    cosine, sine = point
    at_start = cosine - sine * arc.cotangent
    length = (cosine * cosine + sine * sine).sqrt()
    inside = arc.directed & (at_start > 0) & (sine > 0) & (length > NOTHING)
    return torch.stack([at_start, sine * arc.cosecant]) / length, inside, length


def _unit(rows: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
    lengths = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return rows / lengths.masked_fill(lengths == 0, torch.inf)
