"""Semi-hard negatives: farther from the anchor than the positive, but not by the margin (Schroff et al., CVPR 2015)."""

from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor

from vicinal.errors import ConfigError, unknown
from vicinal.miners.candidates import candidates, chosen, nothing
from vicinal.tuples import MOST_TUPLES, Triplets

Rule = Literal["nearest", "random", "nearest_else_farthest", "all"]
BLOCK = 2**22  # entries of a block of rows; temporaries take a few times this
FEW = 4  # up to so many positives, comparing with each beats a binary search (measured on CPU)


def semi_hard(
    embeddings: Float[Tensor, "n d"],
    labels: Integer[Tensor, "n"],
    margin: float = 0.2,
    *,
    rule: Rule = "nearest",
    generator: torch.Generator | None = None,
    squared: bool = True,
    normalize: bool = True,
    reference: Float[Tensor, "m d"] | None = None,
    reference_labels: Integer[Tensor, "m"] | None = None,
    own: Integer[Tensor, "n"] | None = None,
    most: int = MOST_TUPLES,
) -> Triplets:
    """Each anchor and positive with semi-hard negatives, d_ap < d_an < d_ap + margin; none where there are none.

    The negatives of an anchor are sorted once; those of a positive are a range of them, found by binary search:
    O(n m log m) time, O(n m) memory.

    Args:
        embeddings: the anchors; without a reference also what they are compared with.
        labels: class of each anchor.
        margin: how much farther a negative may be; 0 leaves none.
        rule: which of a pair's negatives: the ``"nearest"``, one at ``"random"``, or ``"all"``.
            ``"nearest_else_farthest"`` is TensorFlow's rule instead: the nearest negative beyond the positive, however
            far; where there is none, the farthest of all.
        generator: what ``"random"`` draws from, on any device.
        squared: whether distances are squared, as FaceNet's are.
        normalize: whether embeddings are put on the unit sphere first.
        reference: rows to choose from instead of the batch; then positives and negatives are numbered among them.
        reference_labels: class of each reference row.
        own: where each anchor stands in the reference; None: nowhere.
        most: ``"all"`` raises an error for more triplets than this; ``SemiHardTripletLoss`` sums them without a list.
    """
    if rule not in get_args(Rule):
        raise ConfigError(unknown("rule", str(rule), get_args(Rule)))
    if rule == "random" and generator is None:
        raise ConfigError("semi-hard mining at random draws from a `generator`, got None. Give a seeded one.")
    c = candidates(embeddings, labels, reference, reference_labels, own, squared=squared, normalize=normalize)
    if c.empty():
        return nothing(labels)
    if rule == "nearest_else_farthest":
        negative, there = nearest_else_farthest(c.positive, c.negative, c.keep_negative)
        return chosen(c.keep_positive & there[:, None], c.columns, negative)
    ordered, order = c.negative.masked_fill(~c.keep_negative, torch.inf).sort(dim=1)
    first = torch.searchsorted(ordered, c.positive, right=True)
    count = torch.searchsorted(ordered, c.positive + margin) - first
    count = count.masked_fill_(~c.keep_positive, 0).clamp_(min=0)
    if rule == "all":
        return _listed(first, count, c.columns, order, most)
    if generator is not None:
        draws = torch.rand(count.shape, generator=generator, device=generator.device).to(count.device)
        first = first + torch.minimum((draws * count).long(), (count - 1).clamp(min=0))  # rounding may reach count
    negative = order.gather(1, first.clamp(max=order.shape[1] - 1))
    return chosen(count > 0, c.columns, negative)


def nearest_else_farthest(
    positive: Float[Tensor, "n p"], negative: Float[Tensor, "n m"], keep_negative: Bool[Tensor, "n m"]
) -> tuple[Int[Tensor, "n p"], Bool[Tensor, "n"]]:
    """For each positive the column of the nearest negative beyond it, else of the farthest negative; who has any."""
    ordered, order = negative.detach().contiguous().masked_fill(~keep_negative, torch.inf).sort(dim=1)
    last = keep_negative.sum(dim=1, keepdim=True) - 1
    beyond = torch.searchsorted(ordered, positive.detach().contiguous(), right=True)
    return order.gather(1, torch.minimum(beyond, last).clamp(min=0)), last.squeeze(dim=1) >= 0


