"""Margin loss (Wu et al., ICCV 2017): positives inside a learnt boundary, negatives outside."""

from dataclasses import KW_ONLY, dataclass, replace

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn.functional import relu

from vicinal.arguments import Count
from vicinal.errors import DataError
from vicinal.losses.loss import Comparisons, Loss, Terms
from vicinal.tuples import Reference, Triplets


@dataclass(eq=False, repr=False)
class MarginLoss(Loss):
    """Margin loss (Wu et al. 2017): positives inside a learned boundary β - α, negatives outside β + α.

        l_ij = [α + y_ij (D_ij - β_i)]_+,  y_ij = 1 of a positive pair, -1 of a negative pair
        β_i  = β_0 + β_class(i)                                                            Wu et al. 2017

    with the Euclidean distance D on the unit sphere; the mean is over the pairs that cost something. β_0 and, with
    ``class_boundaries``, the class's deviation from it are parameters, to be given to the optimizer (the authors: rate
    5e-4). Explicit triplets without labels part at β_0.

    Differs: the paper learns one more deviation for each image, and may hold all of β down by ν Σ β.

    Args:
        class_boundaries: how many classes have a boundary of their own, labels 0 to ``class_boundaries - 1``; None: one
            boundary for all.
        margin: α.
        beta: where β_0 starts.
        squared: whether distances are squared.
        normalize: whether embeddings are put on the unit sphere first.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its pairs that cost.
    """

    class_boundaries: Count | None = None
    margin: float = 0.2
    beta: float = 1.2
    _: KW_ONLY
    squared: bool = False
    normalize: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        count = self.class_boundaries
        self.boundary = nn.Parameter(torch.tensor(float(self.beta)))
        self.deviations = None if count is None else nn.Parameter(torch.zeros(count))

    def comparisons(
        self, embeddings: Float[Tensor, "n d"], labels: Integer[Tensor, "n"], reference: Reference | None = None
    ) -> Comparisons:
        found = super().comparisons(embeddings, labels, reference)
        return replace(found, boundary=self.boundaries(labels))

    def triplet_comparisons(
        self, embeddings: Float[Tensor, "n d"], triplets: Triplets, labels: Integer[Tensor, "n"] | None = None
    ) -> Comparisons:
        found = super().triplet_comparisons(embeddings, triplets)
        return found if labels is None else replace(found, boundary=self.boundaries(labels[triplets.anchor]))

    def boundaries(self, labels: Integer[Tensor, "n"]) -> Float[Tensor, "n"]:
        """β of each class in ``labels``."""
        if self.deviations is None or not len(labels):
            return self.boundary.expand(len(labels))
        low, high = torch.stack(torch.aminmax(labels)).tolist()  # together: a device is waited for once
        last = len(self.deviations) - 1
        if low < 0 or high > last:
            raise DataError(
                f"a boundary is learnt for each of the classes 0 to {last}, got labels from {low} to {high}. "
                f"Raise `class_boundaries`, number the classes from 0, or leave it out."
            )
        return self.boundary + self.deviations[labels.long()]

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        boundary = (self.boundary[None] if c.boundary is None else c.boundary).to(c.negative.dtype)[:, None]
        pull, push = relu(self.margin + c.positive - boundary), relu(self.margin - c.negative + boundary)
        costing = ((pull > 0) & c.keep_positive).sum(dim=1) + ((push > 0) & c.keep_negative).sum(dim=1)
        return Terms(c.add_up(pull, push), costing.to(pull.dtype))
