"""Which loss stands behind a name of the tables, with which numbers.

A loss that is to stand in a table gets its name in ``LossName`` and its case in ``build_loss``, and every method of
``contender.py`` can be had over it. The type checker refuses a name that has no case.
"""

from typing import Literal, Protocol

import numpy as np
from torch import nn

from vicinal.errors import ConfigError
from vicinal.losses import (
    BatchAllTripletLoss,
    BatchHardTripletLoss,
    ContrastiveLoss,
    HardExemplarLoss,
    HierarchicalTripletLoss,
    HPHNLoss,
    LiftedStructureLoss,
    MarginLoss,
    NormalizedSoftmaxLoss,
    ProxyAnchorLoss,
    SemiHardTripletLoss,
    SoftTripleLoss,
    TripletLoss,
)
from vicinal.losses.neighborhood_variants import Neighborhoods, Renumbered, Variant
from vicinal.synthesis import Hardness, published_n_pair, published_triplet

LossName = Literal[
    "triplet",
    "n_pair",
    "contrastive",
    "margin",
    "batch_all",
    "semi_hard",
    "batch_hard",
    "hphn",
    "lifted_min",
    "hierarchical",
    "soft_margin",
    "hard_exemplar",
    "normalized_softmax",
    Variant,  # DANML and those beside it, whose numbers are the recipe's group ``anml``
    "proxy_anchor",
    "soft_triple",
]
Batches = Literal["classes", "pairs", "triplets", "episodes"]
_ONLY: dict[Batches, LossName] = {"pairs": "n_pair", "triplets": "triplet"}  # what they carry; the others, any


class NamedLoss(Protocol):
    """A loss by its name, the batches that carry it, and the numbers of all losses; it reads those that it has."""

    @property
    def loss(self) -> LossName: ...
    @property
    def batches(self) -> Batches: ...
    @property
    def margin(self) -> float: ...
    @property
    def contrastive_margin(self) -> float: ...
    @property
    def boundary(self) -> float: ...
    @property
    def temperature(self) -> float: ...


class LossSettings(Protocol):
    """What losses read of a recipe: the seed of proxies, the scale of published losses, and ANML's numbers."""

    @property
    def seed(self) -> int: ...
    @property
    def hdml(self) -> Hardness: ...
    @property
    def anml(self) -> Neighborhoods: ...


def build_loss(named: NamedLoss, labels: np.ndarray, dim: int, settings: LossSettings) -> nn.Module:
    """The loss that is meant; pairs and triplets carry the one of their papers, as it was published.

    Args:
        named: its name, batches and numbers.
        labels: of the training part; proxies stand for the classes among them and no others.
        dim: of the embeddings.
        settings: of the recipe.
    """
    name, scale, seed = named.loss, settings.hdml.scale, settings.seed
    if (only := _ONLY.get(named.batches, name)) != name:
        raise ConfigError(f"batches={named.batches} carry loss={only}, but {name} came.")
    known = tuple(np.unique(labels).tolist())
    match name:
        case "triplet" if named.batches == "triplets":
            return published_triplet(scale, margin=named.margin if scale == "relative" else None)
        case "triplet" if named.batches == "episodes":
            return TripletLoss(named.margin, blocks=True)
        case "triplet":
            return TripletLoss(named.margin, squared=False)
        case "n_pair" if named.batches == "pairs":
            return published_n_pair(scale, l2=settings.anml.l2, normalize=settings.anml.normalize)
        case "contrastive":
            return ContrastiveLoss(named.contrastive_margin, normalize=True)
        case "margin":
            return MarginLoss(margin=named.margin, beta=named.boundary)
        case "batch_all":
            return BatchAllTripletLoss(named.margin, normalize=True)
        case "semi_hard":
            return SemiHardTripletLoss(named.margin)
        case "batch_hard":
            return BatchHardTripletLoss(named.margin, normalize=True)
        case "hphn":
            return HPHNLoss(named.margin)
        case "lifted_min":
            return LiftedStructureLoss(named.margin, form="min")
        case "hierarchical":
            return HierarchicalTripletLoss(named.margin)
        case "soft_margin" | "hard_exemplar":
            return HardExemplarLoss(weighted=name == "hard_exemplar")
        case "normalized_softmax":
            return NormalizedSoftmaxLoss(len(known), dim, temperature=named.temperature, known=known, seed=seed)
        case "proxy_anchor":
            return Renumbered(ProxyAnchorLoss(len(known), dim, seed=seed), known)
        case "soft_triple":
            return Renumbered(SoftTripleLoss(len(known), dim, seed=seed), known)
        case _:
            return settings.anml.loss(name, labels.tolist(), dim, seed)
