"""Embedding Expansion: evenly spread points between the members of a pair (Ko and Gu, CVPR 2020)."""

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from vicinal.errors import ConfigError
from vicinal.geometry import unit_rows
from vicinal.losses.loss import Comparisons, Loss
from vicinal.synthesis.optimal_negatives import (
    Pairing,
    PositivePairs,
    checked,
    checked_batch,
    checked_pairing,
    hardest_of_points,
    pair_comparisons,
    positive_pairs,
    reduce_pairs,
)


class EmbeddingExpansion(nn.Module):
    """A loss over positive pairs, whose negatives are the nearest of a few points between their members.

        x_k = ((n + 1 - k) x_i + k x_j) / (n + 1),   k = 1 ... n,    put back on the sphere        Ko and Gu 2020

    Of two pairs of different classes, all (n + 2)² distances between their points, members among them, are looked at,
    and the smallest stands for both pairs: LoOp's exact minimum on a grid. Synthetic points serve as negatives only;
    positives are real, as in the paper. Without points (n = 0) it is the nearest of the four real distances.

    Differs: the paper pairs consecutive rows (``pairing="consecutive"``), and each member of a pair is an anchor of its
    own; a pair is one row here, as in ``OptimalNegatives``, so that the two differ in their points alone.

    Args:
        loss: as of ``OptimalNegatives``; on the sphere points are put on it, else (N-pair) they stay on the line.
        points: n; the paper's best is 2.
        pairing: as of ``OptimalNegatives``.
    """

    def __init__(self, loss: Loss, *, points: int = 2, pairing: Pairing = "all") -> None:
        super().__init__()
        if points < 0:
            raise ConfigError(f"points between the members of a pair are 0 or more, but points={points} came.")
        self.loss, self.points, self.pairing = checked(loss), points, checked_pairing(pairing)

    def comparisons(self, embeddings: Float[Tensor, "n d"], labels: Integer[Tensor, "n"]) -> Comparisons:
        """Each positive pair as a row; see ``pair_comparisons``."""
        embeddings = checked_batch(embeddings, labels)
        pairs = positive_pairs(labels, self.pairing, embeddings)
        negative = expanded_negatives(self.loss, embeddings, pairs, self.points)
        return pair_comparisons(self.loss, embeddings, labels, pairs, negative)

    def forward(
        self, embeddings: Float[Tensor, "n d"], labels: Integer[Tensor, "n"]
    ) -> Float[Tensor, ""] | Float[Tensor, "p"]:
        return reduce_pairs(self.loss, self.comparisons(embeddings, labels))


def expanded_negatives(
    loss: Loss, embeddings: Float[Tensor, "n d"], pairs: PositivePairs, points: int
) -> Float[Tensor, "p p"]:
    """The hardest that points of each pair and of every other pair are to ``loss``; their members are among them."""
    rows = unit_rows(embeddings) if loss.on_sphere else embeddings
    starts, ends = rows[pairs.first], rows[pairs.second]
    share = torch.linspace(0, 1, points + 2, dtype=rows.dtype, device=rows.device)[:, None, None]
    return hardest_of_points(loss, starts + share * (ends - starts))  # the loss puts them on its sphere
