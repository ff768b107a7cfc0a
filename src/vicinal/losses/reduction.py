"""From what each anchor contributes to one number, by torch's own convention."""

from typing import Literal, NamedTuple, get_args

from jaxtyping import Float
from torch import Tensor

from vicinal.errors import ConfigError, unknown

Reduction = Literal["mean", "sum", "none"]


class Terms(NamedTuple):
    """What each anchor contributes to a loss: its terms added up, and how many terms it divides the mean by.

    A term is what the loss's formula sums over: a triplet, an (anchor, positive) tuple, an anchor. An anchor that
    can form none has 0 of both, so that a batch without terms costs 0 and passes gradient 0, never NaN.
    """

    sums: Float[Tensor, "n"]
    counts: Float[Tensor, "n"]


def reduce(terms: Terms, reduction: Reduction) -> Float[Tensor, ""] | Float[Tensor, "n"]:
    """The mean over all terms, their sum, or one value for each anchor: the mean over its own terms.

    So ``"none"`` weighted by the counts and averaged is ``"mean"``.

    >>> import torch
    >>> terms = Terms(torch.tensor([3.0, 1.0, 0.0]), torch.tensor([3.0, 1.0, 0.0]))
    >>> [reduce(terms, how).tolist() for how in ("mean", "sum", "none")]
    [1.0, 4.0, [1.0, 1.0, 0.0]]
    """
    match reduction:
        case "mean":
            return terms.sums.sum() / terms.counts.sum().clamp(min=1)
        case "sum":
            return terms.sums.sum()
        case "none":
            return terms.sums / terms.counts.clamp(min=1)


def checked(reduction: Reduction) -> Reduction:
    """``reduction`` itself, if it is one; a recipe's text may be anything."""
    if reduction not in get_args(Reduction):
        raise ConfigError(unknown("reduction", str(reduction), get_args(Reduction)))
    return reduction
