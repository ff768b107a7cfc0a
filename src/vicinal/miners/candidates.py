"""What miners choose from: how far each anchor is from its positives and from all that is not of its class."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor

from vicinal.distances import pairwise_distances, unit_rows
from vicinal.errors import DataError
from vicinal.tuples import Triplets, other_class, positives


class Candidates(NamedTuple):
    """Distances from each anchor, positives packed as ``tuples.positives`` packs them."""

    positive: Float[Tensor, "n p"]
    keep_positive: Bool[Tensor, "n p"]
    columns: Int[Tensor, "n p"]
    negative: Float[Tensor, "n m"]
    keep_negative: Bool[Tensor, "n m"]

    def empty(self) -> bool:
        """Whether there is no column at all to choose from."""
        return not self.positive.shape[1] or not self.negative.shape[1]


@torch.no_grad()
def candidates(
    embeddings: Tensor,
    labels: Tensor,
    reference: Tensor | None = None,
    reference_labels: Tensor | None = None,
    own: Tensor | None = None,
    *,
    squared: bool = False,
    normalize: bool,
) -> Candidates:
    """Distances of the anchors to the batch or to reference rows; arguments as miners take them, checked here."""
    check_shapes(embeddings, labels, reference, reference_labels)
    if normalize:
        embeddings, reference = unit_rows(embeddings), None if reference is None else unit_rows(reference)
    distances = pairwise_distances(embeddings, reference, squared=squared)
    columns, keep = positives(labels, reference_labels, own)
    return Candidates(distances.gather(1, columns), keep, columns, distances, other_class(labels, reference_labels))


def chosen(anchors: Bool[Tensor, "n k"], positive: Int[Tensor, "n k"], negative: Int[Tensor, "n k"]) -> Triplets:
    """The marked places of two tables of columns as triplets, in the order of the anchors."""
    anchor, place = anchors.nonzero().unbind(dim=1)
    return Triplets(anchor, positive[anchor, place], negative[anchor, place])


def nothing(labels: Integer[Tensor, "n"]) -> Triplets:
    """No triplet."""
    return Triplets(*labels.new_empty(3, 0, dtype=torch.long))


def check_shapes(embeddings: Tensor, labels: Tensor, reference: Tensor | None, reference_labels: Tensor | None) -> None:
    """One clear sentence here instead of a broadcasting error deep inside."""
    if embeddings.ndim != 2 or labels.shape != embeddings.shape[:1]:
        raise DataError(
            f"a miner takes embeddings [n d] and labels [n], but {list(embeddings.shape)} and {list(labels.shape)} "
            f"came. Give one label for each embedding."
        )
    if (reference is None) != (reference_labels is None):
        given = "reference" if reference is not None else "reference_labels"
        raise DataError(f"reference rows come with their labels, but only `{given}` was given. Give both or neither.")
