"""Batch-hard mining: the farthest positive and the nearest negative of each anchor (Hermans et al., 2017)."""

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from vicinal.miners.candidates import candidates, chosen, nothing
from vicinal.tuples import Triplets


def hardest(
    embeddings: Float[Tensor, "n d"],
    labels: Integer[Tensor, "n"],
    *,
    normalize: bool = True,
    reference: Float[Tensor, "m d"] | None = None,
    reference_labels: Integer[Tensor, "m"] | None = None,
    own: Integer[Tensor, "n"] | None = None,
) -> Triplets:
    """One triplet for each anchor that has both a positive and a negative (Hermans et al. 2017, Eq. (5)).

    Args:
        embeddings: the anchors; without a reference also what they are compared with.
        labels: class of each anchor.
        normalize: whether embeddings are put on the unit sphere first.
        reference: rows to choose from instead of the batch; then positives and negatives are numbered among them.
        reference_labels: class of each reference row.
        own: where each anchor stands in the reference; None: nowhere.

    >>> line, labels = torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([0, 0, 1])
    >>> [part.tolist() for part in hardest(line, labels, normalize=False)]
    [[0, 1], [1, 0], [2, 2]]
    """
    c = candidates(embeddings, labels, reference, reference_labels, own, normalize=normalize)
    if c.empty():
        return nothing(labels)
    farthest = c.positive.masked_fill(~c.keep_positive, -torch.inf).argmax(dim=1, keepdim=True)
    nearest = c.negative.masked_fill(~c.keep_negative, torch.inf).argmin(dim=1, keepdim=True)
    there = c.keep_positive.any(dim=1, keepdim=True) & c.keep_negative.any(dim=1, keepdim=True)
    return chosen(there, c.columns.gather(1, farthest), nearest)
