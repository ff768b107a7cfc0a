"""Any method over any loss, by name: what a table of results compares, on the same network, images and steps."""

from dataclasses import dataclass, replace
from typing import Literal, Protocol, cast, get_args

import numpy as np
from torch import nn

from vicinal.assessment.assessing import Assessing
from vicinal.assessment.scoring import TripletScoring
from vicinal.data.records import Records
from vicinal.data.transforms import Transform
from vicinal.errors import ConfigError
from vicinal.losses import (
    BatchAllTripletLoss,
    BatchHardTripletLoss,
    ContrastiveLoss,
    HardExemplarLoss,
    HierarchicalTripletLoss,
    HPHNLoss,
    LiftedStructureLoss,
    Loss,
    MarginLoss,
    NormalizedSoftmaxLoss,
    ProxyAnchorLoss,
    SemiHardTripletLoss,
    SoftTripleLoss,
    TripletLoss,
)
from vicinal.losses import neighborhood_variants as anml_variants
from vicinal.losses.neighborhood_variants import Neighborhoods, Renumbered
from vicinal.methods.ala_variants import TripletVariant, Variant, build_triplet_variant, build_variant
from vicinal.methods.hdml import HDML
from vicinal.methods.hierarchy import Hierarchy
from vicinal.methods.htl import HTL, TrainingEmbeddings
from vicinal.methods.htl_hdml import HTLHDML
from vicinal.methods.loop import LoOp
from vicinal.methods.method import Method
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.plain import Plain, Sampler
from vicinal.models.embedder import Embedder
from vicinal.sampling import AnchorNeighbourSampler, EpisodeSampler, FittedSampler, NPairSampler, TripletSampler
from vicinal.synthesis import EmbeddingExpansion, Hardness, OptimalNegatives, published_n_pair, published_triplet

Name = Literal[
    "plain",
    "hdml",
    "ala",
    "constant",
    "random",
    "mlp",
    "hdml_ala",
    "loop",
    "expansion",
    "htl",
    "htl_sampling",
    "htl_margin",
    "htl_hdml",
]
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
    "danml",
    "original",
    "multi_similarity",
    "circle",
    "lifted",
    "improved_lifted",
    "improved_n_pair",
    "proxy_nca",
    "improved_proxy_nca",
    "proxy_anchor",
    "soft_triple",
]
Batches = Literal["classes", "pairs", "triplets", "episodes"]
ALA_NAMES = ("ala", "constant", "random", "mlp", "hdml_ala")
HTL_NAMES = ("htl", "htl_sampling", "htl_margin", "htl_hdml")


