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
    weights: Float[Tensor, "rows cols"] | None = None,
) -> Float[Tensor, "rows"]:
    """Log-exp mean of the kept entries of each row.

        b(γ) = -1/γ · log(1/n · Σ_i exp(-γ a_i))                     Song et al., Eq. (12)

    It falls as γ grows: the maximum (γ → -∞), the arithmetic mean (γ → 0), the minimum (γ → ∞).
    An entry of weight w counts w times. A row that keeps nothing yields 0 and passes no gradient.

    >>> a = torch.tensor([[1.0, 3.0, 99.0]])
    >>> keep = torch.tensor([[True, True, False]])
    >>> [round(log_exp_mean(a, keep, gamma).item(), 2) for gamma in (-50.0, 0.0, 50.0)]
    [2.99, 2.0, 1.01]
    >>> log_exp_mean(a, keep, 0.0, torch.tensor([[3.0, 1.0, 1.0]]))
    tensor([1.5000])
    """
    keep = keep if weights is None else keep & (weights > 0)
    mass = None if weights is None else weights.masked_fill(~keep, 0)

    def sums(terms: Float[Tensor, "rows cols"]) -> Float[Tensor, "rows"]:
        return (terms if mass is None else mass * terms).sum(dim=1)

    total = sums(keep.to(values.dtype))  # log of an int tensor would fall to float32
    total = total.masked_fill(total == 0, 1)
    mean = sums(values.masked_fill(~keep, 0)) / total
    if gamma == 0 or not values.shape[1]:
        return mean
    # About the mean, b(γ) = mean - 1/γ · log mean(exp(x)) with x = -γ (a - mean), so that what γ
    # divides is small.
    exponents = -gamma * (values - mean[:, None]).masked_fill(~keep, 0)
    gentle = exponents.detach().abs().amax(dim=1) < 1
    # Near γ = 0 the logarithm of a mean near 1 would lose all digits; expm1 and log1p keep them.
    near = torch.log1p(sums(torch.expm1(torch.where(gentle[:, None], exponents, 0))) / total)
    # Elsewhere exp may overflow (in float32 from 88 on), so the sum is taken in log space.
    far = log_sum_exp(exponents, keep, weights) - total.log()
    return mean - torch.where(gentle, near, far) / gamma


def mean_of_k(
    distances: Float[Tensor, "n m"],
    keep: Bool[Tensor, "n m"],
    k: int,
    weights: Float[Tensor, "n m"] | None = None,
) -> Float[Tensor, "n"]:
    """Return the mean distance of each anchor's K nearest, or of its -K farthest for K < 0.

        r(S, K) = 1/|K| Σ_{k ≤ |K|} d^[k], from below for K > 0 and from above for K < 0
            Song et al., Eq. (6)

    More than an anchor has counts as all; an anchor that has none yields 0 and passes no gradient.
    A neighbor of weight w counts w times, so the last one may count in part.

    >>> distances = torch.tensor([[4.0, 1.0, 2.0, 9.0]])
    >>> [mean_of_k(distances, distances < 9, k).item() for k in (1, 2, 3, 4, -2, -1)]
    [1.0, 1.5, 2.3333332538604736, 2.3333332538604736, 3.0, 4.0]
    """
    facing = distances.detach() if k > 0 else -distances.detach()
    order = facing.masked_fill(~keep, torch.inf).argsort(dim=1)
    mass = (keep.to(distances.dtype) if weights is None else weights.masked_fill(~keep, 0)).gather(
        1, order
    )
    before = mass.cumsum(dim=1) - mass
    taken = (abs(k) - before).clamp(min=0).minimum(mass)
    total = taken.sum(dim=1)
    # 0 times what is not kept may be NaN.
    ordered = distances.masked_fill(~keep, 0).gather(1, order)
    return (taken * ordered).sum(dim=1) / total.masked_fill(total == 0, 1)
