"""Smooth maxima and means over the kept entries of each row: log-sum-exp, and the log-exp mean with
its dial γ."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import softplus


def log_sum_exp(
    logits: Float[Tensor, "n m"],
    keep: Bool[Tensor, "n m"],
    weights: Float[Tensor, "n m"] | None = None,
) -> Float[Tensor, "n"]:
    """log Σ_j w_j exp(a_j) over the kept entries of each row.

    A row that keeps nothing yields a number so low (about -1e38 in float32) that exp and softplus
    of it are 0 and pass no gradient; the true -inf would turn into NaN where it is subtracted from
    itself.

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
    logits: Float[Tensor, "n m"],
    keep: Bool[Tensor, "n m"],
    weights: Float[Tensor, "n m"] | None = None,
) -> Float[Tensor, "n"]:
    """log(1 + Σ_j w_j exp(a_j)) over the kept entries of each row; 0 for a row that keeps nothing.

    >>> log_one_plus_sum_exp(torch.tensor([[0.0, 0.0]]), torch.tensor([[True, False]]))
    tensor([0.6931])
    """
    # E^-40 is 0 beside 1 in float64, too.
    return softplus(log_sum_exp(logits, keep, weights), threshold=40.0)


def log_exp_mean(
    values: Float[Tensor, "rows cols"],
    keep: Bool[Tensor, "rows cols"],
    gamma: float,
) -> Float[Tensor, "rows"]:
    """Log-exp mean of the kept entries of each row.

        b(γ) = -1/γ · log(1/n · Σ_i exp(-γ a_i))                     Song et al., Eq. (12)

    It falls as γ grows: the maximum (γ → -∞), the arithmetic mean (γ → 0), the minimum (γ → ∞).
    A row that keeps nothing yields 0 and passes no gradient.

    >>> a = torch.tensor([[1.0, 3.0, 99.0]])
    >>> keep = torch.tensor([[True, True, False]])
    >>> [round(log_exp_mean(a, keep, gamma).item(), 2) for gamma in (-50.0, 0.0, 50.0)]
    [2.99, 2.0, 1.01]
    """
    # The logarithm of an int tensor would fall to float32.
    total = keep.to(values.dtype).sum(dim=1).clamp(min=1)
    mean = values.masked_fill(~keep, 0).sum(dim=1) / total
    if gamma == 0 or not values.shape[1]:
        return mean
    # About the mean, b(γ) = mean - 1/γ · log mean(exp(x)) with x = -γ (a - mean), so that what γ
    # divides is small.
    exponents = -gamma * (values - mean[:, None]).masked_fill(~keep, 0)
    gentle = exponents.detach().abs().amax(dim=1) < 1
    # Near γ = 0 the logarithm of a mean near 1 would lose all digits; expm1 and log1p keep them.
    near = torch.where(gentle[:, None], exponents, 0).expm1().sum(dim=1).div(total).log1p()
    # Elsewhere exp may overflow (in float32 from 88 on), so the sum is taken in log space.
    far = log_sum_exp(exponents, keep) - total.log()
    return mean - torch.where(gentle, near, far) / gamma


def mean_of_k(
    distances: Float[Tensor, "n m"],
    keep: Bool[Tensor, "n m"],
    k: int,
) -> Float[Tensor, "n"]:
    """Return the mean distance of each anchor's K nearest, or of its -K farthest for K < 0.

        r(S, K) = 1/|K| Σ_{k ≤ |K|} d^[k], from below for K > 0 and from above for K < 0
            Song et al., Eq. (6)

    More than an anchor has counts as all; an anchor that has none yields 0 and passes no gradient.

    >>> distances = torch.tensor([[4.0, 1.0, 2.0, 9.0]])
    >>> [mean_of_k(distances, distances < 9, k).item() for k in (1, 2, 3, 4, -2, -1)]
    [1.0, 1.5, 2.3333332538604736, 2.3333332538604736, 3.0, 4.0]
    """
    facing = distances.detach() if k > 0 else -distances.detach()
    taken = facing.masked_fill(~keep, torch.inf).argsort(dim=1)[:, : abs(k)]
    count = keep.gather(1, taken).sum(dim=1).clamp(min=1)
    return distances.masked_fill(~keep, 0).gather(1, taken).sum(dim=1) / count
