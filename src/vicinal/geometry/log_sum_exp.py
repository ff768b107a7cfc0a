"""Logarithms of sums of exponentials over the kept entries of each row: the soft maximum of most tuple losses."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import softplus


def log_sum_exp(
    logits: Float[Tensor, "n m"], keep: Bool[Tensor, "n m"], weights: Float[Tensor, "n m"] | None = None
) -> Float[Tensor, "n"]:
    """log Σ_j w_j exp(a_j) over the kept entries of each row.

    A row that keeps nothing yields a number so low (about -1e38 in float32) that exp and softplus of it are 0 and
    pass no gradient; the true -inf would turn into NaN where it is subtracted from itself.

    >>> log_sum_exp(torch.tensor([[0.0, 0.0, 9.0]]), torch.tensor([[True, True, False]]))
    tensor([0.6931])
    """
    low = torch.finfo(logits.dtype).min / 4
    if weights is not None:
        keep = keep & (weights > 0)
        logits = logits + weights.masked_fill(~keep, 1).log()
    if not logits.shape[1]:
        return logits.sum(dim=1) + low
    return logits.masked_fill(~keep, low).logsumexp(dim=1)


def log_one_plus_sum_exp(
    logits: Float[Tensor, "n m"], keep: Bool[Tensor, "n m"], weights: Float[Tensor, "n m"] | None = None
) -> Float[Tensor, "n"]:
    """log(1 + Σ_j w_j exp(a_j)) over the kept entries of each row; 0 for a row that keeps nothing.

    >>> log_one_plus_sum_exp(torch.tensor([[0.0, 0.0]]), torch.tensor([[True, False]]))
    tensor([0.6931])
    """
    return softplus(log_sum_exp(logits, keep, weights), threshold=40.0)  # e^-40 is 0 beside 1 in float64, too
