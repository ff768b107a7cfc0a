"""pytorch-metric-learning (Musgrave et al., 2020): our losses and miners where its own are called,
and its in ours.

    loss = LossForPML(BatchAllTripletLoss(0.2, normalize=True))
    miner = MinerForPML(partial(semi_hard, margin=0.2))
    loss(embeddings, labels, miner(embeddings, labels))               # as in its loops and trainers

    vicinal.train("pictures/", loss=FromPML(losses.AngularLoss(), miners.AngularMiner()))

A whole program runs after changing its import lines; `docs/howto/losses.md` lists every name of the
package:

    from vicinal.compat.pml import AccuracyCalculator, distances, losses, miners, reducers,
    samplers, testers

Nothing here imports the package: what it agrees on are call signatures and tuples of row numbers.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from vicinal.distances import at_least_float32
from vicinal.errors import ConfigError, DataError
from vicinal.losses import CrossBatchMemory, Loss
from vicinal.miners.batch import MinedPairs
from vicinal.tuples import (
    Embeddings,
    Pairs,
    Reference,
    SingleLabels,
    Triplets,
    other_class,
    same_class,
)

# Where the names of the package's own modules are found.
NAMESPACES = {"losses": "pml_losses", "distances": "pml_parts", "reducers": "pml_parts"}
NAMESPACES |= dict.fromkeys(("miners", "samplers", "testers", "AccuracyCalculator"), "pml_loop")
Indices = tuple[
    Tensor, ...
]  # (anchor, positive, negative), or (anchor, positive, anchor, negative)


def __getattr__(name: str) -> Any:
    """Import a part when it is first used (PEP 562): those modules import this one."""
    if name not in NAMESPACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"vicinal.compat.{NAMESPACES[name]}")
    return module.AccuracyCalculator if name == "AccuracyCalculator" else module


class LossForPML(nn.Module):
    """A loss of ours that is called as pytorch-metric-learning calls its own.

    Three columns of ``indices_tuple`` are explicit triplets, as in ``loss.on_triplets``. Four are
    positive and negative
    pairs: of the pairs that labels make, the loss then sees these, each once. With ``ref_emb``
        positives and negatives
    number reference rows. A loss with proxies takes neither.

    The package's own wrappers (``CrossBatchMemory``) ask for the names of the losses that they
    accept; derive from them and add ``"LossForPML"`` to ``supported_losses``.

    Args:
        loss: any loss of ``vicinal.losses``.
    """

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        if not isinstance(loss, Loss):
            raise ConfigError(
                f"LossForPML takes a loss of vicinal.losses, got a {type(loss).__name__}."
            )
        self.loss = loss

    def forward(
        self,
        embeddings: Embeddings,
        labels: SingleLabels | None = None,
        indices_tuple: Sequence[Tensor] | None = None,
        ref_emb: Float[Tensor, "m d"] | None = None,
        ref_labels: Integer[Tensor, "m"] | None = None,
    ) -> Float[Tensor, ""] | Float[Tensor, "rows"]:
        if ref_emb is embeddings:
            ref_emb = ref_labels = (
                None  # the batch as its own reference is how the package says that there is none
            )
        if indices_tuple is not None and not self.loss.takes_reference:
            raise ConfigError(
                f"{type(self.loss).__name__} does not compare rows: call it without "
                "`indices_tuple`."
            )
        if indices_tuple is not None and len(indices_tuple) == 3:
            return self._on_triplets(embeddings, Triplets(*indices_tuple), labels, ref_emb)
        if labels is None:
            raise DataError(
                "a loss needs `labels` or triplets, got neither. Give labels, or three columns."
            )
        if indices_tuple is None:
            return self.loss(embeddings, labels, ref_emb, ref_labels)  # type: ignore[no-any-return]
        if len(indices_tuple) != 4:
            raise DataError(
                "mined tuples have three columns (triplets) or four (pairs), got "
                f"{len(indices_tuple)}."
            )
        others = Reference.checked(embeddings, labels, ref_emb, ref_labels)
        return self.loss.on_pairs(
            embeddings, labels, Pairs(*indices_tuple[:2]), Pairs(*indices_tuple[2:]), others
        )

    def _on_triplets(
        self,
        embeddings: Tensor,
        triplets: Triplets,
        labels: Tensor | None,
        reference: Tensor | None,
    ) -> Tensor:
        if reference is not None:  # one table of rows, the batch first
            triplets = Triplets(triplets.anchor, *(len(embeddings) + rows for rows in triplets[1:]))
            labels = (
                None if labels is None else torch.cat([labels, labels.new_zeros(len(reference))])
            )
            embeddings = torch.cat([embeddings, reference])
        return self.loss.on_triplets(embeddings, triplets, None, labels)


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
        found = self.miner(embeddings, labels, reference=ref_emb, reference_labels=ref_labels)
        if isinstance(found, MinedPairs):
            self.num_pos_pairs, self.num_neg_pairs = (
                len(found.positive.anchor),
                len(found.negative.anchor),
            )
            return (*found.positive, *found.negative)
        self.num_triplets = len(found.anchor)
        return tuple(found)


class FromPML(nn.Module):
    """A loss of pytorch-metric-learning, with a miner or without, that is called as ours are.

    Its parameters are trained like those of any loss. Half precision is computed in float32.

    Args:
        loss: any loss of the package.
        miner: any miner of the package.
    """

    def __init__(self, loss: nn.Module, miner: Callable[..., Any] | None = None) -> None:
        super().__init__()
        if isinstance(loss, (Loss, CrossBatchMemory)):
            raise ConfigError(
                f"FromPML takes a loss of pytorch-metric-learning; {type(loss).__name__} needs no "
                "FromPML."
            )
        self.loss, self.miner = loss, miner

    def forward(
        self,
        embeddings: Embeddings,
        labels: SingleLabels,
        reference: Float[Tensor, "m d"] | None = None,
        reference_labels: Integer[Tensor, "m"] | None = None,
        own: Integer[Tensor, "n"] | None = None,
    ) -> Float[Tensor, ""]:
        """The loss of a batch; arguments as in ``Loss.forward``."""
        embeddings, labels = at_least_float32(embeddings), labels.long()
        if reference is None or reference_labels is None:
            mined = None if self.miner is None else self.miner(embeddings, labels)
            return self.loss(embeddings, labels, mined)  # type: ignore[no-any-return]
        reference, reference_labels = at_least_float32(reference), reference_labels.long()
        mined = (
            None
            if self.miner is None
            else self.miner(embeddings, labels, reference, reference_labels)
        )
        if own is not None:
            mined = without_own(mined, labels, reference_labels, own)
        return self.loss(embeddings, labels, mined, reference, reference_labels)  # type: ignore[no-any-return]


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
