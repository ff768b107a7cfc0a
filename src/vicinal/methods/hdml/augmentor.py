"""The hardness-aware augmentor of HDML (Zheng et al., CVPR 2019): negatives drawn towards their anchor, as far as told.

Everything here is a pure function of embeddings. Leading axes broadcast, so one call serves T triplets ``[t d]`` and
all N x N pairs of an N-pair batch, ``anchor [n 1 d]`` and ``negative [1 n d]``. Where points meet, values and gradients
stay finite: a distance of 0 moves nothing.
"""

from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import relu, threshold

from vicinal.distances import at_least_float32, row_distances, unit_rows
from vicinal.errors import ConfigError, unknown

Path = Literal["straight", "arc"]
Reference = Literal["mean", "farthest", "fixed"]
LEAST_LOSS = 1e-6  # below it a loss is 0; keeps α / J_avg finite


def interpolation_factor(alpha: float, average_loss: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """How much of a negative's distance beyond the reference distance stays, between 0 and 1.

        λ = exp(-α / J_avg)                                                   Zheng et al. 2019, in Eq. (7)

    The smaller the average loss, the smaller λ and the harder the synthetics. λ = 1 changes nothing, which is α = 0 or
    a loss that is not known yet (infinite); λ = 0 draws every negative to the reference distance. The weight of the
    real tuples in Eq. (11), exp(-β / J_gen), is the same function.

    >>> losses = torch.tensor([torch.inf, 2.0, 1.0, 0.0])
    >>> interpolation_factor(1.0, losses)
    tensor([1.0000, 0.6065, 0.3679, 0.0000])
    >>> interpolation_factor(0.0, losses)
    tensor([1., 1., 1., 1.])
    """
    return torch.exp(-alpha / average_loss.clamp(min=LEAST_LOSS))


def harder(
    anchor: Float[Tensor, "*#rows d"],
    negative: Float[Tensor, "*#rows d"],
    reference_distance: Float[Tensor, "*#rows"],
    pull: Float[Tensor, ""] | float,
) -> Float[Tensor, "*#rows d"]:
    """Draw negatives towards their anchor on a straight line, never nearer than the reference distance.

        ẑ⁻ = z + [λ d + (1 - λ) d⁺] (z⁻ - z) / d    if d = ‖z⁻ - z‖ > d⁺,  else z⁻    Zheng et al. 2019, Eqs. (5)-(7)

    Paper to code: ``pull`` = 1 - λ, the share of the way from d to d⁺. Written as z⁻ + pull [1 - d⁺/d]_+ (z - z⁻), the
    same points: without pull, and within d⁺, a negative stays exactly where it is, and it passes no gradient to the
    anchor there. The gradient flows through d and d⁺ as well; detach what it should not reach.

    Figure 2: the anchor in the origin, its positive 1 away, a negative 3 away. The negative comes nearer on the line
    to the anchor, down to the circle of the positive; one that lies inside stays.

    >>> anchor, negatives = torch.zeros(2), torch.tensor([[3.0, 0.0], [0.0, 0.5]])
    >>> for pull in (0.0, 0.5, 1.0):
    ...     print(harder(anchor, negatives, torch.tensor(1.0), pull).tolist())
    [[3.0, 0.0], [0.0, 0.5]]
    [[2.0, 0.0], [0.0, 0.5]]
    [[1.0, 0.0], [0.0, 0.5]]
    """
    return _moved(
        anchor, negative, _excess_share(row_distances(anchor, negative, squared=False), reference_distance, pull)
    )


def farther(
    anchor: Float[Tensor, "*#rows d"],
    positive: Float[Tensor, "*#rows d"],
    reference_distance: Float[Tensor, "*#rows"],
    push: Float[Tensor, ""] | float,
) -> Float[Tensor, "*#rows d"]:
    """Push positives away from their anchor, at most to a reference distance such as that of the nearest negative.

        ẑ⁺ = z + [(1 - push) d + push d⁻] (z⁺ - z) / d              if d = ‖z⁺ - z‖ < d⁻,  else z⁺

    Differs: the paper names positive pairs as an easy extension (Section 3.2) and gives no formula; this is Eq. (6)
    turned around. A positive on its anchor has no direction to go and stays.

    >>> farther(torch.zeros(2), torch.tensor([[1.0, 0.0], [0.0, 4.0]]), torch.tensor(3.0), 0.5).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    distance = row_distances(anchor, positive, squared=False)
    missing = relu(reference_distance - distance) / threshold(distance, 0.0, 1.0)
    return _moved(anchor, positive, -push * missing)


def harder_on_arc(
    anchor: Float[Tensor, "*#rows d"],
    negative: Float[Tensor, "*#rows d"],
    reference_angle: Float[Tensor, "*#rows"],
    pull: Float[Tensor, ""] | float,
) -> Float[Tensor, "*#rows d"]:
    """Turn negatives towards their anchor about the origin, never nearer than the reference angle; lengths stay.

        θ̂ = λ θ + (1 - λ) θ⁺    if θ > θ⁺,  else θ                              Eq. (6) with angles for distances

    For losses on the unit sphere, where ``harder`` before the normalisation cuts through the ball: what it does to the
    angle then depends on lengths that the loss never sees. A negative opposite to its anchor has no shortest arc and
    stays.

    >>> turned = harder_on_arc(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0]), torch.tensor(torch.pi / 6), 1.0)
    >>> turned
    tensor([1.7321, 1.0000])
    """
    anchor, negative = at_least_float32(anchor), at_least_float32(negative)
    towards, start = unit_rows(anchor), unit_rows(negative)
    turn = relu(angles(anchor, negative) - reference_angle)[..., None] * pull
    across = unit_rows(towards - (towards * start).sum(dim=-1, keepdim=True) * start)  # 0 where they meet or oppose
    length = torch.linalg.vector_norm(negative, dim=-1, keepdim=True)
    turned = length * (turn.cos() * start + turn.sin() * across)
    stays = (turn == 0) | (across == 0).all(dim=-1, keepdim=True)
    return torch.where(stays, negative, turned)


def angles(x: Float[Tensor, "*#rows d"], y: Float[Tensor, "*#rows d"]) -> Float[Tensor, "*#rows"]:
    """The angle between rows, 0 to π.

    From the tangent, because the cosine's inverse has an infinite slope where rows meet.

    >>> angles(torch.tensor([1.0, 0.0]), torch.tensor([[0.0, 1.0], [2.0, 0.0]])).tolist()
    [1.5707963705062866, 0.0]
    """
    x, y = unit_rows(x), unit_rows(y)
    cosine = (x * y).sum(dim=-1)
    sine: Tensor = torch.linalg.vector_norm(x - cosine[..., None] * y, dim=-1)  # its gradient at 0 is 0
    return torch.atan2(sine, cosine.masked_fill((sine == 0) & (cosine == 0), 1))  # a row of zeros lies everywhere


def reference_distances(
    distances: Float[Tensor, "n m"], positive: Bool[Tensor, "n m"], *, rule: Reference, fixed: float
) -> Float[Tensor, "n"]:
    """d⁺ of each anchor: the mean distance to its positives, that of the farthest, or a fixed value.

    The paper has one positive pair for each anchor, where mean and farthest agree, "or a fixed value" (Section 3.2),
    which is also what an anchor without positives gets.

    >>> distances = torch.tensor([[1.0, 3.0, 9.0], [4.0, 5.0, 6.0]])
    >>> positive = torch.tensor([[True, True, False], [False, False, False]])
    >>> for rule in ("mean", "farthest", "fixed"):
    ...     print(reference_distances(distances, positive, rule=rule, fixed=2.5).tolist())
    [2.0, 2.5]
    [3.0, 2.5]
    [2.5, 2.5]
    """
    if rule not in get_args(Reference):
        raise ConfigError(unknown("reference", str(rule), get_args(Reference)))
    if rule == "fixed":
        return distances.new_full(distances.shape[:1], fixed)
    kept = distances * positive
    count = positive.sum(dim=1)
    found = kept.amax(dim=1) if rule == "farthest" else kept.sum(dim=1) / count.clamp(min=1)
    return torch.where(count > 0, found, fixed)


def _excess_share(distance: Tensor, reference: Tensor, pull: Tensor | float) -> Tensor:
    """pull · [1 - d⁺/d]_+, and 0 with gradient 0 where d is 0."""
    return pull * relu(distance - reference) / threshold(distance, 0.0, 1.0)


def _moved(anchor: Tensor, other: Tensor, share: Tensor) -> Tensor:
    """``other``, moved by ``share`` of its way to the anchor (away from it where negative)."""
    anchor, other = at_least_float32(anchor), at_least_float32(other)
    return other + share[..., None] * (anchor - other)