class Settings(Protocol):
    """What a contender reads of a recipe besides its own settings; a group that it does not use, it does not read."""

    @property
    def seed(self) -> int: ...
    @property
    def epochs(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def skip_corrupt(self) -> bool: ...
    @property
    def transform(self) -> Transform: ...
    @property
    def optimisation(self) -> Optimisation: ...
    @property
    def hdml(self) -> Hardness: ...
    @property
    def assessing(self) -> Assessing: ...
    @property
    def anml(self) -> Neighborhoods: ...
    @property
    def tree(self) -> Hierarchy: ...


@dataclass(frozen=True)
class Contender:
    """A method by its name, over a loss by its name, on batches of a kind.

    The plain twin of a row has the same loss and batches and ``name="plain"``: it starts from the same network and,
    but for HTL's neighbourhoods, sees the same batches. All kinds of batches make an epoch of the same images.

    Attributes:
        name: ``plain``; ``hdml``; ``loop``, and ``expansion``, its rival; ``htl``, and its halves ``htl_sampling`` and
            ``htl_margin``; on episodes ``ala``, its controls ``constant``, ``random`` and ``mlp``, and ``hdml_ala``
            (there ``hdml`` is HDML on ALA's training subset); ``htl_hdml``.
        loss: of those that the batches can carry; ``hierarchical`` for HTL, ``lifted_min`` is LoOp's form of lifted,
            ``soft_margin`` the twin of ``hard_exemplar`` (HER).
        batches: ``classes``: P classes x K; ``pairs``: N pairs of N classes; ``triplets``: T triplets of 2T classes,
            disjoint and random as in the papers' baselines; ``episodes``: ALA's 50 + 10 pairs.
        classes: P.
        per_class: K.
        pairs: N.
        triplets: T.
        disjoint: whether no label comes twice in an episode; False is "random" of ALA's Table 1.
        margin: of triplet, margin, hinge and HTL losses.
        contrastive_margin: of contrastive loss.
        boundary: where margin loss's boundary starts.
        temperature: of normalised softmax.
        points: of Embedding Expansion.
        anchors: l' of HTL; its neighbourhoods have ``classes // anchors`` classes.
        weight: of ALA's controls ``constant`` and ``random``: what ``ala`` has on average.
        spread: standard deviation of ``random``, likewise.
    """

    name: Name = "plain"
    loss: LossName = "multi_similarity"
    batches: Batches = "classes"
    classes: int = 16
    per_class: int = 4
    pairs: int = 32
    triplets: int = 20
    disjoint: bool = True
    margin: float = 0.2
    contrastive_margin: float = 1.0
    boundary: float = 0.9
    temperature: float = 0.05
    points: int = 2
    anchors: int = 4
    weight: float = 0.48
    spread: float = 0.004

    def __post_init__(self) -> None:
        if (self.name in ALA_NAMES) != (self.batches == "episodes") and self.name not in ("plain", "hdml"):
            raise ConfigError(f"ALA and its controls train on episodes, but {self.name} on {self.batches} came.")
        if (self.name in HTL_NAMES) and (self.loss != "hierarchical" or self.batches != "classes"):
            raise ConfigError(f"{self.name} has loss=hierarchical on batches of classes, but {self.loss} came.")
        if self.name in ("loop", "expansion") and self.batches != "classes":
            raise ConfigError(f"{self.name} takes pairs out of batches of classes, but batches={self.batches} came.")

    def build(self, embedder: Embedder, train: Records, settings: Settings) -> Method:
        """The method for these training records; the embedder is drawn before, so that one seed gives all the same."""
        if self.batches == "episodes":
            return self._on_episodes(embedder, train, settings)
        if self.name in HTL_NAMES:
            return self._hierarchical(embedder, train, settings)
        sampler = self._sampler(train.labels, settings.seed)
        optimisation, epochs = settings.optimisation, settings.epochs
        if self.name == "plain":
            loss = self._any_loss(train.labels, embedder, settings)
            return Plain.optimised(embedder, loss, sampler, optimisation, epochs=epochs)
        core = self._tuple_loss(train.labels, embedder, settings)
        if self.name == "hdml":
            return HDML.optimised(
                embedder, core, sampler, optimisation, settings.hdml, labels=train.labels, epochs=epochs
            )
        synthesis = OptimalNegatives(core) if self.name == "loop" else EmbeddingExpansion(core, points=self.points)
        return LoOp.optimised(embedder, synthesis, sampler, optimisation, epochs=epochs)

    def _sampler(self, labels: np.ndarray, seed: int) -> Sampler:
        match self.batches:
            case "pairs":
                return NPairSampler(labels, classes=self.pairs, seed=seed)
            case "triplets":
                return TripletSampler(labels, triplets=self.triplets, seed=seed)
        return FittedSampler(labels, classes=self.classes, per_class=self.per_class, seed=seed)

    def _tuple_loss(self, labels: np.ndarray, embedder: Embedder, settings: Settings) -> Loss:
        """The loss of a method that works on its tuples."""
        loss = self._any_loss(labels, embedder, settings)
        if not isinstance(loss, Loss):
            raise ConfigError(f"{self.name} works on tuples, but {self.loss} compares with proxies and has none.")
        return loss

    def _any_loss(self, labels: np.ndarray, embedder: Embedder, settings: Settings) -> nn.Module:
        known = tuple(np.unique(labels).tolist())
        match self.loss, self.batches:
            case "triplet", "triplets":
                return published_triplet(
                    settings.hdml.scale, margin=self.margin if settings.hdml.scale == "relative" else None
                )
            case "n_pair", "pairs":
                return published_n_pair(settings.hdml.scale, l2=settings.anml.l2, normalize=settings.anml.normalize)
            case _, "pairs" | "triplets":
                kept = "n_pair" if self.batches == "pairs" else "triplet"
                raise ConfigError(f"batches={self.batches} carry loss={kept}, but {self.loss} came.")
            case "triplet", _:
                return TripletLoss(self.margin, squared=False)
            case "batch_all", _:
                return BatchAllTripletLoss(self.margin, normalize=True)
            case "batch_hard", _:
                return BatchHardTripletLoss(self.margin, normalize=True)
            case "semi_hard", _:
                return SemiHardTripletLoss(self.margin)
            case "hphn", _:
                return HPHNLoss(self.margin)
            case "lifted_min", _:
                return LiftedStructureLoss(self.margin, form="min")
            case "hierarchical", _:
                return HierarchicalTripletLoss(self.margin)
            case "soft_margin" | "hard_exemplar", _:
                return HardExemplarLoss(weighted=self.loss == "hard_exemplar")
            case "contrastive", _:
                return ContrastiveLoss(self.contrastive_margin, normalize=True)
            case "margin", _:
                return MarginLoss(margin=self.margin, beta=self.boundary)
            case "normalized_softmax", _:
                return NormalizedSoftmaxLoss(
                    len(known), _dim(embedder), temperature=self.temperature, known=known, seed=settings.seed
                )
            case "proxy_anchor", _:
                return Renumbered(ProxyAnchorLoss(len(known), _dim(embedder), seed=settings.seed), known)
            case "soft_triple", _:
                return Renumbered(SoftTripleLoss(len(known), _dim(embedder), seed=settings.seed), known)
        known_variant = cast(anml_variants.Variant, self.loss)  # all others have been named
        return settings.anml.loss(known_variant, labels.tolist(), _dim(embedder), settings.seed)

    def _on_episodes(self, embedder: Embedder, train: Records, settings: Settings) -> Method:
        sampler = EpisodeSampler(train.labels, disjoint=self.disjoint, seed=settings.seed)
        optimisation, assessing, epochs, seed = (
            settings.optimisation,
            settings.assessing,
            settings.epochs,
            settings.seed,
        )
        if self.loss == "triplet":
            return build_triplet_variant(
                cast(TripletVariant, self.name),
                embedder,
                TripletLoss(self.margin, blocks=True),
                sampler,
                optimisation,
                assessing,
                settings.hdml,
                labels=train.labels,
                epochs=epochs,
                mean=self.weight,
                spread=self.spread,
                seed=seed,
            )
        if self.loss not in ("contrastive", "margin") or self.name not in get_args(Variant):
            raise ConfigError(
                f"episodes carry triplet, contrastive and margin loss, and HDML over triplet alone, but {self.name} "
                f"over {self.loss} came."
            )
        return build_variant(
            cast(Variant, self.name),
            embedder,
            TripletScoring(self._tuple_loss(train.labels, embedder, settings)),
            sampler,
            optimisation,
            assessing,
            epochs=epochs,
            mean=self.weight,
            spread=self.spread,
            seed=seed,
        )

    def _hierarchical(self, embedder: Embedder, train: Records, settings: Settings) -> Method:
        embed = TrainingEmbeddings(
            train, settings.transform.evaluation(), settings.batch_size, skip_corrupt=settings.skip_corrupt
        )
        near = AnchorNeighbourSampler(
            train.labels,
            anchors=self.anchors,
            neighbourhood=self.classes // self.anchors,
            per_class=self.per_class,
            seed=settings.seed,
        )
        if self.name == "htl_hdml":
            return HTLHDML.optimised(
                embedder,
                near,
                embed,
                settings.optimisation,
                settings.hdml,
                settings.tree,
                margin=self.margin,
                labels=train.labels,
                epochs=settings.epochs,
            )
        return HTL.optimised(
            embedder,
            HierarchicalTripletLoss(self.margin),
            self._sampler(train.labels, settings.seed) if self.name == "htl_margin" else near,
            embed,
            settings.optimisation,
            replace(settings.tree, margins="fixed") if self.name == "htl_sampling" else settings.tree,
            epochs=settings.epochs,
        )


def _dim(embedder: Embedder) -> int:
    return embedder.dim or embedder.width
