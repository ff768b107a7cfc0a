"""Smooth maxima and means over the kept entries of each row: log-sum-exp, and the log-exp mean with
its dial γ."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import softplus

from vicinal.errors import ConfigError

_HALVINGS = 64  # of an interval that holds γ: to the last digit of float64


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
    gamma: float | Float[Tensor, "rows"],
    weights: Float[Tensor, "rows cols"] | None = None,
) -> Float[Tensor, "rows"]:
    """Log-exp mean of the kept entries of each row; γ is one number, or one for each row.

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

    # No copy from the host.
    dial = gamma.to(values) if isinstance(gamma, Tensor) else values.new_full((), gamma)
    dial = dial.expand(len(values))
    total = sums(keep.to(values.dtype))  # log of an int tensor would fall to float32
    total = total.masked_fill(total == 0, 1)
    mean = sums(values.masked_fill(~keep, 0)) / total
    if not values.shape[1]:
        return mean
    # About the mean, b(γ) = mean - 1/γ · log mean(exp(x)) with x = -γ (a - mean), so that what γ
    # divides is small.
    exponents = -dial[:, None] * (values - mean[:, None]).masked_fill(~keep, 0)
    gentle = exponents.detach().abs().amax(dim=1) < 1
    # Near γ = 0 the logarithm of a mean near 1 would lose all digits; expm1 and log1p keep them.
    near = torch.log1p(sums(torch.expm1(torch.where(gentle[:, None], exponents, 0))) / total)
    # Elsewhere exp may overflow (in float32 from 88 on), so the sum is taken in log space.
    far = log_sum_exp(exponents, keep, weights) - total.log()
    return mean - torch.where(gentle, near, far) / torch.where(dial == 0, 1, dial)


def mean_of_k(
    distances: Float[Tensor, "n m"],
    keep: Bool[Tensor, "n m"],
    k: int | Int[Tensor, "n"],
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
    wanted = (
        distances.new_full((len(distances),), k) if isinstance(k, int) else k.to(distances.dtype)
    )
    facing = distances.detach() * wanted.sign()[:, None]
    order = facing.masked_fill(~keep, torch.inf).argsort(dim=1)
    mass = (keep.to(distances.dtype) if weights is None else weights.masked_fill(~keep, 0)).gather(
        1, order
    )
    before = mass.cumsum(dim=1) - mass
    taken = (wanted.abs()[:, None] - before).clamp(min=0).minimum(mass)
    total = taken.sum(dim=1)
    # 0 times what is not kept may be NaN.
    ordered = distances.masked_fill(~keep, 0).gather(1, order)
    return (taken * ordered).sum(dim=1) / total.masked_fill(total == 0, 1)


@torch.no_grad()
def gamma_for(
    values: Float[Tensor, "rows cols"],
    K: int | Int[Tensor, "rows"],
    keep: Bool[Tensor, "rows cols"] | None = None,
) -> Float[Tensor, "rows"]:
    """The γ of each row at which its log-exp mean is the mean of its K smallest values, or of its
    -K largest for K < 0.

        b(γ*) = 1/K Σ_{k ≤ K} a_(k)               Song et al., Eq. (14); K with a sign as in Eq. (6)

    So "the radius without the 2 farthest of n" is ``log_exp_mean(a, keep, gamma_for(a, n - 2,
    keep))``. γ* is unique for 1 < |K| < n and values that differ (Theorem 3). The mean of all, |K|
    = n, is γ = 0. The extreme itself, |K| = 1 or ties at the edge, is a limit: γ is then so large
    that b differs from it by rounding. A row of equal or no values has γ = 0. γ passes no gradient.

    Args:
        values: one row per anchor.
        K: how many values, at least 1 in size; more than a row keeps counts as all. One number, or
            one per row; rows on a GPU are taken as they are, for looking at them would wait for it.
        keep: which entries count; all by default.

    >>> a = torch.tensor([[1.0, 2.0, 6.0]], dtype=torch.float64)
    >>> gamma = gamma_for(a, 2)
    >>> log_exp_mean(a, torch.ones(1, 3, dtype=torch.bool), gamma)
    tensor([1.5000], dtype=torch.float64)
    """
    asked = K if isinstance(K, Tensor) else torch.as_tensor(K)
    if asked.is_floating_point() or (not asked.is_cuda and bool((asked == 0).any())):
        raise ConfigError(
            f"K counts the smallest values (K > 0) or the largest (K < 0), a whole number, got {K}."
        )
    size = (
        K.to(values.device)
        if isinstance(K, Tensor)
        else torch.full((), int(K), device=values.device)
    )
    size = size.expand(len(values))
    kept = torch.ones_like(values, dtype=torch.bool) if keep is None else keep
    if not values.numel():
        return values.new_zeros(len(values))
    sign = size.sign().double()
    # The K largest of a are the K smallest of -a, and γ changes its sign.
    facing = values.double() * sign[:, None]
    ascending = facing.masked_fill(~kept, torch.inf).sort(dim=1).values
    count = kept.sum(dim=1)
    among = (
        torch.arange(values.shape[1], device=values.device)
        < torch.minimum(size.abs(), count)[:, None]
    )
    wanted = ascending.masked_fill(~among, 0).sum(dim=1) / among.sum(dim=1).clamp(min=1)
    spread = facing.masked_fill(~kept, -torch.inf).amax(dim=1) - ascending[:, 0]
    # b(γ) - min ≤ log(n) / γ, so b is below what is wanted from γ = log(n) / (wanted - min) on.
    resolution = torch.finfo(values.dtype).eps * spread
    above = torch.maximum(wanted - ascending[:, 0], resolution)
    low = torch.zeros_like(wanted)
    high = count.double().clamp(min=1).log() / above
    excess = (facing - wanted[:, None]).masked_fill(~kept, 0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        # B(γ) > wanted, solved for the sum.
        too_large = torch.expm1(-middle[:, None] * excess).sum(dim=1) < 0
        low = torch.where(too_large, middle, low)
        high = torch.where(too_large, high, middle)
    settled = (count > 1) & (spread > 0) & (size.abs() < count)
    return torch.where(settled, sign * high, 0.0).to(values.dtype)
