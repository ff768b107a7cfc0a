"""Proxies: learnt points that stand for classes, so that a sample meets every class in every batch."""

import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor, nn

from vicinal.distances import Distance, at_least_float32, unit_rows
from vicinal.errors import ConfigError, DataError
from vicinal.losses.loss import Comparisons, Loss, Reduction
from vicinal.tuples import Triplets, being_captured


def initial_proxies(*shape: int, seed: int) -> nn.Parameter:
    """Directions drawn evenly, of length 1, as the parameter that learns them.

    Their length is of no concern where they are normalised, but it sets how far a step of the optimiser turns them.
    """
    if min(shape) < 1:
        raise ConfigError(f"proxies need at least 1 class, 1 centre and 1 dimension, got {list(shape)}.")
    rng = torch.Generator().manual_seed(seed)
    return nn.Parameter(unit_rows(torch.randn(*shape, generator=rng)))


def beside(proxies: Float[Tensor, "*c d"], embeddings: Float[Tensor, "n width"]) -> Float[Tensor, "*c d"]:
    """The proxies in the precision in which embeddings are compared; raise an error if they cannot be."""
    if proxies.shape[-1] != embeddings.shape[-1]:
        raise DataError(
            f"proxies of {proxies.shape[-1]} dimensions cannot be compared with embeddings of {embeddings.shape[-1]}. "
            f"Give the loss the embedder's `dim`."
        )
    return proxies.to(at_least_float32(embeddings).dtype)


def columns_of(
    labels: Integer[Tensor, "n"], classes: int
) -> tuple[Int[Tensor, "n 1"], Bool[Tensor, "n 1"], Bool[Tensor, "n c"]]:
    """The column of each label's own class, that it is there, and the columns of all other classes.

    A device is waited for once: an index out of range there would end the process instead of raising an error. Only a
    step that is being recorded cannot wait.
    """
    if len(labels) and not being_captured(labels):
        least, most = (int(bound) for bound in labels.aminmax())
        if least < 0 or most >= classes:
            raise DataError(
                f"a loss with {classes} proxies takes labels from 0 to {classes - 1}, got labels from {least} to "
                f"{most}. Number the classes from 0, or raise `classes`."
            )
    own = labels.long()[:, None]
    others = torch.arange(classes, device=labels.device) != own
    return own, torch.ones_like(own, dtype=torch.bool), others


class ProxyLoss(Loss):
    """What losses with proxies share: the proxies, which labels they stand for, and what they cannot do.

    Args:
        classes: number of classes.
        dim: dimension of the embeddings.
        distance: between samples and proxies.
        known: the labels of the classes in increasing order; None for 0 to ``classes`` - 1.
        seed: seed of the initial proxies.
        reduction: as in ``torch.nn``.
        centers: number of proxies of each class; None for one, without an axis of its own.
    """

    takes_reference: bool = False

    def __init__(
        self,
        classes: int,
        dim: int,
        distance: Distance,
        *,
        known: tuple[int, ...] | None,
        seed: int,
        reduction: Reduction,
        centers: int | None = None,
    ) -> None:
        super().__init__(distance, reduction)
        if known is not None and (len(known) != classes or list(known) != sorted(set(known))):
            raise ConfigError(
                f"`known` names each of {classes} classes once, in growing order, got {len(known)} labels "
                f"({len(set(known))} different). Sort them and leave out repetitions."
            )
        self.classes, self.dim, self.known, self.seed = classes, dim, known, seed
        self.proxies = initial_proxies(*(classes, dim) if centers is None else (classes, centers, dim), seed=seed)
        self._labels: Tensor | None
        labels = None if known is None else torch.tensor(known)
        self.register_buffer("_labels", labels, persistent=False)  # follows from `known`

    def comparisons(
        self,
        embeddings: Float[Tensor, "n d"],
        labels: Integer[Tensor, "n"],
        reference: Float[Tensor, "m d"] | None = None,
        reference_labels: Integer[Tensor, "m"] | None = None,
        own: Integer[Tensor, "n"] | None = None,
    ) -> Comparisons:
        """Each sample with its own proxy as its positive and all others as its negatives."""
        if reference is not None:
            raise ConfigError(
                f"{type(self).__name__} compares samples with proxies, not with each other, so `reference` rows have "
                f"no meaning for it. Leave them out."
            )
        return self.with_proxies(embeddings, *columns_of(self.numbered(labels), self.classes))

    def with_proxies(
        self,
        embeddings: Float[Tensor, "n d"],
        column: Int[Tensor, "n 1"],
        there: Bool[Tensor, "n 1"],
        others: Bool[Tensor, "n c"],
    ) -> Comparisons:
        """Compare the embeddings with the proxies; the columns are those of ``columns_of``."""
        compared = self.distance(embeddings, beside(self.proxies, embeddings))
        return Comparisons(compared.gather(1, column), there, compared, others)

    def triplet_comparisons(
        self, embeddings: Float[Tensor, "n d"], triplets: Triplets, labels: Integer[Tensor, "n"] | None = None
    ) -> Comparisons:
        raise ConfigError(
            f"{type(self).__name__} compares samples with proxies, not with each other, so triplets have no meaning "
            f"for it. Use a loss over triplets, such as TripletLoss."
        )

    def numbered(self, labels: Integer[Tensor, "n"]) -> Integer[Tensor, "n"]:
        """Return the place of each label among the known ones."""
        if self._labels is None:
            return labels
        places = torch.searchsorted(self._labels, labels.long().contiguous()).clamp(max=self.classes - 1)
        strange = self._labels[places] != labels
        if being_captured(labels):
            return torch.where(strange, self.classes, places)  # out of range: ends the process rather than go wrong
        if bool(strange.any()):
            raise DataError(
                f"proxies stand for {self.classes} classes, got label {int(labels[strange][0])}, none of them. "
                f"Name every training class in `known`."
            )
        return places
