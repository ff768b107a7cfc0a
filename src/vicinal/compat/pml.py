"""Our losses and miners in a loop written for pytorch-metric-learning (Musgrave et al., 2020), and
its losses in vicinal's methods.

    loss = LossForPML(BatchAllTripletLoss(0.2, normalize=True))
    miner = MinerForPML(partial(semi_hard, margin=0.2))
    loss(embeddings, labels, miner(embeddings, labels))               # as in its loops and trainers

    vicinal.train("pictures/", loss=FromPML(losses.AngularLoss(), miners.AngularMiner()))

A loss of the package keeps its own distance and reducer. Nothing here imports the package: what it
agrees on are call signatures and tuples of row numbers.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from vicinal.distances import at_least_float32
from vicinal.errors import ConfigError, DataError
from vicinal.losses import Loss
from vicinal.miners import MinedPairs
from vicinal.tuples import (
    Embeddings,
    Pairs,
    Reference,
    Scalar,
    SingleLabels,
    Triplets,
    other_class,
    same_class,
)

# (anchor, positive, negative), or (anchor, positive, anchor, negative)
Indices = tuple[Tensor, ...]


class LossForPML(nn.Module):
    """A loss of ours that is called as pytorch-metric-learning calls its own.

    Three columns of ``indices_tuple`` are explicit triplets, as in ``loss.on_triplets``. Four are
    positive and negative pairs: of the pairs that labels make, the loss then sees these, each once.
    With ``ref_emb`` positives and negatives number reference rows. A loss with proxies takes
    neither.

    The package's own wrappers (``CrossBatchMemory``) ask for the names of the losses that they
    accept; derive from them and add ``"LossForPML"`` to ``supported_losses``.

    Args:
        loss: any loss of ``vicinal.losses``.
    """

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss

    def forward(
        self,
        embeddings: Embeddings,
        labels: SingleLabels | None = None,
        indices_tuple: Sequence[Tensor] | None = None,
        ref_emb: Float[Tensor, "m d"] | None = None,
        ref_labels: Integer[Tensor, "m"] | None = None,
    ) -> Scalar | Float[Tensor, "rows"]:
        if ref_emb is embeddings:  # how the package says that there is no reference
            ref_emb = ref_labels = None
        if indices_tuple is not None and not self.loss.takes_reference:
            raise ConfigError(
                f"{type(self.loss).__name__} does not compare rows: call it without "
                "`indices_tuple`."
            )
        if indices_tuple is not None and len(indices_tuple) == 3:
            return self._on_triplets(embeddings, Triplets(*indices_tuple), labels, ref_emb)
        if labels is None:
            raise DataError("a loss needs `labels` or triplets, got neither.")
        if indices_tuple is None:
            return self.loss(embeddings, labels, ref_emb, ref_labels)
        others = Reference.checked(embeddings, labels, ref_emb, ref_labels)
        positive = Pairs(*indices_tuple[:2])
        negative = Pairs(*indices_tuple[2:])
        return self.loss.on_pairs(embeddings, labels, positive, negative, others)

    def _on_triplets(
        self,
        embeddings: Tensor,
        triplets: Triplets,
        labels: Tensor | None,
        reference: Tensor | None,
    ) -> Tensor:
        if reference is not None:  # one table of rows, the batch first
            triplets = Triplets(triplets.anchor, *(len(embeddings) + rows for rows in triplets[1:]))
            if labels is not None:  # only anchors' labels are read
                labels = torch.cat([labels, labels.new_zeros(len(reference))])
            embeddings = torch.cat([embeddings, reference])
        return self.loss.on_triplets(embeddings, triplets, labels)


class MinerForPML:
    """A miner of ours that is called as pytorch-metric-learning calls its own, and gives the
    columns it expects.

    Args:
        miner: a function of ``vicinal.miners``; settings and a generator are bound with
            ``functools.partial``.

    Attributes:
        num_triplets: how many triplets the last call gave.
        num_pos_pairs: how many positive pairs.
        num_neg_pairs: how many negative pairs.
    """

    def __init__(self, miner: Callable[..., Triplets | MinedPairs]) -> None:
        self.miner = miner
        self.num_triplets = self.num_pos_pairs = self.num_neg_pairs = 0

    def __call__(
        self,
        embeddings: Embeddings,
        labels: SingleLabels,
        ref_emb: Float[Tensor, "m d"] | None = None,
        ref_labels: Integer[Tensor, "m"] | None = None,
    ) -> Indices:
        if ref_emb is embeddings:
            ref_emb = ref_labels = None
        mined = self.miner(embeddings, labels, reference=ref_emb, reference_labels=ref_labels)
        if isinstance(mined, MinedPairs):
            self.num_pos_pairs = len(mined.positive.anchor)
            self.num_neg_pairs = len(mined.negative.anchor)
            return (*mined.positive, *mined.negative)
        self.num_triplets = len(mined.anchor)
        return tuple(mined)


class FromPML(nn.Module):
    """A loss of pytorch-metric-learning, with a miner or without, that is called as ours are.

    Its parameters are trained like those of any loss. Half precision is computed in float32.

    Args:
        loss: any loss of the package, with its own distance and reducer.
        miner: any miner of the package.
    """

    def __init__(self, loss: nn.Module, miner: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.loss = loss
        self.miner = miner

    def forward(
        self,
        embeddings: Embeddings,
        labels: SingleLabels,
        reference: Float[Tensor, "m d"] | None = None,
        reference_labels: Integer[Tensor, "m"] | None = None,
        own: Integer[Tensor, "n"] | None = None,
    ) -> Scalar:
        """The loss of a batch; arguments as in ``Loss.forward``."""
        embeddings = at_least_float32(embeddings)
        labels = labels.long()
        others: tuple[Tensor, ...] = ()
        if reference is not None and reference_labels is not None:
            others = at_least_float32(reference), reference_labels.long()
        mined = self.miner(embeddings, labels, *others) if self.miner is not None else None
        if others and own is not None:
            mined = without_own(mined, labels, others[1], own)
        return self.loss(embeddings, labels, mined, *others)


def without_own(
    mined: Sequence[Tensor] | None, labels: Tensor, reference_labels: Tensor, own: Tensor
) -> Indices:
    """Return mined columns, or all pairs, less those in which an anchor is its own positive."""
    if mined is None:
        allowed = same_class(labels, reference_labels, own), other_class(labels, reference_labels)
        return tuple(column for mask in allowed for column in mask.nonzero().unbind(dim=1))
    keep = mined[1] != own[mined[0]]
    if len(mined) == 3:
        return tuple(column[keep] for column in mined)
    return mined[0][keep], mined[1][keep], mined[2], mined[3]
