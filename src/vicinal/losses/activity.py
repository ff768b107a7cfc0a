"""How much of a batch still has something to teach."""

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from vicinal.geometry import hinge_sums, pairwise_distances, unit_rows
from vicinal.tuples import other_class, positives

AT_ONCE = 2**18  # comparisons that are made in one go; more are counted by sorting


@torch.no_grad()
def active_share(
    embeddings: Float[Tensor, "n d"],
    labels: Integer[Tensor, "n"],
    margin: float = 0.0,
    *,
    squared: bool = False,
    normalize: bool = True,
) -> Float[Tensor, ""]:
    """Share of the batch's triplets with d_an < d_ap + margin, exact, without listing them; 0 if there are none.

    With margin 0 it is the share of triplets in the wrong order, whatever loss is trained, and ``squared`` is of no
    concern.

    >>> active_share(torch.tensor([[0.0], [2.0], [1.0]]), torch.tensor([0, 0, 1]), normalize=False)
    tensor(1.)
    """
    distances = pairwise_distances(unit_rows(embeddings) if normalize else embeddings, squared=squared)
    return active_among(distances, labels, margin)


@torch.no_grad()
def active_among(distances: Float[Tensor, "n n"], labels: Integer[Tensor, "n"], margin: float) -> Float[Tensor, ""]:
    """``active_share`` of distances that are already there."""
    columns, keep_positive = positives(labels)
    keep_negative = other_class(labels)
    positive = distances.gather(1, columns)
    if positive.numel() * distances.shape[1] <= AT_ONCE:  # a handful of kernels, where a GPU would wait for the host
        farthest = distances.masked_fill(~keep_negative, torch.inf)
        active = ((farthest[:, None] < positive[:, :, None] + margin) & keep_positive[:, :, None]).sum(
            dtype=distances.dtype
        )
    else:
        active = hinge_sums(positive, distances, keep_positive, keep_negative, margin)[1].sum()
    triplets = (keep_positive.sum(dim=1) * keep_negative.sum(dim=1)).sum()
    return active / triplets.clamp(min=1)
