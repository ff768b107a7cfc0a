"""Hierarchical triplet loss (Ge et al., ECCV 2018): all triplets of a batch, each with the margin of its classes."""

from dataclasses import replace

from jaxtyping import Float, Integer
from torch import Tensor

from vicinal.geometry import at_least_float32
from vicinal.losses.loss import Comparisons, Loss, distances
from vicinal.losses.reduction import Reduction, Terms, reduce
from vicinal.losses.triplet import TripletLoss


class HierarchicalTripletLoss(Loss):
    """HTL (Ge et al. 2018): all triplets of the batch, with a margin that depends on their two classes.

        L = 1/(2 Z) Σ_{(a, p, n)} [‖a - p‖² - ‖a - n‖² + α_z]_+,    α_z = β + d_H(y_a, y_n) - S_{y_a}     Ge et al. 2018

    Z is the number of triplets, l'm (l'm - 1) t (t - 1) t in a batch of l'm classes with t samples each. The margins
    come as numbers (``with_margins``): what class tree made them is not the loss's concern. Without them every α_z is
    ``margin``, as in the paper's first epoch, and the loss is one half of the mean over all triplets.

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
        super().__init__(reduction)
        self.margin, self.squared, self.normalize = margin, squared, normalize

    def compare(
        self, anchors: Float[Tensor, "n d"], others: Float[Tensor, "m d"] | Float[Tensor, "n m d"] | None = None
    ) -> Float[Tensor, "n m"]:
        return distances(anchors, others, squared=self.squared, normalize=self.normalize)

    def core(self, comparisons: Comparisons) -> Terms:
        sums, counts = TripletLoss(self.margin).core(comparisons)
        return Terms(sums / 2, counts)

    def with_margins(
        self, embeddings: Float[Tensor, "n d"], labels: Integer[Tensor, "n"], margins: Float[Tensor, "n n"]
    ) -> Float[Tensor, ""] | Float[Tensor, "n"]:
        """The loss of a batch with α_z of each anchor (row) and negative (column); no gradient flows to them."""
        found = self.comparisons(at_least_float32(embeddings), labels)
        # An own margin of each negative is a nearer negative: [d_p - (d_n + α - α_z) + α]_+
        nearer = found.negative + self.margin - margins.detach().to(found.negative.dtype)
        return reduce(self.core(replace(found, negative=nearer)), self.reduction)
