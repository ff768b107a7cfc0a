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
from vicinal.losses import HierarchicalTripletLoss, Loss, TripletLoss
from vicinal.methods.ala_variants import TripletVariant, Variant, build_triplet_variant, build_variant
from vicinal.methods.hdml import HDML
from vicinal.methods.hierarchy import Hierarchy
from vicinal.methods.htl import HTL, TrainingEmbeddings
from vicinal.methods.htl_hdml import HTLHDML
from vicinal.methods.loop import LoOp
from vicinal.methods.method import Method
from vicinal.methods.named_loss import Batches, LossName, LossSettings, build_loss
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.plain import Plain, Sampler
from vicinal.models.embedder import Embedder
from vicinal.sampling import AnchorNeighbourSampler, EpisodeSampler, FittedSampler, NPairSampler, TripletSampler
from vicinal.synthesis import EmbeddingExpansion, OptimalNegatives

AlaName = Literal["ala", "constant", "random", "mlp", "hdml_ala"]
HtlName = Literal["htl", "htl_sampling", "htl_margin", "htl_hdml"]
Name = Literal["plain", "hdml", AlaName, "loop", "expansion", HtlName]
ALA_NAMES, HTL_NAMES = get_args(AlaName), get_args(HtlName)
_ON_EPISODES = {"triplet": get_args(TripletVariant), "contrastive": get_args(Variant), "margin": get_args(Variant)}


class Settings(LossSettings, Protocol):
    """What a contender reads of a recipe besides its own settings; a group that it does not use, it does not read."""

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
    def assessing(self) -> Assessing: ...
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
            loss = self._loss(embedder, train, settings)
            return Plain.optimised(embedder, loss, sampler, optimisation, epochs=epochs)
        core = self._tuple_loss(embedder, train, settings)
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

    def _loss(self, embedder: Embedder, train: Records, settings: Settings) -> nn.Module:
        return build_loss(self, train.labels, embedder.dim or embedder.width, settings)

    def _tuple_loss(self, embedder: Embedder, train: Records, settings: Settings) -> Loss:
        """The loss of a method that works on its tuples."""
        loss = self._loss(embedder, train, settings)
        if not isinstance(loss, Loss):
            raise ConfigError(f"{self.name} works on tuples, but {self.loss} compares with proxies and has none.")
        return loss

    def _on_episodes(self, embedder: Embedder, train: Records, settings: Settings) -> Method:
        sampler = EpisodeSampler(train.labels, disjoint=self.disjoint, seed=settings.seed)
        if self.name not in _ON_EPISODES.get(self.loss, ()):
            raise ConfigError(
                f"episodes carry triplet, contrastive and margin loss, and HDML over triplet alone, but {self.name} "
                f"over {self.loss} came."
            )
        loss = self._tuple_loss(embedder, train, settings)
        if isinstance(loss, TripletLoss):
            return build_triplet_variant(
                cast(TripletVariant, self.name),
                embedder,
                loss,
                sampler,
                settings.optimisation,
                settings.assessing,
                settings.hdml,
                labels=train.labels,
                epochs=settings.epochs,
                mean=self.weight,
                spread=self.spread,
                seed=settings.seed,
            )
        return build_variant(
            cast(Variant, self.name),
            embedder,
            TripletScoring(loss),
            sampler,
            settings.optimisation,
            settings.assessing,
            epochs=settings.epochs,
            mean=self.weight,
            spread=self.spread,
            seed=settings.seed,
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
