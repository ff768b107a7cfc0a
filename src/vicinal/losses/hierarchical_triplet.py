"""Hierarchical triplet loss (Ge et al., ECCV 2018): all triplets of a batch, each with the margin of its classes."""

from dataclasses import replace

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from vicinal.distances import Euclidean
from vicinal.losses.loss import Comparisons, Loss, Reduction, Terms
from vicinal.losses.triplet import TripletLoss


class HierarchicalTripletLoss(Loss):
    """HTL (Ge et al. 2018): all triplets of the batch, with a margin that depends on their two classes.

        L = 1/(2 Z) Σ_{(a, p, n)} [‖a - p‖² - ‖a - n‖² + α_z]_+,    α_z = β + d_H(y_a, y_n) - S_{y_a}     Ge et al. 2018

    Z is the number of triplets, l'm (l'm - 1) t (t - 1) t in a batch of l'm classes with t samples each. The margins
    are set from a class tree (``set_margins``). Without them every α_z is ``margin``, as in the paper's first epoch,
    and the loss is one half of the mean over all triplets. Real negatives meet their margin α_z; a synthetic one
    (HDML), which lies between classes, meets ``margin``.

    Summed exactly through ``geometry.hinge_sums``, without listing triplets.

    Differs: the paper prints distances without squares, but d_H and S are squared distances, and the 1/2 is what goes
    with squares; ``squared=False`` is the print.

    Args:
        margin: α where no margins are given.
        squared: whether distances are squared.
        normalize: whether embeddings are put on the unit sphere first.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its triplets.
    """

    def __init__(
        self,
        margin: float = 0.2,
        *,
        squared: bool = True,
        normalize: bool = True,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(Euclidean(squared=squared, normalize=normalize), reduction)
        self.margin, self.squared, self.normalize = margin, squared, normalize
        self.place: Tensor
        self.levels: Tensor
        self.margins: Tensor
        self.spreads: Tensor
        for name, kind in (("place", torch.long), ("levels", torch.uint8), ("margins", None), ("spreads", None)):
            self.register_buffer(name, torch.empty(0, dtype=kind), persistent=False)  # follow from the tree

    def set_margins(
        self,
        classes: Integer[Tensor, "c"],
        levels: Integer[Tensor, "c c"],
        margins: Float[Tensor, "levels"],
        spreads: Float[Tensor, "c"],
    ) -> None:
        """Give each two classes a margin, α_z = ``margins[levels[a, n]] - spreads[a]``; no gradient flows to it.

        Args:
            classes: the labels, in the order of the other arguments.
            levels: at which level of a tree two classes merge.
            margins: β + d_H of each level.
            spreads: S of each class.
        """
        device = self.place.device
        place = torch.zeros(int(classes.max()) + 1, dtype=torch.int64)
        place[classes.cpu()] = torch.arange(len(classes))
        for name, value in (("place", place), ("levels", levels), ("margins", margins), ("spreads", spreads)):
            held = getattr(self, name)
            if held.shape == value.shape:
                held.copy_(value)  # in place: a CUDA graph reads it there
            else:
                setattr(self, name, value.to(device))

    def margins_of(
        self, labels: Integer[Tensor, "n"], others: Integer[Tensor, "m"] | None = None
    ) -> Float[Tensor, "n m"]:
        """Return α_z of each anchor (row) and negative (column)."""
        others = labels if others is None else others
        if not len(self.place):
            return torch.full((len(labels), len(others)), self.margin, device=labels.device)
        rows, columns = self.place[labels.long()], self.place[others.long()]
        return self.margins[self.levels[rows[:, None], columns].long()] - self.spreads[rows][:, None]

    def comparisons(
        self,
        embeddings: Float[Tensor, "n d"],
        labels: Integer[Tensor, "n"],
        reference: Float[Tensor, "m d"] | None = None,
        reference_labels: Integer[Tensor, "m"] | None = None,
        own: Integer[Tensor, "n"] | None = None,
    ) -> Comparisons:
        found = super().comparisons(embeddings, labels, reference, reference_labels, own)
        if not len(self.place):
            return found
        # An own margin of each negative is a nearer negative: [d_p - (d_n + α - α_z) + α]_+
        margins = self.margins_of(labels, reference_labels).to(found.negative.dtype)
        return replace(found, negative=found.negative + self.margin - margins)

    def core(self, comparisons: Comparisons) -> Terms:
        sums, counts = TripletLoss(self.margin).core(comparisons)
        return Terms(sums / 2, counts)
