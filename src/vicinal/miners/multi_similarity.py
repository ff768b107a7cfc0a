"""Multi-similarity mining: pairs no easier than the hardest pair of the other kind (Wang et al., CVPR 2019)."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from vicinal.distances import cosine_similarity
from vicinal.miners.candidates import check_shapes
from vicinal.tuples import Pairs, other_class, same_class


class MinedPairs(NamedTuple):
    """The positive and the negative pairs that mining leaves."""

    positive: Pairs
    negative: Pairs


@torch.no_grad()
def multi_similarity(
    embeddings: Float[Tensor, "n d"],
    labels: Integer[Tensor, "n"],
    epsilon: float = 0.1,
    *,
    reference: Float[Tensor, "m d"] | None = None,
    reference_labels: Integer[Tensor, "m"] | None = None,
    own: Integer[Tensor, "n"] | None = None,
) -> MinedPairs:
    """The pairs that the multi-similarity loss sees, by cosine similarity S.

    A negative stays if S + ε > min over positives, a positive if S - ε < max over negatives; where one kind is missing
    nothing stays of the other.

    Args:
        embeddings: the anchors; without a reference also what they are compared with.
        labels: class of each anchor.
        epsilon: ε.
        reference: rows to choose from instead of the batch; then the others of pairs are numbered among them.
        reference_labels: class of each reference row.
        own: where each anchor stands in the reference; None: nowhere.
    """
    check_shapes(embeddings, labels, reference, reference_labels)
    similarity = cosine_similarity(embeddings, reference)
    positive, negative = same_class(labels, reference_labels, own), other_class(labels, reference_labels)
    kept = informative(similarity, positive, similarity, negative, epsilon)
    return MinedPairs(*(Pairs(*mask.nonzero().unbind(dim=1)) for mask in kept))


def informative(
    positive: Float[Tensor, "n p"],
    keep_positive: Bool[Tensor, "n p"],
    negative: Float[Tensor, "n m"],
    keep_negative: Bool[Tensor, "n m"],
    epsilon: float,
) -> tuple[Bool[Tensor, "n p"], Bool[Tensor, "n m"]]:
    """Of the pairs that are there, those no easier than ``epsilon`` beyond the hardest pair of the other kind."""
    if not positive.shape[1] or not negative.shape[1]:
        return torch.zeros_like(keep_positive), torch.zeros_like(keep_negative)
    weakest = positive.masked_fill(~keep_positive, torch.inf).amin(dim=1, keepdim=True)
    strongest = negative.masked_fill(~keep_negative, -torch.inf).amax(dim=1, keepdim=True)
    # What is not easier, rather than what is harder: NaN is neither, and must reach the loss instead of a loss of 0.
    return keep_positive & ~(positive - epsilon >= strongest), keep_negative & ~(negative + epsilon <= weakest)
