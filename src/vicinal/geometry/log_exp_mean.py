"""The log-exp mean: one smooth dial from maximum through mean to minimum."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.geometry.log_sum_exp import log_sum_exp


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

    dial = gamma.to(values) if isinstance(gamma, Tensor) else values.new_full((), gamma)  # no copy from the host
    dial = dial.expand(len(values))
    total = sums(keep.to(values.dtype))  # log of an int tensor would fall to float32
    total = total.masked_fill(total == 0, 1)
    mean = sums(values.masked_fill(~keep, 0)) / total
    if not values.shape[1]:
        return mean
    # About the mean, b(γ) = mean - 1/γ · log mean(exp(x)) with x = -γ (a - mean), so that what γ divides is small.
    exponents = -dial[:, None] * (values - mean[:, None]).masked_fill(~keep, 0)
    gentle = exponents.detach().abs().amax(dim=1) < 1
    # Near γ = 0 the logarithm of a mean near 1 would lose all digits; expm1 and log1p keep them.
    near = torch.log1p(sums(torch.expm1(torch.where(gentle[:, None], exponents, 0))) / total)
    # Elsewhere exp may overflow (in float32 from 88 on), so the sum is taken in log space.
    far = log_sum_exp(exponents, keep, weights) - total.log()
    return mean - torch.where(gentle, near, far) / torch.where(dial == 0, 1, dial)
