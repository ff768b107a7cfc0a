"""Sums of hinges over all (positive, negative) of an anchor, exact, without listing the
triplets."""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

BLOCK = 2**20  # entries of a block of rows; temporaries take a few times this
FEW = 4  # up to so many positives, one comparison each beats a binary search (measured on CPU)


def hinge_sums(
    positive: Float[Tensor, "n p"],
    negative: Float[Tensor, "n m"],
    keep_positive: Bool[Tensor, "n p"],
    keep_negative: Bool[Tensor, "n m"],
    margin: float = 0.0,
) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
    """For each anchor Σ_p Σ_n [d_p - d_n + margin]_+ over the kept entries, and the number of terms
    above 0.

    A hinge is its excess where it is active and nothing elsewhere, so for the thresholds t_p = d_p
    + margin

        Σ_p Σ_n [t_p - d_n]_+  =  Σ_n k_n (T - d_n) - Σ_p c_p (T - t_p),      T = max t_p,

    where k_n counts the thresholds above d_n and c_p the negatives below t_p. The k_n come from a
    binary search among the sorted thresholds, the c_p from a histogram of the k_n: O(n m log p)
    time and O(n m) memory, where the triplets are n m p. The counts are also the gradient: ∂/∂t_p =
    c_p and ∂/∂d_n = -k_n. Terms that cancel are at most p times the result, because T - d_n is
    itself one of the terms.

    Margins that differ per negative (of a pair of classes, say) enter as ``negative - margins``.
    Negatives that are not kept may be any finite numbers. Backward, double backward (0: the sum is
    piecewise linear) and forward mode are supported.

    >>> d = torch.tensor([[1.0, 2.0, 1.5]])
    >>> keep = torch.tensor([[True, True, False]])
    >>> hinge_sums(d, d, keep, ~keep)
    (tensor([0.5000]), tensor([1.]))
    """
    if not positive.numel() or not negative.numel():  # no term, but part of the graph
        nothing = 0 * (positive.sum(dim=1) + negative.sum(dim=1))
        return nothing, nothing.detach()
    # It would take the sums to half precision.
    with torch.autocast(negative.device.type, enabled=False):
        sums, counts, *_ = _HingeSums.apply(
            positive, negative, keep_positive, keep_negative, margin
        )  # type: ignore[no-untyped-call]
    return sums, counts


class _HingeSums(torch.autograd.Function):
    """``hinge_sums`` with its derivatives; besides sums and counts it gives the k_n and the c_p,
    which they are."""

    @staticmethod
    def forward(
        positive: Tensor,
        negative: Tensor,
        keep_positive: Tensor,
        keep_negative: Tensor,
        margin: float,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        far = torch.finfo(negative.dtype).max / 4  # stands for infinity, but 0 * far is 0
        thresholds = torch.where(keep_positive, positive + margin, -far)
        above = torch.empty_like(negative)
        below = torch.empty_like(positive)
        sums = negative.new_empty(len(negative))
        step = max(1, BLOCK // negative.shape[1])
        for start in range(0, len(negative), step):
            rows = slice(start, start + step)
            # `where` would take a CPU three times as long; what is added is 0, or so large that
            # nothing else counts.
            kept = (~keep_negative[rows]).view(torch.uint8).to(negative.dtype)
            torch.add(negative[rows], kept, alpha=far, out=kept)
            count = _count_one_by_one if positive.shape[1] <= FEW else _count_by_search
            count(thresholds[rows], kept, above[rows], below[rows])
            top = thresholds[rows].amax(dim=1, keepdim=True)
            spread = (below[rows] * (top - thresholds[rows])).sum(dim=1)
            sums[rows] = -kept.sub_(top).mul_(above[rows]).sum(dim=1) - spread
        return sums, below.sum(dim=1), above, below

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _, counts, above, below = output
        ctx.mark_non_differentiable(counts, above, below)
        ctx.set_materialize_grads(False)  # zeros for `above` would take as long as its use
        ctx.save_for_backward(above, below)
        ctx.save_for_forward(above, below)

    @staticmethod
    def backward(
        ctx: Any, gradient: Tensor | None, *_: Any
    ) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        if gradient is None:
            return None, None, None, None, None
        above, below = ctx.saved_tensors
        return gradient[:, None] * below, -gradient[:, None] * above, None, None, None

    @staticmethod
    def jvp(
        ctx: Any, positive_tangent: Tensor | None, negative_tangent: Tensor | None, *_: Any
    ) -> tuple[Tensor, None, None, None]:
        above, below = ctx.saved_tensors
        tangent = above.new_zeros(len(above))
        if positive_tangent is not None:
            tangent = tangent + (below * positive_tangent).sum(dim=1)
        if negative_tangent is not None:
            tangent = tangent - (above * negative_tangent).sum(dim=1)
        return tangent, None, None, None


def _count_one_by_one(thresholds: Tensor, negative: Tensor, above: Tensor, below: Tensor) -> None:
    """Count, for each negative, the thresholds above it and, for each threshold, the negatives
    below it."""
    active = torch.empty_like(above)
    for column, threshold in enumerate(thresholds.unbind(dim=1)):
        found = torch.lt(negative, threshold[:, None], out=active if column else above)
        below[:, column] = found.sum(dim=1)
        if column:
            above += active


def _count_by_search(thresholds: Tensor, negative: Tensor, above: Tensor, below: Tensor) -> None:
    """The same counts from one binary search per negative."""
    ordered, order = thresholds.sort(dim=1)
    passed = torch.searchsorted(ordered, negative, right=True)  # thresholds that are not above
    torch.sub(thresholds.shape[1], passed, out=above)
    one = torch.ones((), dtype=above.dtype, device=above.device).expand_as(negative)
    stopped = torch.zeros(
        len(above), thresholds.shape[1] + 1, dtype=above.dtype, device=above.device
    )
    stopped.scatter_add_(1, passed, one)
    below.scatter_(1, order, stopped[:, :-1].cumsum(dim=1))
