"""Who plays what in a batch's tuples: anchors, the rows their negatives come from, and their reference distances."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from vicinal.errors import ConfigError
from vicinal.geometry import pairwise_distances, row_distances
from vicinal.losses.loss import Loss, tuple_loss
from vicinal.synthesis.augmentor import Path, Reference, angles, reference_distances
from vicinal.tuples import positives, same_class


@dataclass(frozen=True)
class Roles:
    """Which rows of a batch are anchors, and which rows are the columns of a loss's negatives.

    Attributes:
        anchors: the rows that are anchors.
        columns: the rows that negatives come from.
        partners: where rows lie in blocks, each anchor's own positive; None: its positives are found by label.
        paired: whether anchor t meets column t alone, as in triplets ``[a; p; n]``; else each anchor meets all columns.
        chosen: of each anchor its own columns, where they are limited to the hardest.
    """

    anchors: slice
    columns: slice
    partners: slice | None = None
    paired: bool = False
    chosen: Integer[Tensor, "n k"] | None = None

    @classmethod
    def of(cls, loss: Loss, rows: int) -> "Roles":
        """The roles that a loss gives to the rows of a batch."""
        layout = loss.layout if getattr(loss, "blocks", False) else None
        if layout == "triplets":
            third = rows // 3
            return cls(slice(0, third), slice(2 * third, rows), slice(third, 2 * third), paired=True)
        if layout == "pairs":
            return cls(slice(0, rows // 2), slice(rows // 2, rows), slice(rows // 2, rows))
        return cls(slice(0, rows), slice(0, rows))

    def negatives(self, rows: Tensor, part: slice) -> Tensor:
        """What ``rows [b ...]`` hold for the negatives of some anchors: ``[n m ...]``, or ``[1 m ...]`` if shared."""
        found = rows[self.columns]
        if self.chosen is not None:
            return found[self.chosen[part]]
        return found[part, None] if self.paired else found[None]

    def unaltered(self, rows: Tensor) -> Tensor:
        """Those of ``rows [b ...]`` that stand in synthetic tuples as they are: all but the negatives of triplets."""
        return rows[: self.columns.start] if self.paired else rows

    def reference(
        self, embeddings: Float[Tensor, "b d"], labels: Integer[Tensor, "b"], path: Path, rule: Reference, fixed: float
    ) -> Float[Tensor, "n"]:
        """d⁺ of each anchor: the distance, on the arc the angle, of its positive pair or pairs."""
        if self.partners is not None:
            between = row_distances(embeddings[self.anchors], embeddings[self.partners], squared=False)
            if path == "arc":
                between = angles(embeddings[self.anchors], embeddings[self.partners])
            same = labels[self.anchors] == labels[self.partners]
            return reference_distances(between[:, None], same[:, None], rule=rule, fixed=fixed)
        if path == "arc":
            among = angles(embeddings[:, None], embeddings)
        else:
            among = pairwise_distances(embeddings, squared=False)
        return reference_distances(among, same_class(labels), rule=rule, fixed=fixed)

    def limited(self, embeddings: Float[Tensor, "b d"], labels: Integer[Tensor, "b"], hardest: int) -> "Roles":
        """The same with the ``hardest`` nearest negatives of each anchor as its only columns."""
        if self.paired:
            return self
        distances = self.distances(embeddings, labels)
        chosen = distances.topk(min(hardest, distances.shape[1]), dim=1, largest=False).indices
        return replace(self, chosen=chosen)

    @torch.no_grad()
    def distances(self, embeddings: Float[Tensor, "b d"], labels: Integer[Tensor, "b"]) -> Float[Tensor, "n m"]:
        """The distance of each anchor to its real negatives, infinite where a column is none."""
        anchors, columns = embeddings[self.anchors], embeddings[self.columns]
        if self.paired:
            found = row_distances(anchors, columns, squared=False)[:, None]
            other = (labels[self.anchors] != labels[self.columns])[:, None]
        else:
            found = pairwise_distances(anchors, columns, squared=False)
            other = labels[self.anchors, None] != labels[self.columns]
        return found.masked_fill(~other, torch.inf)

    def positives(self, labels: Integer[Tensor, "b"]) -> tuple[Integer[Tensor, "n p"], Bool[Tensor, "n p"]]:
        """The rows of each anchor's positives, in the order of a loss's comparisons, and which are there."""
        if self.paired and self.partners is not None:
            rows = torch.arange(self.partners.start, self.partners.stop, device=labels.device)
            return rows[:, None], (labels[self.anchors] == labels[self.partners])[:, None]
        if self.partners is None:
            return positives(labels)
        found = positives(labels[self.anchors], labels[self.columns])
        return found.columns + self.columns.start, found.keep


def checked(loss: nn.Module) -> Loss:
    """``loss`` itself, if it compares anchors with negatives that can be replaced by synthetic ones."""
    loss, name = tuple_loss(loss, "HDML"), type(loss).__name__
    if not loss.single_negatives:
        raise ConfigError(
            f"HDML makes negatives for one anchor, but {name} compares each negative with the middle of a pair. "
            f"Use n_pair, or lifted_structure for both members of a pair."
        )
    if loss.reduction == "none":
        raise ConfigError(f'HDML needs one number from {name}, but its reduction is "none". Use "mean" or "sum".')
    return loss
