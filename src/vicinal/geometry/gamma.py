"""The dial of a log-exp mean from what one wants of it: the mean of the K smallest or largest values."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vicinal.errors import ConfigError
from vicinal.geometry.log_exp_mean import log_exp_mean

_HALVINGS = 64  # of an interval that holds γ: to the last digit of float64


@torch.no_grad()
def gamma_for(
    values: Float[Tensor, "rows cols"],
    K: int | Int[Tensor, "rows"],
    keep: Bool[Tensor, "rows cols"] | None = None,
) -> Float[Tensor, "rows"]:
    """The γ of each row at which its log-exp mean is the mean of its K smallest values, or of its -K largest for K < 0.

        b(γ*) = 1/K Σ_{k ≤ K} a_(k)                                Song et al., Eq. (14); K with a sign as in Eq. (6)

    So "the radius without the 2 farthest of n" is ``log_exp_mean(a, keep, gamma_for(a, n - 2, keep))``. γ* is unique
    for 1 < |K| < n and values that differ (Theorem 3). The mean of all, |K| = n, is γ = 0. The extreme itself, |K| = 1
    or ties at the edge, is a limit: γ is then so large that b differs from it by rounding. A row of equal or no
    values has γ = 0. γ passes no gradient.

    Args:
        values: one row per anchor.
        K: how many values, at least 1 in size; more than a row keeps counts as all. One number, or one per row; rows
            on a GPU are taken as they are, for looking at them would wait for it.
        keep: which entries count; all by default.

    >>> a = torch.tensor([[1.0, 2.0, 6.0]], dtype=torch.float64)
    >>> gamma = gamma_for(a, 2)
    >>> log_exp_mean(a, torch.ones(1, 3, dtype=torch.bool), gamma)
    tensor([1.5000], dtype=torch.float64)
    """
    asked = K if isinstance(K, Tensor) else torch.as_tensor(K)
    if asked.is_floating_point() or (not asked.is_cuda and bool((asked == 0).any())):
        raise ConfigError(f"K counts the smallest values (K > 0) or the largest (K < 0), a whole number, but {K} came.")
    size = K.to(values.device) if isinstance(K, Tensor) else torch.full((), int(K), device=values.device)
    size = size.expand(len(values))
    kept = torch.ones_like(values, dtype=torch.bool) if keep is None else keep
    if not values.numel():
        return values.new_zeros(len(values))
    sign = size.sign().double()
    facing = values.double() * sign[:, None]  # the K largest of a are the K smallest of -a, and γ changes its sign
    ascending = facing.masked_fill(~kept, torch.inf).sort(dim=1).values
    count = kept.sum(dim=1)
    among = torch.arange(values.shape[1], device=values.device) < torch.minimum(size.abs(), count)[:, None]
    wanted = ascending.masked_fill(~among, 0).sum(dim=1) / among.sum(dim=1).clamp(min=1)
    spread = facing.masked_fill(~kept, -torch.inf).amax(dim=1) - ascending[:, 0]
    # b(γ) - min ≤ log(n) / γ, so b is below what is wanted from γ = log(n) / (wanted - min) on.
    resolution = torch.finfo(values.dtype).eps * spread
    above = torch.maximum(wanted - ascending[:, 0], resolution)
    low, high = torch.zeros_like(wanted), count.double().clamp(min=1).log() / above
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        too_large = log_exp_mean(facing, kept, middle) > wanted
        low, high = torch.where(too_large, middle, low), torch.where(too_large, high, middle)
    settled = (count > 1) & (spread > 0) & (size.abs() < count)
    return torch.where(settled, sign * high, 0.0).to(values.dtype)