@torch.no_grad()
def semi_hard_counts(
    positive: Float[Tensor, "n p"],
    negative: Float[Tensor, "n m"],
    keep_positive: Bool[Tensor, "n p"],
    keep_negative: Bool[Tensor, "n m"],
    margin: float,
) -> tuple[Float[Tensor, "n p"], Float[Tensor, "n m"]]:
    """In how many semi-hard triplets of its anchor each positive and each negative stands, without listing them.

    >>> there = torch.ones(1, 3, dtype=torch.bool)
    >>> semi_hard_counts(torch.tensor([[1.0]]), torch.tensor([[0.9, 1.1, 1.3]]), there[:, :1], there, 0.2)
    (tensor([[1.]]), tensor([[0., 1., 0.]]))
    """
    lower = positive.masked_fill(~keep_positive, torch.inf)
    # A margin too small to move d_ap, or below 0, leaves an empty range instead of a reversed one.
    upper = torch.maximum(lower + margin, torch.nextafter(lower, lower.new_full((), torch.inf)))
    of_positive, of_negative = torch.zeros_like(positive), torch.zeros_like(negative)
    count = _count_one_by_one if positive.shape[1] <= FEW else _count_by_search
    step = max(1, BLOCK // max(1, negative.shape[1]))
    for start in range(0, len(negative), step):
        rows = slice(start, start + step)
        kept = negative[rows].contiguous().masked_fill(~keep_negative[rows], -torch.inf)
        count(lower[rows], upper[rows], kept, of_positive[rows], of_negative[rows])
    return of_positive, of_negative


def _count_one_by_one(lower: Tensor, upper: Tensor, negative: Tensor, of_positive: Tensor, of_negative: Tensor) -> None:
    for column in range(lower.shape[1]):
        inside = (negative > lower[:, column, None]) & (negative < upper[:, column, None])
        of_positive[:, column] = inside.sum(dim=1)
        of_negative += inside


def _count_by_search(lower: Tensor, upper: Tensor, negative: Tensor, of_positive: Tensor, of_negative: Tensor) -> None:
    """A negative is beyond ``lower`` of the first so many positives and beyond ``upper`` of the first so many less."""
    order = lower.argsort(dim=1)
    beyond_lower = torch.searchsorted(lower.gather(1, order), negative)
    beyond_upper = torch.searchsorted(upper.gather(1, order), negative, right=True)
    torch.sub(beyond_lower, beyond_upper, out=of_negative)
    one = torch.ones((), dtype=of_negative.dtype, device=of_negative.device).expand_as(negative)
    stopped = torch.zeros(len(lower), lower.shape[1] + 1, dtype=of_negative.dtype, device=of_negative.device)
    stopped.scatter_add_(1, beyond_upper, one).scatter_add_(1, beyond_lower, -one)
    of_positive.scatter_(1, order, stopped[:, :-1].cumsum(dim=1))


def _listed(first: Tensor, count: Tensor, columns: Tensor, order: Tensor, most: int) -> Triplets:
    """Every triplet of the ranges that begin at ``first`` and are ``count`` long."""
    total = int(count.sum())
    if total > most:
        raise ConfigError(
            f"all semi-hard triplets of the batch were asked for as a list, but there are {total:,} and the limit is "
            f"{most:,}. Use SemiHardTripletLoss, which lists none, another `rule`, or raise `most`."
        )
    flat = count.flatten()
    pair = torch.repeat_interleave(torch.arange(len(flat), device=flat.device), flat, output_size=total)
    within = torch.arange(total, device=flat.device) - (flat.cumsum(dim=0) - flat)[pair]
    anchor = pair // count.shape[1]
    return Triplets(anchor, columns.flatten()[pair], order[anchor, first.flatten()[pair] + within])
